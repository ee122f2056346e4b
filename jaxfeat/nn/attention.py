"""The mixer: the only function through which positions see each other. It has no parameters.

A route gates the gradient of keys and values; the forward value does not depend on it, bit for
bit, because a routed product differs from a plain one in its derivative rule alone.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from jaxfeat.nn.route import Resolved, gate
from jaxfeat.tree import widen
from jaxfeat.types import Array


def mix(
    q: Array,
    k: Array,
    v: Array,
    visible: Array,
    route: Resolved = None,
    softcap: float | None = None,
) -> Array:
    """Softmax attention of T queries over S sources, `mixed[t] = sum_s p[t, s] v[s]`.

    Args:
        q: `[T, H, K]`, already scaled.
        k: `[S, G, K]`; H is a multiple of G and head h reads group h // (H / G).
        v: `[S, G, E]`.
        visible: `[T, S]` booleans. A query that sees nothing gives 0 and has zero gradient.
        route: None, DIAGONAL (needs T = S), or `[T, S]` booleans or weights: how much gradient
            flows from the output at t into `k[s]` and `v[s]`.
        softcap: scores become `softcap * tanh(score / softcap)` before the mask.

    Returns:
        `[T, H, E]`.

    >>> x = jnp.ones((2, 1, 1))
    >>> mix(x, x, x, jnp.array([[True, False], [False, False]])).ravel().tolist()
    [1.0, 0.0]
    """
    heads, groups = q.shape[1], k.shape[1]
    grouped = q.reshape(q.shape[0], groups, heads // groups, q.shape[2])
    scores = widen(_apply(_scores, _scores_gated, _scores_diagonal, grouped, k, route))
    if softcap is not None:
        scores = softcap * jnp.tanh(scores / softcap)
    pattern = masked_softmax(scores, visible).astype(v.dtype)
    mixed = _apply(_weigh, _weigh_gated, _weigh_diagonal, pattern, v, route)
    return mixed.reshape(q.shape[0], heads, v.shape[2])


@jax.custom_jvp
def masked_softmax(scores: Array, visible: Array) -> Array:
    """Softmax over the last axis among visible sources; a row that sees nothing is 0.

    No infinity enters, so that value and gradient stay finite for an empty row and for scores of
    any finite size. The derivative `p (ds - sum p ds)` keeps p alone.
    """
    low = jnp.finfo(scores.dtype).min / 2
    scores = jnp.where(visible, scores, low)
    weights = jnp.where(visible, jnp.exp(scores - jnp.max(scores, axis=-1, keepdims=True)), 0)
    total = jnp.sum(weights, axis=-1, keepdims=True)
    return weights / jnp.where(total > 0, total, 1)


@masked_softmax.defjvp
def _(primals, tangents):
    pattern, dscores = masked_softmax(*primals), tangents[0]
    return pattern, pattern * (dscores - jnp.sum(pattern * dscores, axis=-1, keepdims=True))


@jax.custom_jvp
def tangent_only(x: Array) -> Array:
    """Exactly 0 with the derivative of `x`: adds a gradient to a sum without touching its value."""
    return jnp.zeros_like(x)


tangent_only.defjvp(lambda primals, tangents: (jnp.zeros_like(primals[0]), tangents[0]))


def _scores(q: Array, k: Array) -> Array:
    """`[T, G, R, K]`, `[S, G, K]` -> `[G, R, T, S]`."""
    return jnp.einsum("tgrk,sgk->grts", q, k)


def _scores_own(q: Array, k: Array) -> Array:
    """The diagonal of `_scores` alone, `[G, R, T, S]`: one product a position."""
    own = jnp.einsum("tgrk,tgk->grt", q, k)
    return own[..., None] * jnp.eye(q.shape[0], dtype=own.dtype)


def _weigh(pattern: Array, v: Array) -> Array:
    """`[G, R, T, S]`, `[S, G, E]` -> `[T, G, R, E]`."""
    return jnp.einsum("grts,sge->tgre", pattern, v)


def _weigh_own(pattern: Array, v: Array) -> Array:
    """`_weigh` with the diagonal of the pattern alone."""
    return jnp.einsum("grtt,tge->tgre", pattern, v)


def _make_routed(product: Callable, memory_tangent: Callable) -> Callable:
    """`product(a, b)` whose derivative in b is `memory_tangent(a, db, route)`."""

    @jax.custom_jvp
    def routed(a: Array, b: Array, route: Array | None) -> Array:
        return product(a, b)

    @routed.defjvp
    def _(primals, tangents):
        (a, b, route), (da, db, _) = primals, tangents
        return product(a, b), product(da, b) + memory_tangent(a, db, route)

    return routed


_scores_gated = _make_routed(_scores, lambda q, dk, route: gate(_scores(q, dk), route))
_scores_diagonal = _make_routed(_scores, lambda q, dk, _: _scores_own(q, dk))
_weigh_gated = _make_routed(_weigh, lambda p, dv, route: _weigh(gate(p, route), dv))
_weigh_diagonal = _make_routed(_weigh, lambda p, dv, _: _weigh_own(p, dv))


def _apply(plain: Callable, gated: Callable, diagonal: Callable, a, b, route: Resolved) -> Array:
    """The product with the derivative rule that the route asks for."""
    if route is None:
        return plain(a, b)
    if isinstance(route, str):
        return diagonal(a, b, None)
    return gated(a, b, jnp.asarray(route))
