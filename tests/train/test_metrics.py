"""Are the held-out measures what NumPy counts one by one?"""

import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from tiny import LENGTH, VOCAB

from jaxfeat.nn.blocks import forward
from jaxfeat.train.metrics import evaluate, legal_accuracy, position_losses

RNG = np.random.default_rng(1)
LOGITS = RNG.standard_normal((4, LENGTH, VOCAB)).astype(np.float32)
LEGAL = RNG.random((4, LENGTH, VOCAB)) < 0.4
WEIGHT = RNG.random((4, LENGTH)) < 0.7
WEIGHT[:, 2] = False  # a position without a target
BATCH = tiny.batch_of(4)._replace(weight=jnp.asarray(WEIGHT))


def nll(b, t):
    x = LOGITS[b, t].astype(np.float64)
    return np.log(np.exp(x).sum()) - x[BATCH.target[b, t]]


def test_position_losses():
    """Means over real targets; NaN without any."""
    expected = np.full(LENGTH, np.nan)
    for t in range(LENGTH):
        mine = [nll(b, t) for b in range(4) if WEIGHT[b, t]]
        if mine:
            expected[t] = np.mean(mine)
    found = position_losses(jnp.asarray(LOGITS), BATCH)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert np.isnan(found[2]) and np.isfinite(np.delete(found, 2)).all()


def test_legal_accuracy():
    """The share of examples whose best token is legal; NaN where none counts."""
    expected = np.full(LENGTH, np.nan)
    for t in range(LENGTH):
        mine = [LEGAL[b, t, LOGITS[b, t].argmax()] for b in range(4) if WEIGHT[b, t]]
        if mine:
            expected[t] = np.mean(mine)
    found = legal_accuracy(jnp.asarray(LOGITS), jnp.asarray(LEGAL), jnp.asarray(WEIGHT))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    everything = legal_accuracy(jnp.asarray(LOGITS), jnp.ones(LEGAL.shape, bool), BATCH.mask)
    np.testing.assert_array_equal(everything, 1)


@pytest.mark.parametrize("legal", [None, jnp.asarray(LEGAL)])
def test_evaluate(legal):
    """All of them of a model; legality only where it is given."""
    decoder = tiny.gpt2(1)
    params = tiny.params_of(decoder)
    found = evaluate(decoder, params, BATCH, legal)
    logits = forward(decoder, params, BATCH).logits
    names = ["loss", "loss_by_position"] + ["legal_by_position"] * (legal is not None)
    assert list(found) == names
    by_position = found["loss_by_position"]
    np.testing.assert_array_equal(by_position, position_losses(logits, BATCH))
    count = WEIGHT.sum(0)
    whole = np.nansum(np.asarray(by_position) * count) / count.sum()
    np.testing.assert_allclose(found["loss"], whole, rtol=1e-5)
    if legal is not None:
        expected = legal_accuracy(logits, legal, BATCH.weight)
        np.testing.assert_array_equal(found["legal_by_position"], expected)
