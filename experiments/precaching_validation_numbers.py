"""Do Q and the integrated influence of the same features agree, in numbers with intervals?

A cluster is a node of a seed. Within a cluster features are ranked; correlations are averaged over
a seed's nodes, and seeds give the interval. Pooled correlations mix in differences between layers
and positions; their clusters are resampled whole.
"""

from typing import NamedTuple

import numpy as np

from experiments.precaching_validation_measures import ABLATIONS
from experiments.precaching_validation_models import SKILLS
from experiments.toy_numbers import told_interval
from jaxfeat import stats
from jaxfeat.grads.influence import FLAG_REMAINDER
from jaxfeat.report.claims import Statement, decide
from jaxfeat.report.tables import format_interval

LEAST = 4  # features of a cluster that are ranked
DRAWS = 1000  # of the bootstrap over clusters
NAMES = {"othello": "Othello", "stories": "Stories"}


class Found(NamedTuple):
    """Columns by feature, node and seed (`rows`), and the cut-off as a share of the median KL."""

    rows: dict[str, np.ndarray]
    cutoff: float

    @property
    def tasks(self) -> list[str]:
        """The tasks that were measured."""
        return list(dict.fromkeys(self.rows["task"].tolist()))

    def of(self, task: str) -> dict[str, np.ndarray]:
        """A task's rows; `cluster` numbers the nodes of each seed."""
        mine = self.rows["task"] == task
        rows = {name: x[..., mine] for name, x in self.rows.items()}
        places = np.stack([rows[name] for name in ("seed", "layer", "position")])
        return rows | {"cluster": np.unique(places, axis=1, return_inverse=True)[1].reshape(-1)}


class Kept(NamedTuple):
    """Which rows are ranked, and how many are not for which reason."""

    mask: np.ndarray
    undefined: int  # no direction, or no effect at all
    below: int  # under the cut-off
    least: float  # the cut-off, nats


def share_of(direct: np.ndarray, precached: np.ndarray) -> np.ndarray:
    """I_pre / (|I_pre| + |I_dir|), between -1 and 1; NaN where both are 0."""
    size = np.abs(precached) + np.abs(direct)
    return np.divide(precached, size, out=np.full(size.shape, np.nan), where=size > 0)


def kept(found: Found, task: str, ablation: int = 0) -> Kept:
    """The rows whose Q is defined and whose mean KL reaches the cut-off.

    The cut-off is a share of the median over the task's features, by ablation.
    """
    rows = found.of(task)
    q, total = rows["q"][ablation], rows["own"][ablation] + rows["later"][ablation]
    known = np.isfinite(q) & (q > 0) & np.isfinite(share_of(rows["direct"], rows["precached"]))
    least = found.cutoff * float(np.median(total[known])) if known.any() else 0.0
    mask = known & (total >= least)
    return Kept(mask, int((~known).sum()), int((known & ~mask).sum()), least)


