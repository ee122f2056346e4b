"""Is each family what its config says, and does the rest of the library work on it?"""

import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from small_families import EXTRA, raw_of
from tiny import QUICK, close, same, to64

from jaxfeat.grads.split import split_by_definition, split_gradient
from jaxfeat.models.assemble import with_tokens
from jaxfeat.models.families import FAMILIES, family_of
from jaxfeat.nn.blocks import forward
from jaxfeat.nn.decoder import check_params
from jaxfeat.nn.rotary import Rope
from jaxfeat.nn.route import myopic
from jaxfeat.types import UserError

GEMMA2 = {
    "model_type": "gemma2", "vocab_size": 256000, "rope_theta": 10000.0, "head_dim": 256,
    "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "sliding_window": 4096,
    "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "attention_bias": False,
}  # fmt: skip
MODERNBERT = {
    "model_type": "modernbert", "hidden_size": 768, "num_hidden_layers": 22,
    "num_attention_heads": 12, "intermediate_size": 1152, "local_attention": 128,
    "global_rope_theta": 160000.0, "local_rope_theta": 10000.0, "norm_bias": False,
    "decoder_bias": True, "tie_word_embeddings": True, "position_embedding_type": "absolute",
}  # fmt: skip
# config.json on huggingface.co, and the count of weights that its page or card gives
PUBLISHED = {
    # google/gemma-2-2b, -9b, -27b
    "gemma2-2b": (GEMMA2 | {
        "hidden_size": 2304, "num_hidden_layers": 26, "intermediate_size": 9216,
        "num_attention_heads": 8, "num_key_value_heads": 4}, 2_614_341_888),
    "gemma2-9b": (GEMMA2 | {
        "hidden_size": 3584, "num_hidden_layers": 42, "intermediate_size": 14336,
        "num_attention_heads": 16, "num_key_value_heads": 8}, 9_241_705_984),
    "gemma2-27b": (GEMMA2 | {
        "hidden_size": 4608, "num_hidden_layers": 46, "intermediate_size": 36864, "head_dim": 128,
        "num_attention_heads": 32, "num_key_value_heads": 16, "query_pre_attn_scalar": 144,
        }, 27_227_128_320),
    # google/gemma-3-1b-pt
    "gemma3-1b": ({
        "model_type": "gemma3_text", "hidden_size": 1152, "num_hidden_layers": 26,
        "intermediate_size": 6912, "num_attention_heads": 4, "num_key_value_heads": 1,
        "head_dim": 256, "sliding_window": 512, "sliding_window_pattern": 6,
        "vocab_size": 262144}, 999_885_952),
    # EleutherAI/pythia-1.4b: 50304 rows, of which 50277 are tokens
    "pythia-1.4b": ({
        "model_type": "gpt_neox", "vocab_size": 50304, "hidden_size": 2048, "rotary_pct": 0.25,
        "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 8192,
        "rotary_emb_base": 10000, "tie_word_embeddings": False}, 1_414_647_808),
    # allenai/OLMo-1B-hf, allenai/OLMo-2-0425-1B
    "olmo-1b": ({
        "model_type": "olmo", "vocab_size": 50304, "hidden_size": 2048, "num_hidden_layers": 16,
        "num_attention_heads": 16, "num_key_value_heads": 16, "intermediate_size": 8192,
        "clip_qkv": None, "tie_word_embeddings": True}, 1_176_764_416),
    "olmo2-1b": ({
        "model_type": "olmo2", "vocab_size": 100352, "hidden_size": 2048, "num_hidden_layers": 16,
        "num_attention_heads": 16, "num_key_value_heads": 16, "intermediate_size": 8192,
        "rope_theta": 500000, "tie_word_embeddings": False}, 1_484_916_736),
    # meta-llama/Llama-3.2-1B, HuggingFaceTB/SmolLM2-135M
    "llama3.2-1b": ({
        "model_type": "llama", "vocab_size": 128256, "hidden_size": 2048, "num_hidden_layers": 16,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64,
        "intermediate_size": 8192, "rope_theta": 500000.0, "tie_word_embeddings": True,
        "rope_scaling": {
            "factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
            "original_max_position_embeddings": 8192, "rope_type": "llama3"}}, 1_235_814_400),
    "smollm2-135m": ({
        "model_type": "llama", "vocab_size": 49152, "hidden_size": 576, "num_hidden_layers": 30,
        "num_attention_heads": 9, "num_key_value_heads": 3, "intermediate_size": 1536,
        "rope_theta": 100000, "tie_word_embeddings": True}, 134_515_008),
    # EuroBERT/EuroBERT-210m: 211,766,016 without its head, which is a second table
    "eurobert-210m": ({
        "model_type": "eurobert", "vocab_size": 128256, "hidden_size": 768, "hidden_dropout": 0.0,
        "num_hidden_layers": 12, "num_attention_heads": 12, "num_key_value_heads": 12,
        "intermediate_size": 3072, "rope_theta": 250000, "rope_scaling": None,
        "tie_word_embeddings": False}, 211_766_016 + 128256 * 768),
    # answerdotai/ModernBERT-base; almanach/moderncamembert-base has another vocabulary: "136M"
    "modernbert-base": (MODERNBERT | {"vocab_size": 50368}, 149_655_232),
    "moderncamembert-base": (
        MODERNBERT | {"vocab_size": 32768}, 149_655_232 - (50368 - 32768) * (768 + 1)),
    # openai-community/gpt2
    "gpt2": ({
        "model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024, "n_ctx": 1024,
        "n_embd": 768, "n_layer": 12, "n_head": 12}, 124_439_808),
}  # fmt: skip


