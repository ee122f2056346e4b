"""Which directions did a component build most, and does it show on examples held back?

With `A_c` of the ledger and `C = Cov_b(r_0 - r*)`, the directions are those of

    A_c w = lambda (C / 2) w,    so that lambda = I_c(w) / R(theta_0; w),

solved on one half of E in the eigenspace of C above 1e-6 of its largest eigenvalue, and read again
on the other half beside random directions of that space. A direction that c built and another part
a did not has a large `w^T A_c w` and a small `|w^T A_a w|`: in whitened coordinates `S = K^T A K`
the eigenproblem is then that of `S_c - 2 sum_a |S_a|` (`|S|` has the absolute values of S's
eigenvalues), whose value bounds `I_c - 2 sum_a |I_a|` from below. The 2 matters: parts sum to about
R(theta_0), so that with 1 a direction that a took down by as much as c overshot would count as
pure.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxfeat.grads.influence import Influence, centred_mean
from jaxfeat.grads.ledger import Ledger, half_of, influence, matrices
from jaxfeat.types import COMPONENTS, UserError, check_directions, check_whole

PARTS = (*COMPONENTS, "decay", "combined")
LEAST = 1e-6  # of C's largest eigenvalue
PURE = 2.0  # what `without` parts weigh


class Discovery(NamedTuple):
    """The directions that a part of the updates built most, at each node.

    w `[n, F, D]`: scaled so that `R(theta_0) = 1` on the half they were solved on, most built
    first. fitted, tested: their influence on both halves, `[n, F]`; its `scale` is R(theta_0).
    control_w `[n, K, D]`, control: random directions, and their influence on the half held back.
    rank `[n]`: how many directions of the residual stream changed at all; those beyond it are 0.
    """

    w: np.ndarray
    fitted: Influence
    tested: Influence
    control_w: np.ndarray
    control: Influence
    rank: np.ndarray


def discover(
    ledger: Ledger,
    part: str,
    *,
    without: Sequence[str] = (),
    count: int = 4,
    start: int = 0,
    stop: int = -1,
    target: int | None = None,
    half: int = 0,
    controls: int = 64,
    seed: int = 0,
) -> Discovery:
    """The directions at each node that a part built most.

    Args:
        part: "direct", "precached", "shared", "decay" or "combined".
        without: parts that must not have built them, such as `("direct",)` for precached only.
        count: F, directions a node.
        start, stop, target: places of the ladder, as in `jaxfeat.grads.ledger.influence`.
        half: 0 or 1, the half of E that is solved on; the other is held back.
        controls: K, random directions a node. seed: of theirs.

    Raises:
        UserError: an unknown part, fewer examples in a half than the width needs.
    """
    for name in (part, *without):
        if name not in PARTS:
            raise UserError(f"part: {name!r} is unknown; valid: {', '.join(PARTS)}")
    if part in without:
        raise UserError(f"without: {part!r} is the part that is asked for")
    half = check_whole("half", half, 0, 1)
    n, examples, width = ledger.resid.shape[1:]
    count = check_whole("count", count, 1, width)
    controls = check_whole("controls", controls, 1, 10**6)
    seed = check_whole("seed", seed, 0)
    here = half_of(examples, half)
    least = int(ledger.mask[:, here].sum(axis=1).min())
    if least <= width:
        needed = 2 * (width + 1)
        raise UserError(
            f"E: {examples} sequences give {least} real examples in a half, too few for width "
            f"{width}: at least {needed} sequences are needed ({8 * width} or more advised)"
        )
    where = {"start": start, "stop": stop, "target": target}
    whole = matrices(ledger, **where, half=half)
    goal = stop if target is None else target
    gap = ledger.resid[0].astype(np.float64) - ledger.resid[goal]
    rng = np.random.default_rng(seed)
    found, drawn, rank = np.zeros((n, count, width)), np.zeros((n, controls, width)), []
    for node in range(n):
        space = _whitening(gap[node, here], ledger.mask[node, here])
        if not space.shape[1]:
            raise UserError(
                f"the representation at node {ledger.nodes[node]} is the same at both places of "
                "the ladder: nothing was built"
            )
        rank.append(space.shape[1])
        scored = _part(whole[node], part, space)
        for name in without:
            values, vectors = np.linalg.eigh(_part(whole[node], name, space))
            scored = scored - PURE * (vectors * np.abs(values)) @ vectors.T
        _, vectors = np.linalg.eigh(scored)
        best = (space @ vectors[:, ::-1])[:, :count].T
        found[node, : len(best)] = best
        coordinates = rng.standard_normal((controls, space.shape[1]))
        coordinates /= np.linalg.norm(coordinates, axis=1, keepdims=True)
        drawn[node] = coordinates @ space.T
    told = lambda w, side: influence(ledger, w, **where, half=side)
    back = 1 - half
    fitted, tested = told(found, half), told(found, back)
    return Discovery(found, fitted, tested, drawn, told(drawn, back), np.array(rank))


def readouts(ledger: Ledger, w: np.ndarray, place: int = -1) -> np.ndarray:
    """What directions read of a checkpoint's residuals on E, centred, `[n, E, F]`; masked 0.

    Args:
        w: `[n, F, D]`. place: of the ladder.
    """
    count, n, _, width = ledger.resid.shape
    w = check_directions(w, n, width)
    place = check_whole("place", place, -count, count - 1)
    weight = ledger.mask.astype(np.float64)
    weight /= np.maximum(weight.sum(axis=1, keepdims=True), 1)
    read = np.einsum("nfd,ned->nef", w, ledger.resid[place].astype(np.float64))
    return centred_mean(read, weight)[1] * ledger.mask[..., None]


def principal_angles(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Principal angles between two runs' directions, by what they read on the same examples.

    Two seeds have no residual basis in common, but E: the angles are between the spans of the
    columns, so that the cosines are the canonical correlations of the readouts.

    Args:
        a, b: `[E, F]` and `[E, G]` (`readouts`); they are centred here. No column may be zero or
            follow from the others.

    Returns:
        `[min(F, G)]` radians, smallest first.

    >>> x = np.eye(4)[:, :2]
    >>> principal_angles(x, x[:, :1] + x[:, 1:]).round(3).tolist()
    [0.0]
    """
    from scipy.linalg import subspace_angles

    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if a.ndim != 2 or b.ndim != 2 or len(a) != len(b) or not (a.size and b.size):
        raise UserError(f"readouts {a.shape}, {b.shape}: [E, F] of the same examples needed")
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise UserError("readouts: every entry must be finite")
    a, b = a - a.mean(axis=0), b - b.mean(axis=0)
    if any(np.linalg.matrix_rank(x) < x.shape[1] for x in (a, b)):
        raise UserError("readouts: a column is constant or follows from the others")
    return subspace_angles(a, b)[::-1]


def _whitening(gap: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """K `[D, rank]` with `K^T (C / 2) K = 1`, for `gap [E, D]` of r_0 - r*."""
    rows = gap[mask]
    rows = rows - rows.mean(axis=0)
    values, vectors = np.linalg.eigh(rows.T @ rows / len(rows) / 2)
    keep = (values > LEAST * values[-1]) & (values > np.finfo(float).tiny)
    return vectors[:, keep] / np.sqrt(values[keep])


def _part(whole: np.ndarray, name: str, space: np.ndarray) -> np.ndarray:
    """`K^T A K` of a part, out of `A [P, D, D]`."""
    if name == "combined":
        return space.T @ whole.sum(axis=0) @ space
    place = PARTS.index(name)
    if place >= len(whole):
        raise UserError(f"part: this run had no {name}")
    return space.T @ whole[place] @ space
