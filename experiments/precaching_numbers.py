"""What do the scores of a model's features say, in numbers with intervals?"""

from typing import Any, NamedTuple

import numpy as np

from experiments.precaching_config import ModelConfig
from experiments.precaching_model import Subject
from experiments.precaching_stages import Measured, scores_of
from jaxfeat import stats
from jaxfeat.features.domain_score import DomainScores, is_formal, spread_of_log
from jaxfeat.features.lookahead import correlate_cosines
from jaxfeat.features.score import Scores
from jaxfeat.features.text_shares import compare_shares, text_shares
from jaxfeat.report.claims import Statement

GROUPS = ("formal", "rest")
SIZES = ("weak", "middle", "strong")  # thirds of the jobs by activation
DRAWS = 2000


class Found(NamedTuple):
    """Scores of the chosen features with their groups, and what else was measured."""

    config: ModelConfig
    subject: Subject
    measured: Measured
    scores: Scores
    exchanged: Scores  # by the authors' exchange of the residual
    formal: np.ndarray  # [F] booleans

    @property
    def good(self) -> np.ndarray:
        """The features whose effects are above the cut-off and whose Q is known and above 0."""
        with np.errstate(invalid="ignore"):
            return self.scores.kept & np.isfinite(self.scores.q) & (self.scores.q > 0)

    @property
    def chosen(self) -> np.ndarray:
        """Ids of the features."""
        return self.measured.effects["chosen"]


def read(config: ModelConfig, subject: Subject, measured: Measured) -> Found:
    """The scores out of what the stages left."""
    effects, contexts = measured.effects, measured.contexts
    domains = DomainScores(*(contexts[f"domain_{name}"] for name in DomainScores._fields))
    formal = is_formal(domains)[effects["chosen"]]
    return Found(
        config, subject, measured, scores_of(config, effects),
        scores_of(config, effects, exchanged=True), formal,
    )  # fmt: skip


def spreads(found: Found) -> dict[str, stats.Interval]:
    """sd of ln Q of each group with its chi-square interval; a group without two is left out."""
    group = np.where(found.formal, *GROUPS)
    made = {}
    for name in GROUPS:
        mine = found.good & (group == name)
        if mine.sum() > 1:
            made[name] = spread_of_log(found.scores.q[mine], group[mine])[name]
    return made


def spread_difference(found: Found) -> stats.Interval:
    """Mean distance of ln Q from its group's median, formal less the rest; bootstrap interval."""
    away = []
    for formal in (True, False):
        mine = np.log(found.scores.q[found.good & (found.formal == formal)])
        away.append(np.abs(mine - np.median(mine)) if len(mine) > 1 else np.zeros(0))
    if not all(len(x) for x in away):
        return stats.Interval(np.nan, np.nan, np.nan, 0, np.nan)
    rng, difference = np.random.default_rng(0), away[0].mean() - away[1].mean()
    draw = lambda x: x[rng.integers(0, len(x), (DRAWS, len(x)))].mean(axis=1)
    drawn = draw(away[0]) - draw(away[1])
    p = stats.permutation_test(away[0], away[1])
    low, high = np.percentile(drawn, [2.5, 97.5]).tolist()
    return stats.Interval(float(difference), low, high, sum(map(len, away)), p)


def estimates(found: Found) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Measured and sampled Q of features over the same contexts, of all and by activation.

    A feature counts in a third of the contexts where it has one there and both Q are above 0.
    """
    effects, sampled = found.measured.effects, found.measured.sampled
    job, count = sampled["job"], len(found.chosen)
    number = np.searchsorted(found.chosen, effects["feature"][job])
    size = effects["activation"][job]
    edges = np.quantile(size, [1 / 3, 2 / 3]) if len(size) else np.zeros(2)
    third = np.digitize(size, edges)
    kl = effects["kl"][job]
    made = {}
    parts = {"all": third >= 0} | {s: third == n for n, s in enumerate(SIZES)}
    for name, mine in parts.items():
        total = lambda x, mine=mine: np.bincount(number[mine], x[mine], count)
        with np.errstate(divide="ignore", invalid="ignore"):
            measured = total(kl[:, 1:].sum(axis=1)) / total(kl[:, 0])
            guessed = total(sampled["later"]) / total(sampled["own"])
        good = np.isfinite(measured) & np.isfinite(guessed) & (measured > 0) & (guessed > 0)
        good &= found.scores.kept
        made[name] = measured[good], guessed[good]
    return made


def all_estimates(found: Found) -> tuple[np.ndarray, np.ndarray]:
    """Q measured in a feature's own contexts, and Q sampled wherever it was active."""
    own, later = (found.measured.sampled[f"all_{n}"][found.chosen] for n in ("own", "later"))
    good = found.good & (own > 0) & (later > 0)
    return found.scores.q[good], later[good] / own[good]


