"""Statistics of a text against their dense definition; sums, shards, refusals."""

import numpy as np
import pytest
from corpus.dense_reference import dense_statistics

from jaxfeat.corpus.sequences import check_sequences, cut_sequences
from jaxfeat.corpus.statistics import (
    DENSE_LIMIT,
    conditional,
    corpus_statistics,
    first_sums,
    merge_first,
    pmi,
)
from jaxfeat.types import UserError

CORPORA = [(7, 3, 11), (12, 5, 9), (20, 8, 6), (31, 12, 5), (40, 4, 13)]  # V, T, N


def corpus(vocab, length, count, seed=0):
    """Random sequences with unequal shares of tokens."""
    rng = np.random.default_rng(seed)
    share = rng.dirichlet(np.ones(vocab))
    return rng.choice(vocab, size=(count, length + 1), p=share)


@pytest.mark.parametrize("sizes", CORPORA, ids=str)
def test_equal_dense_definition(sizes):
    """Every statistic to 1e-13, whole, in chunks, and merged from shards in any order."""
    vocab, length, count = sizes
    tokens = corpus(*sizes)
    dense = dense_statistics(tokens, vocab)
    cut = count // 3
    for given, chunk in ((tokens, None), (tokens, 2), ([tokens[cut:], tokens[:cut]], 4)):
        found = corpus_statistics(given, vocab, chunk=chunk)
        assert found.count == count * length and found.length == length
        for name, value in dense.items():
            np.testing.assert_allclose(getattr(found, name), value, rtol=0, atol=1e-13)


def test_row_and_column_sums():
    """Rows of B and Q, columns of Phi and all of Delta sum to 0; S_B is symmetric."""
    found = corpus_statistics(corpus(12, 5, 30), 12)
    for sums in (found.bigram.sum(1), found.attention.sum(1), found.context.sum(0),
                 found.context2.sum(0), found.offset.sum()):  # fmt: skip
        assert np.abs(sums).max() < 1e-15
    np.testing.assert_allclose(found.interchange, found.interchange.T, rtol=0, atol=1e-16)
    np.testing.assert_allclose(found.unigram.sum(), 1.0, rtol=1e-15)
    np.testing.assert_allclose(found.score, found.interchange @ found.context, rtol=1e-12)


def test_conditional_and_pmi_are_counts():
    """Both against counting, 0 for pairs and tokens that never occur."""
    tokens = corpus(6, 4, 10)
    found = corpus_statistics(tokens, 7)
    counts = np.zeros((7, 7))
    np.add.at(counts, (tokens[:, :-1].ravel(), tokens[:, 1:].ravel()), 1)
    rows = np.maximum(counts.sum(1, keepdims=True), 1)
    np.testing.assert_allclose(conditional(found), counts / rows, atol=1e-14)
    lift = counts * counts.sum() / np.maximum(np.outer(counts.sum(1), counts.sum(0)), 1)
    expected = np.log(np.where(counts > 0, lift, 1.0))
    np.testing.assert_allclose(pmi(found), expected, atol=1e-12)
    assert not conditional(found)[6].any() and np.all(pmi(found)[counts == 0] == 0)


def test_refusals():
    """What cannot be counted is refused in one line that names the argument."""
    good = corpus(5, 3, 4)
    for tokens, vocab, told in (
        (good, 3, "0..2"), (good - 1, 5, "0..4"), (good[:, :1], 5, "T >= 1"), (good[:0], 5, "N"),
        (good.astype(float), 5, "integer"), ([good, good[:, 1:]], 5, "same T"),
        (good, DENSE_LIMIT + 1, "products"), (good, 0, "vocab"), (good[0], 5, "shape"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=told) as error:
            corpus_statistics(tokens, vocab)
        assert len(str(error.value).splitlines()) == 1
    with pytest.raises(UserError, match="9 given, only"):
        check_sequences(good, 9, strict=True)
    with pytest.raises(UserError, match="chunk"):
        corpus_statistics(good, 5, chunk=0)
    with pytest.raises(UserError, match="stream"):
        cut_sequences(good.ravel()[:3], 3)
    with pytest.raises(UserError, match="same"):
        merge_first(first_sums(good, 5), first_sums(good, 6))
