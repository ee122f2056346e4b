"""Which pictures tell what pre-caching does to a model of stories?"""

import numpy as np

from experiments.tinystories_config import probed_positions
from experiments.tinystories_numbers import (
    MODELS,
    PARTS,
    Found,
    answers,
    asked,
    by_node,
    chance,
    loss,
    parts_of,
    quality,
    share,
)
from experiments.toy_numbers import band
from jaxfeat.data.story_text import KINDS
from jaxfeat.data.tagged import POS_TAGS
from jaxfeat.report import figures

SHORT = {"part of speech": "tag", "dependency": "dep.", "place in story": "place"}
BINS = 10  # of a story, by share of its tokens
LOSS = "Held-out loss while training, with and without pre-caching (95 % t bands over seeds)."
GAP = "Where in the story the gap sits: held-out loss of the final models (95 % t bands)."
TAGS = "Loss, myopic minus standard, by the tag of the token that is predicted (95 % t intervals)."
PROBES = "How well linear probes read each group of features, by layer (95 % t bands over seeds)."
MAPS = "The probes by layer and position of the window, mean over seeds (descriptive)."
PARTS_BUILT = (
    "What each part of the gradient built of each group of features over training, as a share of "
    "R(θ₀) (95 % t intervals over seeds)."
)
ANSWERS = "Questions answered right among the words that could stand there."


def all_figures(found: Found) -> list:
    """The page's figures with their names and captions, main ones first."""
    made = [
        (_loss_figure(found), "loss", LOSS),
        (_probe_figure(found), "probes", PROBES),
        (_gap_figure(found), "gap", GAP),
    ]
    if len(found.setup.data.groups) > 1:
        made.append((_tag_figure(found), "gap_by_tag", TAGS))
    if found.ledgers:
        made.insert(2, (_parts_figure(found), "influence", PARTS_BUILT))
    if any(asked(found, kind) for kind in KINDS):
        made.append((_answer_figure(found), "answers", ANSWERS))
    return [*made, (_map_figure(found), "probe_maps", MAPS)]


def _loss_figure(found: Found):
    """Loss by step, and the difference paired by seed."""
    lines, curves = [], {}
    for name in MODELS[:2]:
        mine = [m for m in found.metrics if m.get("variant") == name and m["step"] > 0]
        steps = [m["step"] for m in mine]
        curves[name] = np.array([m["held_out_loss"] for m in mine]).T
        lines.append(figures.Line(name, steps, *band(curves[name])))
    gap = figures.Line("myopic minus standard", steps, *band(curves["myopic"] - curves["standard"]))
    panels = [
        figures.LinePanel("held-out loss", lines, "nats a token"),
        figures.LinePanel("difference", [gap], "nats a token"),
    ]
    figure = figures.line_panels(
        panels, x_label="updates", y_label="nats a token", share_y=False, columns=2, log_x=True
    )
    return figure, panels


def _probe_figure(found: Found):
    """Probe quality by layer."""
    layers, panels = range(found.config.layers + 1), []
    for group in found.setup.data.groups:
        lines = []
        for name in MODELS:
            values = [quality(found, name, group, [k]) for k in layers]
            lines.append(figures.Line(name, layers, *band(np.stack(values, axis=1))))
        panels.append(figures.LinePanel(group, lines))
    figure = figures.line_panels(panels, x_label="layer", y_label="Pearson r")
    return figure, panels


def _parts_figure(found: Found):
    """Influence by group of features."""
    panels = []
    parts = (*PARTS, "combined")
    for variant in found.ledgers:
        told = parts_of(found, variant)
        lines = []
        for group, features in found.setup.data.groups.items():
            values = np.stack([share(told, part, features) for part in parts], axis=1)
            lines.append(figures.Line(group, parts, *band(values)))
        alone = f", {lines[0].label}" if len(lines) == 1 else ""
        panels.append(figures.LinePanel(f"{variant}{alone}", lines))
    figure = figures.interval_points(panels, y_label="share of R(θ₀)")
    return figure, panels


def _gap_figure(found: Found):
    """Loss by place in the story."""
    exam = found.setup.exam
    at = (np.asarray(exam.cut.share)[:, 1:] * BINS).clip(0, BINS - 1).astype(int)
    centres = (np.arange(BINS) + 0.5) / BINS
    lines = []
    for name in MODELS[:2]:
        values = np.stack([loss(found, name, at == b) for b in range(BINS)], axis=1)
        lines.append(figures.Line(name, centres, *band(values)))
    panels = [figures.LinePanel("held-out loss", lines)]
    figure = figures.line_panels(panels, x_label="share of the story", y_label="nats a token")
    return figure, panels


def _tag_figure(found: Found):
    """The gap by the part of speech of the predicted token."""
    data, index = found.setup.data, np.asarray(found.setup.exam.cut.index)
    tags = np.asarray(data.held_out.pos)[index[:, 1:]]
    rows = [_gap(found, tags == n) for n in range(len(POS_TAGS))]
    line = figures.Line("myopic minus standard", POS_TAGS, *band(np.stack(rows, axis=1)))
    panels = [figures.LinePanel("loss by predicted tag", [line])]
    return figures.interval_points(panels, y_label="nats a token"), panels


def _answer_figure(found: Found):
    """Questions answered right."""
    panels = []
    for kind in KINDS:
        if asked(found, kind):
            values = np.stack([answers(found, name, kind) for name in MODELS], axis=1)
            line = figures.Line("right", MODELS, *band(values))
            guess = figures.Line("blind guess", MODELS, np.full(3, chance(found, kind)))
            panels.append(figures.LinePanel(kind.replace("_", "-"), [line, guess]))
    figure = figures.interval_points(panels, y_label="share of questions", share_y=False)
    return figure, panels


def _map_figure(found: Found):
    """Probe quality by layer and position."""
    c, panels = found.config, []
    positions = probed_positions(c)
    for group in found.setup.data.groups:
        for name in MODELS:
            values = by_node(found, name, group, range(c.layers + 1)).mean(axis=0)
            board = values.reshape(c.layers + 1, len(positions))
            panels.append(figures.MapPanel(f"{SHORT[group]}, {name}", board, positions))
    figure = figures.heat_maps(
        panels, x_label="position", y_label="layer", bar_label="Pearson r"
    )
    return figure, panels


def _gap(found: Found, where: np.ndarray) -> np.ndarray:
    """Myopic minus standard loss at some targets, by seed."""
    return loss(found, "myopic", where) - loss(found, "standard", where)
