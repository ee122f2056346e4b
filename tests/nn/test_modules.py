"""Do norms, activations and the gated MLP compute what their formulas say?"""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxfeat.nn.modules import (
    ACTIVATIONS,
    GatedMlp,
    LayerNorm,
    Linear,
    RMSNorm,
    Table,
    activation,
    normal_init,
    standardize,
)
from jaxfeat.types import UserError

X = np.random.default_rng(0).standard_normal(8)


def test_rms_norm():
    """`x / sqrt(mean x^2 + eps)` times the scale, or times 1 + scale."""
    scale = np.random.default_rng(1).standard_normal(8)
    plain = X / np.sqrt((X**2).mean() + 0.1)
    with jax.enable_x64(True):
        for offset in (0.0, 1.0):
            norm = RMSNorm(0.1, offset)
            ours = norm.apply({"params": {"scale": jnp.asarray(scale)}}, X)
            np.testing.assert_allclose(ours, plain * (offset + scale), rtol=1e-14)
            init = norm.init(jax.random.key(0), jnp.asarray(X))["params"]["scale"]
            assert (init == 1 - offset).all()


def test_rms_norm_in_bfloat16():
    """The product with 1 + scale is rounded once: 1.002 alone would be 1 in bfloat16."""
    x = jnp.full(8, 200.0, jnp.bfloat16)
    scale = jnp.full(8, 0.002, jnp.bfloat16)
    wide = RMSNorm(1e4, 1.0).apply({"params": {"scale": scale}}, x)
    y = 200 / np.sqrt(200.0**2 + 1e4)
    assert wide.dtype == jnp.bfloat16
    truth = jnp.asarray(np.float32(y) * np.float32(1.002), jnp.bfloat16)
    np.testing.assert_array_equal(wide.astype(np.float32), np.full(8, truth, np.float32))
    large = RMSNorm().apply({"params": {"scale": jnp.ones(8, jnp.float16)}}, x.astype(jnp.float16))
    np.testing.assert_allclose(large, 1, rtol=1e-3)  # squares of 200 overflow in float16


@pytest.mark.parametrize("centre", [True, False])
def test_standardize_derivative(centre):
    """The written rule is the derivative, in both modes and to second order."""
    with jax.enable_x64(True):
        x = jnp.asarray(X)
        check_grads(lambda x: standardize(x, 0.1, centre), (x,), order=2, atol=1e-6, rtol=1e-6)


def test_optional_parameters():
    """What is left out of a norm or a product has no parameter and no effect."""
    x = jnp.asarray(X, jnp.float32)
    trees = {
        (scale, bias): LayerNorm(scale=scale, bias=bias).init(jax.random.key(0), x)
        for scale in (True, False)
        for bias in (True, False)
    }
    assert trees[False, False] == {}
    assert list(trees[True, False]["params"]) == ["scale"]
    assert sorted(trees[True, True]["params"]) == ["bias", "scale"]
    plain = LayerNorm(scale=False, bias=False).apply({}, x)
    np.testing.assert_allclose(plain, (x - x.mean()) / np.sqrt(x.var() + 1e-5), rtol=1e-5)
    made = Linear(3, normal_init(1.0), bias=False).init(jax.random.key(0), x)["params"]
    assert list(made) == ["kernel"]


def test_gated_mlp():
    """`down (act(gate x) * up x)`."""
    x = jnp.asarray(X, jnp.float32)
    mlp = GatedMlp(8, 5, jax.nn.silu, normal_init(0.5))
    params = mlp.init(jax.random.key(0), x)["params"]
    gate, up, down = (np.asarray(params[name]["kernel"]) for name in ("gate", "up", "down"))
    assert set(params["gate"]) == {"kernel"}
    pre = gate @ X
    truth = down @ (pre / (1 + np.exp(-pre)) * (up @ X))
    np.testing.assert_allclose(mlp.apply({"params": params}, x), truth, rtol=1e-4, atol=1e-6)


def test_activations():
    """Each name is its formula; the exact GELU is not the approximation."""
    x = np.linspace(-4, 4, 33)
    gauss = np.array([0.5 * v * (1 + math.erf(v / math.sqrt(2))) for v in x])
    cubic = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    approx = 0.5 * x * (1 + np.tanh(cubic))
    truth = {
        "gelu": gauss,
        "gelu_new": approx,
        "gelu_pytorch_tanh": approx,
        "relu": np.maximum(x, 0),
        "silu": x / (1 + np.exp(-x)),
    }
    assert set(truth) == set(ACTIVATIONS)
    with jax.enable_x64(True):
        for name, values in truth.items():
            np.testing.assert_allclose(activation(name)(jnp.asarray(x)), values, atol=1e-14)
    assert np.abs(gauss - approx).max() > 1e-4
    with pytest.raises(UserError, match="activation 'tanh' is unknown; valid: gelu"):
        activation("tanh")


def test_table():
    """Rows by id, whatever the number of rows that is given."""
    table = Table(5, 2, normal_init(1.0), "float32")
    params = table.init(jax.random.key(0))["params"]
    assert params["embedding"].shape == (5, 2)
    cut = {"params": {"embedding": jnp.array([[1.0, 2.0], [3.0, 4.0]])}}
    np.testing.assert_array_equal(table.apply(cut, jnp.array(1)), [3.0, 4.0])
