"""GPT-NeoX: attention and MLP side by side, rotary angles on a part of each head (Pythia's kind).

Source: Black et al. 2022 (arXiv 2204.06745); Pythia: Biderman et al. 2023 (arXiv 2304.01373).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxfeat.models.assemble import assemble, check_config
from jaxfeat.models.config_json import refuse_other, rope_of, same_consts, take
from jaxfeat.models.named_tensors import Names, Target, read_tree
from jaxfeat.models.outer import Outer
from jaxfeat.models.rotary_block import BY_TOKEN, Attention, Block
from jaxfeat.nn.decoder import Decoder
from jaxfeat.nn.modules import LayerNorm, Mlp, activation, normal_init
from jaxfeat.nn.rotary import PLAIN, Rope
from jaxfeat.types import Tree, UserError


@dataclass(frozen=True)
class GptNeoxConfig:
    """Sizes of a GPT-NeoX."""

    vocab: int  # rows of the table of tokens, padded ones included
    width: int  # residual width D
    heads: int  # attention heads H
    layers: int  # blocks N
    mlp: int  # MLP width F
    rotated: float = 0.25  # the part of a head that is turned
    act: str = "gelu"  # of the MLP, by Hugging Face's name
    eps: float = 1e-5  # of the norms
    rope: Rope = PLAIN
    parallel: bool = True  # attention and MLP both read the block's input
    attn_bias: bool = True
    tied: bool = False  # the unembedding is the table of tokens
    dtype: str = "float32"  # of parameters and computation


def make_gpt_neox(config: GptNeoxConfig) -> Decoder:
    """A GPT-NeoX of the given sizes as a `Decoder`, blocks stacked on [N].

    Raises:
        UserError: a size below 1, heads that do not divide the width, an unknown activation, a
            part of a head that is no even number of entries.

    >>> sizes = dict(vocab=5, width=16, heads=2, layers=2, mlp=12)
    >>> make_gpt_neox(GptNeoxConfig(**sizes)).consts["frequency"].shape
    (2, 1)
    """
    check_config(config)
    c = config
    if c.width % c.heads:
        raise UserError(f"heads: {c.heads} does not divide the width {c.width}")
    if not 0 < c.rotated <= 1:
        raise UserError(f"rotated: {c.rotated} given, a part of a head in 0..1 needed")
    size, make = c.width // c.heads, normal_init(0.02)
    block = Block(
        attn=Attention(c.width, c.heads, c.heads, size, size**-0.5, c.attn_bias, c.attn_bias),
        mlp=Mlp(c.width, c.mlp, activation(c.act), make, make),
        attn_norm=LayerNorm(c.eps),
        mlp_norm=LayerNorm(c.eps),
        parallel=c.parallel,
    )
    outer = Outer(c.vocab, c.width, c.dtype, LayerNorm(c.eps), c.tied)
    consts = same_consts(c.layers, int(size * c.rotated), c.rope)
    return assemble(outer, block, c, consts=consts, by_token=BY_TOKEN)


def read_config(raw: Mapping[str, Any], dtype: str = "float32") -> GptNeoxConfig:
    """The sizes that a parsed config.json gives.

    Raises:
        UserError: a key that is missing, an option that is not implemented.
    """
    refuse_other(raw)
    rope = raw.get("rope_parameters") or {}
    return GptNeoxConfig(
        vocab=take(raw, "vocab_size"),
        width=take(raw, "hidden_size"),
        heads=take(raw, "num_attention_heads"),
        layers=take(raw, "num_hidden_layers"),
        mlp=take(raw, "intermediate_size"),
        rotated=take({**raw, **rope}, "partial_rotary_factor", "rotary_pct", default=0.25),
        act=take(raw, "hidden_act", default="gelu"),
        eps=take(raw, "layer_norm_eps", default=1e-5),
        rope=rope_of(raw, theta=("rotary_emb_base", "rope_theta")),
        parallel=take(raw, "use_parallel_residual", default=True),
        attn_bias=take(raw, "attention_bias", default=True),
        tied=take(raw, "tie_word_embeddings", default=False),
        dtype=dtype,
    )


def read_params(config: GptNeoxConfig, tensors: Mapping[str, np.ndarray]) -> Tree:
    """The parameters out of tensors by their names in Hugging Face's files, as NumPy arrays.

    Queries, keys and values are fused by head: the rows are `[H, 3, K]`.

    Raises:
        UserError: a missing tensor, one of another shape, one that no rule knows.
    """

    def part(n: int):
        def of(x: np.ndarray) -> np.ndarray:
            by_head = x.reshape(config.heads, 3, -1, *x.shape[1:])[:, n]
            return by_head.reshape(-1, *x.shape[1:])

        return of

    qkv = {
        f"attention.query_key_value.{theirs}": {
            f"attn/{x}/{ours}": part(n) for n, x in enumerate("qkv")
        }
        for theirs, ours in (("weight", "kernel"), ("bias", "bias"))
    }
    tied = ("embed_out.weight", "lm_head.weight") if config.tied else ()
    names = Names(OUTER, BLOCK | qkv, prefixes=("gpt_neox.",), ignored=(*BUFFERS, *tied))
    return read_tree(make_gpt_neox(config), tensors, names)


BUFFERS = (r".*attention\.(masked_)?bias", r".*rotary_emb\.inv_freq")
OUTER: dict[str, Target] = {
    "embed_in.weight": "table/embedding",
    "final_layer_norm.weight": "final_norm/scale",
    "final_layer_norm.bias": "final_norm/bias",
    "embed_out.weight": "head/kernel",
}
BLOCK: dict[str, Target] = {
    f"{name}.{theirs}": f"{at}/{ours}"
    for name, at, kind in (
        ("attention.dense", "attn/o", "kernel"),
        ("mlp.dense_h_to_4h", "mlp/fc", "kernel"),
        ("mlp.dense_4h_to_h", "mlp/proj", "kernel"),
        ("input_layernorm", "attn_norm", "scale"),
        ("post_attention_layernorm", "mlp_norm", "scale"),
    )
    for theirs, ours in (("weight", kind), ("bias", "bias"))
}
