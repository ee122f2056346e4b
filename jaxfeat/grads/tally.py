"""What did each component build into given features, told by the feature's type in each example?

Where directions w and types are known beforehand (a replayed run, an SAE), per example and feature

    S2[b, f] = sum over windows of (w . rbar_t)(w . rdot_c,t)
    M[f, type] = sum of mean_type(w . rbar_t) mean_type(w . rdot_c,t)

give, for r* of any later checkpoint, uncentred `I_type = mean_type(S2 - (w . r*)(w . moved))` and
centred `I_type = mean_type S2 - M - Cov_type(w . r*, w . moved)`. Values are read relative to
`w . r_0`, which changes neither. Uncentred types sum to the whole by their shares; centred do not.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxfeat.grads.influence import Influence, type_weights
from jaxfeat.grads.track import Movement
from jaxfeat.tree import widen
from jaxfeat.types import Array, UserError, check_directions


class Tally(NamedTuple):
    """Running sums for given features.

    w `[n, F, D]`; weight `[n, E, F, kinds]`: of the means over a type's examples; first
    `[n, E, F]`: w . r_0; moved, products `[n, P, E, F]`; means `[n, P, F, kinds]` for P parts
    (`LedgerSums`).
    """

    w: Array
    weight: Array
    first: Array
    moved: Array
    products: Array
    means: Array


def open_tally(
    first: Array, w: Array, types: Array | None = None, kinds: int = 1, parts: int = 3
) -> Tally:
    """Empty sums.

    Args:
        first: `[n, E, D]`, residuals at the nodes at the start of training.
        w: `[n, F, D]`. types: `[n, E, F]` in 0..kinds-1, other values count nowhere; or None.

    Raises:
        UserError: shapes that do not fit each other.
    """
    n, examples, width = first.shape
    first = widen(first)
    w = jnp.asarray(check_directions(w, n, width), first.dtype)
    shape = (n, examples, w.shape[1])
    if types is not None and types.shape != shape:
        raise UserError(f"types: shape {types.shape} given, {shape} needed")
    weight = type_weights(types, kinds, shape, first.dtype)
    zeros = lambda *s: jnp.zeros(s, first.dtype)
    along = (n, parts, examples, w.shape[1])
    means = zeros(n, parts, w.shape[1], weight.shape[-1])
    return Tally(w, weight, _read(w, first), zeros(*along), zeros(*along), means)


def add_to_tally(tally: Tally, movement: Movement) -> Tally:
    """Take a window's movement into the sums."""
    middle = (widen(movement.before) + widen(movement.after)) / 2
    x = _read(tally.w, middle) - tally.first
    moved = jnp.einsum("nfd,nced->ncef", tally.w, widen(movement.along), precision="highest")
    means = jnp.einsum("nef,nefk->nfk", x, tally.weight)[:, None]
    means = means * jnp.einsum("ncef,nefk->ncfk", moved, tally.weight)
    return tally._replace(
        moved=tally.moved + moved,
        products=tally.products + x[:, None] * moved,
        means=tally.means + means,
    )


def tally_influence(tally: Tally, goal: Array, now: Array, *, centred: bool = True) -> Influence:
    """Influence by feature and type, `[n, F, kinds]`, from the start to now.

    Args:
        goal: `[n, E, D]`, r*. now: `[n, E, D]`, residuals at the end of the tallied stretch.
    """
    host = lambda x: np.asarray(x, np.float64)
    w, weight, first = host(tally.w), host(tally.weight), host(tally.first)
    read = lambda r: np.einsum("nfd,ned->nef", w, host(r)) - first
    star, stop = read(goal), read(now)
    mean = lambda x: np.einsum("...nef,nefk->...nfk", x, weight)
    moved = np.moveaxis(host(tally.moved), 1, 0)
    parts = mean(np.moveaxis(host(tally.products), 1, 0)) - mean(star * moved)
    if centred:
        parts = parts - np.moveaxis(host(tally.means), 1, 0) + mean(star) * mean(moved)

    def risk(error: np.ndarray) -> np.ndarray:
        square = mean(error**2)
        return 0.5 * (square - mean(error) ** 2 if centred else square)

    start = risk(-star)
    ends = {"risk_start": start, "risk_stop": risk(stop - star), "scale": start}
    return Influence(*parts[:3], **ends, decay=parts[3] if len(parts) > 3 else 0 * parts[0])


def _read(w: Array, resid: Array) -> Array:
    """`w . r`, `[n, E, F]`."""
    return jnp.einsum("nfd,ned->nef", w, resid, precision="highest")
