"""Gemma 3: Gemma 2 with normed queries and keys, other rotary angles in windows, no score cap.

Source: Gemma Team 2025 (arXiv 2503.19786). Every sixth block sees all, with a base of 1e6 and, in
the larger models, positions divided by a factor; the others see a window, with a base of 1e4.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxfeat.models.config_json import FULL, SLIDING, refuse_other, rope_of, take
from jaxfeat.models.gemma2 import NORMS, GemmaConfig, make_gemma, read_gemma_sizes
from jaxfeat.models.llama import HEAD_NORMS, names_of
from jaxfeat.models.named_tensors import read_tree
from jaxfeat.nn import attention
from jaxfeat.nn.decoder import Decoder
from jaxfeat.nn.rotary import PLAIN, Rope
from jaxfeat.types import Tree

FAR = Rope(1e6)


@dataclass(frozen=True)
class Gemma3Config(GemmaConfig):
    """Sizes of a Gemma 3 (its text model)."""

    rope: Rope = FAR  # of blocks that see all
    local_rope: Rope = PLAIN  # of blocks that see a window


def make_gemma3(config: Gemma3Config) -> Decoder:
    """A Gemma 3 of the given sizes as a `Decoder`, blocks stacked on [N].

    Raises:
        UserError: a size below 1, groups that do not divide the heads, an unknown activation,
            `slides` for another number of blocks.

    >>> sizes = dict(vocab=5, width=8, heads=2, groups=1, head_size=4, layers=2, mlp=12)
    >>> make_gemma3(Gemma3Config(**sizes, slides=(True, False))).layers
    2
    """
    c = config
    return make_gemma(c, near=c.local_rope, far=c.rope, qk_norm=True, mix=attention.mix)


def read_config(raw: Mapping[str, Any], dtype: str = "float32") -> Gemma3Config:
    """The sizes that a parsed config.json gives, of the text model where images are read too.

    `attn_logit_softcapping` is not read: transformers ignores it in this family.

    Raises:
        UserError: a key that is missing, an option that is not implemented.
    """
    refuse_other(raw)
    raw = DEFAULTS | {k: v for k, v in raw.get("text_config", raw).items() if v is not None}
    every = take(raw, "sliding_window_pattern", "_sliding_window_pattern", default=6)
    sizes = read_gemma_sizes(raw, lambda b: (b + 1) % every != 0)
    rope = rope_of(raw, FULL, default=1e6)
    local = rope_of(raw, SLIDING, theta="rope_local_base_freq", scaled=False)
    cap = raw.get("final_logit_softcapping")
    return Gemma3Config(**sizes, rope=rope, local_rope=local, logit_softcap=cap, dtype=dtype)


def read_params(config: Gemma3Config, tensors: Mapping[str, np.ndarray]) -> Tree:
    """The parameters out of tensors by their names in Hugging Face's files, as NumPy arrays.

    Raises:
        UserError: a missing tensor, one of another shape, one that no rule knows.
    """
    names = names_of(config.tied, NORMS | HEAD_NORMS, prefixes=PREFIXES)
    names = names._replace(ignored=(*names.ignored, *IMAGES))
    return read_tree(make_gemma3(config), tensors, names)


# a config of the first checkpoints that read images leaves these to transformers' defaults
DEFAULTS = {"vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4}
PREFIXES = ("language_model.model.", "model.language_model.", "language_model.", "model.")
IMAGES = (r"vision_tower\..*", r"multi_modal_projector\..*")