def within(rows: dict, x: np.ndarray, y: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Spearman's correlation within each cluster, mean over a seed's clusters, `[S]`."""
    seeds = np.unique(rows["seed"])
    found = [[] for _ in seeds]
    for cluster in np.unique(rows["cluster"]):
        mine = rows["cluster"] == cluster
        r = _rank_correlation(x, y, mine & mask)
        if np.isfinite(r):
            found[int(np.searchsorted(seeds, rows["seed"][mine][0]))].append(r)
    return np.array([np.mean(values) if values else np.nan for values in found])


def pooled(rows: dict, x: np.ndarray, y: np.ndarray, mask: np.ndarray) -> stats.Interval:
    """Spearman's correlation over all rows; the interval draws whole clusters."""
    good = mask & np.isfinite(x) & np.isfinite(y)
    clusters = [np.flatnonzero(good & (rows["cluster"] == c)) for c in np.unique(rows["cluster"])]
    clusters = [c for c in clusters if len(c)]
    if not clusters:
        return stats.Interval(np.nan, np.nan, np.nan, 0, np.nan)

    def statistic(picks: np.ndarray) -> float:
        here = np.concatenate([clusters[int(n)] for n in picks])
        return stats.spearman(x[here], y[here]).r

    numbers = np.arange(len(clusters), dtype=float)
    with np.errstate(invalid="ignore"):
        return stats.bootstrap_interval(numbers, statistic, draws=DRAWS)


def choices(found: Found, task: str) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Pairs that are compared, with the rows that count; the first is the primary one."""
    rows = found.of(task)
    share = share_of(rows["direct"], rows["precached"])
    plain = share_of(rows["uncentred_direct"], rows["uncentred_precached"])
    masks = [kept(found, task, a).mask for a in range(len(ABLATIONS))]
    over = lambda part: np.divide(
        rows[part], rows["scale"], out=np.full(len(share), np.nan), where=rows["scale"] > 0
    )
    made = {f"Q {ABLATIONS[0]}, share": (rows["q"][0], share, masks[0])}
    made |= {f"Q by the {ABLATIONS[1]}, share": (rows["q"][1], share, masks[1])}
    made |= {
        "mean of ratios along w, share": (rows["mean_of_ratios"][0], share, masks[0]),
        "Q from gradients along w, share": (rows["estimate"][0], share, masks[0]),
        "Q along w, share without centring": (rows["q"][0], plain, masks[0]),
        "later KL along w, I_pre / R(θ₀)": (rows["later"][0], over("precached"), masks[0]),
        "own KL along w, I_dir / R(θ₀)": (rows["own"][0], over("direct"), masks[0]),
    }
    return made


def agreements(found: Found, task: str) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """How well each side is known: Q against its estimate, both against their other half."""
    rows = found.of(task)
    masks = [kept(found, task, a).mask for a in range(len(ABLATIONS))]
    parts = [share_of(rows["half_direct"][h], rows["half_precached"][h]) for h in (0, 1)]
    made = {}
    for a, name in enumerate(ABLATIONS):
        made[f"measured Q and Q from gradients, {name}"] = (
            rows["q"][a], rows["estimate"][a], masks[a]
        )  # fmt: skip
        first, second = rows["half_q"][:, a]
        made[f"Q on either half of the sequences, {name}"] = (first, second, masks[a])
    return made | {"share on either half of the sequences": (parts[0], parts[1], masks[0])}


def signs(found: Found, task: str, ablation: int = 0) -> dict[str, np.ndarray]:
    """Shares of the kept features by seed `[S]`, of what Q says and what the influences are."""
    rows, mask = found.of(task), kept(found, task, ablation).mask
    q, direct, precached = rows["q"][ablation], rows["direct"], rows["precached"]
    high, more = q > 1, precached > np.abs(direct)
    cases = {
        "Q > 1": high,
        "I_pre > |I_dir|": more,
        "both or neither": high == more,
        "fails: Q > 1, I_pre < |I_dir|": high & ~more,
        "of these I_pre < 0": high & (precached < 0),
        "fails: Q < 1, I_pre > |I_dir|": ~high & more,
        "no sign in Q: I_pre < 0": precached < 0,
        "no sign in Q: I_dir < 0": direct < 0,
    }
    seeds = np.unique(rows["seed"])
    over = lambda case: [_mean(case[mask & (rows["seed"] == s)]) for s in seeds]
    made = {name: np.array(over(case)) for name, case in cases.items()}
    by_luck = made["Q > 1"] * made["I_pre > |I_dir|"]
    by_luck = by_luck + (1 - made["Q > 1"]) * (1 - made["I_pre > |I_dir|"])
    return made | {"both or neither, expected without a relation": by_luck}


def skills(found: Found, task: str) -> np.ndarray:
    """How well each model does its task, `[S]`."""
    rows = found.of(task)
    return np.array([rows["skill"][rows["seed"] == s][0] for s in np.unique(rows["seed"])])


def flagged(rows: dict) -> float:
    """Share of rows whose influences do not add up to the fall of R within 5 %."""
    return _mean(np.abs(rows["remainder"]) > FLAG_REMAINDER * np.abs(rows["fall"]))


def statements(found: Found) -> list[Statement]:
    """One claim a task, named beforehand: within nodes, features of larger Q have larger shares."""
    made = []
    for task in found.tasks:
        rows, name = found.of(task), NAMES[task]
        by_seed = within(rows, *next(iter(choices(found, task).values())))
        known = by_seed[np.isfinite(by_seed)]
        blocked = ""
        if len(known) < 2:
            blocked = "Fewer than two seeds could be ranked: they give no interval."
            known = known if len(known) else np.zeros(1)
        interval = stats.paired_interval(known, np.zeros(len(known)))
        lost, all_of = kept(found, task), len(rows["seed"])
        after = (
            f"{int(lost.mask.sum())} of {all_of} features at nodes were ranked, {lost.below} lay "
            f"below the cut-off of {lost.least:.2g} nats ({found.cutoff:.0%} of the task's median "
            f"KL), {lost.undefined} have no Q. {_certainty(found, task)}"
        )
        made.append(
            Statement(
                f"{name}: within a node Q ranks features as their integrated influence does",
                "Spearman's correlation of ln Q with I_pre / (|I_pre| + |I_dir|), mean over nodes",
                interval, after=after, blocked=blocked,
            )
        )  # fmt: skip
    return made


def told(found: Found) -> str:
    """What came out, in one paragraph of plain words."""
    words = ["Q was compared with the influence that training really had, where that is known."]
    asked = statements(found)
    for task, statement, claim in zip(found.tasks, asked, decide(asked)[0], strict=True):
        i = statement.interval
        if statement.blocked:
            words.append(f"{NAMES[task]}: too few seeds or features to tell.")
            continue
        verdict = {
            "holds": "features of larger Q were built more by the precached gradient",
            "does not hold": "features of larger Q were built LESS by the precached gradient",
            "undecided": "no relation was found between Q and what the precached gradient built",
        }[claim.verdict]
        if claim.verdict == "undecided" and (most := max(-i.low, i.high)) < 1:
            verdict += f", and one beyond {most:.2f} is unlikely"
        models = skills(found, task)
        case = {name: _mean(values) for name, values in signs(found, task).items()}
        words.append(
            f"{NAMES[task]} ({len(models)} models; {SKILLS[task]}: {models.mean():.2f}): "
            f"{verdict} (rank correlation within a node {format_interval(*i[:3])}); Q above 1 and "
            f"a larger precached than direct influence go together or are absent together in "
            f"{case['both or neither']:.0%} of features, "
            f"{case['both or neither, expected without a relation']:.0%} were to be expected "
            f"without any relation. {_certainty(found, task)}"
        )
    return " ".join(words)


def _certainty(found: Found, task: str) -> str:
    """How well both sides are known."""
    rows, pairs = found.of(task), agreements(found, task)
    text = lambda name: _told(within(rows, *pairs[name]))
    return (
        f"Rank correlations within nodes of Q with itself on the other half of the sequences: "
        f"{text('Q on either half of the sequences, along w')}, of the share with itself: "
        f"{text('share on either half of the sequences')}, of Q with its estimate from gradients: "
        f"{text('measured Q and Q from gradients, along w')}."
    )


def _told(values: np.ndarray) -> str:
    """Mean and interval over the seeds that have a value."""
    known = values[np.isfinite(values)]
    return told_interval(known) if len(known) else "unknown"


def _rank_correlation(x: np.ndarray, y: np.ndarray, mask: np.ndarray) -> float:
    """Of the rows where both are known; NaN for too few."""
    good = mask & np.isfinite(x) & np.isfinite(y)
    return stats.spearman(x[good], y[good]).r if good.sum() >= LEAST else np.nan


def _mean(values: np.ndarray) -> float:
    """The mean of what is known; NaN of nothing."""
    known = np.asarray(values, float)
    known = known[np.isfinite(known)]
    return float(known.mean()) if len(known) else np.nan
