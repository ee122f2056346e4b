"""What is the influence of a step on a feature, and in which convention is it told?"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxfeat.types import Array, UserError

CONVENTIONS = ("ours", "authors")
SHARES = ("direct", "precached", "shared", "decay", "combined", "fall", "remainder")
FLAG_REMAINDER = 0.05  # of the fall of R; above it a result is marked


class Influence(NamedTuple):
    """Influence of each component on features; arrays of one shape, usually `[nodes, F]`.

    `risk_start` and `risk_stop` are R at both ends of the summed stretch, `scale` is R(theta_0):
    shares are told against it. `decay` is what decoupled weight decay built, 0 without any.
    """

    direct: np.ndarray
    precached: np.ndarray
    shared: np.ndarray
    risk_start: np.ndarray
    risk_stop: np.ndarray
    scale: np.ndarray
    decay: np.ndarray | float = 0.0

    @property
    def combined(self) -> np.ndarray:
        """The sum of the three components and the decay."""
        return self.direct + self.precached + self.shared + self.decay

    @property
    def fall(self) -> np.ndarray:
        """By how much R fell."""
        return self.risk_start - self.risk_stop

    @property
    def remainder(self) -> np.ndarray:
        """What the sum over windows leaves of the fall."""
        return self.fall - self.combined

    @property
    def flagged(self) -> np.ndarray:
        """True where the remainder exceeds 5 % of the fall."""
        return np.abs(self.remainder) > FLAG_REMAINDER * np.abs(self.fall)

    def share(self, part: str) -> np.ndarray:
        """A part ("direct", ..., "combined", "remainder") over R(theta_0); NaN where that is 0."""
        if part not in SHARES:
            raise UserError(f"part: {part!r} is unknown; valid: {', '.join(SHARES)}")
        value, scale = np.asarray(getattr(self, part)), self.scale
        return np.divide(value, scale, out=np.full_like(value, np.nan), where=scale > 0)


def step_influence(
    resid: Array,
    goal: Array,
    along: Array,
    w: Array,
    *,
    types: Array | None = None,
    kinds: int = 1,
    centred: bool = True,
    conventions: str = "ours",
) -> Array:
    """Influence of one step's components on features, `[3, n, F, kinds]`.

    Args:
        resid, goal: `[n, B, D]`, r now and r*.
        along: `[n, 3, B, D]`, `rdot_c` of direct, precached, shared.
        w: `[n, F, D]`.
        types: `[n, B, F]` feature types in 0..kinds-1, or None for one kind. An empty type
            gives 0.
        centred: covariances instead of means.
        conventions: "ours" (`R = 1/2 mean e^2`), or "authors": `R = mean e^2`, never centred, as
            in the code of arXiv 2603.14087.
    """
    if conventions not in CONVENTIONS:
        raise UserError(f"conventions: {conventions!r} given; valid: {', '.join(CONVENTIONS)}")
    error = jnp.einsum("nfd,nbd->nbf", w, resid - goal, precision="highest")
    moved = jnp.einsum("nfd,ncbd->ncbf", w, along, precision="highest")
    weight = type_weights(types, kinds, error.shape, error.dtype)
    both = jnp.einsum("nbf,ncbf,nbfk->cnfk", error, moved, weight)
    if conventions == "authors":
        return 2 * both
    if not centred:
        return both
    means = jnp.einsum("nbf,nbfk->nfk", error, weight)
    return both - means * jnp.einsum("ncbf,nbfk->cnfk", moved, weight)


def type_weights(types: Array | None, kinds: int, shape: tuple[int, ...], dtype) -> Array:
    """Weights of a mean over the examples of each type, `[n, B, F, kinds]` for `[n, B, F]`."""
    if types is None:
        return jnp.full((*shape, 1), 1 / shape[1], dtype)
    mine = (types[..., None] == jnp.arange(kinds)).astype(dtype)
    return mine / jnp.maximum(mine.sum(axis=1, keepdims=True), 1)


def centred_mean(x: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The weighted mean over examples `[..., E, D]` and what is left after taking it away."""
    mean = np.sum(x * weight[..., None], axis=-2, keepdims=True)
    return mean, x - mean
