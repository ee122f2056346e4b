"""Which axes, which batch and which results does everything here speak of?

Axes, in docstrings as `[B, T, D]` and upper case in einsum:

    B batch            T query position   S source position   N block
    D residual width   H head             G key-value head    K key size     E value size
    F MLP width        V vocabulary       M feature           C copy of the parameters
    R row: one component of one node

A public `layer` k runs over 0..N: 0 is the embedding, k the residual stream after block k,
so 0-based block b ends at layer k = b + 1. A `node` is a pair (layer, position).
"""

import operator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

Array = jax.Array
Tree = Any  # a pytree of arrays
Node = tuple[int, int]  # (layer, position)

COMPONENTS = ("direct", "precached", "shared")


class UserError(ValueError):
    """An input that the user can mend: the command line prints it in a line or two, exit code 2."""


class Batch(NamedTuple):
    """Sequences with their next-token targets; every field is `[B, T]`.

    `mask` marks real positions (padding may stand on either side); `weight` marks the positions
    whose target counts in the loss; `position` is what the model's position encoding reads.
    """

    token: Array
    target: Array
    mask: Array
    weight: Array
    position: Array


class Split(NamedTuple):
    """The three parts of a gradient, in the order that is kept everywhere.

    They sum to the whole: `direct + precached + shared = grad L` (arXiv 2603.14087, Prop. 3.1).
    """

    direct: Tree
    precached: Tree
    shared: Tree


def make_batch(tokens: Array, mask: Array | None = None) -> Batch:
    """Inputs and next-token targets out of whole sequences.

    Args:
        tokens: `[B, T+1]` integer ids; position t predicts token t + 1.
        mask: `[B, T+1]` booleans, true where a token is real. Left or right padding.

    Returns:
        A `Batch` of `[B, T]` fields. A target counts where it and its input are both real.
        Positions count from the first real token.

    >>> b = make_batch(jnp.array([[7, 8, 9]]))
    >>> b.token.tolist(), b.target.tolist(), b.position.tolist()
    ([[7, 8]], [[8, 9]], [[0, 1]])
    """
    if isinstance(tokens, np.ndarray) and tokens.dtype.kind in "iu" and tokens.size:
        check_tokens(np.maximum(tokens, 0), 2**31, "tokens")  # else they would wrap
    tokens = jnp.asarray(tokens)
    if tokens.ndim != 2 or tokens.shape[0] < 1 or tokens.shape[1] < 2:
        raise UserError(f"tokens: shape {tokens.shape} given, [B >= 1, T+1 >= 2] needed")
    if not jnp.issubdtype(tokens.dtype, jnp.integer):
        raise UserError(f"tokens: type {tokens.dtype} given, integer ids needed")
    real = jnp.ones(tokens.shape, bool) if mask is None else jnp.asarray(mask, bool)
    if real.shape != tokens.shape:
        raise UserError(f"mask: shape {real.shape} given, {tokens.shape} needed, that of tokens")
    return jax.tree.map(lambda x: x[:, :-1], whole_batch(tokens, real))


def whole_batch(tokens: Array | np.ndarray, mask: Array | None = None) -> Batch:
    """Sequences of which every token is read; the last one's target does not count.

    Args:
        tokens: `[B, T]` integer ids. mask: as in `make_batch`.

    Returns:
        A `Batch` of `[B, T]` fields.

    >>> b = whole_batch(jnp.array([[7, 8, 9]]))
    >>> b.token.tolist(), b.weight.tolist()
    ([[7, 8, 9]], [[True, True, False]])
    """
    tokens = jnp.asarray(tokens).astype(jnp.int32)
    real = jnp.ones(tokens.shape, bool) if mask is None else jnp.asarray(mask, bool)
    follows = jnp.roll(real, -1, axis=1).at[:, -1].set(False)
    position = jnp.maximum(jnp.cumsum(real, axis=1, dtype=jnp.int32) - 1, 0)
    return Batch(tokens, jnp.roll(tokens, -1, axis=1), real, real & follows, position)


def check_nodes(nodes: Any, layers: int, length: int) -> tuple[Node, ...]:
    """The nodes as a tuple of int pairs, or a `UserError` that names the valid range.

    >>> check_nodes([(1, 2)], layers=2, length=4)
    ((1, 2),)
    """
    try:
        pairs = tuple((operator.index(k), operator.index(i)) for k, i in nodes)
    except (TypeError, ValueError):
        raise UserError(
            f"nodes: {nodes!r} given, a list of whole-number pairs (layer, position) needed"
        ) from None
    if not pairs:
        raise UserError("nodes: give at least one (layer, position)")
    for k, i in pairs:
        if not 0 <= k <= layers:
            raise UserError(f"layer {k} is out of range: valid layers are 0..{layers}")
        if not 0 <= i < length:
            raise UserError(f"position {i} is out of range: valid positions are 0..{length - 1}")
    if len(set(pairs)) != len(pairs):
        raise UserError("nodes: each (layer, position) may stand only once")
    return pairs


def check_tokens(tokens: Any, vocab: int, name: str = "tokens") -> Any:
    """The tokens, if every id lies in 0..vocab-1: JAX itself would clamp others or give NaN.

    To be called once on the host, where tokens come in from outside.

    >>> check_tokens(jnp.array([0, 4]), 5).tolist()
    [0, 4]
    """
    ids = np.asarray(tokens)  # on the host, also while a program is traced
    low, high = int(ids.min()), int(ids.max())
    if low < 0 or high >= vocab:
        raise UserError(f"{name}: ids {low}..{high} given, valid are 0..{vocab - 1}")
    return tokens


def check_directions(w: Any, nodes: int, width: int) -> Any:
    """Directions `[nodes, F, D]`; `[F, D]` are taken for every node. Values in float64 on the host.

    Where they are traced only their shape is looked at.

    >>> check_directions([[1, 0]], nodes=3, width=2).shape
    (3, 1, 2)
    """
    if not isinstance(w, Tracer):
        try:
            w = np.asarray(w)
            w = w if np.iscomplexobj(w) else w.astype(np.float64)
        except (TypeError, ValueError):
            raise UserError("w: an array of numbers needed") from None
        if np.iscomplexobj(w) or not np.isfinite(w).all():
            raise UserError("w: every entry must be a finite real number")
    spread = jnp.broadcast_to if isinstance(w, Tracer) else np.broadcast_to
    w = spread(w, (nodes, *w.shape)) if w.ndim == 2 else w
    if w.ndim != 3 or w.shape[0] != nodes or w.shape[2] != width:
        raise UserError(f"w: shape {w.shape} given, ({nodes} nodes, features, {width}) needed")
    return w


def check_whole(name: str, value: Any, least: int, most: int | None = None) -> int:
    """A whole number of a range, or a `UserError` that names both.

    >>> check_whole("count", 3, 1)
    3
    """
    told = f"{least} or more" if most is None else f"{least}..{most}"
    try:
        number = operator.index(value)
    except TypeError:
        raise UserError(f"{name}: {value!r} given, a whole number, {told}, needed") from None
    if isinstance(value, bool) or number < least or (most is not None and number > most):
        raise UserError(f"{name}: {value!r} given, a whole number, {told}, needed")
    return number
