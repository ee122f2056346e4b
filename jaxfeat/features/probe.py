"""How well can a feature be read linearly from the residual stream, at every node at once?

A probe is a ridge regression from the residual at one node (layer k, position i) to all features
at that position (arXiv 2603.14087; alpha 1 there). Nodes are a leading axis, so that all probes are
one program; further leading axes (seeds) may stand before it, or `vmap` over them. The residual is
read before the final norm, also at k = N. An untrained model's probes are every claim's baseline.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxfeat.linear import Ridge, centred_moments, fit_ridge, predict
from jaxfeat.types import Array, UserError, check_nodes


class Scores(NamedTuple):
    """How probes do on a set of examples. A value that is not defined there is NaN.

    r is undefined where the feature or its prediction is constant, mse where no example counts;
    `undefined` counts the undefined r. The fields by type are None unless types were given.
    """

    mse: Array  # [..., F], in the feature's unit squared
    r: Array  # [..., F], Pearson correlation of feature and prediction
    count: Array  # [...], examples that count
    undefined: Array  # [...], features whose r is NaN
    type_mse: Array | None = None  # [..., F, types]
    type_r: Array | None = None  # [..., F, types]
    type_count: Array | None = None  # [..., F, types], examples of the type


class Share(NamedTuple):
    """Share of the residual's variance that features explain, 0..1; NaN without variance."""

    each: Array  # [..., F], every feature by itself
    joint: Array  # [...], all features together


def features_at(values: Array, nodes: Any) -> Array:
    """What belongs to the nodes' positions, of features, types or a mask.

    Args:
        values: `[B, T, F]` features or types, or `[B, T]` a mask.
        nodes: pairs (layer, position); the layer does not matter here.

    Returns:
        `[nodes, B, F]`, or `[nodes, B]` for a mask.

    Raises:
        UserError: a position is out of range, or a node stands twice.

    >>> features_at(jnp.arange(3)[None], [(1, 2), (0, 0)]).tolist()
    [[2], [0]]
    """
    if values.ndim not in (2, 3):
        raise UserError(f"values {values.shape} must be [B, T, F] or [B, T]")
    top = max((int(k) for k, _ in nodes), default=0)
    pairs = check_nodes(nodes, top, values.shape[1])
    return jnp.stack([values[:, i] for _, i in pairs])


def fit_probes(
    resid: Array,
    features: Array,
    mask: Array | None = None,
    *,
    alpha: float | Array | str = 1.0,
    relative: bool = False,
) -> Ridge:
    """One ridge probe a node, all features jointly, all nodes in one program.

        W, b = argmin  sum_b |f_b - W r_b - b|^2 + alpha |W|^2         (b: examples that count)

    Args:
        resid: `[..., B, D]`, usually `[nodes, B, D]`.
        features: `[..., B, F]`, any numeric type.
        mask: `[..., B]` booleans, true where the node's position counts.
        alpha: absolute penalty (the paper's is 1), or "gcv" for one chosen a node, free of scale.
        relative: read alpha as a multiple of the mean eigenvalue of the node's Gram matrix.

    Returns:
        A `Ridge` with `coef [..., F, D]`; `coef[n, f]` is the direction w of feature f at node n.

    Raises:
        UserError: the shapes do not fit together.

    >>> r = jnp.array([[[0., 1.], [1., 1.], [2., 1.], [3., 1.]]])
    >>> probes = fit_probes(r, 2 * r[..., :1], alpha=0.0)
    >>> probes.coef.round(4).tolist()
    [[[2.0, 0.0]]]
    """
    return fit_ridge(resid, features, mask=mask, alpha=alpha, relative=relative)


