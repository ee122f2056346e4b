"""Which copy of the parameters does each position use?

`copies` is None (one set for all positions) or the increasing start positions of the segments,
`(0, m)` for an m-untied model and `range(T)` for a fully untied one. Copies stand on the leading
axis of `outer`'s leaves and of each block's own leaves: with stacked blocks `[N, C, ...]`.
"""

import itertools
import operator
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from jaxfeat import tree
from jaxfeat.types import Array, Tree, UserError

Copies = tuple[int, ...] | None
MOST_SEPARATE = 4  # segments that run one by one


def check_copies(copies: Copies, length: int) -> Copies:
    """The segment starts as a tuple, or a `UserError` that says what they must be.

    >>> check_copies([0, 2], 4)
    (0, 2)
    """
    if copies is None:
        return None
    try:
        starts = tuple(operator.index(s) for s in copies)
    except TypeError:
        raise UserError(f"copies: {copies!r} given, whole-number starts needed") from None
    if not starts or starts[0] != 0 or any(b <= a for a, b in itertools.pairwise(starts)):
        raise UserError(f"copies: {starts} given; starts must increase from 0")
    if starts[-1] >= length:
        raise UserError(f"copies: a segment starts at {starts[-1]}, outside 0..{length - 1}")
    return starts


def crop_copies(copies: Copies, length: int) -> Copies:
    """The segments that the first `length` positions meet."""
    return copies if copies is None else tuple(s for s in copies if s < length)


def copy_of(copies: Copies, i: Array) -> Array:
    """The copy that position i uses (0 for a tied model)."""
    if copies is None:
        return jnp.zeros_like(i)
    return jnp.searchsorted(jnp.array(copies), i, side="right") - 1


def over_positions(fn: Callable, params: Tree, copies: Copies, *xs: Array) -> Tree:
    """`fn(params, x...)` at every position, each with the copy of its segment.

    Args:
        fn: a map of one position.
        params: a tree; with copies its leaves have a leading axis C.
        xs: arrays `[T, ...]`.

    Returns:
        What `fn` gives, stacked over T. A few segments run as a product each, many equal ones as
        one batched product.
    """
    along = jax.vmap(fn, in_axes=(None, *(0 for _ in xs)))
    if copies is None:
        return along(params, *xs)
    length = xs[0].shape[0]
    sizes = np.diff((*copies, length))
    params = tree.index(params, slice(0, len(copies)))
    if (sizes == 1).all():
        return jax.vmap(fn)(params, *xs)
    if len(copies) > MOST_SEPARATE and (sizes == sizes[0]).all():
        folded = [jnp.stack(jnp.split(x, len(copies))) for x in xs]
        out = jax.vmap(along)(params, *folded)
        return jax.tree.map(lambda y: jnp.concatenate(list(y)), out)
    parts = [
        along(tree.index(params, c), *(x[start : start + size] for x in xs))
        for c, (start, size) in enumerate(zip(copies, sizes))
    ]
    return tree.concat(parts)


def over_examples(
    fn: Callable, copies: Copies, *xs: Array | None, time: tuple[int, ...] | None = None
) -> Tree:
    """`fn` of one example over a batch: arrays `[B, ...]` in and out (None is passed on).

    With copies the batch axis is put inside the position axis, so that the positions of a segment
    and the batch are the rows of one product; results do not depend on it.

    Args:
        time: where T stands in each example's array; by default it is its first axis.
    """
    time = (0,) * len(xs) if time is None else time
    at = [0 if copies is None else t + 1 for t in time]
    moved = [x if x is None else jnp.moveaxis(x, 0, a) for x, a in zip(xs, at, strict=True)]
    axes = tuple(None if x is None else a for x, a in zip(xs, at, strict=True))
    return jax.vmap(fn, in_axes=axes)(*moved)


def refine_copies(params: Tree, copies: Copies, finer: Copies) -> Tree:
    """The same model with a set of parameters for each of the finer segments.

    Args:
        params: `{"outer", "blocks"}` of a model with the segments `copies`.
        finer: segments whose starts include those of `copies`; each takes its segment's copy.

    Returns:
        Parameters with a copy axis over `finer`: the same function, untied further.

    Raises:
        UserError: a start of `copies` that is none of `finer`.
    """
    if not set(copies or (0,)) <= set(finer or (0,)):
        raise UserError(f"copies: {finer} must begin segments wherever {copies} does")
    if finer is None or finer == copies:
        return params
    which = np.searchsorted(np.array(copies or (0,)), np.array(finer), side="right") - 1

    def along(tree_: Tree, axis: int) -> Tree:
        if copies is not None:
            return jax.tree.map(lambda x: jnp.take(x, which, axis=axis), tree_)
        spread = lambda x: jnp.broadcast_to(
            jnp.expand_dims(x, axis), (*x.shape[:axis], len(finer), *x.shape[axis:])
        )
        return jax.tree.map(spread, tree_)

    stacked = not isinstance(params["blocks"], tuple)
    return {"outer": along(params["outer"], 0), "blocks": along(params["blocks"], int(stacked))}


def stack_copies(trees: list[Tree]) -> Tree:
    """Parameter sets `{"outer", "blocks"}` stacked as copies."""
    outer = jax.tree.map(lambda *x: jnp.stack(x), *(t["outer"] for t in trees))
    blocks = [t["blocks"] for t in trees]
    axis = 0 if isinstance(blocks[0], tuple) else 1
    return {"outer": outer, "blocks": jax.tree.map(lambda *x: jnp.stack(x, axis), *blocks)}
