"""Do blocks and traces give what V x V covariances of a pretrained model give?"""

import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from dense_maps import dense, unit_rows

from jaxfeat.corpus.pretrained_scores import (
    cut_texts,
    make_theories,
    pretrained_scores,
    score_model,
)
from jaxfeat.corpus.sequences import shuffle_tokens
from jaxfeat.corpus.token_maps import token_maps
from jaxfeat.models.gpt2 import GPT2Config, make_gpt2
from jaxfeat.models.pretrained import load
from jaxfeat.train.revisions import Checkpoint
from jaxfeat.types import UserError

sys.path.insert(0, str(Path(__file__).parents[1] / "golden"))
from reference_hf import read_json, read_tensors

GOLDEN = ("hf/gpt_neox_a",)


def neox_alone(folder):
    """Every token alone through a GPT-NeoX in NumPy: E_pre, E_attn, E_post, q, k of each block."""
    from scipy.special import erf

    raw = read_json(folder / "config.json")
    w = {k.removeprefix("gpt_neox."): np.asarray(v, np.float64)
         for k, v in read_tensors(folder / "model.safetensors").items()}  # fmt: skip
    heads = raw["num_attention_heads"]

    def norm(x, name):
        x = x - x.mean(axis=1, keepdims=True)
        x = x / np.sqrt((x**2).mean(axis=1, keepdims=True) + raw["layer_norm_eps"])
        return x * w[f"{name}.weight"] + w[f"{name}.bias"]

    linear = lambda x, name: x @ w[f"{name}.weight"].T + w[f"{name}.bias"]
    resid = w["embed_in.weight"]
    for b in range(raw["num_hidden_layers"]):
        at = f"layers.{b}"
        fused = linear(norm(resid, f"{at}.input_layernorm"), f"{at}.attention.query_key_value")
        q, k, v = fused.reshape(len(resid), heads, 3, -1).transpose(2, 0, 1, 3)
        attn = linear(v.reshape(len(resid), -1), f"{at}.attention.dense")  # weight 1 on itself
        inner = linear(norm(resid, f"{at}.post_attention_layernorm"), f"{at}.mlp.dense_h_to_4h")
        inner = inner * (1 + erf(inner / np.sqrt(2))) / 2
        post = resid + attn + linear(inner, f"{at}.mlp.dense_4h_to_h")
        yield resid, resid + attn, post, q, k
        resid = post


def cov(m):
    m = m - m.mean(axis=1, keepdims=True)
    return m @ m.T / (m.shape[1] - 1)


def cosines(a, b):
    """Of two covariances, and less their projections on the all-ones matrix."""
    both = [(a, b), (a - a.mean(), b - b.mean())]
    return [np.vdot(x, y) / np.linalg.norm(x) / np.linalg.norm(y) for x, y in both]


def corpus_of(vocab):
    """Random text in which a sixth of the ids never stands."""
    rng = np.random.default_rng(0)
    return (rng.zipf(1.3, (60, 9)) % (vocab * 5 // 6)).astype(np.int32)


def test_neox_equals_dense(golden):
    """Every score of a tiny GPT-NeoX, to 1e-8, against V x V covariances in NumPy."""
    with jax.enable_x64(True):
        model = load(golden, "float64")
        tokens = corpus_of(model.decoder.vocab)
        theories = {"text": make_theories(tokens, model.decoder.vocab)}
        found = score_model(model.decoder, model.params, theories, batch=40)["text"]
    b, phi, q = dense(tokens, model.decoder.vocab)
    (rows, value), (chosen, attention) = unit_rows(phi.T @ b.T), unit_rows(q)
    assert 10 < len(chosen) <= len(rows) < model.decoder.vocab
    value, attention = (x @ x.T for x in (value, attention))
    for n, (_, attn, post, query, key) in enumerate(neox_alone(golden)):
        scores = np.einsum("ahk,bhk->hab", query, key)
        expected = {
            "post": cosines(cov(post[rows]), value),
            "attn": cosines(cov(attn[rows]), value),
            "attention": cosines(cov(scores.mean(axis=0)[chosen]), attention),
            "heads": np.transpose([cosines(cov(a[chosen]), attention) for a in scores]),
        }
        for name, truth in expected.items():
            np.testing.assert_allclose(found[name][:, n], truth, rtol=0, atol=1e-8, err_msg=name)
    assert found["heads"].shape == (2, 3, 2)


def test_token_maps(golden):
    """Residuals of every token alone, in batches that do not divide the vocabulary."""
    with jax.enable_x64(True):
        model = load(golden, "float64")
        found = list(token_maps(model.decoder, model.params, batch=40))
    for maps, truth in zip(found, neox_alone(golden), strict=True):
        size = maps.query.shape[-1] ** -0.5  # queries are scaled
        for ours, theirs in zip(maps[1:], (*truth[:3], truth[3] * size, truth[4]), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)


def rungs(count=2):
    """Checkpoints that are made when they are loaded."""
    decoder = make_gpt2(GPT2Config(vocab=20, length=4, width=8, heads=2, layers=2))
    init = jax.jit(decoder.init)
    return [
        Checkpoint(
            f"step {n}", n, Path(str(n)), 20, None, "tiny",
            lambda n=n: (decoder, init(jax.random.key(n))), lambda n=n: str(n),
        )
        for n in range(count)
    ]  # fmt: skip


def test_heat_maps():
    """Arrays by checkpoint and block, of every theory; the rows that are left out are counted."""
    tokens = corpus_of(20)
    texts = {"text": tokens, "shuffled": shuffle_tokens(tokens)}
    theories = {name: make_theories(t, 20) for name, t in texts.items()}
    found = pretrained_scores(rungs(), theories)
    assert found.names == ("step 0", "step 1") and found.steps == (0, 1)
    for scores in (found.cosine, found.beyond):
        assert scores["shuffled"]["post"].shape == (2, 2)
        assert scores["text"]["heads"].shape == (2, 2, 2)
        assert all(np.isfinite(x).all() for t in scores.values() for x in t.values())
    assert not np.allclose(found.cosine["text"]["post"], found.cosine["shuffled"]["post"])
    told = found.rows["text/value"]
    assert sum(told.values()) == 20 and told["unseen"] >= 3
    other = {"text": make_theories(tokens, 21)}
    with pytest.raises(UserError, match="21 tokens, the model 20"):
        pretrained_scores(rungs(), other)
    with pytest.raises(UserError, match="at least one"):
        pretrained_scores([], theories)


def test_shuffle():
    """The same tokens in another order, the same for a seed."""
    tokens = corpus_of(20)
    one, two = shuffle_tokens(tokens), shuffle_tokens(tokens)
    np.testing.assert_array_equal(one, two)
    assert one.shape == tokens.shape and (one != tokens).any()
    np.testing.assert_array_equal(np.sort(one, axis=None), np.sort(tokens, axis=None))


def test_short_texts():
    """Texts of T tokens or fewer are left out and counted, never padded."""
    kept, left = cut_texts([[1, 2, 3], [4, 5], list(range(9))], 2)
    assert kept.tolist() == [[1, 2, 3], [0, 1, 2]] and left == 1
    with pytest.raises(UserError, match="none of 2 has 6 tokens; most: 3"):
        cut_texts([[1, 2, 3], [4]], 5)
