"""ModernBERT: sees both ways, most blocks a window, trained to fill in masked tokens.

Source: Warner et al. 2024 (arXiv 2412.13663); ModernCamemBERT is of this kind. Block 0 has no norm
before its attention, since the embedding is normed: blocks are a tuple, not stacked. The final norm
is `norm`; the prediction head (a product, an activation, a norm) belongs to `unembed`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import flax.linen as nn
import numpy as np

from jaxfeat.models.assemble import assemble, check_config
from jaxfeat.models.config_json import (
    FULL,
    SLIDING,
    refuse_other,
    rope_of,
    slides_of,
    sliding_consts,
    take,
)
from jaxfeat.models.named_tensors import Names, Target, read_tree, rows
from jaxfeat.models.outer import Outer
from jaxfeat.models.rotary_block import BY_TOKEN, Attention, Block
from jaxfeat.nn.decoder import Decoder
from jaxfeat.nn.modules import GatedMlp, LayerNorm, Linear, activation, normal_init
from jaxfeat.nn.rotary import PLAIN, Rope
from jaxfeat.types import Array, Tree, UserError, check_whole

FAR = Rope(160000.0)


@dataclass(frozen=True)
class ModernBertConfig:
    """Sizes of a ModernBERT."""

    vocab: int  # rows of the table of tokens
    width: int  # residual width D
    heads: int  # attention heads H
    layers: int  # blocks N
    mlp: int  # MLP width F
    slides: tuple[bool, ...]  # [N], which blocks see a window only
    reach: int = 64  # how far such a block sees to either side, in tokens
    act: str = "gelu"  # of the MLP, by Hugging Face's name
    head_act: str = "gelu"  # of the prediction head
    eps: float = 1e-5  # of the norms
    rope: Rope = FAR  # of blocks that see all
    local_rope: Rope = PLAIN  # of blocks that see a window
    norm_bias: bool = False
    attn_bias: bool = False
    mlp_bias: bool = False
    head_bias: bool = False
    logit_bias: bool = True
    tied: bool = True  # the unembedding is the table of tokens
    dtype: str = "float32"  # of parameters and computation


class Head(nn.Module):
    """What a token's logits are read from: `norm(act(dense x))`."""

    width: int
    act: Callable[[Array], Array]
    eps: float
    norm_bias: bool
    bias: bool

    @nn.compact
    def __call__(self, x: Array) -> Array:
        x = self.act(Linear(self.width, normal_init(0.02), self.bias, name="dense")(x))
        return LayerNorm(self.eps, bias=self.norm_bias, name="norm")(x)


def make_modernbert(config: ModernBertConfig) -> Decoder:
    """A ModernBERT of the given sizes as a `Decoder` that is not causal, blocks as a tuple.

    Raises:
        UserError: a size below 1, heads that do not divide the width, an unknown activation,
            `slides` for another number of blocks.

    >>> sizes = dict(vocab=5, width=8, heads=2, layers=2, mlp=12)
    >>> make_modernbert(ModernBertConfig(**sizes, slides=(False, True))).causal
    False
    """
    check_config(config)
    c = config
    check_whole("reach", c.reach, 0)
    if c.width % c.heads:
        raise UserError(f"heads: {c.heads} does not divide the width {c.width}")
    if len(c.slides) != c.layers:
        raise UserError(f"slides: {len(c.slides)} blocks given, {c.layers} needed")
    size, norm = c.width // c.heads, partial(LayerNorm, c.eps, bias=c.norm_bias)

    def block(attn_norm: nn.Module | None) -> Block:
        return Block(
            attn=Attention(c.width, c.heads, c.heads, size, size**-0.5, c.attn_bias, c.attn_bias),
            mlp=GatedMlp(c.width, c.mlp, activation(c.act), normal_init(0.02), c.mlp_bias),
            attn_norm=attn_norm,
            mlp_norm=norm(),
        )

    outer = Outer(
        c.vocab, c.width, c.dtype, norm(), c.tied, c.logit_bias, embed_norm=norm(),
        transform=Head(c.width, activation(c.head_act), c.eps, c.norm_bias, c.head_bias),
    )  # fmt: skip
    consts = sliding_consts(c.slides, size, c.reach, c.local_rope, c.rope)
    return assemble(
        outer,
        (block(None), *[block(norm())] * (c.layers - 1)),
        c,
        consts=consts,
        visible=visible,
        causal=False,
        by_token=BY_TOKEN,
    )


