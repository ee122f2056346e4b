"""How do the ledgers of a run's seeds reach the disk while it trains, and come back?

At steps of a ladder all seeds' sums are copied into one file each; at the end they become one
ledger a seed and kind: of the optimiser's steps ("adam"), and of what is measured beside
(`Tracker.also`).
"""

import os
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np

from jaxfeat.grads.ledger import SUMS, Ledger, load_ledger, make_ledger, save_ledger
from jaxfeat.grads.track import node_resid
from jaxfeat.io.arrays import load_arrays, save_arrays
from jaxfeat.train.loop import Tracked, Watch
from jaxfeat.types import Tree


def save_snapshot(place: Path, step: int, watch: Watch, params: Tree, tracked: Tracked) -> None:
    """A copy of all seeds' ledger sums and of the residuals at this step."""
    resid = jax.jit(jax.vmap(lambda p: node_resid(watch.tracker, p, watch.held)))
    arrays = {"resid": resid(params)} | tracked.sums._asdict()
    for kind, sums in tracked.also.items():
        arrays |= {f"{kind}_{name}": x for name, x in sums._asdict().items()}
    save_arrays(place / f"{step}.npz", arrays)


def write_ledgers(
    place: Path, ladder: Sequence[int], watch: Watch, folder: Path, name: str
) -> None:
    """One ledger a seed and kind out of the copies at these steps.

    Args:
        place: where `save_snapshot` left them. ladder: their steps.
        folder, name: the files are `folder/NAME-KIND-SEED.npz`. Plain gradient steps ("sgd") keep
            the first and the last step alone.
    """
    nodes = watch.tracker.plan.nodes
    copies = [load_arrays(place / f"{step}.npz") for step in ladder]
    mask = np.asarray(watch.held.mask)[:, [i for _, i in nodes]].T
    folder.mkdir(exist_ok=True)
    for kind in ("adam", *watch.tracker.also):
        before = "" if kind == "adam" else f"{kind}_"
        kept = [ladder[0], ladder[-1]] if kind == "sgd" else list(ladder)
        for s in range(copies[0]["resid"].shape[0]):
            mine = [
                {"resid": copy["resid"][s]} | {n: copy[before + n][s] for n in SUMS}
                for step, copy in zip(ladder, copies, strict=True)
                if step in kept
            ]
            save_ledger(make_ledger(nodes, kept, mask, mine), folder / f"{name}-{kind}-{s}.npz")


def load_ledgers(
    folder: str | os.PathLike, name: str, seeds: int, kind: str = "adam"
) -> list[Ledger]:
    """The ledgers of a run's seeds, of the optimiser's steps or of another kind."""
    return [load_ledger(Path(folder) / f"{name}-{kind}-{s}.npz") for s in range(seeds)]
