"""What all tests share: `--golden PATH`, the fixture `golden`, one compilation cache."""

import gc
import os
import tempfile
from pathlib import Path

# Else every program out of the cache brings a line about hints that no machine has as features.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import jax
import pytest

# Doctests leave `builtins._` set, and tyro reads it while it is first imported.
import tyro  # noqa: F401

MOST_MAPPINGS = 20_000


def pytest_addoption(parser):
    parser.addoption(
        "--golden",
        metavar="PATH",
        type=Path,
        help="check this whole golden folder instead of the extracts in tests/golden",
    )


def pytest_configure(config):
    folder = config.getoption("golden")
    if folder is not None and not folder.is_dir():
        raise pytest.UsageError(f"--golden: {folder} is not a folder")
    # An entry that another process is still writing cannot be read: the program is compiled then.
    config.addinivalue_line("filterwarnings", "ignore:Error (reading|writing) persistent comp")
    share_compilations()
    gc.set_threshold(100_000, 20, 100)  # traced programs are many objects that stay


def share_compilations():
    """Keep compiled programs between runs, unless JAX_COMPILATION_CACHE_DIR names a folder.

    And compile them without optimisation: they are small, run seldom, and compile twice as fast.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if "xla_backend_optimization_level" not in flags:  # read when the backend starts
        os.environ["XLA_FLAGS"] = f"{flags} --xla_backend_optimization_level=0".strip()
    if not jax.config.jax_compilation_cache_dir:
        user = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "")
        folder = Path(tempfile.gettempdir()) / f"jaxfeat-tests-{user}-jax{jax.__version__}"
        jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def pytest_runtest_teardown(item, nextitem):
    """Forget compiled programs between modules before the kernel refuses to map more of them.

    Each is a few mappings of memory, of which Linux allows a process 65,530; beyond them it ends
    without a word. The folder of compilations keeps the programs.
    """
    if nextitem is not None and nextitem.path != item.path and mappings() > MOST_MAPPINGS:
        jax.clear_caches()
        gc.collect()


def mappings():
    """How many mappings of memory this process has; 0 where the system does not tell."""
    try:
        with open("/proc/self/maps", "rb") as lines:
            return sum(1 for _ in lines)
    except OSError:
        return 0


def pytest_collection_modifyitems(items):
    """The longest files first, so that the workers end together."""
    items.sort(key=lambda item: "experiments" not in item.path.name)


def golden_folder(config):
    """The folder that holds the golden files of this run."""
    return config.getoption("golden") or Path(__file__).parent / "golden"


def pytest_generate_tests(metafunc):
    """`golden` is each file that the patterns in the module's GOLDEN find in the folder."""
    if "golden" not in metafunc.fixturenames:
        return
    folder = golden_folder(metafunc.config)
    files = sorted(file for pattern in metafunc.module.GOLDEN for file in folder.glob(pattern))
    cases = [pytest.param(f, id=f.stem, marks=_marks(metafunc, f)) for f in files]
    metafunc.parametrize("golden", cases)


def _marks(metafunc, file):
    """Files in the module's SLOW are slow, unless a whole golden folder is checked."""
    whole = metafunc.config.getoption("golden") is not None
    return (
        pytest.mark.slow if not whole and file.stem in getattr(metafunc.module, "SLOW", ()) else ()
    )


def pytest_report_collectionfinish(config, items):
    """A line that names what the golden folder holds and no collected test reads."""
    folder = config.getoption("golden")
    if folder is None:
        return []
    read = {
        value
        for item in items
        for value in getattr(item, "callspec", item).__dict__.get("params", {}).values()
        if isinstance(value, Path)
    }
    unread = []
    for kind in sorted(path for path in folder.iterdir() if path.is_dir()):
        inside = sorted(kind.iterdir())
        left = [f"{kind.name}/{path.name}" for path in inside if path not in read]
        unread += [f"{kind.name}/"] if left and len(left) == len(inside) else left
    return [f"golden: left out, no collected test reads: {', '.join(unread)}"] if unread else []
