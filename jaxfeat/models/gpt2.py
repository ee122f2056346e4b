"""GPT-2: pre-LN blocks, learned positions, tanh GELU, an unembedding tied to the embedding.

Source: Radford et al. 2019; initialisation and sizes of the toy experiments from arXiv
2603.14087: N(0, 0.02), residual projections N(0, 0.02 / sqrt(2 N)).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from jaxfeat.models.assemble import assemble, check_config, of_module
from jaxfeat.models.config_json import refuse_other, take
from jaxfeat.models.named_tensors import Names, Target, read_tree, rows
from jaxfeat.nn.attention import masked_softmax, tangent_only
from jaxfeat.nn.decoder import Decoder
from jaxfeat.nn.modules import LayerNorm, Linear, Mlp, Table, activation, gelu_tanh, normal_init
from jaxfeat.tree import widen
from jaxfeat.types import Array, Tree, UserError


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
        make = normal_init(0.02)
        self.wte = Table(c.vocab, c.width, make, c.dtype)
        self.wpe = Table(c.length, c.width, make, c.dtype)
        self.ln_f = LayerNorm(c.eps)

    def embed(self, token: Array, position: Array) -> Array:
        return self.wte(token) + self.wpe(position)

    def norm(self, resid: Array) -> Array:
        return self.ln_f(resid)

    def unembed(self, normed: Array, ids: Array | None = None) -> Array:
        table = self.wte()
        return (table if ids is None else table[ids]) @ normed


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

    def query(self, const: Tree, resid: Array, position: Array) -> Array:
        q = self.heads(self.q(self.ln_1(resid)))
        return q / math.sqrt(q.shape[-1])

    def memory(self, const: Tree, resid: Array, position: Array) -> tuple[Array, Array]:
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


def make_gpt2(config: GPT2Config) -> Decoder:
    """A GPT-2 of the given sizes as a `Decoder`, blocks stacked on [N].

    Raises:
        UserError: heads that do not divide the width, or a size below 1.

    >>> make_gpt2(GPT2Config(vocab=5, length=4, width=8, heads=2)).layers
    2
    """
    c = config
    check_config(c, zero=("mlp",))
    if c.width % c.heads:
        raise UserError(f"heads: {c.heads} does not divide the width {c.width}")
    block = Block(c)
    normed = of_module(block, "normed")
    decoder = assemble(Outer(c), block, c, length=c.length, by_token=(("wte", "embedding"),))

    def column(p, const, resid, i, position, visible, route):
        q = decoder.query(p, const, resid[i], position)
        mixed = attend_column(p, normed(p, resid), q, visible, route)
        attn = decoder.attn_out(p, const, mixed)
        return resid[i] + attn + decoder.mlp_out(p, const, resid[i], attn)

    return decoder._replace(column=column)


def read_config(raw: Mapping[str, Any], dtype: str = "float32") -> GPT2Config:
    """The sizes that a parsed config.json gives.

    Raises:
        UserError: a key that is missing, an option that is not implemented.
    """
    refuse_other(
        raw, scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False,
        add_cross_attention=False, tie_word_embeddings=True,
    )  # fmt: skip
    act = take(raw, "activation_function", default="gelu_new")
    if activation(act) is not gelu_tanh:
        raise UserError(f"config.json: activation_function {act!r} given; valid: gelu_new")
    return GPT2Config(
        vocab=take(raw, "vocab_size"),
        length=take(raw, "n_positions", "n_ctx"),
        width=take(raw, "n_embd"),
        heads=take(raw, "n_head"),
        layers=take(raw, "n_layer"),
        mlp=take(raw, "n_inner", default=0),
        eps=take(raw, "layer_norm_epsilon", default=1e-5),
        dtype=dtype,
    )


def read_params(config: GPT2Config, tensors: Mapping[str, np.ndarray]) -> Tree:
    """The parameters out of tensors by their names in Hugging Face's files, as NumPy arrays.

    Raises:
        UserError: a missing tensor, one of another shape, one that no rule knows.
    """
    return read_tree(make_gpt2(config), tensors, NAMES)


def _names() -> Names:
    """Where GPT-2's tensors go: kernels are `[in, out]` there, `c_attn` holds `[q | k | v]`."""
    block: dict[str, Target] = {
        "attn.c_attn.weight": {f"{x}/kernel": lambda w, n=n: rows(n, 3)(w.T) for n, x in READS},
        "attn.c_attn.bias": {f"{x}/bias": rows(n, 3) for n, x in READS},
    }
    for name, at in (("attn.c_proj", "o"), ("mlp.c_fc", "mlp/fc"), ("mlp.c_proj", "mlp/proj")):
        block |= {f"{name}.weight": {f"{at}/kernel": np.transpose}, f"{name}.bias": f"{at}/bias"}
    outer: dict[str, Target] = {"wte.weight": "wte/embedding", "wpe.weight": "wpe/embedding"}
    for name, where in (("ln_1", block), ("ln_2", block), ("ln_f", outer)):
        where |= {f"{name}.weight": f"{name}/scale", f"{name}.bias": f"{name}/bias"}
    masks = (r"h\.\d+\.attn\.(masked_)?bias", "lm_head.weight")
    return Names(outer, block, "h.{}.", ("transformer.",), masks)


READS = tuple(enumerate("qkv"))
NAMES = _names()


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
