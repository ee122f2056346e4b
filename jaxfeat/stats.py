"""How sure is a number, and do two numbers differ?

Host-side functions of NumPy arrays in float64; SciPy is imported on use.
"""

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from jaxfeat.types import UserError

AT_ONCE = 2_000_000  # values that nested resamples are made of at a time


class Interval(NamedTuple):
    """An estimate with its interval; bounds or p that the data cannot give are NaN."""

    mean: float
    low: float
    high: float
    n: int
    p: float


class Correlation(NamedTuple):
    """A rank correlation, its two-sided p value and the number of pairs."""

    r: float
    p: float
    n: int


def paired_interval(a: Any, b: Any, *, level: float = 0.95) -> Interval:
    """Student's t interval of the mean of paired differences a - b (paired by seed).

        mean +- t_{n-1, (1+level)/2} s / sqrt(n)

    Args:
        a, b: `[S]`, one value a seed, in the same order.
        level: confidence, between 0 and 1.

    Returns:
        `Interval`; p is the two-sided p of a zero mean. One pair: NaN bounds and p. Differences
        that are all equal: an interval of width 0, p 0 (1 if they are all 0).

    Raises:
        UserError: lengths differ, nothing is given, a value is not finite, level outside (0, 1).

    >>> i = paired_interval([1., 2., 3.], [0., 1., 1.])
    >>> round(i.mean, 3), round(i.low, 3), round(i.high, 3), round(i.p, 3)
    (1.333, -0.101, 2.768, 0.057)
    """
    a, b = _check_values("a", a), _check_values("b", b)
    if a.shape != b.shape:
        raise UserError(f"a and b must be paired: {len(a)} and {len(b)} values")
    _check_level(level)
    diff, n = a - b, len(a)
    mean = float(diff.mean())
    if n == 1:
        return Interval(mean, np.nan, np.nan, 1, np.nan)
    if np.all(diff == diff[0]):
        same = float(diff[0])
        return Interval(same, same, same, n, 0.0 if same else 1.0)
    from scipy.stats import t

    error = float(diff.std(ddof=1)) / math.sqrt(n)
    half = float(t.ppf((1 + level) / 2, n - 1)) * error
    p = 2 * float(t.sf(abs(mean) / error, n - 1))
    return Interval(mean, mean - half, mean + half, n, p)


def sd_interval(values: Any, *, level: float = 0.95) -> Interval:
    """Chi-square interval of the standard deviation of a normal sample.

        s sqrt((n-1) / c_{(1+level)/2}) .. s sqrt((n-1) / c_{(1-level)/2}),   c of chi^2_{n-1}

    Args:
        values: `[n]`. level: confidence, between 0 and 1.

    Returns:
        `Interval` whose `mean` is the sample's standard deviation s (n - 1 in the denominator) and
        whose p is NaN. One value: all NaN.

    Raises:
        UserError: nothing is given, a value is not finite, level outside (0, 1).

    >>> i = sd_interval([1., 2., 3., 4.])
    >>> round(i.mean, 3), round(i.low, 3), round(i.high, 3)
    (1.291, 0.731, 4.814)
    """
    values = _check_values("values", values)
    _check_level(level)
    n = len(values)
    if n == 1:
        return Interval(np.nan, np.nan, np.nan, 1, np.nan)
    from scipy.stats import chi2

    s = float(values.std(ddof=1))
    low, high = s * np.sqrt((n - 1) / chi2.ppf([(1 + level) / 2, (1 - level) / 2], n - 1))
    return Interval(s, float(low), float(high), n, np.nan)


def bootstrap_interval(
    rows: Any,
    statistic: Callable[[np.ndarray], Any] | None = None,
    *,
    level: float = 0.95,
    draws: int = 2000,
    seed: int = 0,
) -> Interval:
    """Percentile bootstrap interval of a statistic of independent rows (Efron 1979).

    Args:
        rows: `[n]` or `[n, columns]`; whole rows are drawn with replacement, so numerator and
            denominator of a ratio of means stay together.
        statistic: rows -> one number; None is the mean of `[n]` rows.
        level: confidence, between 0 and 1.
        draws: resamples.
        seed: of NumPy's default generator; the same seed gives the same interval.

    Returns:
        `Interval` whose `mean` is the statistic of the rows themselves and whose p is NaN. One row:
        NaN bounds.

    Raises:
        UserError: no rows, a value that is not finite, draws < 1, level outside (0, 1).

    >>> ratio = lambda rows: rows[:, 0].mean() / rows[:, 1].mean()
    >>> i = bootstrap_interval([[1., 2.], [2., 4.], [3., 6.]], ratio)
    >>> i.mean, i.low, i.high
    (0.5, 0.5, 0.5)
    """
    rows = _check_values("rows", rows, columns=statistic is not None)
    _check_level(level)
    _check_draws(draws)
    statistic = statistic or np.mean
    n, whole = len(rows), float(statistic(rows))
    if n == 1:
        return Interval(whole, np.nan, np.nan, 1, np.nan)
    rng = np.random.default_rng(seed)
    sample = [float(statistic(rows[rng.integers(0, n, n)])) for _ in range(draws)]
    low, high = np.quantile(sample, [(1 - level) / 2, (1 + level) / 2])
    return Interval(whole, float(low), float(high), n, np.nan)


