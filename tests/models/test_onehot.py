"""Is the one-hot model the specification's, and does its fast form give the same numbers?"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import close

from jaxfeat.models import onehot
from jaxfeat.models.onehot import OneHotConfig, attention_scores, make_onehot
from jaxfeat.nn.blocks import forward
from jaxfeat.nn.loss import mean_loss
from jaxfeat.types import UserError, make_batch

V, T, N = 7, 5, 3
TOKENS = np.random.default_rng(1).integers(V, size=(4, T + 1))


def model():
    """The model and random parameters in float64."""
    decoder = make_onehot(OneHotConfig(V, T, N, dtype="float64", scale=0.5))
    return decoder, decoder.init(jax.random.key(0))


def definition(params, tokens):
    """Definition 3.1 of arXiv 2601.19208 in NumPy, one sequence: logits and scores."""
    p = jax.tree.map(np.asarray, params)
    h, all_scores = np.eye(V)[tokens], []
    for b in range(N):
        scores = h @ p["blocks"]["attention"][b] @ h.T
        for t in range(T):
            for s in range(t + 1):
                scores[t, s] += p["blocks"]["position"][b][t - s]
        scores = np.where(np.tri(T, dtype=bool), scores, -np.inf)
        weights = np.exp(scores - scores.max(1, keepdims=True))
        weights /= weights.sum(1, keepdims=True)
        all_scores.append(np.where(np.tri(T, dtype=bool), scores, 0))
        h = h + weights @ h @ p["blocks"]["value"][b]
    return h @ p["outer"]["output"], np.stack(all_scores)


def test_definition():
    """Logits and scores are those of the definition written out."""
    with jax.enable_x64(True):
        decoder, params = model()
        logits = forward(decoder, params, make_batch(jnp.asarray(TOKENS))).logits
        scores = np.stack(attention_scores(params, jnp.asarray(TOKENS[:, :-1]))[0], axis=1)
        for n, row in enumerate(TOKENS):
            ours, theirs = (logits[n], scores[n]), definition(params, row[:-1])
            close(ours, theirs, 1e-14)


def test_fast_loss():
    """Value and gradient of the fast loss are those of the general pass."""
    with jax.enable_x64(True):
        decoder, params = model()
        tokens = jnp.asarray(TOKENS)
        batch = make_batch(tokens)
        general = lambda p: mean_loss(forward(decoder, p, batch).logits, batch)
        fast = lambda p: onehot.mean_loss(p, tokens)
        close(*(jax.jit(jax.value_and_grad(f))(params) for f in (fast, general)), 1e-13)


def test_zero_and_gaussian():
    """Zero weights predict uniformly; a scale gives normal ones of its size."""
    params = make_onehot(OneHotConfig(V, T, N)).init(jax.random.key(0))
    assert not any(np.asarray(x).any() for x in jax.tree.leaves(params))
    assert float(onehot.mean_loss(params, jnp.asarray(TOKENS))) == pytest.approx(np.log(V))
    config = OneHotConfig(40, 30, 2, scale=0.1)
    drawn = make_onehot(config).init(jax.random.key(1))["blocks"]["value"]
    assert float(jnp.std(drawn)) == pytest.approx(0.1, rel=0.1)  # 8 deviations of 3,200 draws


@pytest.mark.parametrize("field, value", [("vocab", 0), ("length", 0), ("layers", 0),
                                          ("scale", -1.0), ("scale", float("nan"))])  # fmt: skip
def test_refusals(field, value):
    """Sizes below 1 and scales that are no standard deviation."""
    sizes = {"vocab": 3, "length": 2, "layers": 1, "scale": 0.0} | {field: value}
    with pytest.raises(UserError, match=field):
        make_onehot(OneHotConfig(**sizes))
