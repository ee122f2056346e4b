"""Llama: rotary positions, RMS norms before both halves of a block, a gated MLP, grouped heads.

Source: Touvron et al. 2023 (arXiv 2302.13971); Llama 3 (arXiv 2407.21783); SmolLM2 is of this kind.
EuroBERT, OLMo and OLMo 2 take their parts from here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import numpy as np

from jaxfeat.models.config_json import refuse_other, rope_of, same_consts, take
from jaxfeat.models.named_tensors import Names, Target, read_tree
from jaxfeat.models.rotary_block import make_rotary
from jaxfeat.nn.decoder import Decoder
from jaxfeat.nn.modules import RMSNorm
from jaxfeat.nn.rotary import PLAIN, Rope
from jaxfeat.types import Tree


@dataclass(frozen=True)
class LlamaConfig:
    """Sizes of a Llama."""

    vocab: int  # rows of the table of tokens
    width: int  # residual width D
    heads: int  # attention heads H
    groups: int  # key-value heads G
    head_size: int  # K
    layers: int  # blocks N
    mlp: int  # MLP width F
    act: str = "silu"  # of the MLP, by Hugging Face's name
    eps: float = 1e-6  # of the norms
    rope: Rope = PLAIN
    tied: bool = False  # the unembedding is the table of tokens
    attn_bias: bool = False
    mlp_bias: bool = False
    dtype: str = "float32"  # of parameters and computation


def make_llama(config: LlamaConfig) -> Decoder:
    """A Llama of the given sizes as a `Decoder`, blocks stacked on [N].

    Raises:
        UserError: a size below 1, groups that do not divide the heads, an unknown activation.

    >>> sizes = dict(vocab=5, width=8, heads=2, groups=1, head_size=4, layers=2, mlp=12)
    >>> make_llama(LlamaConfig(**sizes)).layers
    2
    """
    return make_like(config, lambda: RMSNorm(config.eps))


def make_like(
    config: LlamaConfig,
    norm: Callable[[], nn.Module],
    at: tuple[str, ...] = ("attn_norm", "mlp_norm"),
    **others: Any,
) -> Decoder:
    """A model with Llama's rotary angles; arguments as of `make_rotary`."""
    consts = same_consts(config.layers, config.head_size, config.rope)
    return make_rotary(config, norm, at, consts=consts, **others)


def read_config(raw: Mapping[str, Any], dtype: str = "float32") -> LlamaConfig:
    """The sizes that a parsed config.json gives.

    Raises:
        UserError: a key that is missing, an option that is not implemented.
    """
    refuse_other(raw)
    return LlamaConfig(**read_sizes(raw), dtype=dtype)


def read_params(config: LlamaConfig, tensors: Mapping[str, np.ndarray]) -> Tree:
    """The parameters out of tensors by their names in Hugging Face's files, as NumPy arrays.

    Raises:
        UserError: a missing tensor, one of another shape, one that no rule knows.
    """
    return read_tree(make_llama(config), tensors, names_of(config.tied, NORMS))


NORMS: dict[str, Target] = {
    "input_layernorm.weight": "attn_norm/scale",
    "post_attention_layernorm.weight": "mlp_norm/scale",
}
OUTER: dict[str, Target] = {
    "embed_tokens.weight": "table/embedding",
    "norm.weight": "final_norm/scale",
    "lm_head.weight": "head/kernel",
}
HEAD_NORMS: dict[str, Target] = {
    "self_attn.q_norm.weight": "attn/q_norm/scale",
    "self_attn.k_norm.weight": "attn/k_norm/scale",
}


def projections() -> dict[str, Target]:
    """Where the weights and biases of a block's products go."""
    inside = {f"self_attn.{x}_proj": f"attn/{x}" for x in "qkvo"}
    inside |= {f"mlp.{x}_proj": f"mlp/{x}" for x in ("gate", "up", "down")}
    found: dict[str, Target] = {f"{name}.weight": f"{at}/kernel" for name, at in inside.items()}
    return found | {f"{name}.bias": f"{at}/bias" for name, at in inside.items()}


def names_of(tied: bool, block: Mapping[str, Target], **others: Any) -> Names:
    """The names of a family of this kind: its projections and what is given of the block."""
    ignored = (r".*rotary_emb\.inv_freq", *(("lm_head.weight",) if tied else ()))
    names = Names(outer=OUTER, block=projections() | dict(block), ignored=ignored)
    return names._replace(**others)


def read_sizes(raw: Mapping[str, Any], eps: float = 1e-6) -> dict[str, Any]:
    """What configs of this kind have in common, by our names; defaults as in transformers."""
    heads = take(raw, "num_attention_heads")
    width = take(raw, "hidden_size")
    return {
        "vocab": take(raw, "vocab_size"),
        "width": width,
        "heads": heads,
        "groups": take(raw, "num_key_value_heads", default=heads),
        "head_size": take(raw, "head_dim", default=width // heads),
        "layers": take(raw, "num_hidden_layers"),
        "mlp": take(raw, "intermediate_size"),
        "act": take(raw, "hidden_act", default="silu"),
        "eps": take(raw, "rms_norm_eps", default=eps),
        "rope": rope_of(raw),
        "tied": take(raw, "tie_word_embeddings", default=False),
        "attn_bias": take(raw, "attention_bias", default=False),
        "mlp_bias": take(raw, "mlp_bias", default=False),
    }