def nested_interval(
    values: Any,
    weights: Any = None,
    *,
    minus: tuple[Any, Any] | None = None,
    level: float = 0.95,
    draws: int = 2000,
    seed: int = 0,
) -> Interval:
    """Bootstrap interval of a weighted mean whose observations are nested.

    Units of the first axis are drawn with replacement, within each those of the second, and so on:
    seeds, then orbits of squares, then moves. A first axis of length 1 is kept, so that the
    interval then tells of the heterogeneity within one run alone.

    Args:
        values, weights: arrays of one shape; a weight of 0 leaves a value out (it may be NaN).
        minus: values and weights of the same units whose weighted mean is taken off; both are drawn
            together.
        level: confidence, between 0 and 1. draws: resamples. seed: of NumPy's default generator.

    Returns:
        `Interval` whose p is twice the smaller share of draws on either side of 0, at least
        1 / draws.

    Raises:
        UserError: shapes that differ, a weight that is negative or not finite, no weight at all.

    >>> i = nested_interval(np.ones((2, 3)), np.ones((2, 3)), draws=10)
    >>> (i.mean, i.low, i.high, i.n)
    (1.0, 1.0, 1.0, 2)
    """
    _check_level(level)
    _check_draws(draws)
    sides = [(values, weights)] + ([] if minus is None else [minus])
    sums = np.concatenate([_weighted(*side) for side in sides], axis=-1)
    rng = np.random.default_rng(seed)

    units = sums.shape[:-1]

    def drawn(count: int) -> np.ndarray:
        """Weighted sums and weights of some resamples, `[count, ..]`."""
        shapes = [(count, *units[: n + 1]) for n in range(len(units))]
        picks = [rng.integers(shape[-1], size=shape) for shape in shapes]
        picks = [p.reshape(*p.shape, *[1] * (len(units) - n - 1)) for n, p in enumerate(picks)]
        return sums[tuple(picks)].sum(axis=tuple(range(1, len(units) + 1)))

    def statistic(sums: np.ndarray) -> np.ndarray:
        means = sums[..., ::2] / sums[..., 1::2]
        return means[..., 0] - (means[..., 1] if minus is not None else 0)

    some = max(1, AT_ONCE // math.prod(units))
    found = np.concatenate([drawn(min(some, draws - n)) for n in range(0, draws, some)])
    means = statistic(found[(found[:, 1::2] > 0).all(axis=1)])
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    side = min((means <= 0).mean(), (means >= 0).mean())
    mean = float(statistic(sums.reshape(-1, sums.shape[-1]).sum(axis=0)))
    return Interval(mean, float(low), float(high), len(sums), float(max(2 * side, 1 / draws)))


def _weighted(values: Any, weights: Any) -> np.ndarray:
    """`[..., 2]`: values times weights, and weights."""
    values = np.asarray(values, np.float64)
    weights = np.ones_like(values) if weights is None else np.asarray(weights, np.float64)
    if values.shape != weights.shape or values.ndim < 1:
        raise UserError(f"values {values.shape} and weights {weights.shape}: one shape needed")
    if not np.isfinite(weights).all() or (weights < 0).any() or not weights.any():
        raise UserError("weights: finite numbers >= 0 needed, not all of them 0")
    used = np.where(weights > 0, values, 0.0)
    if not np.isfinite(used).all():
        raise UserError("values: a value with a weight is not finite")
    return np.stack([used * weights, weights], axis=-1)


def holm(p: Any) -> np.ndarray:
    """p values adjusted for several claims by Holm's step-down method (Holm 1979).

        adjusted_(i) = max_{j <= i} min(1, (m - j + 1) p_(j)),   p_(1) <= ... <= p_(m)

    Args:
        p: `[m]` p values between 0 and 1.

    Returns:
        `[m]`, in the order given; a claim holds at level a if its value is at most a.

    Raises:
        UserError: nothing is given, or a value is outside 0..1.

    >>> holm([0.01, 0.04, 0.03]).round(4).tolist()
    [0.03, 0.06, 0.06]
    """
    p = _check_values("p", p)
    if p.min() < 0 or p.max() > 1:
        raise UserError("p: values must lie between 0 and 1")
    order = np.argsort(p, kind="stable")
    steps = np.minimum(1.0, p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty_like(p)
    adjusted[order] = np.maximum.accumulate(steps)
    return adjusted


def spearman(a: Any, b: Any) -> Correlation:
    """Spearman's rank correlation; ties get their mean rank.

    Args:
        a, b: `[n]`, paired.

    Returns:
        `Correlation`; p from the t distribution with n - 2 degrees (NaN for n < 3); r is NaN if
        either side is constant.

    Raises:
        UserError: lengths differ, nothing is given, a value is not finite.

    >>> spearman([1., 2., 3., 4.], [1., 4., 9., 16.]).r
    1.0
    """
    a, b = _check_values("a", a), _check_values("b", b)
    if a.shape != b.shape:
        raise UserError(f"a and b must be paired: {len(a)} and {len(b)} values")
    n = len(a)
    if np.all(a == a[0]) or np.all(b == b[0]):
        return Correlation(np.nan, np.nan, n)
    from scipy.stats import rankdata, t

    x, y = rankdata(a), rankdata(b)
    x, y = x - x.mean(), y - y.mean()
    r = float(np.clip((x @ y) / np.sqrt((x @ x) * (y @ y)), -1, 1))
    if n < 3:
        return Correlation(r, np.nan, n)
    p = 0.0 if abs(r) == 1 else 2 * float(t.sf(abs(r) * math.sqrt((n - 2) / (1 - r * r)), n - 2))
    return Correlation(r, p, n)


def permutation_test(
    a: Any, b: Any, *, paired: bool = False, draws: int = 9999, seed: int = 0
) -> float:
    """Two-sided p of equal means by random relabelling.

        p = (1 + #{draws with |difference| >= |observed|}) / (1 + draws)

    Args:
        a: `[n]`.
        b: `[m]`; with `paired`, m = n.
        paired: flip the sign of each difference instead of exchanging labels; all 2^n sign patterns
            are counted exactly (without the 1 +) where they are at most `draws`.
        draws: relabellings.
        seed: of NumPy's default generator.

    Returns:
        p; its least value is 1 / (1 + draws), or 2^(1-n) for exact pairs.

    Raises:
        UserError: nothing is given, a value is not finite, paired lengths differ, draws < 1.

    >>> permutation_test([1., 2., 3.], [0., 0., 0.], paired=True)
    0.25
    """
    a, b = _check_values("a", a), _check_values("b", b)
    _check_draws(draws)
    rng = np.random.default_rng(seed)
    if not paired:
        pool, n = np.concatenate([a, b]), len(a)
        seen = abs(a.mean() - b.mean())
        parts = (rng.permutation(pool) for _ in range(draws))
        values = np.array([abs(x[:n].mean() - x[n:].mean()) for x in parts])
        return _tail(values, seen, float(np.abs(pool).max()), extra=1)
    if a.shape != b.shape:
        raise UserError(f"a and b must be paired: {len(a)} and {len(b)} values")
    diff, n = a - b, len(a)
    exact = n < 64 and 2**n <= draws
    if exact:
        signs = np.array(list(itertools.product((-1.0, 1.0), repeat=n)))
    else:
        signs = rng.choice([-1.0, 1.0], size=(draws, n))
    values = np.abs(signs @ diff) / n
    return _tail(values, abs(diff.mean()), float(np.abs(diff).max()), extra=0 if exact else 1)


def _tail(values: np.ndarray, seen: float, scale: float, extra: int) -> float:
    """Share of values at least as large as the one seen; ties are told up to rounding."""
    reached = int((values >= seen - 1e-12 * scale).sum())
    return (extra + reached) / (extra + len(values))


def _check_values(name: str, values: Any, columns: bool = False) -> np.ndarray:
    """Finite, non-empty float64 values, one axis unless columns are allowed."""
    array = np.asarray(values, np.float64)
    if array.ndim < 1 or (array.ndim > 1 and not columns):
        raise UserError(f"{name}: expected one axis, got shape {array.shape}")
    if array.size == 0:
        raise UserError(f"{name}: no values")
    if not np.isfinite(array).all():
        raise UserError(f"{name}: {int((~np.isfinite(array)).sum())} values are not finite")
    return array


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise UserError(f"level: {level} must lie between 0 and 1")


def _check_draws(draws: int) -> None:
    if draws < 1:
        raise UserError(f"draws: {draws} must be at least 1")
