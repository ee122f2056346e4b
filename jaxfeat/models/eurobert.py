"""EuroBERT: a Llama whose positions see both ways, trained to fill in masked tokens.

Source: Boizard et al. 2025 (arXiv 2503.05500). The head is `norm` and the table; it has a bias
where the MLPs have one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxfeat.models.config_json import refuse_other, take
from jaxfeat.models.llama import NORMS, OUTER, LlamaConfig, make_like, names_of, read_sizes
from jaxfeat.models.named_tensors import read_tree
from jaxfeat.nn.decoder import Decoder
from jaxfeat.nn.modules import RMSNorm
from jaxfeat.types import Array, Tree


@dataclass(frozen=True)
class EuroBertConfig(LlamaConfig):
    """Sizes of a EuroBERT: those of a Llama."""


def make_eurobert(config: EuroBertConfig) -> Decoder:
    """A EuroBERT of the given sizes as a `Decoder` that is not causal, blocks stacked on [N].

    Raises:
        UserError: a size below 1, groups that do not divide the heads, an unknown activation.

    >>> sizes = dict(vocab=5, width=8, heads=2, groups=2, head_size=4, layers=2, mlp=12)
    >>> make_eurobert(EuroBertConfig(**sizes)).causal
    False
    """
    return make_like(
        config,
        lambda: RMSNorm(config.eps),
        outer={"bias": config.mlp_bias},
        visible=all_visible,
        causal=False,
    )


def all_visible(const: Tree, t_position: Array, s_position: Array) -> Array:
    """`[T, S]`: every query sees every source."""
    return jnp.ones((t_position.shape[0], s_position.shape[0]), bool)


def read_config(raw: Mapping[str, Any], dtype: str = "float32") -> EuroBertConfig:
    """The sizes that a parsed config.json gives.

    Raises:
        UserError: a key that is missing, an option that is not implemented.
    """
    refuse_other(raw)
    theta = {"rope_theta": take(raw, "rope_theta", default=250000.0)}
    return EuroBertConfig(**read_sizes({**raw, **theta}, eps=1e-5), dtype=dtype)


def read_params(config: EuroBertConfig, tensors: Mapping[str, np.ndarray]) -> Tree:
    """The parameters out of tensors by their names in Hugging Face's files, as NumPy arrays.

    Raises:
        UserError: a missing tensor, one of another shape, one that no rule knows.
    """
    outer = OUTER | {"lm_head.bias": "head/bias"}
    return read_tree(make_eurobert(config), tensors, names_of(config.tied, NORMS, outer=outer))
