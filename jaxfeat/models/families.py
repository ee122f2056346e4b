"""Which families of pretrained models can be read?"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from jaxfeat.models import (
    eurobert,
    gemma2,
    gemma3,
    gpt2,
    gpt_neox,
    llama,
    modernbert,
    olmo,
    olmo2,
)
from jaxfeat.nn.decoder import Decoder
from jaxfeat.types import Tree, UserError


class Family(NamedTuple):
    """What is read of a checkpoint of one `model_type`.

    make(config) -> Decoder
    read_config(raw, dtype="float32") -> config, out of a parsed config.json
    read_params(config, tensors) -> parameters (NumPy), out of tensors by Hugging Face's names
    causal: whether it predicts next tokens; the others fill in masked ones
    """

    name: str
    make: Callable[[Any], Decoder]
    read_config: Callable[..., Any]
    read_params: Callable[..., Tree]
    causal: bool = True


_READ = (
    Family("gpt2", gpt2.make_gpt2, gpt2.read_config, gpt2.read_params),
    Family("gpt_neox", gpt_neox.make_gpt_neox, gpt_neox.read_config, gpt_neox.read_params),
    Family("olmo", olmo.make_olmo, olmo.read_config, olmo.read_params),
    Family("olmo2", olmo2.make_olmo2, olmo2.read_config, olmo2.read_params),
    Family("llama", llama.make_llama, llama.read_config, llama.read_params),
    Family("gemma2", gemma2.make_gemma2, gemma2.read_config, gemma2.read_params),
    Family("gemma3", gemma3.make_gemma3, gemma3.read_config, gemma3.read_params),
    Family(
        "modernbert", modernbert.make_modernbert, modernbert.read_config, modernbert.read_params,
        causal=False,
    ),
    Family(
        "eurobert", eurobert.make_eurobert, eurobert.read_config, eurobert.read_params,
        causal=False,
    ),
)  # fmt: skip
FAMILIES: dict[str, Family] = {family.name: family for family in _READ}
FAMILIES["gemma3_text"] = FAMILIES["gemma3"]


def family_of(raw: Mapping[str, Any]) -> Family:
    """The family of a parsed config.json, by its `model_type`.

    Raises:
        UserError: a type that is not read, with those that are.

    >>> family_of({"model_type": "gemma3_text"}).name
    'gemma3'
    """
    kind = raw.get("model_type")
    if kind not in FAMILIES:
        known = ", ".join(FAMILIES)
        raise UserError(f"config.json: model_type {kind!r} is not read; valid: {known}")
    return FAMILIES[kind]