def visible(const: Tree, t_position: Array, s_position: Array) -> Array:
    """`[T, S]`: a query sees sources up to `window` positions away, to both sides."""
    return abs(t_position[:, None] - s_position[None, :]) <= const["window"]


def read_config(raw: Mapping[str, Any], dtype: str = "float32") -> ModernBertConfig:
    """The sizes that a parsed config.json gives: without `layer_types` every third block sees all.

    Raises:
        UserError: a key that is missing, an option that is not implemented.
    """
    refuse_other(raw)
    layers = take(raw, "num_hidden_layers")
    every = take(raw, "global_attn_every_n_layers", default=3)
    far = rope_of(raw, FULL, theta="global_rope_theta", default=160000.0)
    # null: as in the other blocks
    default = far.theta if raw.get("local_rope_theta", 0) is None else 10000.0
    return ModernBertConfig(
        vocab=take(raw, "vocab_size"),
        width=take(raw, "hidden_size"),
        heads=take(raw, "num_attention_heads"),
        layers=layers,
        mlp=take(raw, "intermediate_size"),
        slides=slides_of(raw, layers, lambda b: b % every != 0),
        reach=take(raw, "local_attention", default=128) // 2,
        act=take(raw, "hidden_activation", default="gelu"),
        head_act=take(raw, "classifier_activation", default="gelu"),
        eps=take(raw, "norm_eps", default=1e-5),
        rope=far,
        local_rope=rope_of(raw, SLIDING, theta="local_rope_theta", default=default),
        norm_bias=take(raw, "norm_bias", default=False),
        attn_bias=take(raw, "attention_bias", default=False),
        mlp_bias=take(raw, "mlp_bias", default=False),
        head_bias=take(raw, "classifier_bias", default=False),
        logit_bias=take(raw, "decoder_bias", default=True),
        tied=take(raw, "tie_word_embeddings", default=True),
        dtype=dtype,
    )


def read_params(config: ModernBertConfig, tensors: Mapping[str, np.ndarray]) -> Tree:
    """The parameters out of tensors by their names in Hugging Face's files, as NumPy arrays.

    Raises:
        UserError: a missing tensor, one of another shape, one that no rule knows.
    """
    ignored = (r".*rotary_emb\.inv_freq", *(("decoder.weight",) if config.tied else ()))
    names = NAMES._replace(ignored=ignored)
    return read_tree(make_modernbert(config), tensors, names)


def _names() -> Names:
    """Where the tensors go: `Wqkv` holds the rows of q, k and v, `Wi` those of gate and value."""
    outer: dict[str, Target] = {"embeddings.tok_embeddings.weight": "table/embedding"}
    block: dict[str, Target] = {}
    for theirs, ours in (("weight", "kernel"), ("bias", "bias")):
        outer[f"head.dense.{theirs}"] = f"transform/dense/{ours}"
        outer[f"decoder.{theirs}"] = f"head/{ours}"
        block[f"attn.Wqkv.{theirs}"] = {f"attn/{x}/{ours}": rows(n, 3) for n, x in enumerate("qkv")}
        block[f"attn.Wo.{theirs}"] = f"attn/o/{ours}"
        halves = enumerate(("gate", "up"))
        block[f"mlp.Wi.{theirs}"] = {f"mlp/{x}/{ours}": rows(n, 2) for n, x in halves}
        block[f"mlp.Wo.{theirs}"] = f"mlp/down/{ours}"
    for theirs, ours in (("weight", "scale"), ("bias", "bias")):
        outer[f"embeddings.norm.{theirs}"] = f"embed_norm/{ours}"
        outer[f"final_norm.{theirs}"] = f"final_norm/{ours}"
        outer[f"head.norm.{theirs}"] = f"transform/norm/{ours}"
        for name in ("attn_norm", "mlp_norm"):
            block[f"{name}.{theirs}"] = f"{name}/{ours}"
    return Names(outer, block)


NAMES = _names()