def model_of(kind, dtype="float32", **changes):
    """A small decoder of a family."""
    raw = raw_of(kind, **changes)
    family = family_of(raw)
    return family.make(family.read_config(raw, dtype))


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_counts(name):
    """As many weights as the published checkpoint, in seconds and without memory."""
    raw, count = PUBLISHED[name]
    family = family_of(raw)
    start = time.perf_counter()
    shapes = jax.eval_shape(family.make(family.read_config(raw)).init, jax.random.key(0))
    assert time.perf_counter() - start < 10
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes)) == count


@pytest.mark.parametrize("kind", EXTRA)
def test_initialisation(kind):
    """Every parameter in the config's type, kernels and tables of deviation 0.02, norms neutral."""
    decoder = model_of(kind, "bfloat16")
    shapes = jax.eval_shape(decoder.init, jax.random.key(0))
    assert {leaf.dtype for leaf in jax.tree.leaves(shapes)} == {jnp.dtype(jnp.bfloat16)}
    # the larger width is not for all: it would compile for long
    wide = {"hidden_size": 64, "intermediate_size": 96, "vocab_size": 300}
    if kind not in ("gemma2", "modernbert"):
        return
    params = jax.jit(model_of(kind, **wide).init, compiler_options=QUICK)(jax.random.key(0))
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        name = path[-1].key
        if name in ("kernel", "embedding"):
            np.testing.assert_allclose(np.std(leaf), 0.02, rtol=0.1)
        else:
            assert (leaf == float(name == "scale" and kind != "gemma2")).all()
    first, second = (params["blocks"][1], params["blocks"][2]) if kind == "modernbert" else (
        jax.tree.map(lambda x, b=b: x[b], params["blocks"]) for b in range(2)
    )  # fmt: skip
    assert not np.array_equal(first["attn"]["q"]["kernel"], second["attn"]["q"]["kernel"])


@pytest.mark.parametrize("kind", ["llama", "gemma2"])
def test_split(kind):
    """The fast split is that by its definition, in float64; windows and caps included."""
    batch, nodes = tiny.batch_of(2, pads=1), [(0, 1), (0, 3)]
    splits = (partial(split_gradient, chunks=1), split_by_definition)
    with jax.enable_x64(True):
        decoder = model_of(kind, "float64")
        params = tiny.params_of(decoder, dtype=np.float64)
        both = jax.jit(
            lambda p: tuple(f(decoder, p, batch, nodes) for f in splits),
            compiler_options=QUICK,
        )
        ours, theirs = both(to64(params))
        total = jax.tree.map(lambda *parts: sum(parts), *theirs)
    for name in theirs._fields:
        close(getattr(ours, name), getattr(theirs, name), 1e-11, size_of=total)
    largest = [max(np.abs(x).max() for x in jax.tree.leaves(part)) for part in theirs]
    assert min(largest) > 1e-3  # no part is empty


@pytest.mark.parametrize("kind", ["eurobert", "modernbert"])
def test_split_of_a_bidirectional_model(kind):
    """It is refused: a position's own loss is reached through later columns."""
    decoder = model_of(kind)
    with pytest.raises(UserError, match="causal"):
        split_gradient(decoder, tiny.params_of(decoder), tiny.batch_of(), [(0, 0)])


