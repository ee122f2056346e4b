"""How do linen modules of one position become a `Decoder`?

Every family gives two modules: one for what stands outside of blocks, with the methods `embed`,
`norm` and `unembed`, and one for a block, with `query`, `memory`, `attn_out` and `mlp_out`. Their
arguments are those of the `Decoder`'s maps without the parameters.
"""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxfeat.nn.decoder import Decoder, layer_of
from jaxfeat.types import Array, Tree, UserError, check_whole

DTYPES = ("float32", "float64", "bfloat16", "float16")
SIZES = ("vocab", "length", "width", "heads", "groups", "head_size", "layers", "mlp")


def assemble(
    outer: nn.Module,
    block: nn.Module | tuple[nn.Module, ...],
    config: Any,
    *,
    consts: Tree = None,
    **others: Any,
) -> Decoder:
    """The modules of one position as a `Decoder`, its parameters as `init` of the modules draws.

    Args:
        outer, block: as the head of this file says. A tuple of N modules where blocks have
            different parameters: then the parameters are a tuple too.
        config: `layers`, `width`, `vocab` and `dtype` are read.
        consts: as in `Decoder`.
        others: further fields of `Decoder`.
    """
    c, several = config, isinstance(block, tuple)
    modules: tuple[nn.Module, ...] = block if isinstance(block, tuple) else (block,) * c.layers
    zero, const = jnp.zeros((), jnp.int32), layer_of(consts, 0)

    def init_block(module: nn.Module, key: Array) -> Tree:
        resid = jnp.zeros(c.width, c.dtype)
        return module.init(key, const, resid, zero, method=_through_block)["params"]

    def init(key: Array) -> Tree:
        keys = jax.random.split(key, c.layers + 1)
        if several:
            blocks = tuple(init_block(m, k) for m, k in zip(modules, keys[1:]))
        else:
            blocks = jax.vmap(lambda k: init_block(modules[0], k))(keys[1:])
        first = outer.init(keys[0], zero, zero, method=_through_outer)["params"]
        return {"outer": first, "blocks": blocks}

    module_of = _chooser(modules, init_block)

    def of_block(method: str) -> Callable[..., Any]:
        return lambda p, *xs: module_of(p).apply({"params": p}, *xs, method=method)

    attn_out, mlp_out = of_block("attn_out"), of_block("mlp_out")
    unembed = of_module(outer, "unembed")
    return Decoder(
        layers=c.layers,
        width=c.width,
        vocab=c.vocab,
        init=init,
        embed=of_module(outer, "embed"),
        norm=of_module(outer, "norm"),
        unembed=lambda p, normed, ids=None: unembed(p, normed, ids),
        query=of_block("query"),
        memory=of_block("memory"),
        attn_out=lambda p, const, mixed: attn_out(p, mixed),
        mlp_out=lambda p, const, resid, attn: mlp_out(p, resid, attn),
        consts=consts,
        **others,
    )


def of_module(module: nn.Module, method: str) -> Callable[..., Any]:
    """A method of a module as a function of its parameters and arguments."""
    return lambda p, *xs: module.apply({"params": p}, *xs, method=method)


def with_tokens(decoder: Decoder, tokens: int) -> Decoder:
    """The model with logits of its first `tokens` ids alone: padded rows of a table are no tokens.

    Its parameters stay as they are. (Pythia's tables have 50304 rows, its tokenizer 50277 ids.)

    Raises:
        UserError: more tokens than the table has rows.
    """
    check_whole("tokens", tokens, 1, decoder.vocab)
    if tokens == decoder.vocab:
        return decoder

    def unembed(outer: Tree, normed: Array, ids: Array | None = None) -> Array:
        logits = decoder.unembed(outer, normed, ids)
        return logits[:tokens] if ids is None else logits

    return decoder._replace(vocab=tokens, unembed=unembed)


def check_config(config: Any, zero: tuple[str, ...] = ()) -> None:
    """Refuse sizes that make no model; those named in `zero` may be 0.

    Raises:
        UserError: a size below 1, an unknown type, an eps outside of 0..1, groups that do not
            divide the heads.
    """
    for name in SIZES:
        value, least = getattr(config, name, 1), 0 if name in zero else 1
        if not isinstance(value, int) or value < least:
            raise UserError(f"{name}: {value!r} given, a whole number of at least {least} needed")
    if config.dtype not in DTYPES:
        raise UserError(f"dtype: {config.dtype!r} given; valid: {', '.join(DTYPES)}")
    if not 0 <= getattr(config, "eps", 0) < 1:
        raise UserError(f"eps: {config.eps} given, a number in 0..1 needed")
    if config.heads % getattr(config, "groups", 1):
        raise UserError(f"groups: {config.groups} does not divide the heads {config.heads}")


def _through_outer(outer: Any, token: Array, position: Array) -> Array:
    """One position through all that stands outside of blocks, so that every parameter is made."""
    return outer.unembed(outer.norm(outer.embed(token, position)))


def _through_block(block: Any, const: Tree, resid: Array, position: Array) -> Array:
    """One position through a block, likewise."""
    values = block.memory(const, resid, position)[1]
    heads = block.query(const, resid, position).shape[0]
    mixed = jnp.zeros((heads, values.shape[-1]), resid.dtype)
    return block.mlp_out(resid, block.attn_out(mixed))


def _chooser(modules: tuple[nn.Module, ...], init_block: Callable) -> Callable:
    """Which of several modules a block's parameters belong to: the one that makes such a tree."""
    distinct = list({id(m): m for m in modules}.values())
    if len(distinct) == 1:
        return lambda p: distinct[0]
    kinds = {}
    for module in distinct:
        made = jax.eval_shape(lambda k, m=module: init_block(m, k), jax.random.key(0))
        kinds[jax.tree.structure(made)] = module
    return lambda p: kinds[jax.tree.structure(p)]
