"""Which tables tell whether Q and integrated influence agree?"""

from typing import Any

import numpy as np

from experiments.precaching_validation_measures import ABLATIONS
from experiments.precaching_validation_models import SKILLS
from experiments.precaching_validation_numbers import (
    NAMES,
    Found,
    agreements,
    choices,
    flagged,
    kept,
    pooled,
    share_of,
    signs,
    skills,
    within,
)
from experiments.toy_numbers import told_interval
from jaxfeat.report.tables import Table, format_interval

T = "95 % t intervals over seeds"


def tables(found: Found) -> list[Table]:
    """The page's tables."""
    return [_ranks(found), _signs(found), _counts(found), _nodes(found), _words(found)]


def _ranks(found: Found) -> Table:
    """Every correlation, within nodes and pooled."""
    rows = []
    for task in found.tasks:
        mine, pairs = found.of(task), choices(found, task) | agreements(found, task)
        for n, (name, (x, y, mask)) in enumerate(pairs.items()):
            whole = pooled(mine, x, y, mask)
            good = mask & np.isfinite(x) & np.isfinite(y)
            rows.append(
                (NAMES[task], f"{name} (primary)" if not n else name,
                 _told(within(mine, x, y, mask)), format_interval(*whole[:3]), int(good.sum()))
            )  # fmt: skip
    columns = ("task", "what is correlated", f"within nodes ({T})",
               "pooled (95 %, whole clusters resampled)", "features at nodes")  # fmt: skip
    return Table("Rank correlations of Q with influence, and of each with itself", columns, rows)


def _signs(found: Found) -> Table:
    """What Q says and what the influences are."""
    rows = []
    for task in found.tasks:
        told = [signs(found, task, a) for a in range(len(ABLATIONS))]
        rows += [(NAMES[task], name, *(_told(case[name]) for case in told)) for name in told[0]]
    title = f"Signs: shares of the ranked features ({T})"
    return Table(title, ("task", "share of features", *ABLATIONS), rows)


def _counts(found: Found) -> Table:
    """What was ranked and what was not."""
    rows: list[tuple[Any, ...]] = []
    for task in found.tasks:
        mine = found.of(task)
        skill = f"{SKILLS[task]} {_told(skills(found, task))}"
        seeds, count = len(np.unique(mine["seed"])), len(mine["seed"])
        for a, name in enumerate(ABLATIONS):
            k = kept(found, task, a)
            total = mine["own"][a] + mine["later"][a]
            usual = float(np.median(total[k.mask])) if k.mask.any() else np.nan
            rows.append(
                (NAMES[task], name, seeds, skill, count, int(k.mask.sum()), k.undefined, k.below,
                 k.least, usual, float(np.median(mine["whole"].sum(axis=0))), flagged(mine))
            )  # fmt: skip
    columns = (
        "task", "ablation", "seeds", "how well the models do", "features at nodes", "ranked",
        "without Q", "below the cut-off", "cut-off (nats)", "median KL (nats)",
        "KL of taking all of r out (nats)", "influence flagged (remainder above 5 %)",
    )  # fmt: skip
    return Table(f"Cut-off: {found.cutoff:.0%} of the median KL of a task", columns, rows)


def _nodes(found: Found) -> Table:
    """Each node: its Q, its share, their correlation."""
    rows: list[tuple[Any, ...]] = []
    for task in found.tasks:
        mine, mask = found.of(task), kept(found, task).mask
        share = share_of(mine["direct"], mine["precached"])
        pair = next(iter(choices(found, task).values()))
        for layer, position in np.unique([mine["layer"], mine["position"]], axis=1).T:
            here = (mine["layer"] == layer) & (mine["position"] == position)
            if not (here & mask).any():
                continue
            whole = mine["whole"][:, here].mean(axis=1)
            rows.append(
                (NAMES[task], int(layer), int(position),
                 *(float(np.median(x[here & mask])) for x in (mine["q"][0], mine["q"][1], share)),
                 float(whole[1] / whole[0]), _told(within(mine, pair[0], pair[1], mask & here)))
            )  # fmt: skip
    columns = ("task", "layer", "position", "median Q along w", "median Q by the pattern",
               "median share", "Q of all of r", f"rank correlation ({T})")  # fmt: skip
    return Table("Nodes", columns, rows)


def _words(found: Found) -> Table:
    """What the terms mean."""
    rows = [
        ("Q", "KL that ablating a feature causes in all later predictions of the sequence over "
         "that in its own next one; ratio of means over sequences"),
        ("along w, pattern", "a probe reads f = w . (r - mean r); f w / |w|^2, or f times the "
         "residual's regression on f, is taken out"),
        ("I_dir, I_pre", "influence summed over training: by how much the direct and the "
         "precached part of the updates lowered R; negative where they worked against it"),
        ("share", "I_pre / (|I_pre| + |I_dir|), between -1 and 1"),
        ("within nodes", "features of one node of one seed are ranked among themselves, seeds give "
         "the interval: layers and positions do not mix in"),
        ("cut-off", f"{found.cutoff:.0%} of the median mean KL of all of the task's features, by "
         "ablation"),
        ("expected without a relation", "if Q > 1 and I_pre > |I_dir| were independent"),
    ]  # fmt: skip
    return Table("Words of the validation", ("word", "meaning"), rows)


def _told(values: np.ndarray) -> str:
    """Mean and interval over the seeds that have a value."""
    known = values[np.isfinite(values)]
    return told_interval(known) if len(known) else "-"
