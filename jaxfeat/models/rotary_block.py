"""The block that rotary families share: its parts are given, its order is one of two.

    sequential: x + a + mlp_post(mlp(mlp_norm(x + a))),  a = attn_post(attention(attn_norm(x)))
    parallel:   x + a + mlp_post(mlp(mlp_norm(x)))

A norm that is None is left out: Llama has none after, OLMo 2 none before, Gemma both.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import flax.linen as nn
import jax.numpy as jnp

from jaxfeat.models.assemble import assemble, check_config
from jaxfeat.models.outer import Outer
from jaxfeat.nn.decoder import Decoder
from jaxfeat.nn.modules import GatedMlp, Linear, activation, normal_init
from jaxfeat.nn.rotary import rotate
from jaxfeat.types import Array, Tree

BY_TOKEN = (("table", "embedding"),)
NOTHING: Mapping[str, Any] = MappingProxyType({})


def make_rotary(
    config: Any,
    norm: Callable[[], nn.Module],
    at: tuple[str, ...],
    *,
    attn: Mapping[str, Any] = NOTHING,
    outer: Mapping[str, Any] = NOTHING,
    **others: Any,
) -> Decoder:
    """A model of equal sequential blocks with gated MLPs, blocks stacked on [N].

    Args:
        config: sizes by the names of `LlamaConfig`.
        norm: makes a norm of the family. at: where a block has one, by the names of `Block`.
        attn, outer: further fields of `Attention` and `Outer`.
        others: further fields of `Decoder`.

    Raises:
        UserError: a size below 1, groups that do not divide the heads, an unknown activation.
    """
    check_config(config)
    c = config
    biased, size = getattr(c, "attn_bias", False), c.head_size
    heads = {"scale": size**-0.5, "bias": biased, "out_bias": biased} | dict(attn)
    act, make = activation(c.act), normal_init(0.02)
    norms: dict[str, Any] = {name: norm() for name in at}
    block = Block(
        attn=Attention(c.width, c.heads, c.groups, size, **heads),
        mlp=GatedMlp(c.width, c.mlp, act, make, getattr(c, "mlp_bias", False)),
        **norms,
    )
    around = Outer(c.vocab, c.width, c.dtype, norm(), c.tied, **outer)
    return assemble(around, block, c, by_token=BY_TOKEN, **others)


class Attention(nn.Module):
    """Queries, keys and values of one position, turned by rotary angles, and the way back.

    A projection is clipped to `[-clip, clip]`, normed (by head, or whole as in OLMo 2), split into
    heads and turned. Query head h reads key and value group h // (heads / groups).
    """

    width: int
    heads: int
    groups: int
    size: int  # K = E of a head
    scale: float  # of scores
    bias: bool = False  # of queries, keys and values
    out_bias: bool = False
    clip: float | None = None
    q_norm: nn.Module | None = None
    k_norm: nn.Module | None = None
    norm_whole: bool = False

    def setup(self):
        make, inner = normal_init(0.02), self.groups * self.size
        self.q = Linear(self.heads * self.size, make, self.bias)
        self.k, self.v = Linear(inner, make, self.bias), Linear(inner, make, self.bias)
        self.o = Linear(self.width, make, self.out_bias)

    def query(self, const: Tree, read: Array, position: Array) -> Array:
        q = self.in_heads(self.q(read), self.q_norm)
        return rotate(q, position, const["frequency"]) * jnp.asarray(self.scale, q.dtype)

    def memory(self, const: Tree, read: Array, position: Array) -> tuple[Array, Array]:
        k = self.in_heads(self.k(read), self.k_norm)
        return rotate(k, position, const["frequency"]), self.in_heads(self.v(read))

    def out(self, mixed: Array) -> Array:
        return self.o(mixed.reshape(-1))

    def in_heads(self, flat: Array, norm: nn.Module | None = None) -> Array:
        """`[H K]` to `[H, K]`."""
        flat = flat if self.clip is None else jnp.clip(flat, -self.clip, self.clip)
        if norm is not None and self.norm_whole:
            flat = norm(flat)
        split = flat.reshape(-1, self.size)
        return split if norm is None or self.norm_whole else norm(split)


class Block(nn.Module):
    """Attention and an MLP, each between a norm before and a norm after."""

    attn: Attention
    mlp: nn.Module
    attn_norm: nn.Module | None = None
    attn_post: nn.Module | None = None
    mlp_norm: nn.Module | None = None
    mlp_post: nn.Module | None = None
    parallel: bool = False

    def query(self, const: Tree, resid: Array, position: Array) -> Array:
        return self.attn.query(const, _through(self.attn_norm, resid), position)

    def memory(self, const: Tree, resid: Array, position: Array) -> tuple[Array, Array]:
        return self.attn.memory(const, _through(self.attn_norm, resid), position)

    def attn_out(self, mixed: Array) -> Array:
        return _through(self.attn_post, self.attn.out(mixed))

    def mlp_out(self, resid: Array, attn: Array) -> Array:
        read = resid if self.parallel else resid + attn
        return _through(self.mlp_post, self.mlp(_through(self.mlp_norm, read)))


def _through(norm: nn.Module | None, x: Array) -> Array:
    """`norm(x)`, or x where there is none."""
    return x if norm is None else norm(x)
