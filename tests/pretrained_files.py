"""Tiny pretrained models as files: weights by Hugging Face's names, and the same as a GGUF."""

import json

import jax
import numpy as np

from jaxfeat.io.safetensors import save_tensors
from jaxfeat.models.gpt2 import GPT2Config, make_gpt2
from jaxfeat.train.checkpoint import save_checkpoint

SIZES = {"vocab_size": 23, "hidden_size": 12, "intermediate_size": 20, "num_hidden_layers": 2,
         "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 4}  # fmt: skip
LLAMA = SIZES | {"model_type": "llama", "rms_norm_eps": 1e-5, "rope_theta": 1e5, "bos_token_id": 1,
                 "max_position_embeddings": 64, "tie_word_embeddings": True}  # fmt: skip
GEMMA3 = SIZES | {"model_type": "gemma3_text", "rms_norm_eps": 1e-6, "rope_theta": 1e6,
                  "rope_local_base_freq": 1e4, "sliding_window": 3, "query_pre_attn_scalar": 4,
                  "bos_token_id": 2, "max_position_embeddings": 64}  # fmt: skip
# GGUF's names, as llama.cpp's conversion gives them
GGUF_NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
}  # fmt: skip
NORMS = {
    "llama": {"post_attention_layernorm": "ffn_norm"},
    "gemma3": {"post_attention_layernorm": "post_attention_norm",
               "pre_feedforward_layernorm": "ffn_norm",
               "post_feedforward_layernorm": "post_ffw_norm"},
}  # fmt: skip
LADDER = {"length": 4, "width": 8, "heads": 2, "layers": 1}
PIECES = ["<pad>", "<eos>", "<bos>", "<unk>", "▁", "a", "b", "c", "d", "ab", "▁a", "▁ab", "cd",
          "abc", "<0x0A>", "<0xC3>", "<0xA9>", "\n\n", "<b>", "e", "▁c", "▁cd", "ea"]  # fmt: skip
TYPES = [3, 3, 3, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 6, 6, 6, 4, 4, 1, 1, 1, 1]
SCORES = (
    [0.0] * 4 + [-50.0] * 5 + [-1.0, -2.0, -3.0, -4.0, -5.0] + [0.0] * 5 + [-50.0, -6.0, -7.0, -0.5]
)


def weights(raw, seed=0):
    """Random tensors by name, as `save_pretrained` would store them (tied: no head)."""
    rng, gemma = np.random.default_rng(seed), raw["model_type"] != "llama"
    d, f, k = raw["hidden_size"], raw["intermediate_size"], raw["head_dim"]
    h, g = raw["num_attention_heads"], raw["num_key_value_heads"]
    shapes = {"self_attn.q_proj": (h * k, d), "self_attn.k_proj": (g * k, d),
              "self_attn.v_proj": (g * k, d), "self_attn.o_proj": (d, h * k),
              "mlp.gate_proj": (f, d), "mlp.up_proj": (f, d), "mlp.down_proj": (d, f),
              "input_layernorm": (d,), "post_attention_layernorm": (d,)}  # fmt: skip
    if gemma:
        shapes |= {"pre_feedforward_layernorm": (d,), "post_feedforward_layernorm": (d,),
                   "self_attn.q_norm": (k,), "self_attn.k_norm": (k,)}  # fmt: skip
    draw = lambda shape: rng.normal(0.0, 0.3, shape).astype(np.float32)
    found = {
        "model.embed_tokens.weight": draw((raw["vocab_size"], d)),
        "model.norm.weight": draw(d),
    }
    for b in range(raw["num_hidden_layers"]):
        found |= {f"model.layers.{b}.{name}.weight": draw(s) for name, s in shapes.items()}
    return found


def write_folder(folder, raw, tensors=None):
    """`config.json` and `model.safetensors`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(raw))
    save_tensors(folder / "model.safetensors", tensors or weights(raw))
    return folder


def metadata_of(raw):
    """GGUF's metadata of a config, with a vocabulary of pieces."""
    kind = "llama" if raw["model_type"] == "llama" else "gemma3"
    numbers = {
        "embedding_length": raw["hidden_size"], "block_count": raw["num_hidden_layers"],
        "feed_forward_length": raw["intermediate_size"], "context_length": 64,
        "attention.head_count": raw["num_attention_heads"],
        "attention.head_count_kv": raw["num_key_value_heads"],
        "attention.key_length": raw["head_dim"], "rope.freq_base": raw["rope_theta"],
        "attention.layer_norm_rms_epsilon": raw["rms_norm_eps"],
    }  # fmt: skip
    if kind == "gemma3":
        numbers["attention.sliding_window"] = raw["sliding_window"]
    found = {"general.architecture": kind} | {f"{kind}.{k}": v for k, v in numbers.items()}
    vocabulary = {
        "model": "llama", "tokens": PIECES, "token_type": TYPES, "scores": SCORES,
        "bos_token_id": 2 if kind == "gemma3" else 1, "eos_token_id": 1, "unknown_token_id": 3,
        "add_bos_token": kind == "gemma3", "add_space_prefix": False,
    }  # fmt: skip
    return found | {f"tokenizer.ggml.{k}": v for k, v in vocabulary.items()}


def gguf_tensors(raw, tensors):
    """The tensors as llama.cpp's conversion stores them.

    Llama's query and key rows of a head: row i of the first half, row i of the second, and so on;
    Gemma's norms: plus 1.
    """
    kind, found = "llama" if raw["model_type"] == "llama" else "gemma3", {}
    for name, x in tensors.items():
        parts = name.split(".")
        if parts[1] != "layers":
            to = {"embed_tokens": "token_embd", "norm": "output_norm"}[parts[1]]
        else:
            inner = ".".join(parts[3:-1])
            to = f"blk.{parts[2]}.{(GGUF_NAMES | NORMS[kind])[inner]}"
            if kind == "llama" and inner in ("self_attn.q_proj", "self_attn.k_proj"):
                heads = x.reshape(-1, raw["head_dim"], x.shape[1])
                half = raw["head_dim"] // 2
                order = [r for i in range(half) for r in (i, half + i)]
                x = heads[:, order].reshape(x.shape)
        found[f"{to}.weight"] = x + 1 if kind == "gemma3" and "norm" in to else x
    return found


def write_gguf(path, metadata, tensors, raw_types=None):
    """A GGUF by the package's own writer; `raw_types` names quantised tensors' types."""
    import gguf

    writer = gguf.GGUFWriter(path, metadata["general.architecture"])
    for key, value in metadata.items():
        if key == "general.architecture":
            continue
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        else:
            writer.add_array(key, value)
    for name, x in tensors.items():
        kind = (raw_types or {}).get(name)
        data = x if kind is None else gguf.quants.quantize(x, kind)
        writer.add_tensor(name, np.ascontiguousarray(data), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def result_folder(folder, vocab, seeds=2):
    """What a run of stories leaves: config, tokenizer, a ladder of three steps."""
    init = jax.jit(jax.vmap(make_gpt2(GPT2Config(vocab=vocab, **LADDER)).init))
    for step in (0, 1, 4):
        params = init(jax.random.split(jax.random.key(step), seeds))
        save_checkpoint(folder / "ladder" / "standard", step, params, kept=None)
    (folder / "config.json").write_text(json.dumps(LADDER | {"seeds": seeds}))
    return folder, params