@pytest.mark.parametrize("kind", ["gemma2", "gpt_neox"])
def test_routes_leave_values(kind):
    """No value depends on a route, bit for bit, whatever the mixer and the order of the block."""
    decoder = model_of(kind)
    params, batch = tiny.params_of(decoder), tiny.batch_of(2, pads=1)
    weights = tiny.WEIGHTS.astype(np.float32)

    @partial(jax.jit, static_argnames="routed")
    def run(params, routed):
        routes = [myopic(), weights] if routed else [None, None]
        return [forward(decoder, params, batch, route=route) for route in routes]

    for plain, routed in zip(run(params, False), run(params, True)):
        same(plain, routed)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_softcaps(dtype):
    """Scores and logits of +-1e4 become +-cap, and all gradients stay finite."""
    decoder = model_of("gemma2", dtype)
    params = jax.tree.map(lambda x: jnp.asarray(x, dtype), tiny.params_of(decoder))
    q = jnp.array([[[1.0]], [[-1.0]]], dtype)  # [T, H, K]
    k = jnp.array([[[1e4]], [[-1e4]]], dtype)
    visible = jnp.ones((2, 2), bool)
    score = lambda q, k: decoder.mix(q, k, jnp.eye(2, dtype=dtype)[:, None, :], visible, None)
    mixed, back = jax.vjp(score, q, k)
    odds = np.exp(2 * 0.5)  # the config's cap
    truth = np.array([[odds, 1], [1, odds]]) / (1 + odds)
    np.testing.assert_allclose(mixed[:, 0].astype(np.float32), truth, rtol=1e-2)
    assert all(np.isfinite(g.astype(np.float32)).all() for g in back(jnp.ones_like(mixed)))

    big = params["outer"] | {"table": {"embedding": jnp.full((11, 8), 1e4, dtype)}}
    for sign in (1, -1):
        x = sign * jnp.ones(8, dtype)
        logits, back = jax.vjp(decoder.unembed, big, x)
        assert (logits == sign * 30).all() and logits.dtype == dtype
        grads = jax.tree.leaves(back(jnp.ones_like(logits)))
        assert all(np.isfinite(g.astype(np.float32)).all() for g in grads)


def test_embedding_scale_is_rounded():
    """sqrt(3584) = 59.867 is 59.75 in bfloat16; sqrt(2304) = 48 would hide it."""
    for dtype, scale in (("bfloat16", 59.75), ("float32", np.float32(3584**0.5))):
        decoder = model_of("gemma2", dtype, hidden_size=3584)
        outer = {"table": {"embedding": jnp.ones((11, 3584), dtype)}}
        row = decoder.embed(outer, jnp.array(3), jnp.array(0))
        assert row.dtype == dtype and (row == scale).all()


def test_padded_rows_are_no_tokens():
    """Logits of the tokens alone, from parameters that keep their padded rows."""
    decoder = model_of("gpt_neox")
    params = tiny.params_of(decoder)
    few = with_tokens(decoder, 9)
    outer, x = params["outer"], np.ones(8, np.float32)
    every = decoder.unembed(outer, x)
    np.testing.assert_allclose(few.unembed(outer, x), every[:9], rtol=1e-6)
    np.testing.assert_allclose(
        few.unembed(outer, x, jnp.array([8, 2])), every[jnp.array([8, 2])], rtol=1e-6
    )
    batch = tiny.batch_of(1)._replace(token=jnp.full((1, tiny.LENGTH), 10))
    with pytest.raises(UserError, match=r"valid are 0\.\.8"):
        forward(few, params, batch)
    assert with_tokens(decoder, 11) is decoder
    with pytest.raises(UserError, match="tokens: 12 given"):
        with_tokens(decoder, 12)


def test_some_logits_and_cut_tables():
    """Logits of some ids are those of all; a table cut to some tokens is read as it is."""
    for kind in ("eurobert", "modernbert", "gemma2"):
        decoder = model_of(kind, mlp_bias=True) if kind == "eurobert" else model_of(kind)
        outer, x = tiny.params_of(decoder)["outer"], np.ones(8, np.float32)
        ids = jnp.array([3, 0, 3])
        some, every = decoder.unembed(outer, x, ids), decoder.unembed(outer, x)
        np.testing.assert_allclose(some, every[ids], rtol=1e-5)
        (path,) = decoder.by_token
        cut = outer | {path[0]: {path[1]: outer[path[0]][path[1]][2:4]}}
        same(decoder.embed(cut, jnp.array(1), 0), decoder.embed(outer, jnp.array(3), 0))


