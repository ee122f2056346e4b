"""Which pictures show whether Q and integrated influence agree?"""

import textwrap

import numpy as np

from experiments.precaching_validation_measures import ABLATIONS
from experiments.precaching_validation_numbers import (
    NAMES,
    Found,
    agreements,
    choices,
    kept,
    share_of,
    within,
)
from experiments.toy_numbers import band
from jaxfeat.report import figures as draw

CLOUD = (
    "Every ranked feature at every node and seed: Q of the finished model against the precached "
    "share of what training built. If Q told it, points would rise from left to right."
)
RANKS = (
    "Rank correlations within nodes, mean over nodes (95 % t intervals over seeds): the primary "
    "comparison first, then the same under other choices."
)
SURE = (
    "How well each side is known: rank correlations within nodes of Q with its estimate from "
    "gradients, and of each side between halves of the held-out sequences (95 % t intervals)."
)
ESTIMATE = "Measured Q against its estimate from gradients, every ranked feature, node and seed."


def figures(found: Found) -> list:
    """The page's figures with their names and captions, main ones first."""
    return [
        (_cloud(found), "validation_cloud", CLOUD),
        (_ranks(found), "validation_ranks", RANKS),
        (_sure(found), "validation_certainty", SURE),
        (_estimates(found), "validation_estimates", ESTIMATE),
    ]


def _cloud(found: Found):
    """Q against the share, by task and ablation, coloured by layer."""
    panels = []
    for task in found.tasks:
        rows = found.of(task)
        share = share_of(rows["direct"], rows["precached"])
        for a, name in enumerate(ABLATIONS):
            panels.append(_panel(found, task, a, f"{NAMES[task]}, {name}", rows["q"][a], share))
    figure = draw.scatter_panels(
        panels, x_label="Q", y_label="I_pre / (|I_pre| + |I_dir|)", columns=2, log_x=True
    )
    return figure, panels


def _estimates(found: Found):
    """Q against its estimate."""
    panels = []
    for task in found.tasks:
        rows = found.of(task)
        for a, name in enumerate(ABLATIONS):
            title = f"{NAMES[task]}, {name}"
            panels.append(_panel(found, task, a, title, rows["q"][a], rows["estimate"][a]))
    figure = draw.scatter_panels(
        panels, x_label="Q measured", y_label="Q from gradients", columns=2, log_x=True, log_y=True
    )
    return figure, panels


def _ranks(found: Found):
    """Correlations of Q with influence by task."""
    return _intervals(found, {task: choices(found, task) for task in found.tasks})


def _sure(found: Found):
    """Correlations of each side with itself."""
    return _intervals(found, {task: agreements(found, task) for task in found.tasks})


def _panel(found: Found, task: str, ablation: int, title: str, x, y) -> draw.LinePanel:
    """The ranked features, one cloud a layer."""
    rows, mask = found.of(task), kept(found, task, ablation).mask & np.isfinite(x) & np.isfinite(y)
    lines = []
    for layer in np.unique(rows["layer"]):
        here = mask & (rows["layer"] == layer)
        lines.append(draw.Line(f"after block {layer}", x[here], y[here]))
    return draw.LinePanel(title, lines)


def _intervals(found: Found, pairs: dict[str, dict]):
    """A point for each pair that is correlated, side by side by task."""
    lines = []
    for task in found.tasks:
        rows, values = found.of(task), []
        for pair in pairs[task].values():
            by_seed = within(rows, *pair)
            known = by_seed[np.isfinite(by_seed)]
            values.append(band(known[:, None]) if len(known) else np.full((3, 1), np.nan))
        names = [textwrap.fill(name, 12) for name in pairs[task]]
        lines.append(draw.Line(NAMES[task], names, *np.concatenate(values, axis=1)))
    panels = [draw.LinePanel("rank correlation within nodes", lines)]
    return draw.interval_points(panels, y_label="rank correlation"), panels
