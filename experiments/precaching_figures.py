"""Which pictures tell what the scores of a model's features say?"""

import numpy as np

from experiments.planted_scores import ANGLES, Known
from experiments.precaching_numbers import (
    GROUPS,
    SIZES,
    Found,
    all_estimates,
    by_distance,
    estimates,
    look_ahead,
    middle_rank,
    steering,
)
from jaxfeat.report import figures
from jaxfeat.report.histograms import log_histogram

HISTOGRAM = (
    "How Q is distributed over the features above the cut-off, formal ones (code, mathematics) and "
    "the rest: share of the group's features in each bin."
)
PLANTED = (
    "A model built by hand, whose effects are known: Q as it is measured and as it is estimated "
    "from gradients, against the known value (directions from direct to pre-cached; the two ends, "
    "where Q is 0 or all but undefined, are left out). The estimate is of second order, "
    "the edits are not small."
)
AHEAD = (
    "Q against the share of a feature's direction that the look-ahead mapper for the next token "
    "reads (cosine with its leading right singular vectors)."
)
RANKS = "Rank correlation of Q with that cosine, by how many singular vectors, for each mapper."
DISTANCE = "KL by distance from the ablated token, mean over contexts, in thirds of features by Q."
ESTIMATE = (
    "Q estimated from gradients against Q measured over the same contexts, in thirds of the "
    "contexts by activation: top activations may leave the quadratic range."
)
EVERYWHERE = (
    "The estimate for all features at once, wherever a feature was active among the sampled "
    "places, against Q measured in the feature's own top contexts."
)
STEERING = (
    "By how much code-like and punctuation tokens become more frequent when a feature is added "
    "while the model writes (95 % bootstrap intervals over prompts)."
)


def planted_figures(known: Known) -> list:
    """Measured and estimated Q of the planted features against what is known."""
    inner = slice(1, len(ANGLES) - 1)  # at the ends Q is 0 or hardly defined
    lines = [
        figures.Line("measured", known.known[inner], known.measured[inner]),
        figures.Line("from gradients", known.known[inner], known.estimated[inner]),
    ]
    panels = [figures.LinePanel("planted features", lines)]
    figure = figures.scatter_panels(
        panels, x_label="known Q", y_label="Q", log_x=True, log_y=True, columns=1
    )
    return [((figure, panels), "planted", PLANTED)]


def model_figures(found: Found) -> list:
    """The page's figures of a model, main ones first."""
    made = []
    if found.good.sum() > 1:
        made.append((_histogram(found), "histogram", HISTOGRAM))
        made.append((_ahead(found), "look_ahead", AHEAD))
        made.append((_ahead_ranks(found), "look_ahead_ranks", RANKS))
        made.append((_distance(found), "by_distance", DISTANCE))
    if len(estimates(found)["all"][0]):
        made.append((_estimate(found), "estimate", ESTIMATE))
    if len(all_estimates(found)[0]):
        made.append((_everywhere(found), "estimate_everywhere", EVERYWHERE))
    if found.measured.steered:
        made.append((_steering(found), "steering", STEERING))
    return made


def _histogram(found: Found):
    """Share of each group's features by ln Q."""
    groups = {
        name: found.scores.q[found.good & mine]
        for name, mine in zip(GROUPS, (found.formal, ~found.formal))
    }
    return log_histogram(
        "features by Q", groups, x_label="Q (log scale)", y_label="share of the group"
    )


def _ahead(found: Found):
    """Cosine against Q for s = 1."""
    ahead, good, place = found.measured.ahead, found.good, middle_rank(found)
    cosines = ahead["cosines"][0, found.chosen, place]
    lines = [
        figures.Line(name, found.scores.q[good & mine], cosines[good & mine])
        for name, mine in zip(GROUPS, (found.formal, ~found.formal))
    ]
    panels = [figures.LinePanel(f"s = 1, rank {ahead['ranks'][place]}", lines)]
    figure = figures.scatter_panels(panels, x_label="Q", y_label="cosine", log_x=True, columns=1)
    return figure, panels


def _ahead_ranks(found: Found):
    """Correlation of Q with the cosine by rank, for every mapper."""
    ranks = found.measured.ahead["ranks"][:-1]  # at full rank every cosine is 1
    lines = [
        figures.Line(f"s = {s + 1}", ranks, row[:-1]) for s, row in enumerate(look_ahead(found))
    ]
    panels = [figures.LinePanel("all mappers", lines)]
    figure = figures.line_panels(
        panels, x_label="rank", y_label="rank correlation with Q", columns=1, log_x=True, zero=True
    )
    return figure, panels


def _distance(found: Found):
    """KL by distance."""
    lines = [
        figures.Line(name, np.arange(len(kl)), np.maximum(kl, 1e-12))
        for name, kl in by_distance(found).items()
    ]
    panels = [figures.LinePanel("effect of an ablation", lines)]
    figure = figures.line_panels(
        panels, x_label="tokens after the ablated one", y_label="KL (nats)", columns=1, log_y=True
    )
    return figure, panels


def _estimate(found: Found):
    """Estimated against measured Q by size of the activation."""
    pairs = estimates(found)
    lines = [figures.Line(name, *pairs[name]) for name in SIZES if len(pairs[name][0])]
    panels = [figures.LinePanel("the same contexts", lines)]
    figure = figures.scatter_panels(
        panels, x_label="measured Q", y_label="Q from gradients", log_x=True, log_y=True, columns=1
    )
    return figure, panels


def _everywhere(found: Found):
    """The estimate of all features against the measured Q."""
    lines = [figures.Line("feature", *all_estimates(found))]
    panels = [figures.LinePanel("all features at once", lines)]
    figure = figures.scatter_panels(
        panels, x_label="measured Q", y_label="Q from gradients", log_x=True, log_y=True, columns=1
    )
    return figure, panels


def _steering(found: Found):
    """Rise of the shares by end of Q."""
    rises = steering(found)
    kinds = ("code", "punctuation")
    lines = []
    for end in ("low", "high"):
        mean, low, high = np.array([rises[end, kind][:3] for kind in kinds]).T
        lines.append(figures.Line(f"{end} Q", kinds, mean, low, high))
    panels = [figures.LinePanel("steered minus unsteered", lines)]
    figure = figures.interval_points(panels, x_label="tokens", y_label="change of share", columns=1)
    return figure, panels
