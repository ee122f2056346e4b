"""What did each component build into a representation? One run answers for every feature.

A ledger holds sums over training of how each component moved the residual stream at the nodes, on
a fixed held-out set E. For a feature direction w at a node, with r* the residuals of any later
checkpoint and `e_b = w . (r_b - r*_b)`,

    R(theta) = 1/2 Var_b(e)            influence  I_c = sum over windows of Cov_b(e, w . rdot_c)

(uncentred: `1/2 mean e^2` and `mean(e w . rdot_c)`; arXiv 2603.14087, Def. 3.3, where R is read on
training batches). Both are quadratic forms, so that with `x = rbar - r_0`, per component

    moved_b = sum rdot_b     cross = sum mean_b x (x) rdot     bar = sum (mean x) (x) (mean rdot)
    A_c = sym(cross - bar - Cov_b(r* - r_0, moved))            I_c(w) = w^T A_c w

answer for any w and r* afterwards. I > 0: the component builds the feature. The remainder
`R(theta_a) - R(theta_b) - sum_c I_c` is what the windows' second order leaves; it is always shown.
"""

import itertools
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxfeat.grads.influence import Influence, centred_mean
from jaxfeat.grads.track import Movement
from jaxfeat.io.arrays import load_arrays, save_arrays
from jaxfeat.tree import widen
from jaxfeat.types import Array, Node, UserError, check_directions, check_whole


class LedgerSums(NamedTuple):
    """The running sums, on the device. Halves are the first and the second half of E.

    first `[n, E, D]`: residuals at the start. moved `[n, P, E, D]`, P parts: direct, precached,
    shared and, where there is any, decay. cross `[2, n, P, D, D]`: by half. bar `[3, n, P, D, D]`:
    by half, and of all of E (which is not their sum). sizes `[n, 4]`: sums of `|G_c|` and `|G|`.
    """

    first: Array
    moved: Array
    cross: Array
    bar: Array
    sizes: Array


def open_ledger(first: Array, parts: int = 3) -> LedgerSums:
    """Empty sums for residuals `[n, E, D]` at the nodes at the start of training."""
    n, examples, width = first.shape
    if examples % 2:
        raise UserError(f"E has {examples} sequences; an even number is needed for its halves")
    first = widen(first)
    zeros = lambda *shape: jnp.zeros(shape, first.dtype)
    return LedgerSums(
        first,
        zeros(n, parts, examples, width),
        zeros(2, n, parts, width, width),
        zeros(3, n, parts, width, width),
        zeros(n, 4),
    )


