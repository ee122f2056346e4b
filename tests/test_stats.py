"""Do the intervals and tests agree with SciPy, with counting, and with their own promises?"""

import itertools
import math
import subprocess
import sys

import numpy as np
import pytest
import scipy.stats

from jaxfeat import stats
from jaxfeat.types import UserError

RNG = np.random.default_rng(0)
A, B = RNG.normal(size=12), RNG.normal(size=12) + 0.4


def test_paired_interval():
    found = stats.paired_interval(A, B, level=0.9)
    theirs = scipy.stats.ttest_rel(A, B)
    bounds = theirs.confidence_interval(0.9)
    expected = ((A - B).mean(), bounds.low, bounds.high, 12, theirs.pvalue)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    turned = stats.paired_interval(B, A, level=0.9)
    np.testing.assert_allclose((turned.low, turned.high), (-found.high, -found.low))
    one = stats.paired_interval([3.0], [1.0])
    assert one.mean == 2 and one.n == 1 and all(map(math.isnan, (one.low, one.high, one.p)))
    assert stats.paired_interval([1, 2], [0, 1]) == (1, 1, 1, 2, 0)
    assert stats.paired_interval([1, 2], [1, 2]) == (0, 0, 0, 2, 1)


def test_standard_deviation():
    """SciPy's chi-square distribution by another door; 95 of 100 intervals hold the truth."""
    found = stats.sd_interval(A, level=0.9)
    s = scipy.stats.tstd(A)
    inside = lambda sd: scipy.stats.chi2.cdf(11 * s**2 / sd**2, 11)
    np.testing.assert_allclose((found.mean, found.n), (s, 12), rtol=1e-12)
    np.testing.assert_allclose((inside(found.low), inside(found.high)), (0.95, 0.05), rtol=1e-9)
    many = [stats.sd_interval(x) for x in np.random.default_rng(1).normal(0, 3, (1000, 8))]
    held = np.mean([i.low < 3 < i.high for i in many])
    assert abs(held - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 1000)
    one = stats.sd_interval([2.0])
    assert one.n == 1 and all(map(math.isnan, (one.mean, one.low, one.high, one.p)))
    assert stats.sd_interval([2.0, 2.0])[:3] == (0, 0, 0)


def test_bootstrap():
    """Near the normal interval of a mean; reproducible; whole rows for a ratio; n = 1."""
    x = RNG.normal(size=400)
    found = stats.bootstrap_interval(x)
    half = 1.96 * x.std() / 20
    expected = (x.mean() - half, x.mean() + half)
    np.testing.assert_allclose((found.low, found.high), expected, atol=0.02)
    assert found[:4] == stats.bootstrap_interval(x)[:4]
    assert found[:4] != stats.bootstrap_interval(x, seed=1)[:4]
    ratio = lambda rows: rows[:, 0].mean() / rows[:, 1].mean()
    rows = np.stack([2 * np.abs(x), np.abs(x)], 1)
    np.testing.assert_allclose(stats.bootstrap_interval(rows, ratio, draws=50)[:3], 2)
    assert math.isnan(stats.bootstrap_interval([1.0]).low)


def test_holm():
    """The definition spelt out: reject the smallest while p <= a / (claims left)."""
    p = np.array([0.011, 0.2, 0.02, 0.04, 0.001])
    adjusted = stats.holm(p)
    for level in (0.005, 0.045, 0.05, 0.06, 0.13, 0.5):
        rejected = set()
        for step, i in enumerate(np.argsort(p)):
            if p[i] > level / (5 - step):
                break
            rejected.add(int(i))
        assert rejected == set(np.flatnonzero(adjusted <= level).tolist())
    assert (adjusted >= p).all() and stats.holm([0.9, 0.8]).max() <= 1


