"""Are rank correlations SciPy's, query by query, and their means over the right queries?"""

import jax
import numpy as np
from corpus.small_corpora import T, learned, markov, statistics_of
from scipy.stats import spearmanr

from jaxfeat.corpus.attention_ranks import attention_ranks, rank_correlation
from jaxfeat.corpus.closed_form import params_of
from jaxfeat.corpus.pair_sums import gradient_scores
from jaxfeat.models.onehot import attention_scores


def test_rank_correlation():
    """As SciPy's with ties; rows that say nothing are NaN."""
    rng = np.random.default_rng(0)
    a, b = rng.integers(4, size=(2, 3, 7, 7)).astype(float)
    a[0, 6] = 1.0  # all equal
    with jax.enable_x64(True):
        found = np.asarray(rank_correlation(a, b))
    assert np.isnan(found[:, :2]).all() and np.isnan(found[0, 6])
    for n in range(3):
        for t in range(2, 7):
            x, y = a[n, t, : t + 1], b[n, t, : t + 1]
            if np.ptp(x) and np.ptp(y):
                np.testing.assert_allclose(found[n, t], spearmanr(x, y).statistic, atol=1e-12)


def test_learned_attention():
    """Of a model on its first steps ranks nearly agree; the means are those over queries."""
    weights, score = learned("markov", 3, 20, 0.05), statistics_of("markov").score
    tokens = markov()[:20]
    with jax.enable_x64(True):
        params = params_of(weights, "float64")
        found = attention_ranks(params, tokens, score)
        scores = np.stack(attention_scores(params, tokens[:, :-1])[0])
        q = np.asarray(gradient_scores(tokens, score))
    assert found.by_query.shape == (3, T) and found.mean.shape == (3,)
    told = lambda n, t: spearmanr(scores[1, n, t, : t + 1], q[n, t, : t + 1]).statistic
    varied = lambda n, t: np.ptp(q[n, t, : t + 1]) > 0
    expected = [[told(n, t) for n in range(20) if varied(n, t)] for t in range(2, T)]
    by_query = [np.nanmean(x) for x in expected]
    np.testing.assert_allclose(found.by_query[1, 2:], by_query, atol=1e-12)
    assert found.count[1] == sum(np.isfinite(x).sum() for x in expected)
    assert np.isnan(found.by_query[:, :2]).all() and (found.mean > 0).all()
