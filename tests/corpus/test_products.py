"""Do products through the tokens equal the dense maps, and are their covariances' norms exact?"""

import numpy as np
import pytest
from dense_maps import dense, unit_rows

from jaxfeat.corpus import large_maps, products
from jaxfeat.corpus.large_maps import (
    attention_map,
    attention_weights,
    gram_norm,
    times_attention,
    times_attention_transposed,
    value_map,
)
from jaxfeat.corpus.products import context_columns, make_corpus
from jaxfeat.types import UserError

VOCAB, LENGTH = 17, 6


def corpus_tokens(seed=0, count=23):
    """Frequent and rare ids; 15 and 16 never occur, 14 only as the first input of a sequence."""
    tokens = np.random.default_rng(seed).zipf(1.4, (count, LENGTH + 1)) % 14
    tokens[0] = [14, *([3] * LENGTH)]
    return tokens.astype(np.int32)


def near(ours, theirs):
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12 * np.abs(theirs).max())


@pytest.mark.parametrize("threads", [1, 3])
def test_products(monkeypatch, threads):
    """Each map and its transpose times a thin matrix, at any chunk and on several threads."""
    monkeypatch.setattr(products, "ALONE", 2)
    monkeypatch.setattr(products.os, "cpu_count", lambda: threads)
    monkeypatch.setattr(products, "PAIRS", 20)
    tokens = corpus_tokens()
    b, phi, q = dense(tokens, VOCAB)
    m = np.random.default_rng(1).standard_normal((VOCAB, 6))
    corpus = make_corpus(tokens, VOCAB, chunk=4)
    near(products.times_bigram(corpus, m), b @ m)
    near(products.times_bigram_transposed(corpus, m), b.T @ m)
    near(products.times_context(corpus, m), phi @ m)
    near(products.times_context_transposed(corpus, m), phi.T @ m)
    some = products.times_context_transposed(corpus, m, start=3)
    near(some[corpus.order[3:]], (phi.T @ m)[corpus.order[3:]])
    assert not some[corpus.order[:3]].any()
    ids = np.array([3, 14, 16, 1])
    near(context_columns(corpus, ids), phi[:, ids])
    weights = attention_weights(corpus, width=5)
    near(times_attention(corpus, weights, m), q @ m)
    near(times_attention_transposed(corpus, weights, m), q.T @ m)


@pytest.mark.parametrize("name", ["value", "attention"])
def test_maps(monkeypatch, name):
    """Rows, norm, sum and products of the centred rows at unit norm, in blocks of any size."""
    monkeypatch.setattr(large_maps, "PAIRS", 60)
    tokens = corpus_tokens()
    b, phi, q = dense(tokens, VOCAB)
    rows, kc = unit_rows(phi.T @ b.T if name == "value" else q)
    covariance = kc @ kc.T
    corpus = make_corpus(tokens, VOCAB, chunk=5)
    m = np.random.default_rng(2).standard_normal((len(rows), 3))
    for width in (4, 512):
        found = (value_map if name == "value" else attention_map)(corpus, width)
        np.testing.assert_array_equal(found.rows, rows)
        assert found.side.norm == pytest.approx(np.linalg.norm(covariance), rel=1e-12)
        assert found.side.ones == pytest.approx(covariance.sum(), rel=1e-12)
        near(found.transposed(m), kc.T @ m)
    seen = len(np.unique(tokens[:, :-1]))
    assert (found.unseen, found.empty) == (VOCAB - seen, seen - len(rows))
    assert name == "value" or found.empty > 0  # of a token that only ever stands first


def test_gram_norm():
    """Every number of rows and columns kept apart gives the norm, also the one that is chosen."""
    from scipy import sparse

    rng = np.random.default_rng(3)
    s = np.where(rng.random((40, 40)) < 0.2, rng.standard_normal((40, 40)), 0)
    order, norm = rng.permutation(40), np.linalg.norm(s @ s.T)
    for heavy in (None, 0, 1, 13, 40):
        found = gram_norm(sparse.csr_array(s), order, heavy)
        assert found == pytest.approx(norm, rel=1e-12)


def test_float32():
    """Half the memory, six digits."""
    tokens = corpus_tokens()
    exact, near = (make_corpus(tokens, VOCAB, dtype=d) for d in ("float64", "float32"))
    for make in (value_map, attention_map):
        one, two = make(exact), make(near)
        assert two.side.norm == pytest.approx(one.side.norm, rel=1e-5)
        assert two.transposed(np.ones((len(two.rows), 1))).dtype == np.float32


def test_refusals():
    """What is no corpus, no type, no thin matrix, and a corpus that says nothing."""
    tokens = corpus_tokens()
    with pytest.raises(UserError, match="float16"):
        make_corpus(tokens, VOCAB, dtype="float16")
    with pytest.raises(UserError, match="ids"):
        make_corpus(tokens, 5)
    corpus = make_corpus(tokens, VOCAB)
    with pytest.raises(UserError, match=r"\[17 \(V\), k\] needed"):
        products.times_bigram(corpus, np.ones((3, 2)))
    with pytest.raises(UserError, match="rows given"):
        value_map(corpus).transposed(np.ones((3, 2)))
    with pytest.raises(UserError, match="no row of the map is left"):
        attention_map(make_corpus(tokens[:, :2], VOCAB))  # T = 1: nothing to choose from