def add_movement(sums: LedgerSums, movement: Movement, mask: Array) -> LedgerSums:
    """Take a window's movement into the sums.

    Args:
        mask: `[n, E]` booleans, true where the node's position is real in the example.
    """
    *_, examples, width = movement.along.shape
    along = widen(movement.along)
    x = (widen(movement.before) + widen(movement.after)) / 2 - sums.first
    weight = half_weights(mask, x.dtype)
    by_half = lambda y: y.reshape(*y.shape[:-2], 2, examples // 2, width)
    here = jnp.stack([weight[0, :, : examples // 2], weight[1, :, examples // 2 :]], axis=1)
    cross = jnp.einsum(
        "nhed,nchef->hncdf", by_half(x) * here[..., None], by_half(along), precision="highest"
    )
    means = lambda y, out: jnp.einsum(f"hne,{out}", weight, y, precision="highest")
    bar = jnp.einsum("hnd,hncf->hncdf", means(x, "ned->hnd"), means(along, "nced->hncd"))
    sizes = sums.sizes + movement.sizes.astype(x.dtype)
    return LedgerSums(sums.first, sums.moved + along, sums.cross + cross, sums.bar + bar, sizes)


def half_weights(mask: Array, dtype) -> Array:
    """Weights of a mean over real examples, `[3, n, E]`: first half, second half, all of E."""
    half = mask.shape[-1] // 2
    first = jnp.arange(mask.shape[-1]) < half
    keep = jnp.stack([mask & first, mask & ~first, mask]).astype(dtype)
    return keep / jnp.maximum(keep.sum(axis=-1, keepdims=True), 1)


def half_of(examples: int, half: int) -> slice:
    """The first (0) or the second half (1) of E."""
    return slice(0, examples // 2) if half == 0 else slice(examples // 2, None)


class Ledger(NamedTuple):
    """A finished ledger, on the host: copies of the sums along a ladder of training steps.

    `steps[0]` is the start. Leading axis L of `resid` `[L, n, E, D]` and of the sums is the ladder;
    `mask` is `[n, E]`; `moved`, `cross`, `bar`, `sizes` as in `LedgerSums`.
    """

    nodes: tuple[Node, ...]
    steps: tuple[int, ...]
    mask: np.ndarray
    resid: np.ndarray
    moved: np.ndarray
    cross: np.ndarray
    bar: np.ndarray
    sizes: np.ndarray


FLAG_CANCELLATION = 10.0  # |G_c| / |G|
SUMS = ("moved", "cross", "bar", "sizes")


def make_ledger(
    nodes: Sequence[Node],
    steps: Sequence[int],
    mask: Array | np.ndarray,
    copies: Sequence[Mapping[str, Array | np.ndarray]],
) -> Ledger:
    """A ledger out of copies made at each step of the ladder.

    Args:
        copies: for each step, `resid` at the nodes then and `moved`, `cross`, `bar`, `sizes` so
            far.
    """
    host = lambda name: np.stack([np.asarray(copy[name]) for copy in copies])
    pairs = tuple((int(k), int(i)) for k, i in nodes)
    lacking = [n for n in ("resid", *SUMS) if any(n not in copy for copy in copies)]
    if not copies or lacking:
        raise UserError(f"copies: one for each step needed, each with resid, {', '.join(SUMS)}")
    arrays = [host(name) for name in ("resid", *SUMS)]
    return _checked(Ledger(pairs, tuple(int(s) for s in steps), np.asarray(mask), *arrays))


def _checked(ledger: Ledger) -> Ledger:
    """The ledger, if its arrays fit each other and are finite."""
    steps, nodes, mask = ledger.steps, ledger.nodes, ledger.mask
    if any(b <= a for a, b in itertools.pairwise(steps)):
        raise UserError(f"ledger: steps {list(steps)} given, ascending ones needed")
    if mask.dtype != bool:
        raise UserError(f"ledger: a mask of booleans needed, {mask.dtype} given")
    resid, moved = ledger.resid, ledger.moved
    fits = resid.ndim == 4 and moved.ndim == 5 and mask.shape == (len(nodes), resid.shape[2])
    if not fits or resid.shape[:2] != (len(steps), len(nodes)):
        raise UserError(
            f"ledger: residuals {resid.shape} do not fit {len(steps)} steps, "
            f"{len(nodes)} nodes and a mask {mask.shape}"
        )
    (count, n, examples, width), parts = resid.shape, moved.shape[2]
    shapes = {
        "moved": (count, n, parts, examples, width), "cross": (count, 2, n, parts, width, width),
        "bar": (count, 3, n, parts, width, width), "sizes": (count, n, 4),
    }  # fmt: skip
    for name, shape in shapes.items():
        if getattr(ledger, name).shape != shape or parts not in (3, 4):
            given = getattr(ledger, name).shape
            raise UserError(f"ledger: {name} has shape {given}, {shape} needed")
    for name in ("resid", *SUMS):
        if not np.isfinite(getattr(ledger, name)).all():
            raise UserError(f"ledger: {name} is not finite; did training diverge?")
    return ledger


def matrices(
    ledger: Ledger,
    *,
    start: int = 0,
    stop: int = -1,
    target: int | None = None,
    centred: bool = True,
    half: int | None = None,
) -> np.ndarray:
    """`A_c` of every node and part, `[n, P, D, D]`, in float64: `I_c(w) = w^T A_c w`.

    Args:
        start, stop: ladder places (not steps) between which influence is summed.
        target: the ladder place whose residuals are r*; by default `stop`.
        centred: covariances, or plain means as in the paper.
        half: 0 or 1 for one half of E; None for all of it.

    Raises:
        UserError: a ladder place out of range, or a stop before its start.
    """
    start, stop, target = _places(ledger, start, stop, target)
    weight = _weights(ledger, half)
    moved = _between(ledger.moved, start, stop)
    goal = ledger.resid[target].astype(np.float64) - ledger.resid[0]
    cross, bar = _between(ledger.cross, start, stop), _between(ledger.bar, start, stop)
    if half is None:
        count = [ledger.mask[:, half_of(ledger.mask.shape[1], h)].sum(axis=1) for h in (0, 1)]
        real = np.stack(count)[..., None, None, None].astype(np.float64)
        cross = (cross * real).sum(axis=0) / np.maximum(real.sum(axis=0), 1)
    else:
        cross = cross[half]
    bar = bar[2 if half is None else half]
    if centred:
        cross = cross - bar
        goal = centred_mean(goal, weight)[1]
    outer = np.einsum("ned,ncef->ncdf", goal * weight[..., None], moved, optimize=True)
    whole = cross - outer
    return (whole + np.swapaxes(whole, -1, -2)) / 2


def influence(
    ledger: Ledger,
    w: np.ndarray,
    *,
    start: int = 0,
    stop: int = -1,
    target: int | None = None,
    centred: bool = True,
    half: int | None = None,
) -> Influence:
    """The influence of each component on features, between two places of the ladder.

    Args:
        w: directions `[n, F, D]`, one set for each node, or `[F, D]` for all nodes.
        The rest as in `matrices`.

    Returns:
        An `Influence` of `[n, F]` arrays, in the unit of `R`: the feature's squared.

    Raises:
        UserError: w of another width or number of nodes, a ladder place out of range.
    """
    n, _, width = ledger.resid.shape[1:]
    w = check_directions(w, n, width)
    start, stop, target = _places(ledger, start, stop, target)
    whole = matrices(ledger, start=start, stop=stop, target=target, centred=centred, half=half)
    parts = np.einsum("nfd,ncde,nfe->cnf", w, whole, w, optimize=True)
    risk = lambda place: _risk(ledger, w, place, target, centred, half)
    ends = {"risk_start": risk(start), "risk_stop": risk(stop), "scale": risk(0)}
    return Influence(*parts[:3], **ends, decay=parts[3] if len(parts) > 3 else 0 * parts[0])


def cancellation(ledger: Ledger, *, start: int = 0, stop: int = -1) -> np.ndarray:
    """`sum |G_c| / sum |G|` of direct, precached, shared between two ladder places, `[n, 3]`.

    Above `FLAG_CANCELLATION` the components cancel far above the real step: read the plain gradient
    steps beside them.
    """
    start, stop, _ = _places(ledger, start, stop, None)
    sizes = _between(ledger.sizes, start, stop)
    return sizes[:, :3] / np.maximum(sizes[:, 3:], np.finfo(float).tiny)


def save_ledger(ledger: Ledger, path: str | os.PathLike) -> Path:
    """Write a ledger as one `.npz` file of plain arrays."""
    about = json.dumps({"nodes": ledger.nodes, "steps": ledger.steps})
    arrays = {name: getattr(ledger, name) for name in ("mask", "resid", *SUMS)}
    return save_arrays(path, {"about": np.array(about)} | arrays)


def load_ledger(path: str | os.PathLike) -> Ledger:
    """Read a ledger that `save_ledger` wrote.

    Raises:
        UserError: no such file, or a file that is no ledger.
    """
    arrays = load_arrays(path)
    try:
        about = json.loads(str(arrays["about"]))
        nodes = tuple((int(k), int(i)) for k, i in about["nodes"])
        steps = tuple(int(s) for s in about["steps"])
        found = Ledger(nodes, steps, *(arrays[name] for name in ("mask", "resid", *SUMS)))
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{path} is no ledger: its arrays are others") from None
    return _checked(found)


def _places(ledger: Ledger, start: int, stop: int, target: int | None) -> tuple[int, int, int]:
    """Ladder places counted from 0, checked."""
    count = len(ledger.steps)
    target = stop if target is None else target
    asked = (start, stop, target)
    found = [check_whole("ladder place", p, -count, count - 1) % count for p in asked]
    if found[1] < found[0]:
        raise UserError(f"ladder: stop {found[1]} lies before start {found[0]}")
    return found[0], found[1], found[2]


def _between(sums: np.ndarray, start: int, stop: int) -> np.ndarray:
    """What was added between two ladder places, in float64."""
    return sums[stop].astype(np.float64) - sums[start]


def _weights(ledger: Ledger, half: int | None) -> np.ndarray:
    """Weights of the mean over a half or all of E, `[n, E]`."""
    keep = ledger.mask.astype(np.float64)
    if half is not None:
        keep[:, half_of(keep.shape[1], 1 - check_whole("half", half, 0, 1))] = 0
    return keep / np.maximum(keep.sum(axis=1, keepdims=True), 1)


def _risk(ledger, w, place: int, target: int, centred: bool, half: int | None) -> np.ndarray:
    """`R` of the checkpoint at a ladder place, `[n, F]`."""
    weight = _weights(ledger, half)
    gap = ledger.resid[place].astype(np.float64) - ledger.resid[target]
    error = np.einsum("nfd,ned->nfe", w, gap)[..., None]
    if centred:
        error = centred_mean(error, weight[:, None])[1]
    return 0.5 * np.einsum("nfe,ne->nf", error[..., 0] ** 2, weight)
