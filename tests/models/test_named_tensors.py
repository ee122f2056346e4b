"""Does each tensor of a checkpoint arrive where it belongs, and is what does not fit refused?"""

import tracemalloc

import jax
import numpy as np
import pytest
from small_families import llama_tensors, raw_of
from tiny import same

from jaxfeat.models.families import family_of
from jaxfeat.tree import bytes_of
from jaxfeat.types import UserError


class Lazy(dict):
    """Tensors that are counted as they are read."""

    def __init__(self, tensors):
        super().__init__(tensors)
        self.read = []

    def __getitem__(self, name):
        self.read.append(name)
        return super().__getitem__(name)


def read(raw, tensors, dtype="float32"):
    """Parameters out of tensors."""
    family = family_of(raw)
    return family.read_params(family.read_config(raw, dtype), tensors)


def test_llama():
    """Each tensor is read once, into its block; those that hold no parameter not at all."""
    raw = raw_of("llama", attention_bias=True, mlp_bias=True)
    tensors = llama_tensors(raw)
    extra = {"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(2)}
    lazy = Lazy(tensors | extra)
    params = read(raw, lazy)
    assert sorted(lazy.read) == sorted(tensors)
    at = "model.layers.1."
    block = jax.tree.map(lambda x: x[1], params["blocks"])
    same(block["attn"]["k"]["kernel"], tensors[at + "self_attn.k_proj.weight"])
    same(block["attn"]["o"]["bias"], tensors[at + "self_attn.o_proj.bias"])
    same(block["mlp"]["gate"]["bias"], tensors[at + "mlp.gate_proj.bias"])
    same(block["mlp_norm"]["scale"], tensors[at + "post_attention_layernorm.weight"])
    same(params["outer"]["head"]["kernel"], tensors["lm_head.weight"])


def test_tied_head_and_prefix():
    """A stored copy of a tied head is passed over; a bare model's names have no prefix."""
    raw = raw_of("llama", tie_word_embeddings=True)
    tensors = llama_tensors(raw)
    bare = {name.removeprefix("model."): x for name, x in tensors.items()}
    head = {"lm_head.weight": tensors["model.embed_tokens.weight"]}
    same(read(raw, tensors), read(raw, bare | head))


def test_eurobert_bias():
    """The head has a bias where the MLPs have one."""
    raw = raw_of("eurobert", mlp_bias=True)
    bias = np.arange(11, dtype=np.float32)
    params = read(raw, llama_tensors(raw) | {"lm_head.bias": bias})
    same(params["outer"]["head"]["bias"], bias)


def test_gemma3_with_images():
    """Of a checkpoint that reads images too the text model is read, whatever its prefix."""
    raw = raw_of("gemma3_text", num_attention_heads=8, num_key_value_heads=4, head_dim=2)
    rng = np.random.default_rng(0)
    draw = lambda *shape: rng.standard_normal(shape).astype(np.float32)
    tensors = {n: x for n, x in llama_tensors(raw).items() if n != "lm_head.weight"}
    for b in range(4):
        for name in ("pre_feedforward_layernorm", "post_feedforward_layernorm"):
            tensors[f"model.layers.{b}.{name}.weight"] = draw(8)
        for name in ("q_norm", "k_norm"):
            tensors[f"model.layers.{b}.self_attn.{name}.weight"] = draw(2)
    plain = read(raw, tensors)
    # an early config leaves out what is transformers' default
    text = {k: v for k, v in raw.items() if "heads" not in k and k != "model_type"}
    nested = {"model_type": "gemma3", "text_config": text, "vision_config": {}}
    image = {"vision_tower.embed.weight": draw(3), "multi_modal_projector.x": draw(3)}
    for prefix in ("language_model.model.", "model.language_model."):
        named = {prefix + n.removeprefix("model."): x for n, x in tensors.items()}
        same(read(nested, named | image), plain)


def test_fused_by_head():
    """GPT-NeoX keeps q, k and v of a head together: rows are [H, 3, K]."""
    raw, rng = raw_of("gpt_neox", num_hidden_layers=1), np.random.default_rng(0)
    draw = lambda *shape: rng.standard_normal(shape).astype(np.float32)
    q, k, v = draw(3, 2, 4, 8)  # [H, K, D] each
    bias = draw(3, 2, 4)
    at = "gpt_neox.layers.0."
    tensors = {
        "gpt_neox.embed_in.weight": draw(11, 8),
        "embed_out.weight": draw(11, 8),
        at + "attention.query_key_value.weight": np.stack([q, k, v], 1).reshape(24, 8),
        at + "attention.query_key_value.bias": np.moveaxis(bias, 0, 1).reshape(24),
        at + "attention.dense.weight": draw(8, 8),
        at + "mlp.dense_h_to_4h.weight": draw(12, 8),
        at + "mlp.dense_h_to_4h.bias": draw(12),
        at + "mlp.dense_4h_to_h.weight": draw(8, 12),
        # buffers of older files
        at + "attention.bias": np.ones((1, 1, 4, 4), bool),
        at + "attention.masked_bias": np.array(-1e9),
        at + "attention.rotary_emb.inv_freq": np.ones(2),
    }
    tensors |= {at + f"{name}.bias": draw(8) for name in ("attention.dense", "mlp.dense_4h_to_h")}
    norms = (at + "input_layernorm", at + "post_attention_layernorm", "gpt_neox.final_layer_norm")
    tensors |= {f"{name}.{x}": draw(8) for name in norms for x in ("weight", "bias")}
    block = jax.tree.map(lambda x: x[0], read(raw, tensors)["blocks"]["attn"])
    for name, kernel, one in zip("qkv", (q, k, v), bias):
        same(block[name]["kernel"], kernel.reshape(8, 8))
        same(block[name]["bias"], one.reshape(8))


def gpt2_tensors():
    """Random tensors of a GPT-2 of one block, without prefix."""
    rng = np.random.default_rng(0)
    shapes = {
        "wte.weight": (11, 8), "wpe.weight": (9, 8), "ln_f.weight": (8,), "ln_f.bias": (8,),
        "h.0.attn.c_attn.weight": (8, 24), "h.0.attn.c_attn.bias": (24,),
        "h.0.attn.c_proj.weight": (8, 8), "h.0.attn.c_proj.bias": (8,),
        "h.0.mlp.c_fc.weight": (8, 32), "h.0.mlp.c_fc.bias": (32,),
        "h.0.mlp.c_proj.weight": (32, 8), "h.0.mlp.c_proj.bias": (8,),
        "h.0.ln_1.weight": (8,), "h.0.ln_1.bias": (8,),
        "h.0.ln_2.weight": (8,), "h.0.ln_2.bias": (8,),
    }  # fmt: skip
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def test_gpt2():
    """Kernels are turned, `c_attn` is [q | k | v]; masks and the tied head are passed over."""
    raw, tensors = raw_of("gpt2", n_layer=1), gpt2_tensors()
    masks = {"h.0.attn.bias": np.ones((1, 1, 9, 9)), "h.0.attn.masked_bias": np.array(-1e4)}
    params = read(raw, tensors | masks)
    block = jax.tree.map(lambda x: x[0], params["blocks"])
    for n, name in enumerate("qkv"):
        columns = slice(8 * n, 8 * n + 8)
        same(block[name]["kernel"], tensors["h.0.attn.c_attn.weight"][:, columns].T)
        same(block[name]["bias"], tensors["h.0.attn.c_attn.bias"][columns])
    same(block["mlp"]["proj"]["kernel"], tensors["h.0.mlp.c_proj.weight"].T)
    named = {f"transformer.{name}": x for name, x in tensors.items()}
    same(read(raw, named | {"lm_head.weight": tensors["wte.weight"]}), params)


def test_types():
    """Parameters are of the type that was asked for."""
    raw = raw_of("llama")
    for dtype in ("bfloat16", "float16"):
        leaves = jax.tree.leaves(read(raw, llama_tensors(raw), dtype))
        assert {str(leaf.dtype) for leaf in leaves} == {dtype}


def test_memory():
    """No more is held than the parameters and one tensor."""
    sizes = {"hidden_size": 128, "intermediate_size": 512, "head_dim": 64, "vocab_size": 1000}
    raw = raw_of("llama", num_hidden_layers=6, **sizes)
    shapes = {name: x.shape for name, x in llama_tensors(raw).items()}

    class Made(dict):
        def __getitem__(self, name):
            return np.ones(shapes[name], np.float32)

    read(raw, Made(shapes))  # what is traced once is no matter of size
    tracemalloc.start()
    params = read(raw, Made(shapes))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.3 * bytes_of(params)


K_PROJ = "model.layers.1.self_attn.k_proj.weight"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({K_PROJ: None}, "tensor layers.1.self_attn.k_proj.weight is missing"),
        ({K_PROJ: np.ones((3, 8))}, r"k_proj.weight has shape \(3, 8\), .* needs \(4, 8\)"),
        ({K_PROJ: np.ones((4, 8), int)}, "k_proj.weight has type int64, real numbers needed"),
        ({"model.layers.2.x": np.ones(1)}, "tensor layers.2.x is none of this model"),
        ({"norm.weight": np.ones(8)}, "norm.weight and norm.weight are the same"),
        ({"model.layers.0.mlp.up_proj.bias": np.ones(12)}, "up_proj.bias is none of this"),
    ],
)  # fmt: skip
def test_refused(changes, words):
    """What does not fit is named."""
    raw = raw_of("llama")
    tensors = {n: x for n, x in (llama_tensors(raw) | changes).items() if x is not None}
    with pytest.raises(UserError, match=words):
        read(raw, tensors)


def test_refused_parts():
    """A fused tensor that cannot be divided, or whose parts do not fit."""
    for shape in ((8, 23), (8, 27)):
        tensors = gpt2_tensors() | {"h.0.attn.c_attn.weight": np.ones(shape, np.float32)}
        with pytest.raises(UserError, match=r"c_attn.weight has shape .* needs \(8, 8\)"):
            read(raw_of("gpt2", n_layer=1), tensors)
