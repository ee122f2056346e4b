"""What does a GGUF file say in the words of Hugging Face: its config and its tensors' names?

With these the families read a GGUF as any other checkpoint. Three things are undone: the rows of
Llama's query and key weights, which GGUF reorders for rotary pairs (i, i + 1) instead of
(i, i + K/2); the 1 that GGUF adds to Gemma's norms; and what the metadata leave out because it
never varies in a family (Gemma 3's local rotary base and its pattern of windows).
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from jaxfeat.io.tensors import Tensors
from jaxfeat.types import UserError

OUTER = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
# of a block: GGUF's name -> Hugging Face's; the norms' places differ between the families
BLOCK = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
}
LLAMA = BLOCK | {"ffn_norm": "post_attention_layernorm"}
GEMMA3 = BLOCK | {
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
IGNORED = ("rope_freqs.weight",)  # the factors of a scaling that the metadata must name


def from_gguf(metadata: Mapping[str, Any], tensors: Tensors) -> tuple[dict[str, Any], Tensors]:
    """The config, as in a `config.json`, and the tensors by Hugging Face's names.

    Args:
        metadata, tensors: of `jaxfeat.io.gguf.open_gguf`.

    Returns:
        The config with Hugging Face's older keys (`rope_theta`), and tensors that are read, and
        reordered, when they are asked for.

    Raises:
        UserError: an architecture other than llama and gemma3, an entry that is missing, or a
            variant that no family computes (experts, unknown scaling of positions).
    """
    kind = metadata.get("general.architecture")
    if kind not in KNOWN:
        raise UserError(
            f"{tensors.source}: architecture {kind!r} is not read from GGUF; read are "
            f"{', '.join(KNOWN)}; give safetensors for others"
        )
    make_config, names = KNOWN[kind]
    raw = make_config(_Entries(metadata, tensors, kind))
    readers = {}
    for name in tensors:
        if name not in IGNORED:
            readers[_hf_name(name, names, tensors.source)] = _reader(kind, name, raw, tensors)
    return raw, Tensors(readers, tensors.source)


class _Entries:
    """The metadata of one architecture, asked by the end of their keys."""

    def __init__(self, metadata: Mapping[str, Any], tensors: Tensors, kind: str):
        self.metadata, self.tensors, self.kind = metadata, tensors, kind

    def __call__(self, key: str, *default: Any) -> Any:
        found = self.metadata.get(f"{self.kind}.{key}", *default)
        if found is None and not default:
            raise UserError(f"{self.tensors.source}: the metadata lack {self.kind}.{key}")
        # stored in float32: 1e-6 comes as 9.99999997e-07
        return float(str(np.float32(found))) if isinstance(found, float) else found

    def token(self, which: str) -> int | None:
        return self.metadata.get(f"tokenizer.ggml.{which}_token_id")


def _shared(entry: _Entries) -> dict[str, Any]:
    """What both families name alike."""
    if entry("expert_count", 0):
        raise UserError(f"{entry.tensors.source}: a mixture of experts is not read")
    heads, width = entry("attention.head_count"), entry("embedding_length")
    if not isinstance(heads, int):
        raise UserError(f"{entry.tensors.source}: heads that differ between blocks are not read")
    vocab = entry.metadata.get("tokenizer.ggml.tokens")
    rows = entry("vocab_size", None) or (len(vocab) if vocab else 0)
    raw = {
        "vocab_size": rows or entry.tensors["token_embd.weight"].shape[0],
        "hidden_size": width,
        "intermediate_size": entry("feed_forward_length"),
        "num_hidden_layers": entry("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": entry("attention.head_count_kv", heads),
        "head_dim": entry("attention.key_length", entry("rope.dimension_count", width // heads)),
        "rms_norm_eps": entry("attention.layer_norm_rms_epsilon"),
        "max_position_embeddings": entry("context_length"),
        "rope_scaling": _scaling(entry),
        "attention_bias": "blk.0.attn_q.bias" in entry.tensors,
        "tie_word_embeddings": "output.weight" not in entry.tensors,
    }
    return raw | {f"{which}_token_id": entry.token(which) for which in ("bos", "eos")}


def _llama(entry: _Entries) -> dict[str, Any]:
    """The config of a Llama, such as SmolLM2."""
    own = {
        "model_type": "llama",
        "hidden_act": "silu",
        "rope_theta": entry("rope.freq_base", 10000.0),
        "mlp_bias": "blk.0.ffn_gate.bias" in entry.tensors,
    }
    return _shared(entry) | own


def _gemma3(entry: _Entries) -> dict[str, Any]:
    """The config of a Gemma 3; only its 27B (62 blocks) scales scores by D / H instead of K."""
    raw = _shared(entry)
    large = raw["num_hidden_layers"] == 62
    scale = raw["hidden_size"] // raw["num_attention_heads"] if large else raw["head_dim"]
    own = {
        "model_type": "gemma3_text",
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": scale,
        "rope_theta": entry("rope.freq_base", 1000000.0),
        "rope_local_base_freq": entry("rope.freq_base_swa", 10000.0),
        "sliding_window": entry("attention.sliding_window"),
        "sliding_window_pattern": 6,
        "final_logit_softcapping": entry("final_logit_softcapping", None),
        "attn_logit_softcapping": None,
    }
    return raw | own


def _scaling(entry: _Entries) -> dict[str, Any] | None:
    """The scaling of positions: none or linear."""
    kind = entry("rope.scaling.type", "none")
    if kind == "linear":
        return {"rope_type": "linear", "factor": entry("rope.scaling.factor")}
    if kind not in ("none", "") or "rope_freqs.weight" in entry.tensors:
        told = "by rope_freqs" if kind in ("none", "") else repr(kind)
        raise UserError(
            f"{entry.tensors.source}: positions scaled {told} are not read from GGUF; "
            "give safetensors"
        )
    return None


KNOWN: dict[str, tuple[Callable[[_Entries], dict[str, Any]], dict[str, str]]] = {
    "llama": (_llama, LLAMA),
    "gemma3": (_gemma3, GEMMA3),
}


def _hf_name(name: str, names: Mapping[str, str], source: str) -> str:
    """Hugging Face's name of a tensor."""
    if name in OUTER:
        return OUTER[name]
    parts = name.split(".")
    if len(parts) != 4 or parts[0] != "blk" or parts[2] not in names:
        raise UserError(f"{source}: tensor {name} has no place in this family")
    return f"model.layers.{parts[1]}.{names[parts[2]]}.{parts[3]}"


def _reader(
    kind: str, name: str, raw: Mapping[str, Any], tensors: Tensors
) -> Callable[[], np.ndarray]:
    """What reads one tensor as Hugging Face stores it."""
    part = name.split(".")[-2]
    if kind == "gemma3" and part.endswith("norm"):
        return lambda: tensors[name] - np.ones((), tensors[name].dtype)
    if kind == "llama" and part in ("attn_q", "attn_k"):
        heads = raw["num_attention_heads" if part == "attn_q" else "num_key_value_heads"]
        return lambda: _halves(tensors[name], heads)
    return partial(tensors.__getitem__, name)


def _halves(rows: np.ndarray, heads: int) -> np.ndarray:
    """Rows of each head from rotary pairs (i, i + 1) back to pairs (i, i + K/2)."""
    pairs = rows.reshape(heads, -1, 2, *rows.shape[1:])
    return pairs.swapaxes(1, 2).reshape(rows.shape)
