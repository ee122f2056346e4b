"""How does an interrupted run go on as if nothing had happened?

A checkpoint is a pytree (`Run`) at a number of updates done, with the config it belongs to. Orbax
writes it to a temporary folder that takes its name when it is whole; then the checksums of its
files are written beside it, and with them it counts. The last two are kept, of a ladder all.
"""

import hashlib
import json
import os
import shutil
from pathlib import Path

import jax
import numpy as np

from jaxfeat.io.atomic import replacing, uninterrupted
from jaxfeat.types import Tree, UserError

PREFIX = "step_"
SUMS = ".sha256.json"  # beside the checkpoint: file -> SHA-256; Orbax keeps no checksums
KEPT = 2


def save_checkpoint(
    folder: str | os.PathLike, step: int, value: Tree, *, kept: int | None = KEPT
) -> Path:
    """Write a checkpoint; of it and the earlier ones the last few are kept.

    Args:
        folder: where the checkpoints of one run stand; it is made if needed. Relative paths, `~`
            and spaces are fine.
        step: updates done.
        value: a pytree of arrays.
        kept: how many stay; None keeps all, as the ladder of a run does.

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
    _sums_of(path).unlink(missing_ok=True)
    with uninterrupted():
        with ocp.StandardCheckpointer() as saver:
            saver.save(path, arrays, force=True)
        with replacing(_sums_of(path)) as temporary:
            temporary.write_text(json.dumps(_sums(path), indent=1), encoding="utf-8")
    others = [old for old in saved_steps(folder) if old != step]
    for old in others[: 0 if kept is None else max(len(others) + 1 - kept, 0)]:
        gone = folder / f"{PREFIX}{old:08d}"
        _sums_of(gone).unlink()  # a half-deleted one does not count
        shutil.rmtree(gone)
    return path


def saved_steps(folder: str | os.PathLike) -> list[int]:
    """The steps of the whole checkpoints in a folder, ascending."""
    folder = _whole(folder)
    if not folder.is_dir():
        return []
    names = [p.name.removeprefix(PREFIX) for p in folder.iterdir() if p.name.startswith(PREFIX)]
    return sorted(int(n) for n in names if n.isdigit() and _sums_of(folder / (PREFIX + n)).exists())


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
    if _read_sums(path) != _sums(path):
        on = "go on from the one before" if len(steps) > 1 else "begin anew"
        raise UserError(f"{path} is damaged: its checksums differ; delete it to {on}")
    with ocp.StandardCheckpointer() as reader:
        if difference := _difference(_shapes(_items(reader.metadata(path))), like):
            raise UserError(f"{path} belongs to another config: {difference}")
        host = reader.restore(path, target)
    return jax.tree.unflatten(treedef, [host[name] for name in target])


def _numbered(value: Tree) -> dict[str, np.ndarray]:
    """Leaves under fixed names, so that the structure comes from code and not from disk."""
    return {f"{n:05d}": np.asarray(x) for n, x in enumerate(jax.tree.leaves(value))}


def _sums_of(path: Path) -> Path:
    """Where the checksums of a checkpoint stand."""
    return path.with_name(path.name + SUMS)


def _sums(path: Path) -> dict[str, str]:
    """SHA-256 of every file of a checkpoint, by its place in it."""
    files = sorted(p for p in path.rglob("*") if p.is_file())
    sha = lambda p: hashlib.sha256(p.read_bytes()).hexdigest()
    return {p.relative_to(path).as_posix(): sha(p) for p in files}


def _read_sums(path: Path) -> dict[str, str] | None:
    """The checksums as they were written; None if that file is damaged."""
    try:
        return json.loads(_sums_of(path).read_text(encoding="utf-8"))
    except ValueError:
        return None


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
