"""What must a model say of itself so that its gradients can be taken apart?

A decoder is a set of maps of ONE position plus one parameter-free function that mixes positions.
Everything else (routes, copies, taps, edits, one column alone) is an argument of the pass in
`jaxfeat.nn.blocks`, so that any model written this way is split, traced and edited alike.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxfeat.nn import attention
from jaxfeat.types import Array, Batch, Tree, UserError, check_tokens


def causal_visible(const: Tree, t_position: Array, s_position: Array) -> Array:
    """`[T, S]`: a query sees sources at its own and at earlier positions."""
    return t_position[:, None] >= s_position[None, :]


def no_norm(outer: Tree, resid: Array) -> Array:
    """No final norm."""
    return resid


class Decoder(NamedTuple):
    """A model as pure functions. Parameters are `{"outer": tree, "blocks": tree}`.

    `blocks` is a tree whose leaves are stacked on a leading axis [N], or a tuple of N trees.
    `consts` holds per-block arrays that are no parameters (windows, rotary frequencies), stacked
    or as a tuple likewise, or None. `layers` is N, `width` is D, `vocab` is V; `length` is the most
    positions that the model has, None without a limit. `by_token` names the tables `[V, ..]` of
    `outer`, by their paths, of which `embed` reads nothing but the row of its token.

    Fields, for one position each unless a shape says otherwise:
        init(key) -> params
        embed(outer, token, position) -> resid [D]
        query(block, const, resid [D], position) -> q [H, K], scaled: the mixer never scales
        memory(block, const, resid [D], position) -> k [G, K], v [G, E]
        attn_out(block, const, mixed [H, E]) -> [D]
        mlp_out(block, const, resid_pre [D], attn_out [D]) -> [D]
        unembed(outer, normed [D], ids=None) -> logits [V], or those of the ids alone
        norm(outer, resid [D]) -> [D]
        visible(const, t_position [T], s_position [S]) -> bool [T, S]; padding is added by the pass
        mix(q [T, H, K], k [S, G, K], v [S, G, E], visible, route) -> [T, H, E]
        column(block, const, resid [S, D], i, position, visible [S], route [S]) -> resid [D] after
            the block at index i, whose position is given; an optional fast form of what the
            maps give for one query
    """

    layers: int
    width: int
    vocab: int
    init: Callable[[Array], Tree]
    embed: Callable[..., Array]
    query: Callable[..., Array]
    memory: Callable[..., tuple[Array, Array]]
    attn_out: Callable[..., Array]
    mlp_out: Callable[..., Array]
    unembed: Callable[..., Array]
    norm: Callable[..., Array] = no_norm
    visible: Callable[..., Array] = causal_visible
    mix: Callable[..., Array] = attention.mix
    column: Callable[..., Array] | None = None
    consts: Any = None
    causal: bool = True
    length: int | None = None
    by_token: tuple[tuple[str, ...], ...] = ()


def check_batch(decoder: Decoder, batch: Batch) -> None:
    """Refuse sequences that the model cannot read: JAX itself would clamp ids or give NaN.

    Token ids are looked at where they are values; inside a compiled function only shapes are.

    Raises:
        UserError: more positions than `decoder.length`, ids outside 0..V-1.
    """
    length = batch.token.shape[-1]
    if decoder.length is not None and length > decoder.length:
        raise UserError(f"batch: {length} positions given, the model has {decoder.length}")
    real = (("token", batch.token, batch.mask), ("target", batch.target, batch.weight))
    for name, ids, counts in real:
        if not any(isinstance(x, Tracer) for x in (ids, counts)):
            check_tokens(np.where(counts, ids, 0), decoder.vocab, name)


def check_params(decoder: Decoder, params: Tree, copies: tuple[int, ...] | None) -> None:
    """Refuse parameters of another model or with another number of copies.

    Raises:
        UserError: the first array that is not as `decoder.init` makes it.
    """
    outer, like, layers = _made(decoder.init)
    if layers != decoder.layers:
        raise UserError(f"layers: {decoder.layers} given, the model's init makes {layers} blocks")
    copied = () if copies is None else (len(copies),)
    blocks, several = params["blocks"], isinstance(like, tuple)
    if isinstance(blocks, tuple):
        _check_shapes("blocks", blocks, like if several else (like,) * layers, copied)
    elif several and any(block != like[0] for block in like):
        raise UserError("params: blocks are stacked, this model's differ: a tuple of them needed")
    else:
        block = (like[0] if like else ()) if several else like
        _check_shapes("blocks", blocks, block, (layers, *copied))
    _check_shapes("outer", params["outer"], outer, copied)


def _check_shapes(name: str, given: Tree, like: Tree, before: tuple[int, ...]) -> None:
    """Refuse arrays that are not of these shapes with the axes `before` in front."""
    if jax.tree.structure(given) != jax.tree.structure(like):
        raise UserError(f"params: another tree of {name} given than the model's init makes")
    for (path, x), leaf in zip(
        jax.tree_util.tree_leaves_with_path(given), jax.tree.leaves(like), strict=True
    ):
        shape = (*before, *leaf.shape)
        if jnp.shape(x) != shape:
            where = name + jax.tree_util.keystr(path)
            raise UserError(f"params: {where} has shape {jnp.shape(x)}, {shape} needed")


@functools.lru_cache(maxsize=64)
def _made(init: Callable[[Array], Tree]) -> tuple[Tree, Tree, int]:
    """Shapes that `init` makes: of `outer`, of one block or of each in a tuple, how many blocks."""
    with jax.ensure_compile_time_eval():
        key = jax.random.key(0)
    made = jax.eval_shape(init, key)
    blocks = made["blocks"]
    if isinstance(blocks, tuple):
        return made["outer"], blocks, len(blocks)
    block = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), blocks)
    return made["outer"], block, jax.tree.leaves(blocks)[0].shape[0]


def layer_of(stacked: Tree, b: int) -> Tree:
    """The tree of 0-based block b, from stacked leaves or from a tuple."""
    if stacked is None or isinstance(stacked, tuple):
        return stacked if stacked is None else stacked[b]
    return jax.tree.map(lambda x: x[b], stacked)