def correlation(a: np.ndarray, b: np.ndarray) -> stats.Interval:
    """Spearman's correlation with Fisher's interval (Bonett and Wright's variance)."""
    if len(a) < 4:
        return stats.Interval(np.nan, np.nan, np.nan, len(a), np.nan)
    found = stats.spearman(a, b)
    r = min(max(found.r, -0.999999), 0.999999)
    half = 1.96 * np.sqrt((1 + r**2 / 2) / (len(a) - 3))
    return stats.Interval(found.r, float(np.tanh(np.arctanh(r) - half)),
                          float(np.tanh(np.arctanh(r) + half)), len(a), found.p)  # fmt: skip


def look_ahead(found: Found) -> np.ndarray:
    """Correlation of Q with the cosines, `[S, ranks]`; NaN where it is not known."""
    ahead = found.measured.ahead
    q, ranks = np.where(found.good, found.scores.q, np.nan), ahead["ranks"]
    if found.good.sum() < 4:
        return np.full(ahead["cosines"].shape[::2], np.nan)
    cosines = ahead["cosines"][:, found.chosen]
    places = list(range(1, len(ranks) + 1))
    return np.array([[c.r for c in correlate_cosines(each, q, places)] for each in cosines])


def middle_rank(found: Found) -> int:
    """The place of the rank nearest to a tenth of the width, named beforehand for the claim."""
    ranks = found.measured.ahead["ranks"]
    return int(np.abs(np.log(ranks / (0.1 * ranks[-1]))).argmin())


def by_distance(found: Found) -> dict[str, np.ndarray]:
    """Mean KL at each distance from the ablated token, `[span]`, of the thirds of Q."""
    effects, q = found.measured.effects, found.scores.q
    order = np.flatnonzero(found.good)[np.argsort(q[found.good])]
    number = np.searchsorted(found.chosen, effects["feature"])
    made = {}
    for name, ids in zip(("low Q", "middle Q", "high Q"), np.array_split(order, 3)):
        mine = np.isin(number, ids)
        if mine.any():
            made[name] = effects["kl"][mine].mean(axis=0)
    return made


def steering(found: Found) -> dict[tuple[str, str], stats.Interval]:
    """By (end of Q, kind of token): by how much its share rises over unsteered texts."""
    steered = found.measured.steered
    if not steered:
        return {}
    plain, made = text_shares(steered["unsteered"]), {}
    for end in ("low", "high"):
        each = [text_shares(texts) for texts in steered[end]]
        for kind in ("code", "punctuation"):
            rise = compare_shares(np.stack([getattr(s, kind) for s in each]), getattr(plain, kind))
            made[end, kind] = rise
    return made


def steering_gap(found: Found) -> stats.Interval:
    """Code-like and punctuation tokens together: texts of high Q less those of low Q, by prompt."""
    steered = found.measured.steered
    if not steered:
        return stats.Interval(np.nan, np.nan, np.nan, 0, np.nan)
    formal = lambda texts: text_shares(texts).code + text_shares(texts).punctuation
    high, low = (
        np.mean([formal(texts) for texts in steered[end]], axis=0) for end in ("high", "low")
    )
    return stats.paired_interval(high, low)


def statements(found: Found) -> list[Statement]:
    """The claims of the paper's section on large models, and that Q is had from gradients."""
    few = "" if found.good.sum() >= 20 else "Fewer than 20 features are above the cut-off."
    spread, guess = spread_difference(found), correlation(*estimates(found)["all"])
    ahead = found.measured.ahead
    place = middle_rank(found)
    q, cosines = found.scores.q, ahead["cosines"][0, found.chosen, place]
    along = correlation(q[found.good], -cosines[found.good])
    gap = steering_gap(found)
    lost = lambda i, why: why if np.isnan(i.mean) or np.isnan(i.p) else few
    return [
        Statement(
            "ln Q spreads more among formal features than among the rest",
            "mean distance of ln Q from its group's median, formal minus rest", spread,
            blocked=lost(spread, "One of the groups has fewer than two features."),
        ),
        Statement(
            "Features of low Q lie in what the look-ahead mapper reads",
            f"rank correlation of Q with minus the cosine (s = 1, rank {ahead['ranks'][place]})",
            along, blocked=lost(along, "Too few features."),
        ),
        Statement(
            "Q from gradients ranks features as measured Q does",
            "rank correlation over the same contexts", guess,
            blocked=lost(guess, "Too few features."),
        ),
        Statement(
            "Steering with features of high Q writes more code and punctuation than with low Q",
            "difference of the shares, paired by prompt", gap,
            blocked=lost(gap, "Nothing was steered."),
        ),
    ]  # fmt: skip


def shares(found: Found) -> dict[str, Any]:
    """The main numbers for `results.json`."""
    q = found.scores.q[found.good]
    percentiles = np.percentile(q, [5, 50, 95]).tolist() if len(q) else [None] * 3
    return {
        "features_measured": len(found.chosen), "features_kept": int(found.scores.kept.sum()),
        "q_5_50_95": percentiles, "formal": int(found.formal.sum()),
        "sd_of_ln_q": {name: i._asdict() for name, i in spreads(found).items()},
        "estimate": {n: correlation(*pair)._asdict() for n, pair in estimates(found).items()},
        "facts": found.measured.facts,
    }  # fmt: skip
