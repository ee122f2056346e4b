"""Does every file import only from floors below, and heavy packages only where and how it may?"""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
FLOORS = (
    ("types",),
    ("tree", "linear", "stats"),
    ("io",),
    ("nn",),
    ("models", "data"),
    ("grads",),
    ("train",),
    ("features", "corpus", "concepts"),
    ("report",),
    ("run",),
    ("experiments", "benchmarks"),
)
FLOOR_OF = {room: n for n, rooms in enumerate(FLOORS) for room in rooms}
# package: the rooms and files that may import it, and whether inside functions only
ONLY = {
    "flax": (("nn/modules.py", "models"), False),
    "optax": (("train", "features", "concepts", "grads/moments.py"), False),
    "orbax": (("train/checkpoint.py",), True),
    "datasets": (("data/text.py",), True),
    "matplotlib": (("report",), True),
    "ftfy": (("data/text_repair.py",), True),
    "tokenizers": (
        (
            "io/tokenizer.py",
            "io/gguf_tokenizer.py",
            "models/pretrained.py",
            "data/tokens.py",
            "experiments/tinystories_data.py",
        ),
        True,
    ),
    "safetensors": (("io/safetensors.py",), True),
    "gguf": (("io/gguf.py",), True),
    "huggingface_hub": (("models/hub.py", "data/text.py"), True),
    "conllu": (("data/conllu.py",), True),
    "rapidfuzz": (("features/contexts.py",), True),
    "spacy": (("data/spacy_tags.py",), True),
    "tensorboardX": (("run/trackers.py",), True),
    "wandb": (("run/trackers.py",), True),
    "torch": ((), True),
    "sklearn": ((), True),
    "transformers": ((), True),
}
LAZY = ("pyarrow", "tyro", "tqdm", "scipy")
VAGUE = {"util", "utils", "helper", "helpers", "common", "manager", "misc"}


class Import(NamedTuple):
    """One imported name, `a.b.c`, and whether it is imported when the file is."""

    name: str
    line: int
    at_once: bool


def imports_of(path):
    """Every import of a file; those in functions or under TYPE_CHECKING are not at once."""
    found = []

    def visit(node, at_once):
        if isinstance(node, ast.Import):
            found.extend(Import(alias.name, node.lineno, at_once) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            found.extend(
                Import(f"{node.module}.{alias.name}", node.lineno, at_once) for alias in node.names
            )
        for child in ast.iter_child_nodes(node):
            in_function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            typing_only = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
            visit(child, at_once and not in_function and not typing_only)

    visit(ast.parse(path.read_text()), True)
    return found


def place_of(path):
    """A file's path inside the package, or with its top folder for experiments."""
    inside = path.relative_to(ROOT)
    return inside.relative_to("jaxfeat") if inside.parts[0] == "jaxfeat" else inside


def room_of(path):
    """The room that a file stands in."""
    return place_of(path).parts[0].removesuffix(".py")


def target_of(name):
    """The file of ours that an imported name leads to, or None."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        base = ROOT.joinpath(*parts[:end])
        for path in (base.with_suffix(".py"), base / "__init__.py"):
            if path.is_file():
                return path
    return None


FILES = [
    path for top in ("jaxfeat", "experiments", "benchmarks") for path in (ROOT / top).rglob("*.py")
]
LIBRARY = [path for path in FILES if path.is_relative_to(ROOT / "jaxfeat")]
IMPORTS = {path: imports_of(path) for path in FILES}
PACKAGE = ROOT / "jaxfeat" / "__init__.py"


def said(path, found):
    """Where an import stands, for a message."""
    return f"{path.relative_to(ROOT)}:{found.line} imports {found.name}"


def test_every_file_has_a_floor():
    """A room that the design does not name has no place."""
    rooms = {room_of(path) for path in FILES if path != PACKAGE}
    assert rooms <= set(FLOOR_OF), rooms - set(FLOOR_OF)
    assert not IMPORTS[PACKAGE]


def test_imports_go_down():
    """Only from lower floors or the own folder; nothing below imports experiments."""
    wrong = []
    for path in FILES:
        for found in IMPORTS[path]:
            target = target_of(found.name)
            if target is None or PACKAGE in (path, target):
                continue
            own = target.parent == path.parent or room_of(target) == room_of(path)
            if not own and FLOOR_OF[room_of(target)] >= FLOOR_OF[room_of(path)]:
                wrong.append(said(path, found))
            if room_of(path) == "types":
                wrong.append(f"{said(path, found)}: types is the lowest")
    assert not wrong


def test_no_circles():
    """Files import each other in one direction, lazy imports included."""
    graph = {
        path: {target_of(found.name) for found in IMPORTS[path]} - {None, PACKAGE, path}
        for path in FILES
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError([str(p.relative_to(ROOT)) for p in error.args[1]]) from None


@pytest.mark.parametrize("package", ONLY)
def test_packages_have_their_place(package):
    """Only the named rooms or files import it, and only inside functions where that is said."""
    places, lazily = ONLY[package]
    wrong = []
    for path in LIBRARY:
        place = place_of(path).as_posix()
        allowed = any(place == p or place.startswith(f"{p}/") for p in places)
        for found in IMPORTS[path]:
            if found.name.split(".")[0] == package and (not allowed or (lazily and found.at_once)):
                wrong.append(said(path, found))
    assert not wrong


@pytest.mark.parametrize("package", LAZY)
def test_slow_packages_are_lazy(package):
    """Inside functions only."""
    wrong = [
        said(path, found)
        for path in LIBRARY
        for found in IMPORTS[path]
        if found.at_once and found.name.split(".")[0] == package
    ]
    assert not wrong


def test_figures_are_drawn_in_one_room():
    """Experiments leave drawing to the report."""
    wrong = [
        said(path, found)
        for path in FILES
        for found in IMPORTS[path]
        if room_of(path) == "experiments" and found.name.startswith("matplotlib")
    ]
    assert not wrong


def test_names_say_something():
    """No file or folder is called after what anything could be."""
    parts = {
        word
        for path in FILES
        for part in path.relative_to(ROOT).with_suffix("").parts
        for word in part.lower().split("_")
    }
    assert not parts & VAGUE


def test_reader_sees_what_is_lazy(tmp_path):
    """The reading itself: functions and TYPE_CHECKING are lazy, classes and ifs are not."""
    file = tmp_path / "some.py"
    file.write_text(
        "import a.b\nfrom c import d\n"
        "if TYPE_CHECKING:\n    import e\n"
        "try:\n    import f\nexcept ImportError:\n    pass\n"
        "class C:\n    import g\n    def h(self):\n        import i\n"
    )
    found = {i.name: i.at_once for i in imports_of(file)}
    assert found == {"a.b": True, "c.d": True, "e": False, "f": True, "g": True, "i": False}
