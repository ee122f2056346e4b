"""Are the reading maps what counting by hand gives, and do neighbours come in their order?"""

import numpy as np
import pytest

from jaxfeat.corpus.neighbours import MAPS, WEIGHTINGS, neighbours, reading_map
from jaxfeat.corpus.statistics import corpus_statistics
from jaxfeat.types import UserError

V, T = 6, 4
TOKENS = np.random.default_rng(2).integers(V - 1, size=(9, T + 1))  # the last id never occurs
STATISTICS = corpus_statistics(TOKENS, V)


def counted():
    """Joint shares of (current, next) and of (next, prefix), by loops."""
    follows, before = np.zeros((V, V)), np.zeros((V, V))
    for row in TOKENS:
        for t in range(1, T + 1):
            follows[row[t - 1], row[t]] += 1
            for j in range(t):
                before[row[t], row[j]] += 1 / t
    return follows / follows.sum(), before / before.sum()


def weighted(joint, weighting):
    """P(column | row), or pointwise mutual information."""
    row, column = joint.sum(1, keepdims=True), joint.sum(0, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = joint / row if weighting == "conditional" else np.log(joint / (row * column))
    return np.where(joint > 0, found, 0)


@pytest.mark.parametrize("weighting", WEIGHTINGS[1:])
def test_weightings(weighting):
    """B and Phi as counted, S_B and Phi^T B^T composed of them."""
    follows, before = (weighted(x, weighting) for x in counted())
    expected = {"bigram": follows, "interchange": follows.T @ follows, "context": before,
                "value": before.T @ follows.T}  # fmt: skip
    for name, value in expected.items():
        found = reading_map(STATISTICS, name, weighting)
        np.testing.assert_allclose(found, value, atol=1e-12, err_msg=name)


def test_joint_is_the_theorys():
    """The joint maps are the statistics themselves; Q's others divide its rows and columns."""
    s = STATISTICS
    for name in ("bigram", "interchange", "context", "attention"):
        np.testing.assert_array_equal(reading_map(s, name), getattr(s, name))
    np.testing.assert_allclose(reading_map(s, "value"), s.context.T @ s.bigram.T, atol=1e-15)
    given = reading_map(s, "attention", "conditional")
    np.testing.assert_allclose(given * s.unigram[:, None], s.attention, atol=1e-15)
    lift = reading_map(s, "attention", "pmi")
    np.testing.assert_allclose(lift * counted()[1].sum(0), given, atol=1e-13)
    assert set(MAPS) == {"bigram", "interchange", "context", "value", "attention"}


def test_order():
    """Falling values, equal ones by id, at most V."""
    found = neighbours([[1.0, 3.0, 1.0, 2.0]], 0, 9)
    assert found.ids.tolist() == [1, 3, 0, 2] and found.values.tolist() == [3, 2, 1, 1]


def test_refusals():
    """Other maps, weightings and tokens are named."""
    for given, word in ((("bigrams",), "bigrams"), (("bigram", "raw"), "raw")):
        with pytest.raises(UserError, match=word):
            reading_map(STATISTICS, *given)
    for token, top in ((V, 1), (-1, 1), (0, 0)):
        with pytest.raises(UserError):
            neighbours(np.eye(V), token, top)
