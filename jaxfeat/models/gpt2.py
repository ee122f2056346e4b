"""GPT-2: pre-LN blocks, learned positions, tanh GELU, an unembedding tied to the embedding.

Source: Radford et al. 2019; initialisation and sizes of the toy experiments from arXiv
2603.14087: N(0, 0.02), residual projections N(0, 0.02 / sqrt(2 N)).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxfeat.nn.attention import masked_softmax, tangent_only
from jaxfeat.nn.decoder import Decoder, stack_layers
from jaxfeat.nn.modules import LayerNorm, Linear, Mlp, gelu_tanh, normal_init
from jaxfeat.tree import widen
from jaxfeat.types import Array, Tree, UserError

DTYPES = ("float32", "float64", "bfloat16", "float16")


@dataclass(frozen=True)
class GPT2Config:
    """Sizes of a GPT-2."""

    vocab: int  # token ids
    length: int  # positions that have an embedding
    width: int = 128  # residual width D
    heads: int = 4  # attention heads H
    layers: int = 2  # blocks N
    mlp: int = 0  # MLP width F; 0 means 4 D
    eps: float = 1e-5  # of the layer norms
    dtype: str = "float32"  # of parameters and computation


class Outer(nn.Module):
    """Embeddings, final norm and the tied unembedding."""

    config: GPT2Config

    def setup(self):
        c = self.config
        make, dtype = normal_init(0.02), jnp.dtype(c.dtype)
        self.wte = nn.Embed(c.vocab, c.width, embedding_init=make, param_dtype=dtype)
        self.wpe = nn.Embed(c.length, c.width, embedding_init=make, param_dtype=dtype)
        self.ln_f = LayerNorm(c.eps)

    def embed(self, token: Array, position: Array) -> Array:
        return self.wte(token) + self.wpe(position)

    def norm(self, resid: Array) -> Array:
        return self.ln_f(resid)

    def unembed(self, normed: Array, ids: Array | None = None) -> Array:
        table = self.wte.embedding
        return (table if ids is None else table[ids]) @ normed

    def __call__(self, token: Array, position: Array) -> Array:
        return self.unembed(self.norm(self.embed(token, position)))


class Block(nn.Module):
    """One block as maps of one position."""

    config: GPT2Config

    def setup(self):
        c = self.config
        read, write = normal_init(0.02), normal_init(0.02 / math.sqrt(2 * c.layers))
        self.ln_1, self.ln_2 = LayerNorm(c.eps), LayerNorm(c.eps)
        self.q, self.k, self.v = Linear(c.width, read), Linear(c.width, read), Linear(c.width, read)
        self.o = Linear(c.width, write)
        self.mlp = Mlp(c.width, c.mlp or 4 * c.width, gelu_tanh, read, write)

    def query(self, resid: Array) -> Array:
        q = self.heads(self.q(self.ln_1(resid)))
        return q / math.sqrt(q.shape[-1])

    def memory(self, resid: Array) -> tuple[Array, Array]:
        read = self.ln_1(resid)
        return self.heads(self.k(read)), self.heads(self.v(read))

    def normed(self, resid: Array) -> Array:
        return self.ln_1(resid)

    def attn_out(self, mixed: Array) -> Array:
        return self.o(mixed.reshape(-1))

    def heads(self, flat: Array) -> Array:
        return flat.reshape(self.config.heads, -1)

    def mlp_out(self, resid_pre: Array, attn_out: Array) -> Array:
        return self.mlp(self.ln_2(resid_pre + attn_out))

    def __call__(self, resid: Array) -> Array:
        self.memory(resid)
        return self.mlp_out(resid, self.attn_out(self.query(resid)))


def make_gpt2(config: GPT2Config) -> Decoder:
    """A GPT-2 of the given sizes as a `Decoder`, blocks stacked on [N].

    Raises:
        UserError: heads that do not divide the width, or a size below 1.

    >>> make_gpt2(GPT2Config(vocab=5, length=4, width=8, heads=2)).layers
    2
    """
    c = config
    for name in ("vocab", "length", "width", "heads", "layers", "mlp"):
        value, least = getattr(c, name), 0 if name == "mlp" else 1
        if not isinstance(value, int) or value < least:
            raise UserError(f"{name}: {value!r} given, a whole number of at least {least} needed")
    if c.dtype not in DTYPES:
        raise UserError(f"dtype: {c.dtype!r} given; valid: {', '.join(DTYPES)}")
    if not 0 <= c.eps < 1:
        raise UserError(f"eps: {c.eps} given, a number in 0..1 needed")
    if c.width % c.heads:
        raise UserError(f"heads: {c.heads} does not divide the width {c.width}")
    outer, block = Outer(c), Block(c)

    def init(key: Array) -> Tree:
        keys = jax.random.split(key, c.layers + 1)
        zero = jnp.zeros((), jnp.int32)
        resid = jnp.zeros(c.width, c.dtype)
        blocks = [block.init(k, resid)["params"] for k in keys[1:]]
        return {"outer": outer.init(keys[0], zero, zero)["params"], "blocks": stack_layers(blocks)}

    def of_outer(method: str) -> Callable[..., Any]:
        return lambda p, *xs: outer.apply({"params": p}, *xs, method=method)

    def of_block(method: str) -> Callable[..., Any]:
        return lambda p, *xs: block.apply({"params": p}, *xs, method=method)

    query, memory, mlp_out = of_block("query"), of_block("memory"), of_block("mlp_out")
    attn_out, normed = of_block("attn_out"), of_block("normed")

    def embed(p: Tree, token: Array, position: Array) -> Array:
        # not through linen, which would refuse a table that is cut to the tokens that occur
        row = lambda name, n: jnp.take(p[name]["embedding"], n, axis=0)
        return row("wte", token) + row("wpe", position)

    def column(p, const, resid, i, position, visible, route):
        del const, position
        mixed = attend_column(p, normed(p, resid), query(p, resid[i]), visible, route)
        attn = attn_out(p, mixed)
        return resid[i] + attn + mlp_out(p, resid[i], attn)

    return Decoder(
        layers=c.layers,
        width=c.width,
        vocab=c.vocab,
        length=c.length,
        init=init,
        embed=embed,
        norm=of_outer("norm"),
        unembed=of_outer("unembed"),
        query=lambda p, const, resid, position: query(p, resid),
        memory=lambda p, const, resid, position: memory(p, resid),
        attn_out=lambda p, const, mixed: attn_out(p, mixed),
        mlp_out=lambda p, const, resid, attn: mlp_out(p, resid, attn),
        column=column,
        by_token=(("wte", "embedding"),),
    )


def attend_column(block: Tree, read: Array, q: Array, visible: Array, route: Array | None) -> Array:
    """Attention of one query, reassociated: keys and values are never formed.

    `score_s = h_s . (W_k^T q)` and `mixed = W_v^T (sum_s p_s h_s)`: O(H S D) and two D x D
    products instead of 2 S of them.

    Args:
        read: `[S, D]`, the normed residual `h` that keys and values read.
        q: `[H, K]`, scaled.
        visible, route: `[S]`; a route gates the gradient of `h`, `W_k` and `W_v` by source.

    Returns:
        `[H, E]`.
    """
    if route is None:
        pattern = masked_softmax(_scores(block["k"], read, q), visible)
        return _mixed(block["v"], read, pattern)
    stop = jax.lax.stop_gradient
    weight = route.astype(read.dtype)
    scores = _scores(stop(block["k"]), stop(read), q)
    scores += tangent_only(weight * _scores(block["k"], read, stop(q)))
    pattern = masked_softmax(scores, visible)
    mixed = _mixed(stop(block["v"]), stop(read), pattern)
    return mixed + tangent_only(_mixed(block["v"], read, weight * stop(pattern)))


def _scores(keys: Tree, read: Array, q: Array) -> Array:
    """`[H, S]` scores of one query against sources that were never projected."""
    heads, size = q.shape
    kernel, bias = keys["kernel"].reshape(heads, size, -1), keys["bias"].reshape(heads, size)
    probe = jnp.einsum("HK,HKD->HD", q, kernel)
    return widen(probe @ read.T + jnp.sum(q * bias, axis=-1, keepdims=True))


def _mixed(values: Tree, read: Array, pattern: Array) -> Array:
    """`[H, E]` out of weights `[H, S]` over sources that were never projected."""
    heads, pattern = pattern.shape[0], pattern.astype(read.dtype)
    kernel, bias = values["kernel"].reshape(heads, -1, read.shape[1]), values["bias"]
    total = jnp.sum(pattern, axis=-1, keepdims=True)
    return jnp.einsum("HD,HED->HE", pattern @ read, kernel) + total * bias.reshape(heads, -1)
