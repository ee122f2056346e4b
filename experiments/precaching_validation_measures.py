"""What does ablating a probe's direction do to the next prediction and to later ones, and Q of it?

At a node a probe w reads f = w . (r - rbar) of the residual. Two ablations take it out,

    along w:    r <- r - f w / |w|^2        the pattern:    r <- r - f Cov(r, f) / Var(f)

(the second takes out all that f explains of the residual: Haufe et al. 2014; along a ridge probe w,
which reads directions of little variance, next to nothing goes). Beside them the whole r - rbar is
taken out, as a measure of what there is to lose. All positions to the end of a sequence count.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from experiments.precaching_validation_models import Models, Seed
from jaxfeat.features.effects import Effects, Jobs, make_effects
from jaxfeat.features.sampled import Sampled, all_features, make_sampler
from jaxfeat.features.score import precaching_scores
from jaxfeat.grads.ledger import influence
from jaxfeat.types import Array

ABLATIONS = ("along w", "pattern")  # the first axis of what is told of Q
SCORES = ("q", "low", "high", "mean_of_ratios", "own", "later", "contexts")
PACK = 4  # ablations side by side: more of them are slower on a CPU
DRAWS = 1000  # of the bootstrap over sequences


class Given(NamedTuple):
    """Edits by number: of every node F along w, F of patterns, then the whole residual."""

    mean: Array  # [R, D]
    read: Array  # [R, D]
    carrier: Array  # [R, D]
    whole: Array  # [R] booleans


class Programs(NamedTuple):
    """Compiled once for all seeds of a task, by layer."""

    effects: dict[int, Callable]
    sample: dict[int, Callable]


def make_programs(models: Models, draws: int) -> Programs:
    """The programs of every layer whose nodes later positions can read."""
    first = min(i for _, i in models.nodes)
    span = models.batch.token.shape[1] - first
    layers = sorted({k for k, _ in models.nodes if k < models.decoder.layers})
    return Programs(
        {k: make_effects(models.decoder, k, _edit, span=span, pack=PACK) for k in layers},
        {k: make_sampler(models.decoder, k, span=span, draws=draws) for k in layers},
    )


def measure(
    models: Models, seed: Seed, programs: Programs, sequences: int, key: Array
) -> dict[str, np.ndarray]:
    """One row for every node and feature of a model.

    Args:
        sequences: held-out sequences that features are ablated in, half of them from each half of
            those that the ledger was kept on.

    Returns:
        Columns `[rows]`; of Q by ablation, `[2, rows]`; `half_q` by half of the sequences too,
        `[2, 2, rows]`. Nodes after the last block, where nothing is precached, are left out.
    """
    edits, reads = _edits(seed)
    told = _influences(seed)
    parts = []
    for k, effects in programs.effects.items():
        mine = [m for m, (layer, _) in enumerate(models.nodes) if layer == k]
        jobs = _jobs(models, seed, mine, _chosen(len(models.batch.token), sequences))
        found = _scores(models, mine, jobs, effects(seed.params, models.batch, jobs, edits))
        sample = programs.sample[k]
        found["estimate"] = _estimates(models, seed, mine, jobs, edits, reads, sample, key)
        flat = lambda x: np.asarray(x).reshape(*x.shape[:-2], -1)
        node = np.repeat(np.array([models.nodes[m] for m in mine]), len(models.names), axis=0)
        parts.append(
            {
                "layer": node[:, 0],
                "position": node[:, 1],
                "feature": models.names * len(mine),
                "skill": np.full(len(node), seed.skill),
            }
            | {name: flat(x[..., mine, :]) for name, x in told.items()}
            | {name: flat(x) for name, x in found.items()}
        )
    return {name: np.concatenate([part[name] for part in parts], axis=-1) for name in parts[0]}


def _scores(models: Models, mine: list[int], jobs: Jobs, done: Effects) -> dict[str, np.ndarray]:
    """Q and what it is made of, `[2, nodes, F]`, of some nodes; `half_q` `[2, 2, nodes, F]`."""
    features = len(models.names)
    count = len(models.nodes) * (2 * features + 1)

    def score(some: np.ndarray, draws: int) -> dict[str, np.ndarray]:
        part = Effects(done.kl[some], done.counted[some])
        told = precaching_scores(part, jobs.feature[some], count, draws=draws)._asdict()
        return {name: x.reshape(len(models.nodes), -1)[mine] for name, x in told.items()}

    split = lambda x: x[:, :-1].reshape(len(mine), 2, features).swapaxes(0, 1)
    late = jobs.sequence >= len(models.batch.token) // 2
    all_of = score(np.ones_like(late), DRAWS)
    whole = np.stack([all_of[name][:, -1:] for name in ("own", "later")])
    return {name: split(all_of[name]) for name in SCORES} | {
        "half_q": np.stack([split(score(side, 1)["q"]) for side in (~late, late)]),
        "whole": np.broadcast_to(whole, (2, len(mine), features)),
    }


def _estimates(models, seed, mine, jobs, edits, reads, sample, key) -> np.ndarray:
    """Q from gradients, `[2, nodes, F]`, in the same sequences."""
    features = len(models.names)
    asked = jobs.feature % (2 * features + 1) == 0  # each place once
    sequence, position = jobs.sequence[asked], jobs.position[asked]
    drawn = sample(seed.params, models.batch, sequence, position, key)
    found = np.full((2, len(mine), features), np.nan)
    for n, m in enumerate(mine):
        here = position == models.nodes[m][1]
        part, f = Sampled(*(x[here] for x in drawn)), reads[m][sequence[here]]
        for a in range(2):
            first = m * (2 * features + 1) + a * features
            told = all_features(part, f, edits.carrier[first : first + features])
            own, later = np.asarray(told.own), np.asarray(told.later)
            np.divide(later, own, out=found[a, n], where=own > 0)
    return found


def _influences(seed: Seed) -> dict[str, np.ndarray]:
    """Integrated influence `[n, F]`, centred; uncentred; `[2, n, F]` by half of the sequences."""
    whole = influence(seed.ledger, seed.w)
    plain = influence(seed.ledger, seed.w, centred=False)
    names = ("direct", "precached", "shared", "decay", "scale", "fall", "remainder")
    told = {name: np.asarray(getattr(whole, name)) for name in names}
    halves = [influence(seed.ledger, seed.w, half=h) for h in (0, 1)]
    for name in ("direct", "precached"):
        told[f"uncentred_{name}"] = np.asarray(getattr(plain, name))
        told[f"half_{name}"] = np.stack([getattr(h, name) for h in halves])
    return told


def _edits(seed: Seed) -> tuple[Given, np.ndarray]:
    """What every edit needs, and f of every sequence, `[n, E, F]`."""
    w, ledger = seed.w.astype(np.float64), seed.ledger
    weight = ledger.mask / np.maximum(ledger.mask.sum(axis=1, keepdims=True), 1)
    resid = ledger.resid[-1].astype(np.float64)
    mean = np.einsum("ne,ned->nd", weight, resid)
    x = (resid - mean[:, None]) * ledger.mask[..., None]
    reads = np.einsum("nfd,ned->nef", w, x)
    over = lambda top, size: np.divide(
        top, size[..., None], out=np.zeros_like(top), where=size[..., None] > 0
    )
    along = over(w, np.sum(w * w, axis=-1))
    spread = np.einsum("ne,nef,nef->nf", weight, reads, reads)
    pattern = over(np.einsum("ne,nef,ned->nfd", weight, reads, x), spread)
    last = np.zeros_like(w[:, :1])  # of the whole residual
    rows = lambda *parts: jnp.asarray(np.concatenate(parts, axis=1), jnp.float32)
    flat = lambda table: table.reshape(-1, w.shape[-1])
    count = 2 * w.shape[1] + 1
    given = Given(
        flat(rows(np.repeat(mean[:, None], count, axis=1))), flat(rows(w, w, last)),
        flat(rows(along, pattern, last)), jnp.arange(len(w) * count) % count == count - 1,
    )  # fmt: skip
    return given, reads.astype(np.float32)


def _edit(given: Given, edit: Array, resid: Array) -> Array:
    """What one edit adds to the residual `[D]`."""
    x = resid - given.mean[edit]
    return -jnp.where(given.whole[edit], x, (given.read[edit] @ x) * given.carrier[edit])


def _chosen(examples: int, sequences: int) -> np.ndarray:
    """So many sequences, half of them from each half of all."""
    half = min(sequences // 2, examples // 2)
    return np.concatenate([np.arange(half), examples // 2 + np.arange(half)])


def _jobs(models: Models, seed: Seed, mine: list[int], chosen: np.ndarray) -> Jobs:
    """Every edit of some nodes in every chosen sequence that is real there."""
    count = 2 * len(models.names) + 1
    parts = []
    for m in mine:
        rows = chosen[seed.ledger.mask[m, chosen]]
        sequence, edit = (x.ravel() for x in np.meshgrid(rows, np.arange(count), indexing="ij"))
        parts.append((sequence, np.full(sequence.size, models.nodes[m][1]), m * count + edit))
    return Jobs(*map(np.concatenate, zip(*parts)))
