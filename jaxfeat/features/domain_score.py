"""Is a feature one of code and mathematics or of prose, and does ln Q spread more among those?

Stands in, without a network, for tags that a language model gives from descriptions of features
(arXiv 2603.14087): not what a feature means is asked, but where its activation lies.
"""

import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfeat.data.domains import DOMAINS, GROUPS
from jaxfeat.features.stream import Features, check_corpus, fold_batches
from jaxfeat.stats import Interval, sd_interval
from jaxfeat.types import Array, UserError, check_whole

FORMAL = np.array([GROUPS[domain] == "formal" for domain in DOMAINS])


class DomainScores(NamedTuple):
    """Shares of the activation that lies on formal text, with intervals; NaN if never active.

    score, low, high `[M]`, 0..1; mass `[domains, M]`: activation per token of each domain (NaN
    without tokens); tokens `[domains]`: how many count.
    """

    score: np.ndarray
    low: np.ndarray
    high: np.ndarray
    mass: np.ndarray
    tokens: np.ndarray


class Sums(NamedTuple):
    """Activation `[R, domains, M]` and tokens `[R, domains]`, once as they are, then resampled."""

    mass: Array
    tokens: Array


def domain_scores(
    features: Features,
    given: Any,
    tokens: Any,
    special: Any,
    domain: Any,
    document: Any,
    *,
    batch: int = 8,
    draws: int = 200,
    level: float = 0.95,
    seed: int = 0,
) -> DomainScores:
    """Each feature's activation per token on formal text, as a share of that on both groups.

        score = a_formal / (a_formal + a_prose),   a_g = sum of f over g's tokens / their number

    The interval is that of a percentile bootstrap over documents, drawn within each domain; the
    resampled sums stream along with the others, so that no activation is kept.

    Args:
        features, given: as of `jaxfeat.features.contexts.top_contexts`; activations below 0 count
            as 0.
        tokens: `[n, T]`; special `[n, T]`, true where a token is no text and does not count.
        domain: `[n]` numbers in `jaxfeat.data.domains.DOMAINS`. document: `[n]`, what is drawn
            together; `arange(n)` draws sequences.
        batch: sequences at a time; changes nothing but rounding. draws: resamples. level: of
            confidence. seed: of the resamples.

    Raises:
        UserError: shapes that do not fit, a group without a sequence.
    """
    tokens, special, domain, document = check_corpus(
        tokens, special, domain=domain, document=document
    )
    check_whole("draws", draws, 1)
    if not 0 < level < 1:
        raise UserError(f"level: {level} must lie between 0 and 1")
    if domain.dtype.kind not in "iu" or domain.min() < 0 or domain.max() >= len(DOMAINS):
        raise UserError(f"domain: numbers 0..{len(DOMAINS) - 1} needed, of {', '.join(DOMAINS)}")
    if FORMAL[domain].all() or not FORMAL[domain].any():
        raise UserError("domain: sequences of code or maths and of prose are both needed")
    weight = _weights(domain, document, draws, seed)
    shape = jax.eval_shape(features, given, jnp.zeros((batch, tokens.shape[1]), jnp.int32))
    wide = jnp.promote_types(shape.dtype, jnp.float32)
    state = Sums(
        jnp.zeros((draws + 1, len(DOMAINS), shape.shape[-1]), wide),
        jnp.zeros((draws + 1, len(DOMAINS)), wide),
    )

    def step(given: Any, state: Sums, rows: tuple, real: Array) -> Sums:
        tokens, special, domain, weight = rows
        text = real[:, None] & ~special
        f = jnp.where(text[..., None], jnp.maximum(features(given, tokens), 0), 0)
        each = f.sum(axis=1, dtype=wide)
        own = (domain[:, None] == jnp.arange(len(DOMAINS))).astype(wide)
        drawn = jnp.einsum("BR,BG->RGB", weight.astype(wide), own)
        mass = jnp.einsum("RGB,BM->RGM", drawn, each, precision="highest")
        return Sums(state.mass + mass, state.tokens + drawn @ text.sum(axis=1).astype(wide))

    rows = (tokens, special, domain.astype(np.int32), weight)
    sums = fold_batches(step, state, given, rows, batch)
    mass, count = (np.asarray(x, np.float64) for x in sums)
    score = _share(mass, count)
    known = np.isfinite(score[0])
    low, high = np.full((2, len(known)), np.nan)
    if known.any():
        ends = [(1 - level) / 2, (1 + level) / 2]
        with warnings.catch_warnings():  # of features that no resample shows: NaN is right
            warnings.simplefilter("ignore", RuntimeWarning)
            low[known], high[known] = np.nanquantile(score[1:, known], ends, axis=0)
    each = np.divide(
        mass[0], count[0][:, None], out=np.full(mass[0].shape, np.nan), where=count[0][:, None] > 0
    )
    return DomainScores(score[0], low, high, each, count[0].astype(np.int64))


def is_formal(scores: DomainScores, threshold: float = 2 / 3, *, sure: bool = False) -> np.ndarray:
    """Which features are formal, `[M]` booleans; the others, and those never active, are the rest.

    Args:
        threshold: of the score; 2/3 means twice as much activation per token as on prose.
        sure: ask it of the interval's lower end.

    Raises:
        UserError: a threshold outside 0..1.
    """
    if not 0 <= threshold <= 1:
        raise UserError(f"threshold: {threshold} given, a share 0..1 needed")
    return (scores.low if sure else scores.score) > threshold  # NaN is above nothing


def spread_of_log(q: Any, group: Any, level: float = 0.95) -> dict[Any, Interval]:
    """Standard deviation of ln Q in each group with its chi-square interval.

    The interval is that of a normal sample; the tails of ln Q are the claim itself, so that it
    is too narrow where they are heavy.

    Args:
        q: `[M]`, above 0; NaN leaves a feature out. group: `[M]` labels.

    Returns:
        `Interval` by label, whose mean is the standard deviation and n the number of features.

    Raises:
        UserError: lengths differ, a value is not above 0, a group has no value.

    >>> spread_of_log([1.0, np.e, 2.0], [True, True, False])[True].mean.__round__(4)
    0.7071
    """
    q, group = np.asarray(q, np.float64), np.asarray(group)
    if q.ndim != 1 or q.shape != group.shape:
        raise UserError(f"q {q.shape} and group {group.shape}: one shape [M] needed")
    if (q <= 0).any() or np.isinf(q).any():
        raise UserError("q: finite values above 0 needed (NaN leaves a feature out)")
    known = ~np.isnan(q)
    return {
        label: sd_interval(np.log(q[known & (group == label)]), level=level)
        for label in np.unique(group).tolist()
    }


def _weights(domain: np.ndarray, document: np.ndarray, draws: int, seed: int) -> np.ndarray:
    """`[n, 1 + draws]` float32: 1, then how often its document is drawn in each resample."""
    rng = np.random.default_rng(seed)
    weight = np.ones((len(domain), draws + 1), np.float32)
    for d in np.unique(domain):
        mine = domain == d
        _, whose = np.unique(document[mine], return_inverse=True)
        size = int(whose.max()) + 1
        drawn = rng.multinomial(size, np.full(size, 1 / size), size=draws)
        weight[mine, 1:] = drawn.T[whose]
    return weight


def _share(mass: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Scores `[R, M]` from sums; NaN where nothing is active."""
    with np.errstate(invalid="ignore", divide="ignore"):
        rate = [mass[:, g].sum(1) / count[:, g].sum(1)[:, None] for g in (FORMAL, ~FORMAL)]
        return rate[0] / (rate[0] + rate[1])
