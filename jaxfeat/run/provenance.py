"""Where does a result come from: which code, versions, device, precision, seed and data?"""

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

PACKAGES = (
    "jaxfeat", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy", "datasets",
    "tokenizers", "ftfy", "conllu",
)  # fmt: skip


def collect(
    config: Mapping[str, Any], *, seed: int | None = None, data_hash: str | None = None
) -> dict[str, Any]:
    """Everything needed to find out how a result was made, as a dict for JSON.

    Starts JAX's backend. Holds no user name and no path of a home folder.

    Args:
        config: the resolved settings; their hash is stored.
        seed: of the run.
        data_hash: of the data that it read.

    Returns:
        started_utc, command, seed, data_hash, config_hash, git (commit, dirty; None outside a
        checkout), versions, device (platform, kind, count), matmul_precision, float_width (bits of
        the default float), xla_flags, system.
    """
    import jax

    devices = jax.devices()
    coded = json.dumps(config, sort_keys=True, default=str).encode()
    return {
        "started_utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": hide_home(command_line()),
        "seed": seed,
        "data_hash": data_hash,
        "config_hash": hashlib.sha256(coded).hexdigest(),
        "git": git_state(),
        "versions": versions(),
        "device": {
            "platform": devices[0].platform,
            "kind": devices[0].device_kind,
            "count": len(devices),
        },
        "matmul_precision": getattr(jax.config, "jax_default_matmul_precision", None) or "default",
        "float_width": 64 if getattr(jax.config, "jax_enable_x64", False) else 32,
        "xla_flags": hide_home(os.environ.get("XLA_FLAGS", "")),
        "system": f"{platform.system()} {platform.machine()}",
    }


def present(package: str) -> bool:
    """Whether a package could be imported; it is not imported."""
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return False


def versions() -> dict[str, str | None]:
    """Python's version and those of the packages that decide the numbers; None if absent."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def git_state() -> dict[str, Any] | None:
    """The commit of the checkout that this package runs from and whether it has local changes.

    None where the package was installed without its checkout, or git is missing.
    """
    here = Path(__file__).resolve()
    if _git(here.parent, "ls-files", "--error-unmatch", here.name) is None:
        return None
    commit = _git(here.parent, "rev-parse", "HEAD")
    changed = _git(here.parent, "status", "--porcelain", "--untracked-files=no")
    return {"commit": commit, "dirty": bool(changed)} if commit else None


def command_line() -> str:
    """The command that started this process, ready for a shell, with a bare `python`."""
    return shlex.join(["python", *sys.orig_argv[1:]])


def hide_home(text: str) -> str:
    """The text with home folders written as `~`.

    >>> hide_home("--data /home/ada/games --out /data/x")
    '--data ~/games --out /data/x'
    """
    home = str(Path.home())
    if len(home) > 1:
        text = re.sub(re.escape(home) + r"(?=[/\s'\"]|$)", "~", text)
    return re.sub(r"(?<![\w.~-])/(?:home|Users)/[^/\s'\"]+", "~", text)


def _git(folder: Path, *arguments: str) -> str | None:
    """The output of one read-only git command; None if it fails."""
    command = ["git", "--no-optional-locks", *arguments]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
