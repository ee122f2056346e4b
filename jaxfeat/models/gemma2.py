"""Gemma 2: norms before and after both halves of a block, soft-caps, every second block a window.

Source: Gemma Team 2024 (arXiv 2408.00118). RMS norms multiply by 1 + weight; the embedding is
scaled by sqrt(D), rounded to the compute type; scores are scaled by `query_scalar`^-1/2; scores and
logits become `cap * tanh(x / cap)`. Weights are kept as stored: nothing is folded or centred.
"""

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxfeat.models.config_json import refuse_other, rope_of, slides_of, sliding_consts, take
from jaxfeat.models.llama import names_of
from jaxfeat.models.named_tensors import Target, read_tree
from jaxfeat.models.rotary_block import make_rotary
from jaxfeat.nn import attention
from jaxfeat.nn.decoder import Decoder
from jaxfeat.nn.modules import RMSNorm
from jaxfeat.nn.rotary import PLAIN, Rope
from jaxfeat.types import Array, Tree, UserError, check_whole


@dataclass(frozen=True)
class GemmaConfig:
    """Sizes that Gemma 2 and 3 have in common."""

    vocab: int  # rows of the table of tokens
    width: int  # residual width D
    heads: int  # attention heads H
    groups: int  # key-value heads G
    head_size: int  # K
    layers: int  # blocks N
    mlp: int  # MLP width F
    slides: tuple[bool, ...]  # [N], which blocks see a window only
    window: int = 4096  # keys that a query of such a block sees, its own included
    query_scalar: float = 256.0
    act: str = "gelu_pytorch_tanh"  # of the MLP, by Hugging Face's name
    eps: float = 1e-6  # of the norms
    logit_softcap: float | None = None
    tied: bool = True
    dtype: str = "float32"  # of parameters and computation


@dataclass(frozen=True)
class Gemma2Config(GemmaConfig):
    """Sizes of a Gemma 2."""

    rope: Rope = PLAIN
    attn_softcap: float | None = 50.0
    logit_softcap: float | None = 30.0


def make_gemma2(config: Gemma2Config) -> Decoder:
    """A Gemma 2 of the given sizes as a `Decoder`, blocks stacked on [N].

    Raises:
        UserError: a size below 1, groups that do not divide the heads, an unknown activation,
            `slides` for another number of blocks.

    >>> sizes = dict(vocab=5, width=8, heads=2, groups=1, head_size=4, layers=2, mlp=12)
    >>> make_gemma2(Gemma2Config(**sizes, slides=(True, False))).consts["window"].tolist()
    [4096, 1073741824]
    """
    mix = functools.partial(attention.mix, softcap=config.attn_softcap)
    return make_gemma(config, near=config.rope, far=config.rope, qk_norm=False, mix=mix)


def make_gemma(config: Any, *, near: Rope, far: Rope, qk_norm: bool, mix: Any) -> Decoder:
    """A Gemma 2 or 3.

    Args:
        near, far: the rotary angles of blocks that see a window, and of those that see all.
        qk_norm: whether each head of queries and keys is normed.
        mix: the mixer.
    """
    c = config
    check_whole("window", c.window, 1)
    if len(c.slides) != c.layers:
        raise UserError(f"slides: {len(c.slides)} blocks given, {c.layers} needed")
    for name in ("query_scalar", "attn_softcap", "logit_softcap"):
        value = getattr(c, name, None)
        if value is not None and not value > 0:
            raise UserError(f"{name}: {value} given, a positive number needed")
    norm = functools.partial(RMSNorm, c.eps, 1.0)
    of_heads = {"q_norm": norm(), "k_norm": norm()} if qk_norm else {}
    return make_rotary(
        c,
        norm,
        ("attn_norm", "attn_post", "mlp_norm", "mlp_post"),
        attn={"scale": c.query_scalar**-0.5, **of_heads},
        outer={"scale": math.sqrt(c.width), "softcap": c.logit_softcap},
        consts=sliding_consts(c.slides, c.head_size, c.window, near, far),
        visible=visible,
        mix=mix,
    )


def visible(const: Tree, t_position: Array, s_position: Array) -> Array:
    """`[T, S]`: a query sees the last `window` sources up to its own."""
    back = t_position[:, None] - s_position[None, :]
    return (back >= 0) & (back < const["window"])


def read_config(raw: Mapping[str, Any], dtype: str = "float32") -> Gemma2Config:
    """The sizes that a parsed config.json gives: without `layer_types` blocks 0, 2, 4.. slide.

    Raises:
        UserError: a key that is missing, an option that is not implemented.
    """
    sizes = read_gemma_sizes(raw, lambda b: b % 2 == 0)
    cap = raw.get("attn_logit_softcapping", 50.0)  # null is none, absent is the default
    final = raw.get("final_logit_softcapping", 30.0)
    rope = rope_of(raw)
    return Gemma2Config(**sizes, rope=rope, attn_softcap=cap, logit_softcap=final, dtype=dtype)


def read_params(config: Gemma2Config, tensors: Mapping[str, np.ndarray]) -> Tree:
    """The parameters out of tensors by their names in Hugging Face's files, as NumPy arrays.

    Raises:
        UserError: a missing tensor, one of another shape, one that no rule knows.
    """
    return read_tree(make_gemma2(config), tensors, names_of(config.tied, NORMS))


NORMS: dict[str, Target] = {
    "input_layernorm.weight": "attn_norm/scale",
    "post_attention_layernorm.weight": "attn_post/scale",
    "pre_feedforward_layernorm.weight": "mlp_norm/scale",
    "post_feedforward_layernorm.weight": "mlp_post/scale",
}


def read_gemma_sizes(raw: Mapping[str, Any], slides: Any) -> dict[str, Any]:
    """What configs of Gemma 2 and 3 have in common, by our names; defaults as in transformers."""
    refuse_other(raw, attention_bias=False, use_bidirectional_attention=False)
    layers = take(raw, "num_hidden_layers")
    return {
        "vocab": take(raw, "vocab_size"),
        "width": take(raw, "hidden_size"),
        "heads": take(raw, "num_attention_heads"),
        "groups": take(raw, "num_key_value_heads"),
        "head_size": take(raw, "head_dim", default=256),
        "layers": layers,
        "mlp": take(raw, "intermediate_size"),
        "slides": slides_of(raw, layers, slides),
        "window": take(raw, "sliding_window", default=4096),
        "query_scalar": take(raw, "query_pre_attn_scalar", default=256),
        "act": take(raw, "hidden_activation", "hidden_act", default="gelu_pytorch_tanh"),
        "eps": take(raw, "rms_norm_eps", default=1e-6),
        "tied": take(raw, "tie_word_embeddings", default=True),
    }
