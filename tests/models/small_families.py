"""A small model of each family, as its config.json says it, and tensors by their names."""

import numpy as np

SIZES = {
    "vocab_size": 11,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 4,
    "intermediate_size": 12,
}
# of each family: what its config needs beside SIZES, and what its blocks differ by
EXTRA = {
    "llama": {},
    "olmo": {"num_key_value_heads": 2, "tie_word_embeddings": True},
    "olmo2": {"num_key_value_heads": 2},
    "eurobert": {"num_key_value_heads": 2},
    "gemma2": {"sliding_window": 2, "query_pre_attn_scalar": 3, "attn_logit_softcapping": 0.5},
    "gemma3_text": {"sliding_window": 2, "num_hidden_layers": 4, "sliding_window_pattern": 3},
    "gpt_neox": {"rotary_pct": 0.5},
    "modernbert": {"local_attention": 2, "num_hidden_layers": 3},
    "gpt2": {"n_embd": 8, "n_head": 2, "n_layer": 2, "n_positions": 9},
}


def raw_of(kind, **changes):
    """The config of a small model; a change to None takes a key out."""
    raw = {"model_type": kind} | SIZES | EXTRA[kind] | changes
    return {name: value for name, value in raw.items() if value is not None}


def llama_tensors(raw, seed=0):
    """Random tensors of a Llama by Hugging Face's names, biases where the config has them."""
    width, mlp, head = raw["hidden_size"], raw["intermediate_size"], raw["head_dim"]
    inner, group = raw["num_attention_heads"] * head, raw["num_key_value_heads"] * head
    shapes = {"embed_tokens": (raw["vocab_size"], width), "norm": (width,)}
    for b in range(raw["num_hidden_layers"]):
        attn, ffn, at = raw.get("attention_bias"), raw.get("mlp_bias"), f"layers.{b}."
        for name, rows, columns, bias in (
            ("self_attn.q_proj", inner, width, attn),
            ("self_attn.k_proj", group, width, attn),
            ("self_attn.v_proj", group, width, attn),
            ("self_attn.o_proj", width, inner, attn),
            ("mlp.gate_proj", mlp, width, ffn),
            ("mlp.up_proj", mlp, width, ffn),
            ("mlp.down_proj", width, mlp, ffn),
        ):
            shapes[at + name] = (rows, columns)
            if bias:
                shapes[at + name + ".bias"] = (rows,)
        shapes[at + "input_layernorm"] = shapes[at + "post_attention_layernorm"] = (width,)
    rng = np.random.default_rng(seed)
    weight = lambda name: name if name.endswith(".bias") else f"{name}.weight"
    named = {f"model.{weight(name)}": shape for name, shape in shapes.items()}
    if not raw.get("tie_word_embeddings"):
        named["lm_head.weight"] = (raw["vocab_size"], width)
    return {n: rng.standard_normal(s).astype(np.float32) for n, s in named.items()}