def test_blocks_that_differ():
    """ModernBERT's block 0 has no norm before its attention; other trees are refused."""
    decoder = model_of("modernbert")
    params = tiny.params_of(decoder)
    assert ["attn_norm" in block for block in params["blocks"]] == [False, True, True]
    check_params(decoder, params, None)
    turned = params | {"blocks": params["blocks"][::-1]}
    with pytest.raises(UserError, match="another tree of blocks"):
        check_params(decoder, turned, None)
    stacked = jax.tree.map(lambda *x: np.stack(x), *[params["blocks"][0]] * 3)
    with pytest.raises(UserError, match="a tuple of them needed"):
        check_params(decoder, params | {"blocks": stacked}, None)


def test_windows():
    """Gemma 2 slides in even blocks, Gemma 3 in all but each third here, ModernBERT likewise."""
    everywhere = 2**30
    assert model_of("gemma2").consts["window"].tolist() == [2, everywhere]
    assert model_of("gemma3_text").consts["window"].tolist() == [2, 2, everywhere, 2]
    assert model_of("modernbert").consts["window"].tolist() == [everywhere, 1, 1]
    full = model_of("gemma2", layer_types=["full_attention"] * 2)
    assert full.consts["window"].tolist() == [everywhere] * 2


def test_rope_of_configs():
    """The scalings of Llama 3 and of Gemma 3, whose windows keep their own angles."""
    llama, _ = PUBLISHED["llama3.2-1b"]
    config = family_of(llama).read_config(llama)
    assert config.rope == Rope(500000.0, "llama3", 32.0, 1.0, 4.0, 8192)
    scaling = {"type": "linear", "factor": 8.0}
    raw = raw_of("gemma3_text", rope_scaling=scaling, rope_local_base_freq=500.0)
    config = family_of(raw).read_config(raw)
    assert config.rope == Rope(1e6, "linear", 8.0) and config.local_rope == Rope(500.0)
    # a null base of ModernBERT's windows is that of its other blocks
    raw = raw_of("modernbert", global_rope_theta=7.0) | {"local_rope_theta": None}
    assert family_of(raw).read_config(raw).local_rope == Rope(7.0)


@pytest.mark.parametrize(
    ("kind", "changes", "words"),
    [
        ("llama", {"hidden_size": None}, "config.json: hidden_size is missing"),
        ("llama", {"hidden_act": "mish"}, "activation 'mish' is unknown; valid: gelu, "),
        ("llama", {"num_key_value_heads": 3}, "groups: 3 does not divide the heads 2"),
        ("llama", {"head_dim": 3}, "rotary size: 3 given, an even number"),
        ("llama", {"rope_theta": -1.0}, "rope theta: -1.0"),
        ("llama", {"rope_scaling": {"rope_type": "yarn"}}, "rope type 'yarn' is unknown; valid"),
        ("llama", {"rope_scaling": {"rope_type": "linear"}}, "factor is missing"),
        ("llama", {"quantization_config": {"bits": 4}}, "quantization_config .* not supported"),
        ("olmo", {"mlp_bias": True}, "mlp_bias True is not supported; valid: False"),
        ("gemma2", {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
        ("gemma2", {"layer_types": ["full_attention"]}, "layer_types names 1 blocks of 2"),
        ("gemma2", {"layer_types": ["chunked"] * 2}, "layer type 'chunked' is unknown"),
        ("gemma2", {"sliding_window": 0}, "window: 0"),
        ("gemma2", {"final_logit_softcapping": -1.0}, "logit_softcap: -1.0"),
        ("gpt_neox", {"num_attention_heads": 3}, "heads: 3 does not divide the width 8"),
        ("gpt_neox", {"rotary_pct": 1.5}, "rotated: 1.5"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx"),
        ("gpt2", {"activation_function": "gelu"}, "activation_function 'gelu'"),
        ("gpt2", {"tie_word_embeddings": False}, "tie_word_embeddings False"),
        ("modernbert", {"num_attention_heads": 3}, "heads: 3 does not divide"),
        ("modernbert", {"classifier_activation": "tanh"}, "activation 'tanh'"),
        ("eurobert", {"vocab_size": 0}, "vocab: 0 given"),
    ],
)  # fmt: skip
def test_refused(kind, changes, words):
    """A config that cannot be computed as it says names what is wrong."""
    with pytest.raises(UserError, match=words):
        model_of(kind, **changes)


def test_unknown_families():
    """The valid ones are listed."""
    assert len(FAMILIES) == 10
    for raw in ({"model_type": "bert"}, {}):
        with pytest.raises(UserError, match=r"model_type .* is not read; valid: gpt2, gpt_neox"):
            family_of(raw)
