"""Are the losses by parts those of the parts' logits written out, whatever the chunks?"""

import numpy as np
import pytest

from jaxfeat.corpus import by_parts
from jaxfeat.corpus.closed_form import Weights, params_of
from jaxfeat.models.onehot import mean_loss

V, T, N = 6, 4, 2
RNG = np.random.default_rng(0)
TOKENS = RNG.integers(V, size=(5, T + 1))
WEIGHTS = Weights(*(RNG.standard_normal(shape) for shape in ((V, V), (N, V, V), (N, V, V), (N, T))))


def loss(logits, target):
    """Mean cross-entropy."""
    top = np.exp(logits)
    return -np.mean(np.log(top[np.arange(len(target)), target] / top.sum(1)))


def test_written_out(monkeypatch):
    """Residual, attention and both; with a chunk of one sequence too."""
    residual, attention, both = [], [], []
    for row in TOKENS:
        x, y = row[:-1], row[1:]
        own, paths = WEIGHTS.output[x], np.zeros((T, V))
        for w, p, v in zip(WEIGHTS.attention, WEIGHTS.position, WEIGHTS.value):
            for t in range(T):
                scores = np.array([w[x[t], x[s]] + p[t - s] for s in range(t + 1)])
                share = np.exp(scores) / np.exp(scores).sum()
                paths[t] += share @ (v @ WEIGHTS.output)[x[: t + 1]]
        for kept, logits in ((residual, own), (attention, paths), (both, own + paths)):
            kept.append(loss(logits, y))
    expected = [np.log(V), *(np.mean(x) for x in (residual, attention, both))]
    for entries in (by_parts.ENTRIES, 1):
        monkeypatch.setattr(by_parts, "ENTRIES", entries)
        found = by_parts.part_losses(WEIGHTS, TOKENS)
        assert list(found) == list(by_parts.PARTS)
        np.testing.assert_allclose(list(found.values()), expected, rtol=1e-6)


def test_one_block_is_exact():
    """With one block nothing is neglected: both paths together are the model."""
    one = Weights(WEIGHTS.output, *(x[:1] for x in WEIGHTS[1:]))
    found = by_parts.part_losses(one, TOKENS)["both"]
    assert found == pytest.approx(float(mean_loss(params_of(one), TOKENS)), rel=1e-6)
