"""Does a feature serve the next prediction or later ones? The score Q, out of ablation effects.

    Q(w) = sum_{j>i} KL_j / KL_i        (Rofin et al., arXiv 2603.14087, Prop. 5.1)

approximates I_precached / I_direct: below 1 the feature acts on the next token, above on later
ones.
"""

from typing import NamedTuple

import numpy as np

from jaxfeat.features.effects import Effects
from jaxfeat.types import UserError, check_whole

TINY = 1e-9  # nats: below it a KL_i is rounding
BLOCK = 2**24  # resampled values that are held together


class Scores(NamedTuple):
    """Pre-caching scores of F features, every field `[F]`; NaN for a feature without a context."""

    q: np.ndarray  # ratio of means over contexts: sum of later KL / sum of own KL
    low: np.ndarray  # bootstrap interval over contexts
    high: np.ndarray
    mean_of_ratios: np.ndarray  # over contexts whose own KL is above TINY
    own: np.ndarray  # mean KL_i, nats
    later: np.ndarray  # mean sum of later KL_j, nats
    contexts: np.ndarray  # how many
    near_zero: np.ndarray  # contexts whose own KL is at most TINY
    kept: np.ndarray  # whether the mean total KL is above the cut-off


def precaching_scores(
    effects: Effects,
    feature: np.ndarray,
    features: int,
    *,
    cutoff: float = 0.05,
    level: float = 0.95,
    draws: int = 1000,
    seed: int = 0,
) -> Scores:
    """Q of every feature out of its contexts' effects.

    Args:
        effects: of n jobs. feature: `[n]`, the feature of each, 0..features - 1.
        cutoff: nats; features whose mean total KL is not above it are not `kept` (the authors'
            value for Gemma 2 2B is .05).
        level, draws, seed: of the bootstrap over a feature's contexts.

    Raises:
        UserError: a feature out of range, jobs and effects of different lengths.

    >>> kl = np.array([[0.1, 0.2, 0.3], [0.3, 0.1, 0.0]])
    >>> found = precaching_scores(Effects(kl, kl >= 0), np.array([0, 0]), 2)
    >>> found.q[0].round(3), found.mean_of_ratios[0].round(3), found.contexts.tolist()
    (np.float64(1.5), np.float64(2.667), [2, 0])
    """
    check_whole("features", features, 1)
    check_whole("draws", draws, 1)
    if not 0 < level < 1 or not cutoff >= 0:
        raise UserError(f"level {level}, cutoff {cutoff} given: 0..1 and 0 or more needed")
    feature = np.asarray(feature)
    if feature.dtype.kind not in "iu" or effects.kl.shape[-1] < 2:
        raise UserError(
            f"feature: {feature.dtype} given, whole numbers needed; and effects on 2 predictions "
            f"or more, {effects.kl.shape[-1]} given"
        )
    if feature.shape != effects.kl.shape[:1]:
        raise UserError(
            f"feature: {feature.shape} given, {effects.kl.shape[:1]} jobs were measured"
        )
    if feature.size and not 0 <= feature.min() <= feature.max() < features:
        raise UserError(f"feature: {feature.min()}..{feature.max()}, valid are 0..{features - 1}")
    own, later = effects.kl[:, 0], effects.kl[:, 1:].sum(1)
    contexts = np.bincount(feature, minlength=features)
    mean = lambda x: _ratio(np.bincount(feature, x, features), contexts)
    good = own > TINY
    ratios = np.divide(later, own, out=np.zeros_like(own), where=good)
    fine = np.bincount(feature[good], minlength=features)
    q = _ratio(mean(later), mean(own))
    low, high = _interval(own, later, feature, contexts, level, draws, seed)
    return Scores(
        q=q,
        low=low,
        high=high,
        mean_of_ratios=_ratio(np.bincount(feature[good], ratios[good], features), fine),
        own=mean(own),
        later=mean(later),
        contexts=contexts,
        near_zero=contexts - fine,
        kept=np.nan_to_num(mean(own + later)) > cutoff,
    )


def _ratio(top: np.ndarray, bottom: np.ndarray) -> np.ndarray:
    """The quotient, NaN over 0."""
    return np.divide(top, bottom, out=np.full(len(top), np.nan), where=bottom > 0)


def _interval(own, later, feature, contexts, level, draws, seed) -> tuple[np.ndarray, np.ndarray]:
    """Percentiles of the ratio of means over resampled contexts, `[F]` each."""
    rng = np.random.default_rng(seed)
    order = np.argsort(feature, kind="stable")
    start = np.cumsum(contexts) - contexts
    low, high = (np.full(len(contexts), np.nan) for _ in range(2))
    for count in np.unique(contexts[contexts > 0]):
        those = np.flatnonzero(contexts == count)
        for some in np.array_split(those, -(-len(those) * draws * count // BLOCK)):
            drawn = rng.integers(0, count, (len(some), draws, count)) + start[some, None, None]
            sums = [x[order][drawn].sum(-1) for x in (own, later)]
            ratio = np.divide(
                sums[1], sums[0], out=np.full_like(sums[0], np.inf), where=sums[0] > 0
            )
            ratio = np.sort(ratio, axis=1)  # order statistics: infinities may stand at the end
            tail = int(draws * (1 - level) / 2)
            low[some], high[some] = ratio[:, tail], ratio[:, draws - 1 - tail]
    none = np.bincount(feature, own, len(contexts)) <= 0
    return np.where(none, np.nan, low), np.where(none, np.nan, high)
