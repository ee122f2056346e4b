"""Through which pairs of positions may a gradient flow?

A route says, for every query position t and source position s, how much of the gradient that
reaches the key and value at s by way of the query at t is kept: a boolean or a real weight. It
never changes a forward value. Routes are given by name (`full()`, `myopic()`, ...) or as any
`[T, T]` array, or `[N, T, T]` with one for each block; `resolve` turns either into what the pass
over blocks reads.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxfeat.types import Array, UserError

DIAGONAL = "diagonal"  # what `resolve` gives for the myopic route: it needs no [T, T] array
NAMES = ("full", "myopic", "window", "blocked", "scaled")
Resolved = Any  # None (everything flows), DIAGONAL, or an array [T, S] or [N, T, S] (by block)


class Route(NamedTuple):
    """A named route; `value` is its parameter (a tuple where each block has its own)."""

    name: str
    value: Any = 0.0


def full() -> Route:
    """Every gradient flows: ordinary training."""
    return Route("full")


def myopic() -> Route:
    """No gradient into keys and values of other positions (Wu, Morris, Levine 2024)."""
    return Route("myopic")


def window(width: int) -> Route:
    """Gradient only over distances below `width` positions; `window(1)` is myopic."""
    return Route("window", width)


def blocked(position: int) -> Route:
    """No gradient into the key and value of one position from any other position."""
    return Route("blocked", position)


def scaled(*beta: float) -> Route:
    """Gradient that crosses positions is multiplied by `beta` (0 myopic, 1 full, above 1 more).

    Args:
        beta: one weight for all blocks, or one for each of the N blocks.
    """
    if len(beta) == 1 and np.ndim(beta[0]) == 1:  # a list or an array of them
        beta = tuple(np.asarray(beta[0]).tolist())
        return Route("scaled", beta)
    return Route("scaled", beta[0] if len(beta) == 1 else beta)


def resolve(route: Any, length: int) -> Resolved:
    """A route for sequences of `length` positions, as the mixer reads it.

    Args:
        route: None, a `Route`, DIAGONAL, or an array of booleans or weights >= 0, `[T, T]` for all
            blocks or `[N, T, T]`.
        length: T.

    Returns:
        None where everything flows, DIAGONAL for the myopic route, else an array `[T, T]` or
        `[N, T, T]`.

    >>> resolve(window(2), 3).astype(int).tolist()
    [[1, 1, 0], [1, 1, 1], [0, 1, 1]]
    """
    if route is None or (isinstance(route, str) and route == DIAGONAL):
        return route
    if isinstance(route, Route):
        return _named(route, length)
    traced = isinstance(route, Tracer)
    try:
        route = route if traced else np.asarray(route)
    except ValueError:
        raise UserError("route: a ragged list given, an array needed") from None
    if route.dtype.kind not in "biuf":
        raise UserError(f"route: type {route.dtype} given, booleans or real weights needed")
    if route.shape[-2:] != (length, length) or route.ndim > 3:
        told = f"({length}, {length}) needed, or one such array for each block"
        raise UserError(f"route: shape {route.shape} given, {told}")
    if not traced and not (np.isfinite(route).all() and (route >= 0).all()):
        raise UserError("route: weights must be finite and at least 0")
    return route


def check_route(route: Any) -> None:
    """Refuse a named route whose parameter can mean nothing, before its length is known.

    Raises:
        UserError: an unknown name, a width or position that is no whole number, a bad weight.
    """
    if not isinstance(route, Route):
        return
    name, value = route
    if name not in NAMES:
        raise UserError(f"route: {name!r} is unknown; valid names: {', '.join(NAMES)}")
    if name in ("window", "blocked"):
        least = 1 if name == "window" else 0
        good = _finite(value).all() and np.ndim(value) == 0 and int(value) == value >= least
        needed = f"a whole number of at least {least}"
    else:
        good = np.size(value) > 0 and np.ndim(value) < 2 and (_finite(value, least=0)).all()
        needed = "finite values >= 0"
    if not good:
        raise UserError(f"route: {name} {value} given, {needed} needed")


def _finite(value: Any, least: float = -np.inf) -> np.ndarray:
    """Which entries are finite numbers of at least `least`."""
    try:
        numbers = np.atleast_1d(np.asarray(value, float))
    except (TypeError, ValueError):
        return np.zeros(1, bool)
    return np.isfinite(numbers) & (numbers >= least)


def _named(route: Route, length: int) -> Resolved:
    """The array of a named route."""
    check_route(route)
    t, s = np.arange(length)[:, None], np.arange(length)[None, :]
    match route.name:
        case "myopic":
            return DIAGONAL
        case "window":
            return np.abs(t - s) < route.value
        case "blocked":
            if route.value >= length:
                raise UserError(f"route: position {route.value} is outside 0..{length - 1}")
            return (s != route.value) | (t == s)
        case "scaled":
            beta = np.atleast_1d(np.asarray(route.value, float))
            if (beta == beta[0]).all() and beta[0] in (0, 1):
                return DIAGONAL if beta[0] == 0 else None
            weights = np.where(t == s, 1.0, beta[:, None, None])
            return weights if isinstance(route.value, tuple) else weights[0]
    return None  # full


def check_blocks(route: Resolved, layers: int) -> None:
    """Refuse a route that has not one array for each block.

    Raises:
        UserError: `[M, T, T]` for a model of N != M blocks.
    """
    shape = () if route is None or isinstance(route, str) else route.shape
    if len(shape) == 3 and shape[0] != layers:
        raise UserError(f"route: given for {shape[0]} blocks, the model has {layers}")


def of_block(route: Resolved, b: int) -> Resolved:
    """The route of 0-based block b: None, DIAGONAL or `[T, S]`."""
    return route if route is None or isinstance(route, str) or route.ndim == 2 else route[b]


def own_column(route: Resolved) -> Resolved:
    """The route AND the diagonal: what remains of it inside each position's own column."""
    if route is None or isinstance(route, str):
        return DIAGONAL
    route = jnp.asarray(route)
    return jnp.where(jnp.eye(route.shape[-1], dtype=bool), route, jnp.zeros((), route.dtype))


def rows_of(route: Resolved, i: Array, length: int) -> Resolved:
    """Row i of a route, `[S]`, for the query at one position (None where everything flows)."""
    if route is None:
        return None
    if isinstance(route, str):
        return jnp.arange(length) == i
    return jnp.asarray(route)[i]


def crop(route: Resolved, length: int) -> Resolved:
    """The route of the first `length` positions."""
    return route if route is None or isinstance(route, str) else route[..., :length, :length]


def gate(x: Array, route: Array) -> Array:
    """`x` where a boolean route is open and 0 elsewhere; `route * x` for weights."""
    if route.dtype == bool:
        return jnp.where(route, x, jnp.zeros((), x.dtype))
    return jnp.asarray(route, x.dtype) * x