def score_probes(
    probes: Ridge,
    resid: Array,
    features: Array,
    mask: Array | None = None,
    types: Array | None = None,
    *,
    n_types: int | None = None,
) -> Scores:
    """Mean squared error and Pearson r of every probe, on the whole set and by feature type.

    Args:
        probes: a fit with leading axes `[...]`, scored best on examples that it has not seen.
        resid: `[..., B, D]`.
        features: `[..., B, F]`.
        mask: `[..., B]` booleans, true where the node's position counts.
        types: `[..., B, F]` integers 0..n_types-1, the type of feature f in example b.
        n_types: number of types; required with `types`. Others are counted nowhere.

    Returns:
        `Scores`; an empty type has count 0 and NaN.

    Raises:
        UserError: the shapes do not fit together, or `types` come without `n_types`.

    >>> r = jnp.array([[[0.], [1.], [2.], [3.]]])
    >>> f = jnp.concatenate([2 * r, jnp.ones_like(r)], -1)
    >>> s = score_probes(fit_probes(r, f, alpha=0.0), r, f)
    >>> s.r.round(4).tolist(), s.undefined.tolist()
    ([[1.0, nan]], [1])
    """
    fitted = predict(probes, resid)
    if features.shape != fitted.shape:
        raise UserError(f"features {features.shape} must be {fitted.shape}")
    real = jnp.ones(fitted.shape[:-1], bool) if mask is None else jnp.asarray(mask, bool)
    if real.shape != fitted.shape[:-1]:
        raise UserError(f"mask {real.shape} must be {fitted.shape[:-1]}")
    truth = jnp.asarray(features).astype(fitted.dtype)
    keep = jnp.broadcast_to(real[..., None], fitted.shape)
    mse, r, _ = _score(truth, fitted, keep)
    scores = Scores(mse, r, real.sum(-1), jnp.isnan(r).sum(-1))
    if types is None:
        return scores
    if n_types is None or types.shape != fitted.shape:
        raise UserError(f"types {types.shape} must be {fitted.shape}, and n_types be given")
    parts = [_score(truth, fitted, keep & (types == t)) for t in range(n_types)]
    return Scores(*scores[:4], *(jnp.stack(part, axis=-1) for part in zip(*parts)))


def explained_share(resid: Array, features: Array, mask: Array | None = None) -> Share:
    """Share of the residual's total variance that the features explain linearly.

        each_f = sum_d Cov(r_d, f)^2 / (Var(f) sum_d Var(r_d))
        joint  = sum_d Var(fit of r_d on all features) / sum_d Var(r_d)

    The R^2 of the residual regressed on the feature. A probe's r does not tell it, because a probe
    may read a direction that carries next to none of the variance.

    Args:
        resid: `[..., B, D]`.
        features: `[..., B, F]`; collinear and constant ones are allowed.
        mask: `[..., B]` booleans, true where the node's position counts.

    Returns:
        A `Share`; a constant feature explains NaN by itself and nothing jointly.

    Raises:
        UserError: the shapes do not fit together.

    >>> f = jnp.array([[[-1.], [1.], [-1.], [1.]]])
    >>> r = jnp.concatenate([f, jnp.array([[[-1.], [-1.], [1.], [1.]]])], -1)
    >>> share = explained_share(r, f)
    >>> share.each.round(4).tolist(), share.joint.round(4).tolist()
    ([[0.5]], [0.5])
    """
    m = centred_moments(features, resid, mask)
    coef = fit_ridge(features, resid, mask=mask, alpha=0.0).coef  # [..., D, F]
    total = _positive(m.y_square.sum(-1))
    own = _positive(jnp.diagonal(m.gram, axis1=-2, axis2=-1))
    each = (m.cross**2).sum(-1) / (own * total[..., None])
    joint = jnp.einsum("...df,...fd->...", coef, m.cross, precision="highest") / total
    return Share(each, joint)


@jax.jit
def _score(truth: Array, fitted: Array, keep: Array) -> tuple[Array, Array, Array]:
    """mse, Pearson r and count over the examples kept; all `[..., F]`."""
    count = keep.sum(-2)
    share = 1 / _positive(count.astype(fitted.dtype))[..., None, :]
    pick = lambda a: jnp.where(keep, a, 0)
    mse = (pick(truth - fitted) ** 2 * share).sum(-2)
    centre = lambda a: pick(a - (pick(a) * share).sum(-2, keepdims=True))
    a, b = centre(truth), centre(fitted)
    # A constant is told by its range: its centred values may be rounding noise instead of 0.
    spread = lambda v: jnp.where(keep, v, -jnp.inf).max(-2) > jnp.where(keep, v, jnp.inf).min(-2)
    varies = spread(truth) & spread(fitted)
    scale = jnp.sqrt((a * a).sum(-2)) * jnp.sqrt((b * b).sum(-2))
    r = (a * b).sum(-2) / jnp.where(varies, _positive(scale), jnp.nan)
    return mse, r, count


def _positive(x: Array) -> Array:
    """x where it is positive, NaN elsewhere."""
    return jnp.where(x > 0, x, jnp.nan)
