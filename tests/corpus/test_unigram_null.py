"""Is the null what independent tokens give in expectation? All texts of three words, weighted."""

import itertools

import numpy as np
from corpus.dense_reference import dense_statistics

from jaxfeat.corpus.closed_form import value_map
from jaxfeat.corpus.statistics import corpus_statistics
from jaxfeat.corpus.unigram_null import null_terms, project_out

P = np.array([0.5, 0.3, 0.2])
T = 3


def scores(tokens, h):
    """Sums of q over (query, key), for one sequence."""
    found = np.zeros((3, 3))
    for t in range(1, T + 1):
        g = np.array([h[tokens[t], tokens[j]] for j in range(t)])
        for j in range(t):
            found[tokens[t - 1], tokens[j]] += (g[j] - g.mean()) / t
    return found / T


def test_expectation():
    """B, Phi and Q of every sequence, weighted by its probability, are the null's shapes."""
    r = P - 1 / 3
    bigram, context, attention = np.zeros((3, 3, 3))
    h = (P @ P) * (r @ r) * np.outer(r, P)
    for row in itertools.product(range(3), repeat=T + 1):
        weight = np.prod(P[list(row)])
        found = dense_statistics([row], 3)
        bigram += weight * found["bigram"]
        context += weight * found["context"]
        attention += weight * scores(row, h)

    # tokens with exactly these shares: the null depends on shares alone
    tokens = np.random.default_rng(0).permutation(np.repeat(range(3), [5000, 3000, 2000]))
    statistics = corpus_statistics(tokens.reshape(-1, T + 1), 3)
    null = null_terms(statistics._replace(unigram=P, target=P))
    np.testing.assert_allclose(null.output, bigram, atol=1e-14)
    np.testing.assert_allclose(null.value, context.T @ bigram.T, atol=1e-14)
    np.testing.assert_allclose(null.attention, attention, atol=1e-15)
    assert not null.position.any()


def test_independent_tokens_are_the_null():
    """Of a long text of independent tokens nothing but the null and sampling noise is left.

    An entry of B is a share of n pairs: their variances add up to less than 1 / n. Phi averages
    pairs that overlap, its noise is smaller; Phi^T B^T has that of both factors.
    """
    rng = np.random.default_rng(1)
    tokens = rng.choice(3, p=P, size=(40_000, T + 1))
    statistics = corpus_statistics(tokens, 3)
    null = null_terms(statistics)
    noise = 3 / np.sqrt(statistics.count) / np.linalg.norm(null.output)  # three deviations
    pairs = ((statistics.bigram, null.output), (value_map(statistics), null.value))
    for factors, (found, expected) in enumerate(pairs, 1):
        left = np.linalg.norm(project_out(found, expected)) / np.linalg.norm(found)
        assert left < factors * noise
