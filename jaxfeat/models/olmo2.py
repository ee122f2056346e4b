"""OLMo 2: a Llama whose norms stand after both halves of a block and on queries and keys.

Source: OLMo Team 2024 (arXiv 2501.00656). A query's or key's norm reads the whole projection.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxfeat.models.config_json import refuse_other
from jaxfeat.models.llama import HEAD_NORMS, LlamaConfig, make_like, names_of, read_sizes
from jaxfeat.models.named_tensors import Target, read_tree
from jaxfeat.nn.decoder import Decoder
from jaxfeat.nn.modules import RMSNorm
from jaxfeat.types import Tree


@dataclass(frozen=True)
class Olmo2Config(LlamaConfig):
    """Sizes of an OLMo 2: those of a Llama."""


def make_olmo2(config: Olmo2Config) -> Decoder:
    """An OLMo 2 of the given sizes as a `Decoder`, blocks stacked on [N].

    Raises:
        UserError: a size below 1, groups that do not divide the heads, an unknown activation.

    >>> sizes = dict(vocab=5, width=8, heads=2, groups=2, head_size=4, layers=2, mlp=12)
    >>> make_olmo2(Olmo2Config(**sizes)).layers
    2
    """
    norm = lambda: RMSNorm(config.eps)
    heads = {"q_norm": norm(), "k_norm": norm(), "norm_whole": True}
    return make_like(config, norm, ("attn_post", "mlp_post"), attn=heads)


def read_config(raw: Mapping[str, Any], dtype: str = "float32") -> Olmo2Config:
    """The sizes that a parsed config.json gives.

    Raises:
        UserError: a key that is missing, an option that is not implemented.
    """
    refuse_other(raw, mlp_bias=False)
    return Olmo2Config(**read_sizes(raw, eps=1e-5), dtype=dtype)


def read_params(config: Olmo2Config, tensors: Mapping[str, np.ndarray]) -> Tree:
    """The parameters out of tensors by their names in Hugging Face's files, as NumPy arrays.

    Raises:
        UserError: a missing tensor, one of another shape, one that no rule knows.
    """
    return read_tree(make_olmo2(config), tensors, names_of(config.tied, NORMS | HEAD_NORMS))


NORMS: dict[str, Target] = {
    "post_attention_layernorm.weight": "attn_post/scale",
    "post_feedforward_layernorm.weight": "mlp_post/scale",
}
