"""What does a run leave behind, and may this run write there?

A result folder holds `config.json`, `provenance.json`, `metrics.jsonl` and what the experiment
adds. A folder with the first two is a run; nothing else is ever replaced or continued.
"""

import dataclasses
import difflib
import enum
import json
import math
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxfeat.io.atomic import replacing
from jaxfeat.run import provenance
from jaxfeat.types import UserError

CONFIG, PROVENANCE, METRICS = "config.json", "provenance.json", "metrics.jsonl"


def open_folder(
    path: str | os.PathLike,
    *,
    config: Mapping[str, Any],
    resume: bool = False,
    overwrite: bool = False,
    keep_old: bool = False,
) -> Path:
    """Make the result folder of a run, or open the one that is to be continued.

    Nothing on disk changes unless the run may start: a new folder appears complete, with
    `config.json` and `provenance.json`, and an overwritten one is first moved aside.

    Args:
        path: the folder; `~`, relative and spaced paths are fine.
        config: the resolved settings, as `jaxfeat.run.cli.config_dict` gives them.
        resume: continue the run in the folder; its settings must be the same.
        overwrite: replace the run in the folder.
        keep_old: leave the replaced run aside until `forget_old` or `undo_open`.

    Returns:
        The absolute path.

    Raises:
        UserError: the folder is taken, is no run, is one level off, has other settings, or cannot
            be written; the message names the flag to change.
    """
    if resume and overwrite:
        raise UserError("--resume and --overwrite exclude each other: give one of them")
    try:
        folder = Path(path).expanduser().resolve()
        _check_place(folder)
        old = _aside(folder, "old")
        if old.exists() and not folder.exists():  # killed while it was being replaced
            os.replace(old, folder)
        settings = plain(config)[0]
        if resume:
            _check_same(folder, settings)
            started = provenance.collect(settings, seed=settings.get("seed"))
            del started["data_hash"]  # that of the run
            record = read_json(folder / PROVENANCE)
            record.setdefault("resumed", []).append(started)
            write_json(folder / PROVENANCE, record)
            forget_old(folder)
        else:
            _replace(folder, settings, overwrite)
            if not keep_old:
                forget_old(folder)
    except RuntimeError as error:
        raise UserError(f"--out {path}: {error}") from None  # the ~ of an unknown user
    except OSError as error:
        raise UserError(f"--out {path}: cannot be written ({error.strerror})") from None
    return folder


def undo_open(folder: Path) -> bool:
    """Take back `open_folder(keep_old=True)` if the run has written nothing; tells whether."""
    if {child.name for child in folder.iterdir()} != {CONFIG, PROVENANCE}:
        forget_old(folder)
        return False
    shutil.rmtree(folder)
    if (old := _aside(folder, "old")).exists():
        os.replace(old, folder)
    return True


def forget_old(folder: Path) -> None:
    """Delete the run that this one has replaced."""
    shutil.rmtree(_aside(folder, "old"), ignore_errors=True)


def is_run(folder: Path) -> bool:
    """Whether a folder was made by `open_folder`."""
    return (folder / CONFIG).is_file() and (folder / PROVENANCE).is_file()


def add_provenance(folder: Path, **fields: Any) -> None:
    """Add fields that are known later, such as `data_hash`, to `provenance.json`."""
    write_json(folder / PROVENANCE, read_json(folder / PROVENANCE) | fields)


def add_seconds(folder: Path, seconds: float) -> None:
    """Add how long the run took, or its last continuation."""
    record = read_json(folder / PROVENANCE)
    (record.get("resumed") or [record])[-1]["seconds"] = round(seconds, 3)
    write_json(folder / PROVENANCE, record)


