"""Does a GGUF say the same as the checkpoint that it was converted from?"""

import numpy as np
import pretrained_files as files
import pytest

from jaxfeat.io.tensors import Tensors
from jaxfeat.models.from_gguf import from_gguf
from jaxfeat.types import UserError


def given(raw, tensors=None, **changes):
    """Metadata with changes and lazy tensors, as `open_gguf` gives them."""
    metadata = files.metadata_of(raw) | changes
    stored = tensors or files.gguf_tensors(raw, files.weights(raw))
    readers = {name: lambda x=x: x for name, x in stored.items()}
    return {k: v for k, v in metadata.items() if v is not None}, Tensors(readers, "m.gguf")


@pytest.mark.parametrize("raw", [files.LLAMA, files.GEMMA3], ids=["llama", "gemma3"])
def test_config_and_tensors_are_those_of_the_checkpoint(raw):
    config, tensors = from_gguf(*given(raw))
    wanted = files.weights(raw)
    assert set(tensors) == set(wanted)
    for name, x in wanted.items():
        np.testing.assert_allclose(tensors[name], x, rtol=0, atol=2e-7)  # (1 + w) - 1 rounds
    assert {key: config[key] for key in raw} == raw
    assert config["tie_word_embeddings"] and config["rope_scaling"] is None
    if raw is files.GEMMA3:
        assert config["sliding_window_pattern"] == 6


def test_queries_of_neighbouring_pairs_score_as_those_of_halves():
    """llama.cpp turns the pairs (2i, 2i+1) of its rows, Hugging Face (i, i + K/2): equal scores.

    Neither side knows how the rows were reordered.
    """
    rng = np.random.default_rng(2)
    heads, size, width = 3, 8, 5
    turn = 1.7 ** -np.arange(size // 2)

    def rotate(x, place, pairs):
        first, second = np.array(pairs).T
        angle, out = place * turn, x.copy()
        out[..., first] = x[..., first] * np.cos(angle) - x[..., second] * np.sin(angle)
        out[..., second] = x[..., second] * np.cos(angle) + x[..., first] * np.sin(angle)
        return out

    beside = [(2 * i, 2 * i + 1) for i in range(size // 2)]
    halves = [(i, i + size // 2) for i in range(size // 2)]
    raw = files.LLAMA | {"num_attention_heads": heads, "num_key_value_heads": heads,
                         "hidden_size": width, "head_dim": size}  # fmt: skip
    stored = {f"blk.0.attn_{x}.weight": rng.normal(size=(heads * size, width)) for x in "qk"}
    tensors = from_gguf(*given(raw, stored))[1]
    read = rng.normal(size=(2, width))
    scores = []
    for pairs, (q, k) in (
        (beside, stored.values()),
        (halves, (tensors[f"model.layers.0.self_attn.{x}_proj.weight"] for x in "qk")),
    ):
        q = rotate((read[0] @ q.T).reshape(heads, size), 5, pairs)
        k = rotate((read[1] @ k.T).reshape(heads, size), 2, pairs)
        scores.append((q * k).sum(-1))
    np.testing.assert_allclose(*scores, rtol=1e-12)
    assert np.abs(scores[0]).min() > 1e-3


def test_variants_of_the_config():
    config = from_gguf(*given(files.GEMMA3, **{"gemma3.block_count": 62}))[0]
    assert config["query_pre_attn_scalar"] == 12 // 3  # the 27B: D / H
    scaled = {"gemma3.rope.scaling.type": "linear", "gemma3.rope.scaling.factor": 8.0}
    config = from_gguf(*given(files.GEMMA3, **scaled))[0]
    assert config["rope_scaling"] == {"rope_type": "linear", "factor": 8.0}
    stored = files.gguf_tensors(files.LLAMA, files.weights(files.LLAMA))
    stored |= {"output.weight": stored["token_embd.weight"], "blk.0.attn_q.bias": np.zeros(12)}
    config, tensors = from_gguf(*given(files.LLAMA, stored))
    assert not config["tie_word_embeddings"] and config["attention_bias"]
    assert {"lm_head.weight", "model.layers.0.self_attn.q_proj.bias"} <= set(tensors)
    # sizes that the metadata may leave out
    left = {"llama.attention.key_length": None, "tokenizer.ggml.tokens": None}
    config = from_gguf(*given(files.LLAMA, **left))[0]
    assert (config["head_dim"], config["vocab_size"]) == (4, 23)


def test_what_is_not_read_is_named():
    stored = files.gguf_tensors(files.LLAMA, files.weights(files.LLAMA))
    for changes, tensors, told in (
        ({"general.architecture": "qwen2"}, None, "'qwen2' is not read from GGUF; read are llama"),
        ({"general.architecture": None}, None, "architecture None is not read"),
        ({"llama.block_count": None}, None, r"m\.gguf: the metadata lack llama\.block_count"),
        ({"llama.expert_count": 8}, None, "a mixture of experts is not read"),
        ({"llama.attention.head_count": [3, 4]}, None, "heads that differ between blocks"),
        ({"llama.rope.scaling.type": "yarn"}, None, "positions scaled 'yarn' are not read"),
        ({}, stored | {"rope_freqs.weight": np.ones(2)}, "positions scaled by rope_freqs"),
        ({}, stored | {"blk.0.ssm_a.weight": np.ones(2)}, "blk.0.ssm_a.weight has no place"),
        ({}, stored | {"odd.weight": np.ones(2)}, "odd.weight has no place"),
    ):
        with pytest.raises(UserError, match=told):
            from_gguf(*given(files.LLAMA, tensors, **changes))
