"""Through which pairs of positions may a gradient flow?

A route says, for every query position t and source position s, how much of the gradient that
reaches the key and value at s by way of the query at t is kept: a boolean or a real weight. It
never changes a forward value. Routes are given by name (`full()`, `myopic()`, ...) or as any
`[T, T]` array; `resolve` turns either into what the mixer reads.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxfeat.types import Array, UserError

DIAGONAL = "diagonal"  # what `resolve` gives for the myopic route: it needs no [T, T] array
Resolved = Any  # None (everything flows), DIAGONAL, or an array [T, S]


class Route(NamedTuple):
    """A named route; `value` is its parameter."""

    name: str
    value: float = 0.0


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


def scaled(beta: float) -> Route:
    """Gradient that crosses positions is multiplied by `beta` (0 myopic, 1 full, above 1 more)."""
    return Route("scaled", beta)


def resolve(route: Any, length: int) -> Resolved:
    """A route for sequences of `length` positions, as the mixer reads it.

    Args:
        route: None, a `Route`, DIAGONAL, or an array `[T, T]` of booleans or weights >= 0.
        length: T.

    Returns:
        None where everything flows, DIAGONAL for the myopic route, else an array `[T, T]`.

    >>> resolve(window(2), 3).astype(int).tolist()
    [[1, 1, 0], [1, 1, 1], [0, 1, 1]]
    """
    if route is None or (isinstance(route, str) and route == DIAGONAL):
        return route
    if isinstance(route, Route):
        return _named(route, length)
    traced = isinstance(route, Tracer)
    route = route if traced else np.asarray(route)
    if route.shape != (length, length):
        raise UserError(f"route: shape {route.shape} given, ({length}, {length}) needed")
    if not traced and not (np.isfinite(route).all() and (route >= 0).all()):
        raise UserError("route: weights must be finite and at least 0")
    return route


def _named(route: Route, length: int) -> Resolved:
    """The array of a named route."""
    t, s = np.arange(length)[:, None], np.arange(length)[None, :]
    match route.name:
        case "full":
            return None
        case "myopic":
            return DIAGONAL
        case "window":
            if route.value < 1:
                raise UserError(f"route: window {route.value} given, at least 1 needed")
            return np.abs(t - s) < route.value
        case "blocked":
            if not 0 <= route.value < length:
                raise UserError(f"route: position {route.value} is outside 0..{length - 1}")
            return (s != route.value) | (t == s)
        case "scaled":
            if not (np.isfinite(route.value) and route.value >= 0):
                raise UserError(f"route: beta {route.value} given, a finite value >= 0 needed")
            return np.where(t == s, 1.0, route.value)
    names = "full, myopic, window, blocked, scaled"
    raise UserError(f"route: {route.name!r} is unknown; valid names: {names}")


def own_column(route: Resolved) -> Resolved:
    """The route AND the diagonal: what remains of it inside each position's own column."""
    if route is None or isinstance(route, str):
        return DIAGONAL
    route = jnp.asarray(route)
    return jnp.where(jnp.eye(route.shape[0], dtype=bool), route, jnp.zeros((), route.dtype))


def rows_of(route: Resolved, i: Array, length: int) -> Resolved:
    """Row i of a route, `[S]`, for the query at one position (None where everything flows)."""
    if route is None:
        return None
    if isinstance(route, str):
        return jnp.arange(length) == i
    return jnp.asarray(route)[i]


def crop(route: Resolved, length: int) -> Resolved:
    """The route of the first `length` positions."""
    return route if route is None or isinstance(route, str) else route[:length, :length]


def gate(x: Array, route: Array) -> Array:
    """`x` where a boolean route is open and 0 elsewhere; `route * x` for weights."""
    if route.dtype == bool:
        return jnp.where(route, x, jnp.zeros((), x.dtype))
    return jnp.asarray(route, x.dtype) * x
