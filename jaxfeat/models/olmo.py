"""OLMo: a Llama whose layer norms have no parameters, with an option to clip projections.

Source: Groeneveld et al. 2024 (arXiv 2402.00838).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxfeat.models.config_json import refuse_other, take
from jaxfeat.models.llama import LlamaConfig, make_like, names_of, read_sizes
from jaxfeat.models.named_tensors import read_tree
from jaxfeat.nn.decoder import Decoder
from jaxfeat.nn.modules import LayerNorm
from jaxfeat.types import Tree


@dataclass(frozen=True)
class OlmoConfig(LlamaConfig):
    """Sizes of an OLMo: those of a Llama."""

    eps: float = 1e-5  # of the norms
    clip: float | None = None  # queries, keys and values are clipped to [-clip, clip]


def make_olmo(config: OlmoConfig) -> Decoder:
    """An OLMo of the given sizes as a `Decoder`, blocks stacked on [N].

    Raises:
        UserError: a size below 1, groups that do not divide the heads, an unknown activation.

    >>> sizes = dict(vocab=5, width=8, heads=2, groups=2, head_size=4, layers=2, mlp=12)
    >>> make_olmo(OlmoConfig(**sizes)).layers
    2
    """
    norm = lambda: LayerNorm(config.eps, scale=False, bias=False)
    return make_like(config, norm, attn={"clip": config.clip})


def read_config(raw: Mapping[str, Any], dtype: str = "float32") -> OlmoConfig:
    """The sizes that a parsed config.json gives; the norms' eps is 1e-5 in all of them.

    Raises:
        UserError: a key that is missing, an option that is not implemented.
    """
    refuse_other(raw, mlp_bias=False)
    sizes = read_sizes({**raw, "rms_norm_eps": 1e-5})
    return OlmoConfig(**sizes, clip=take(raw, "clip_qkv", default=None), dtype=dtype)


def read_params(config: OlmoConfig, tensors: Mapping[str, np.ndarray]) -> Tree:
    """The parameters out of tensors by their names in Hugging Face's files, as NumPy arrays.

    Raises:
        UserError: a missing tensor, one of another shape, one that no rule knows.
    """
    return read_tree(make_olmo(config), tensors, names_of(config.tied, {}))