def test_spearman():
    tied = np.round(A)
    for x, y in ((A, B), (tied, B), (A, A**3)):
        theirs = scipy.stats.spearmanr(x, y)
        found = stats.spearman(x, y)
        np.testing.assert_allclose(found[:2], (theirs.statistic, theirs.pvalue), atol=1e-12)
    assert math.isnan(stats.spearman([1, 1, 1], [1, 2, 3]).r)
    assert math.isnan(stats.spearman([1.0], [2.0]).r)


def test_permutation():
    """Exact pairs equal counting by hand; random ones come near; no effect is not significant."""
    diff = (A - B)[:7]
    signs = itertools.product((1, -1), repeat=7)
    count = sum(abs(np.dot(s, diff)) >= abs(diff.sum()) - 1e-12 for s in signs)
    exact = stats.permutation_test(A[:7], B[:7], paired=True)
    assert exact == count / 128
    near = stats.permutation_test(A[:7], B[:7], paired=True, draws=100)
    assert abs(near - exact) < 0.15
    assert stats.permutation_test(A, A + 5, draws=199) == 1 / 200
    p = stats.permutation_test(A, B, draws=2000)
    assert abs(p - scipy.stats.ttest_ind(A, B).pvalue) < 0.05
    assert p == stats.permutation_test(A, B, draws=2000)


def test_strict_inputs():
    for call in (
        lambda: stats.paired_interval([1, 2], [1]),
        lambda: stats.paired_interval([], []),
        lambda: stats.paired_interval([1, np.nan], [1, 2]),
        lambda: stats.paired_interval([1, 2], [1, 3], level=95),
        lambda: stats.bootstrap_interval([1.0, np.inf]),
        lambda: stats.bootstrap_interval([[1.0, 2.0]]),
        lambda: stats.bootstrap_interval([1.0, 2.0], draws=0),
        lambda: stats.sd_interval([]),
        lambda: stats.sd_interval([1.0, 2.0], level=0),
        lambda: stats.holm([0.1, 1.2]),
        lambda: stats.holm([]),
        lambda: stats.spearman([1, 2], [1, 2, 3]),
        lambda: stats.permutation_test([1, 2], [1], paired=True),
        lambda: stats.permutation_test([1, 2], [1], draws=0),
    ):
        with pytest.raises(UserError):
            call()


def test_scipy_stats_is_not_imported():
    code = "import sys, jaxfeat.stats; sys.exit('scipy.stats' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_nested_interval():
    """Width follows the outer level: equal inner values, seeds that differ; weights leave out."""
    values = np.repeat(np.array([0.0, 1.0, 2.0, 3.0])[:, None], 50, axis=1)
    told = stats.nested_interval(values, draws=400)
    assert told.mean == 1.5 and told.low < 0.8 and told.high > 2.2 and told.n == 4
    one = stats.nested_interval(values[2:3], draws=50)
    assert (one.low, one.high) == (2.0, 2.0) and one.p == 1 / 50
    left = values.copy()
    left[0] = np.nan
    weights = np.ones_like(values)
    weights[0] = 0
    assert stats.nested_interval(left, weights, draws=50).mean == 2.0
    again = stats.nested_interval(values, draws=400)
    assert again == told
    # what both sides share cancels in every resample
    apart = stats.nested_interval(values + 0.5, weights + 1, minus=(values, weights + 1), draws=50)
    np.testing.assert_allclose([apart.mean, apart.low, apart.high], 0.5, rtol=1e-12)
    # the means of each side over its own units: 3 over the first half, 1 over the second
    halves = np.array([[1.0, 1.0, 0.0, 0.0]]), np.array([[0.0, 0.0, 1.0, 1.0]])
    split = stats.nested_interval([[3, 3, 9, 9]], halves[0], minus=([[9, 9, 1, 1]], halves[1]))
    assert (split.mean, split.low, split.high) == (2.0, 2.0, 2.0)
    for bad, words in (
        ((values, weights[:2]), "one shape"),
        ((values, -weights), ">= 0"),
        ((values, 0 * weights), "not all of them 0"),
        ((left, None), "not finite"),
    ):
        with pytest.raises(UserError, match=words):
            stats.nested_interval(*bad)
