"""Where else do a run's metrics go? To TensorBoard or Weights & Biases, where they are asked for.

`metrics.jsonl` is always written; a tracker is an extra, imported when it is opened.
"""

import numbers
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxfeat.run.provenance import present
from jaxfeat.types import UserError

PACKAGES = {"tensorboard": "tensorboardX", "wandb": "wandb"}
TRACKERS = tuple(PACKAGES)
Tracker = Callable[[Mapping[str, Any]], None]


def open_tracker(kind: str, folder: Path, *, name: str, config: Mapping[str, Any]) -> Tracker:
    """A function that takes a line of metrics; every number in it becomes a curve over `step`.

    Lists are given by their mean and, one by one, by their place (seeds).

    Args:
        kind: one of `TRACKERS`, or "" for none.
        folder: of the run; TensorBoard's files go to `folder/tensorboard`, those of Weights &
            Biases to `folder/wandb`.
        name, config: of the run.

    Raises:
        UserError: an unknown kind, or its package is missing.

    >>> open_tracker("", Path("."), name="a", config={})({"step": 1, "loss": 2.0})
    """
    check_tracker_kind(kind)
    if kind == "":
        return lambda line: None
    if kind == "wandb":
        import wandb  # pyright: ignore[reportMissingImports]

        run = wandb.init(dir=str(folder), name=name, config=dict(config), mode="offline")
        return lambda line: run.log(scalars(line), step=int(line["step"]))
    from tensorboardX import SummaryWriter  # pyright: ignore[reportMissingImports]

    writer = SummaryWriter(str(folder / "tensorboard"), max_queue=1, flush_secs=1)

    def write(line: Mapping[str, Any]) -> None:
        for key, value in scalars(line).items():
            writer.add_scalar(key, value, int(line["step"]))
        writer.flush()

    return write


def check_tracker_kind(kind: str) -> None:
    """Refuse a tracker that cannot be opened, before anything is written.

    Raises:
        UserError: an unknown kind, or its package is missing.
    """
    if kind not in ("", *TRACKERS):
        raise UserError(f"log: {kind!r} is unknown; valid: {', '.join(TRACKERS)}")
    if kind and not present(PACKAGES[kind]):
        raise UserError(
            f'--log {kind}: the package is missing; python -m pip install -e ".[{kind}]"'
        )


def scalars(line: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a line by name; texts in it stand before each name.

    >>> scalars({"variant": "myopic", "step": 3, "loss": [1.0, 2.0]})
    {'myopic/loss': 1.5, 'myopic/loss/0': 1.0, 'myopic/loss/1': 2.0}
    """
    before = "".join(f"{value}/" for value in line.values() if isinstance(value, str))
    found = {}
    for key, value in line.items():
        if isinstance(value, list | tuple) and value:
            found[before + key] = float(np.mean(value))
            found |= {f"{before}{key}/{n}": float(v) for n, v in enumerate(value)}
        elif isinstance(value, numbers.Real) and not isinstance(value, bool) and key != "step":
            found[before + key] = float(value)
    return found
