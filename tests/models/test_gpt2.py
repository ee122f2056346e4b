"""Is it GPT-2? (the reference is written out in NumPy)"""

import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from tiny import QUICK, close, to64

from jaxfeat.models.gpt2 import GPT2Config, make_gpt2
from jaxfeat.nn.blocks import forward
from jaxfeat.tree import bytes_of
from jaxfeat.types import UserError


def in_numpy(params, token, heads):
    """Logits and residuals of one sequence, as Radford et al. describe the model."""

    def norm(x, p):
        x = x - x.mean(-1, keepdims=True)
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * p["scale"] + p["bias"]

    def linear(x, p):
        return x @ p["kernel"].T + p["bias"]

    outer, blocks = params["outer"], params["blocks"]
    length, table = len(token), outer["wte"]["embedding"]
    x = table[token] + outer["wpe"]["embedding"][:length]
    resid, future = [x], np.triu(np.ones((length, length), bool), 1)
    for b in range(blocks["q"]["bias"].shape[0]):
        p = jax.tree.map(lambda leaf, b=b: leaf[b], blocks)
        read = norm(x, p["ln_1"])
        q, k, v = (np.split(linear(read, p[name]), heads, -1) for name in ("q", "k", "v"))
        scores = [a @ c.T / np.sqrt(a.shape[-1]) for a, c in zip(q, k)]
        weights = [np.exp(np.where(future, -np.inf, s)) for s in scores]
        mixed = [w / w.sum(-1, keepdims=True) @ c for w, c in zip(weights, v)]
        x = x + linear(np.concatenate(mixed, -1), p["o"])
        up = linear(norm(x, p["ln_2"]), p["mlp"]["fc"])
        up = up / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (up + 0.044715 * up**3)))
        x = x + linear(up, p["mlp"]["proj"])
        resid.append(x)
    return norm(x, outer["ln_f"]) @ table.T, np.stack(resid)


@pytest.mark.parametrize(("layers", "heads"), [(1, 1), (2, 4), (4, 2)])
def test_forward(layers, heads):
    """Logits and every residual equal NumPy's in float64 (4 blocks run as a scan)."""
    decoder, batch = tiny.gpt2(layers, heads), tiny.batch_of(2)
    params = tiny.params_of(decoder, dtype=np.float64)
    with jax.enable_x64(True):
        out = jax.jit(lambda p: forward(decoder, p, batch), compiler_options=QUICK)(to64(params))
    for n in range(2):
        logits, resid = in_numpy(params, np.asarray(batch.token[n]), heads)
        close(out.logits[n], logits, 1e-13)
        close(out.resid[n], resid, 1e-13)


def test_unembed_some():
    """Logits of some ids are those of all."""
    decoder = tiny.gpt2()
    outer, x = tiny.params_of(decoder)["outer"], np.ones(8, np.float32)
    ids = jnp.array([3, 0, 3])
    some, every = decoder.unembed(outer, x, ids), decoder.unembed(outer, x)
    np.testing.assert_allclose(some, every[ids], rtol=1e-6)


def test_initialisation():
    """N(0, 0.02), residual projections smaller by sqrt(2 N), norms at 1 and 0, biases at 0."""
    decoder = make_gpt2(GPT2Config(vocab=300, length=100, width=64, heads=4, layers=2))
    params = jax.jit(decoder.init, compiler_options=QUICK)(jax.random.key(0))
    blocks = params["blocks"]
    for kernel in (blocks["q"], blocks["k"], blocks["v"], blocks["mlp"]["fc"]):
        np.testing.assert_allclose(np.std(kernel["kernel"]), 0.02, rtol=0.05)
    for kernel in (blocks["o"], blocks["mlp"]["proj"]):
        np.testing.assert_allclose(np.std(kernel["kernel"]), 0.02 / np.sqrt(4), rtol=0.05)
    np.testing.assert_allclose(np.std(params["outer"]["wte"]["embedding"]), 0.02, rtol=0.05)
    assert (blocks["ln_1"]["scale"] == 1).all() and not blocks["q"]["bias"].any()
    kernels = np.asarray(blocks["q"]["kernel"])
    assert not np.array_equal(kernels[0], kernels[1])


def test_shapes_of_a_large_model():
    """The shapes of GPT-2 XL, 1.56 billion parameters, take seconds at most and no memory."""
    config = GPT2Config(vocab=50257, length=1024, width=1600, heads=25, layers=48)
    start = time.perf_counter()
    shapes = jax.eval_shape(make_gpt2(config).init, jax.random.key(0))
    assert time.perf_counter() - start < 5
    assert bytes_of(shapes) // 4 == 1_557_611_200  # as the checkpoint counts them
    assert shapes["blocks"]["mlp"]["fc"]["kernel"].shape == (48, 6400, 1600)


def test_one_block_of_another_type():
    """The type of the config is that of every parameter."""
    shapes = jax.eval_shape(tiny.gpt2(dtype="bfloat16").init, jax.random.key(0))
    assert {x.dtype for x in jax.tree.leaves(shapes)} == {jnp.dtype(jnp.bfloat16)}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"heads": 3}, "3 does not divide the width 8"),
        ({"heads": 0}, "heads: 0 given, a whole number of at least 1"),
        ({"layers": 0}, "layers: 0 given, a whole number of at least 1"),
        ({"vocab": 0}, "vocab"),
        ({"length": -1}, "length"),
        ({"width": 0}, "width"),
        ({"layers": 1.5}, "layers: 1.5 given, a whole number"),
        ({"mlp": -3}, "mlp: -3"),
        ({"dtype": "int32"}, "dtype: 'int32' given; valid: float32"),
        ({"eps": -1.0}, "eps: -1.0"),
    ],
)
def test_refused(wrong, words):
    """Sizes that make no model."""
    with pytest.raises(UserError, match=words):
        make_gpt2(GPT2Config(**{"vocab": 5, "length": 4, "width": 8, "heads": 2} | wrong))
