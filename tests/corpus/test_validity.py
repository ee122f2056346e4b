"""Are the departures from the theory's assumptions those of their definitions?"""

import jax
import numpy as np
import pytest
from corpus.small_corpora import T, V, learned, markov

from jaxfeat.corpus import validity
from jaxfeat.corpus.closed_form import params_of
from jaxfeat.corpus.validity import Departures, departures

TOKENS = markov()[:6]


def written_out(weights):
    """The three distances by loops over sequences."""
    moved = {"prediction": [0.0, 0.0], "residual": [0.0, 0.0]}
    attention = np.zeros((3, 2))
    uniform = np.tri(T) / np.arange(1, T + 1)[:, None]
    for row in TOKENS:
        x, y = np.eye(V)[row[:-1]], np.eye(V)[row[1:]]
        h = x
        for b in range(3):
            scores = h @ weights.attention[b] @ h.T
            scores += [[weights.position[b][max(t - s, 0)] for s in range(T)] for t in range(T)]
            share = np.exp(scores) * np.tri(T)
            share /= share.sum(1, keepdims=True)
            attention[b] += np.sum((share - uniform) ** 2), np.sum(uniform**2)
            h = h + share @ h @ weights.value[b]
        p = np.exp(h @ weights.output)
        p /= p.sum(1, keepdims=True)
        for name, (a, b) in {"prediction": (p - 1 / V, y - 1 / V), "residual": (h - x, x)}.items():
            moved[name][0] += np.sum(a**2)
            moved[name][1] += np.sum(b**2)
    root = lambda pair: float(np.sqrt(pair[0] / pair[1]))
    return Departures(root(moved["prediction"]), max(map(root, attention)), root(moved["residual"]))


def test_written_out(monkeypatch):
    """As the definitions, for any chunk; each grows with s eta."""
    with jax.enable_x64(True):
        few, many = (learned("markov", 3, steps, 0.05) for steps in (20, 200))
        found = departures(params_of(many, "float64"), TOKENS)
        np.testing.assert_allclose(found, written_out(many), rtol=1e-12)
        monkeypatch.setattr(validity, "ENTRIES", 1)
        np.testing.assert_allclose(departures(params_of(many, "float64"), TOKENS), found)
        early = departures(params_of(few, "float64"), TOKENS)
    assert np.all(np.array(early) < np.array(found))
    assert early.attention < early.prediction  # order 4 in s eta against order 1
    assert set(validity.ASSUMPTIONS) == set(Departures._fields)


def test_zero_weights():
    """Nothing is left at zero weights but the rounding of float32, 2^-24 = 6e-8, in 1 / V."""
    zero = params_of(jax.tree.map(np.zeros_like, learned("markov", 3, 20, 0.05)))
    assert departures(zero, TOKENS) == pytest.approx((0, 0, 0), abs=1e-7)
