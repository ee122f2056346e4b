"""How does an interrupted run go on as if nothing had happened?

A checkpoint is a pytree (`Run`) at a number of updates done, with the config it belongs to. Orbax
writes it to a temporary folder that takes its name when it is whole; only the last two are kept.
"""

import contextlib
import gc
import hashlib
import logging
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np

from jaxfeat.types import Tree, UserError

PREFIX = "step_"
KEPT = 2
DIGEST = "sha256"  # of all arrays: the files below hold no checksums of their own


def save_checkpoint(folder: str | os.PathLike, step: int, value: Tree) -> Path:
    """Write a checkpoint and drop all but this one and the last of the others.

    Args:
        folder: where the checkpoints of one run stand; it is made if needed. Relative paths, `~`
            and spaces are fine.
        step: updates done.
        value: a pytree of arrays.

    Raises:
        UserError: a negative step, or a folder that cannot be made.
    """
    import orbax.checkpoint as ocp

    if step < 0:
        raise UserError(f"step: {step} given, updates done (0 or more) needed")
    folder = _whole(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"no checkpoints can be written in {folder}: {error.strerror}") from None
    path = folder / f"{PREFIX}{step:08d}"
    arrays = _numbered(value)
    if any(x.dtype.hasobject for x in arrays.values()):
        raise UserError("value: a pytree of arrays of numbers needed")
    with ocp.StandardCheckpointer() as saver:
        saver.save(path, arrays | {DIGEST: _digest(arrays)}, force=True)
    others = [old for old in saved_steps(folder) if old != step]
    for old in others[: max(len(others) + 1 - KEPT, 0)]:
        gone = folder / f"old_{old:08d}"  # a half-deleted one must not pass for whole
        (folder / f"{PREFIX}{old:08d}").rename(gone)
        shutil.rmtree(gone)
    return path


def saved_steps(folder: str | os.PathLike) -> list[int]:
    """The steps of the whole checkpoints in a folder, ascending."""
    folder = _whole(folder)
    if not folder.is_dir():
        return []
    names = [p.name.removeprefix(PREFIX) for p in folder.iterdir() if p.name.startswith(PREFIX)]
    return sorted(int(name) for name in names if name.isdigit())


def restore_checkpoint(folder: str | os.PathLike, like: Tree, step: int | None = None) -> Tree:
    """Read a checkpoint back with the types of `like` (named tuples stay named tuples).

    Args:
        like: a pytree of arrays or shapes, as saved.
        step: by default the last whole one.

    Raises:
        UserError: no checkpoint here, none of this step, or one of another shape.
    """
    import orbax.checkpoint as ocp

    folder = _whole(folder)
    steps = saved_steps(folder)
    if not steps:
        raise UserError(f"no checkpoint in {folder}{_hint(folder)}")
    step = steps[-1] if step is None else step
    if step not in steps:
        raise UserError(f"no checkpoint of step {step} in {folder}; there are {steps}")
    leaves, treedef = jax.tree.flatten(like)
    target = {f"{n:05d}": jax.ShapeDtypeStruct(x.shape, x.dtype) for n, x in enumerate(leaves)}
    path = folder / f"{PREFIX}{step:08d}"
    target[DIGEST] = jax.ShapeDtypeStruct((32,), np.uint8)
    with _quiet(), ocp.StandardCheckpointer() as reader:
        try:
            stored = _shapes(_items(reader.metadata(path)))
        except Exception as error:  # whatever the file formats below raise
            raise _damaged(path, error, len(steps)) from None
        stored.pop(DIGEST, None)
        if difference := _difference(stored, like):
            raise UserError(f"{path} belongs to another config: {difference}")
        try:
            host = reader.restore(path, target)
        except Exception as error:
            raise _damaged(path, error, len(steps)) from None
    kept = np.asarray(host.pop(DIGEST))
    if not np.array_equal(kept, _digest({name: np.asarray(x) for name, x in host.items()})):
        error = ValueError("its values are not those that were saved")
        raise _damaged(path, error, len(steps))
    target.pop(DIGEST)
    return jax.tree.unflatten(treedef, [host[name] for name in target])


def _numbered(value: Tree) -> dict[str, np.ndarray]:
    """Leaves under fixed names, so that the structure comes from code and not from disk."""
    return {f"{n:05d}": np.asarray(x) for n, x in enumerate(jax.tree.leaves(value))}


def _digest(arrays: dict[str, np.ndarray]) -> np.ndarray:
    """SHA-256 of named arrays, as bytes."""
    found = hashlib.sha256()
    for name in sorted(arrays):
        found.update(name.encode())
        found.update(np.ascontiguousarray(arrays[name]).tobytes())
    return np.frombuffer(found.digest(), np.uint8)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Orbax logs what goes wrong; here it is said once, in the error."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)


def _items(metadata) -> dict:
    """The array metadata by name, whatever wrapper Orbax puts around it."""
    tree = getattr(metadata, "item_metadata", metadata)
    return dict(getattr(tree, "tree", tree))


def _shapes(arrays: dict) -> dict[str, str]:
    """Each array's type and shape in words."""
    return {k: f"{np.dtype(v.dtype)}{list(v.shape)}" for k, v in arrays.items()}


def _difference(stored: dict[str, str], like: Tree) -> str:
    """The first array that is not as in `like`, with its name there; empty where all agree."""
    leaves = jax.tree_util.tree_leaves_with_path(like)
    if len(stored) != len(leaves):
        return f"it holds {len(stored)} arrays, {len(leaves)} are needed"
    wanted = _shapes({f"{n:05d}": x for n, (_, x) in enumerate(leaves)})
    for (path, _), (name, shape) in zip(leaves, wanted.items(), strict=True):
        if stored.get(name) != shape:
            where = jax.tree_util.keystr(path)
            return f"{where} is {stored.get(name)} there, {shape} is needed"
    return ""


def _damaged(path: Path, error: Exception, count: int) -> UserError:
    """What is said of a checkpoint whose files cannot be read."""
    first = (str(error).strip().splitlines() or [""])[0][:120]
    _forget(error)
    on = "go on from the one before" if count > 1 else "begin anew"
    return UserError(f"{path} is damaged ({first}); delete it to {on}")


def _forget(error: Exception) -> None:
    """Let go of what a failed read holds now: at exit its threads would print tracebacks."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        error.__traceback__ = error.__context__ = error.__cause__ = None
        gc.collect()
    finally:
        sys.unraisablehook = hook


def _whole(folder: str | os.PathLike) -> Path:
    """An absolute path: Orbax refuses relative ones."""
    return Path(os.path.expanduser(folder)).absolute()


def _hint(folder: Path) -> str:
    """Say so where the path is one level off."""
    if folder.name.startswith(PREFIX) and saved_steps(folder.parent):
        return f": this is one checkpoint; give its folder {folder.parent}"
    if folder.is_dir():
        below = [p.name for p in sorted(folder.iterdir()) if p.is_dir() and saved_steps(p)]
        if below:
            return f": its folders {', '.join(below)} hold some; give one of them"
    return ""