def append_metrics(folder: Path, values: Mapping[str, Any]) -> None:
    """Add one line to `metrics.jsonl`: strict JSON, NaN and infinities as null, and their count.

    Args:
        folder: the result folder.
        values: name -> number, text or array; `step` (optimiser updates done) makes it resumable.
    """
    with open(folder / METRICS, "a", encoding="utf-8") as handle:
        handle.write(json.dumps(_counted(values), allow_nan=False, ensure_ascii=False) + "\n")


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The lines of `metrics.jsonl` in order; a last line cut off by an interruption is left out.

    Raises:
        UserError: a line before the last one is not JSON.
    """
    path = folder / METRICS
    raw = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    records = []
    lines = raw.split("\n")
    for number, line in enumerate(lines[:-1], 1):  # whole lines end in a newline
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            raise UserError(f"{path}: line {number} is not JSON") from None
    return records


def truncate_metrics(folder: Path, step: int, **where: Any) -> int:
    """Drop the lines after the restored step, and a torn last line, before a run goes on.

    Args:
        folder: the result folder.
        step: optimiser updates done at the restored checkpoint.
        where: only lines with these values are dropped, such as `variant="myopic"`.

    Returns:
        How many whole lines were dropped. Lines without a step stay.
    """
    records = read_metrics(folder)
    later = lambda r: r.get("step") is not None and r["step"] > step
    kept = [r for r in records if not (later(r) and where.items() <= r.items())]
    if (folder / METRICS).exists():
        with replacing(folder / METRICS) as temporary:
            lines = [json.dumps(r, allow_nan=False, ensure_ascii=False) + "\n" for r in kept]
            temporary.write_text("".join(lines), encoding="utf-8")
    return len(records) - len(kept)


def write_json(path: str | os.PathLike, value: Any) -> Path:
    """Write strict, sorted JSON atomically; a dict that held NaN gains a `nonfinite` count.

    >>> import tempfile
    >>> file = write_json(Path(tempfile.mkdtemp()) / "a.json", {"loss": float("nan")})
    >>> read_json(file)
    {'loss': None, 'nonfinite': 1}
    """
    value = _counted(value) if isinstance(value, Mapping) else plain(value)[0]
    with replacing(path) as temporary:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False, indent=2, sort_keys=True)
        temporary.write_text(text + "\n", encoding="utf-8")
    return Path(path)


def read_json(path: str | os.PathLike) -> Any:
    """The value of a JSON file.

    Raises:
        UserError: there is no such file, or it is not JSON.
    """
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"no file at {path}") from None
    except ValueError:
        raise UserError(f"{path} is not JSON") from None


def plain(value: Any) -> tuple[Any, int]:
    """The value out of JSON's types only, and how many numbers became null as not finite.

    >>> plain({"a": np.float32(0.5), "b": (1, float("inf"))})
    ({'a': 0.5, 'b': [1, None]}, 1)
    """
    if isinstance(value, enum.Enum):
        return value.name, 0
    if value is None or isinstance(value, bool | int | str):
        return value, 0
    if isinstance(value, float):
        return (value, 0) if math.isfinite(value) else (None, 1)
    if isinstance(value, Path):
        return value.as_posix(), 0
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()  # type: ignore[union-attr]
    if isinstance(value, Mapping):
        pairs = {str(key): plain(item) for key, item in value.items()}
        return {k: v for k, (v, _) in pairs.items()}, sum(n for _, n in pairs.values())
    if isinstance(value, list | tuple):
        items = [plain(item) for item in value]
        return [v for v, _ in items], sum(n for _, n in items)
    if hasattr(value, "__array__"):
        array = np.asarray(value)
        array = array.astype(np.float32) if array.dtype.kind == "V" else array  # bfloat16
        if array.dtype.kind in "biufU":
            return plain(array.tolist())
    raise TypeError(f"{type(value).__name__} cannot be stored as JSON")


def _replace(folder: Path, settings: dict[str, Any], overwrite: bool) -> None:
    """Put a new run in the folder's place; what stood there is moved aside."""
    taken = folder.exists() and any(folder.iterdir())
    if taken:
        _check_taken(folder, overwrite)
    started = provenance.collect(settings, seed=settings.get("seed"))
    new, old = _aside(folder, "new"), _aside(folder, "old")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    try:
        write_json(new / CONFIG, settings)
        write_json(new / PROVENANCE, started)
        if taken:
            shutil.rmtree(old, ignore_errors=True)
            os.replace(folder, old)
        elif folder.exists():
            folder.rmdir()
        os.replace(new, folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _counted(values: Mapping[str, Any]) -> dict[str, Any]:
    """The plain dict with a `nonfinite` count if there is anything to count."""
    kept, lost = plain(values)
    return kept | {"nonfinite": lost} if lost else kept


def _aside(folder: Path, kind: str) -> Path:
    """The hidden neighbour of a folder that is being made ("new") or replaced ("old")."""
    return folder.with_name(f".{folder.name}.{kind}")


def _check_place(folder: Path) -> None:
    """A `UserError` where no folder can be made, or where it would lie inside a run."""
    if not folder.name:
        raise UserError(f"--out {folder}: choose a folder below it")
    for parent in folder.parents:
        if is_run(parent):
            raise UserError(f"--out {folder} lies inside the run {parent}: did you mean that one?")
    there = next(p for p in (folder, *folder.parents) if p.exists())
    if not there.is_dir():
        raise UserError(f"--out {folder}: the file {there} is in the way; choose another --out")
    holder = folder.parent if there == folder else there
    for place in {there, holder}:
        if not os.access(place, os.W_OK | os.X_OK):
            raise UserError(f"--out {folder}: {place} is read-only; choose another --out")


def _check_taken(folder: Path, overwrite: bool) -> None:
    """A `UserError` unless the folder is a run that may be replaced."""
    if not is_run(folder):
        if runs := _runs_in(folder):
            raise UserError(
                f"--out {folder} holds the runs {_some(runs)}; name one of them or a new folder"
            )
        raise UserError(
            f"--out {folder} is not empty and is no result folder; choose another --out"
        )
    if not overwrite:
        raise UserError(
            f"--out {folder} already holds a run: --resume continues it, --overwrite replaces it"
        )
    if folder in (Path.cwd(), *Path.cwd().parents):
        raise UserError(f"--overwrite: you are inside {folder}; go to another folder first")


def _check_same(folder: Path, settings: dict[str, Any]) -> None:
    """A `UserError` unless the folder is a run with these settings."""
    if not is_run(folder):
        if folder.is_dir() and (runs := _runs_in(folder)):
            raise UserError(f"--resume: {folder} is no run but holds {_some(runs)}; name one")
        near = difflib.get_close_matches(folder.name, _runs_in(folder.parent), n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UserError(f"--resume: there is no run at {folder}{hint}")
    stored = read_json(folder / CONFIG)
    changed = list(_differences(stored, settings))
    if changed:
        raise UserError(
            f"--resume: the run in {folder} has other settings (stored -> now): {_some(changed)}"
        )


def _differences(old: Any, new: Any, name: str = ""):
    """`field: old -> new` for every leaf that differs."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            inner = f"{name}.{key}" if name else key
            yield from _differences(old.get(key, "absent"), new.get(key, "absent"), inner)
    elif old != new:
        yield f"{name}: {old} -> {new}"


def _runs_in(folder: Path) -> list[str]:
    """The names of the runs directly inside a folder."""
    if not folder.is_dir():
        return []
    return sorted(c.name for c in folder.iterdir() if c.name[0] != "." and is_run(c))


def _some(items: list[str], most: int = 8) -> str:
    """The first few, and how many more."""
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(items[:most]) + more
