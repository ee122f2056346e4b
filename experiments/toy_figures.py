"""How do a toy experiment's results look, main figures first?"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.toy_numbers import PARTS, band, places, share, sums
from experiments.toy_training import Found
from jaxfeat.report import figures, page

PROBES = (
    "Probe quality (mean Pearson r over features, held-out sequences) by position and layer; bands "
    "are 95 % t intervals over seeds. Outputs begin at position {output}."
)
INFLUENCE = (
    "Influence of each part of the updates on the probes' features by position, mean over seeds. "
    "R is half the variance over held-out sequences of the feature's distance from its value in "
    "the final model, so that it falls to 0; parts are divided by the layer's mean R before "
    "training, R(theta_0). The remainder is what the parts leave of the fall of R. In the last "
    "layer precached is 0 by construction: nothing later reads it."
)
PLAIN = (
    "The same for plain gradient steps on the same trajectory, as shares of the sum of all "
    "magnitudes in the layer (below 0: against the feature). Adam divides every component by the "
    "whole gradient's size, so that its parts can cancel; these are the gradients themselves."
)
OVER_TIME = (
    "Influence summed over the input stage's positions and features, over their summed R(theta_0), "
    "cumulated over training; bands are 95 % t intervals over seeds."
)
TRAINING = (
    "Held-out loss and first-output accuracy over training; grey: the Bayes floor of "
    "the loss and the best guess without the circuit."
)


# how a figure is made, its file name and its caption
Made = tuple[Callable[[Found], tuple[Any, list]], str, str]


def draw(
    found: Found, floors: dict[str, Any], workdir: Path, more: Sequence[Made] = ()
) -> list[page.Picture]:
    """The figures, main ones first; `more` stand after the probes'."""
    made: list[Made] = [
        (_probe_figure, "probes", PROBES.format(output=found.config.task.inputs + 1)),
        *more,
        *([(_influence_figure, "influence", INFLUENCE)] if found.ledgers else []),
        *([(_sgd_figure, "influence_plain_steps", PLAIN)] if found.sgd else []),
        *([(_time_figure, "influence_over_time", OVER_TIME)] if found.ledgers else []),
        (lambda f: _loss_figure(f, floors), "training", TRAINING),
    ]
    return page.save_pictures(workdir, [(make(found), name, words) for make, name, words in made])


def _probe_figure(found: Found):
    """Probe quality by position, a panel a layer."""
    nodes = np.array(found.nodes)
    panels = []
    for k in range(1, found.config.layers + 1):
        here = nodes[:, 0] == k
        lines = []
        for name in [*found.config.variants, "untrained"]:
            mean, low, high = band(np.nanmean(found.probes[name]["r"][:, here], axis=-1))
            lines.append(figures.Line(name, nodes[here, 1], mean, low, high))
        panels.append(figures.LinePanel(f"after block {k}", lines))
    figure = figures.line_panels(panels, x_label="position", y_label="probe quality (r)", columns=2)
    return figure, panels


def _influence_figure(found: Found):
    """Shares by position, a panel a layer and variant."""
    panels = []
    for name in found.ledgers:
        told, (nodes, _) = sums(found, name), places(found, name)
        for k in range(1, found.config.layers + 1):
            here = nodes[:, 0] == k
            scale = told["scale"][:, here].sum(axis=1, keepdims=True) / here.sum()
            parts = {p: (told[p][:, here] / scale).mean(axis=0) for p in PARTS}
            title = f"{name}, after block {k}"
            panels.append(figures.BarPanel(title, nodes[here, 1].tolist(), parts))
    figure = figures.stacked_bars(
        panels, x_label="position", y_label="influence / mean R(θ₀) of the layer",
        total="fall of R", columns=2,
    )  # fmt: skip
    return figure, panels


def _sgd_figure(found: Found):
    """What plain gradient steps would have built, by position, as shares of the layer's whole."""
    panels = []
    for name in found.sgd:
        told, (nodes, _) = sums(found, name, sgd=True), places(found, name)
        for k in range(1, found.config.layers + 1):
            here = nodes[:, 0] == k
            whole = np.stack([np.abs(told[p][:, here]) for p in PARTS[:3]]).sum(axis=(0, 2))[
                :, None
            ]
            parts = {p: (told[p][:, here] / whole).mean(axis=0) for p in PARTS[:3]}
            title = f"{name}, after block {k}"
            panels.append(figures.BarPanel(title, nodes[here, 1].tolist(), parts))
    figure = figures.stacked_bars(
        panels, x_label="position", y_label="signed share of the layer", total="combined",
        columns=2,
    )  # fmt: skip
    return figure, panels


def _time_figure(found: Found):
    """Cumulated shares over the input stage, a panel a layer and variant."""
    panels = []
    for name, ledgers in found.ledgers.items():
        (nodes, inside), steps = places(found, name), ledgers[0].steps
        series = [sums(found, name, stop=p) for p in range(len(steps))]
        for k in range(1, found.config.layers + 1):
            here = inside & (nodes[:, 0] == k)
            lines = []
            for part in PARTS:
                values = np.stack([share(told, part, here) for told in series], axis=1)
                lines.append(figures.Line(part, steps, *band(values)))
            panels.append(figures.LinePanel(f"{name}, after block {k}", lines))
    figure = figures.line_panels(
        panels, x_label="updates", y_label="influence / R(θ₀), input stage", columns=2, zero=True
    )
    return figure, panels


def _loss_figure(found: Found, floors: dict[str, Any]):
    """Loss and accuracy over training by variant."""
    # what the counts alone allow tells Conditioned Majority's circuit from a guess
    known = "blind" if found.config.task.kind == "majority" else "counts"
    least, guess = np.mean(floors["per_position"]), floors["first_output_chance"][known]
    kinds = [
        ("held-out loss", "held_out_loss", "nats", "Bayes floor", least),
        ("first output legal", "first_output_legal", "share", f"best {known} guess", guess),
    ]
    panels = []
    for title, key, unit, reference, level in kinds:
        lines = []
        for name in found.config.variants:
            mine = [m for m in found.metrics if m["variant"] == name]
            values = np.array([m[key] for m in mine]).T
            lines.append(figures.Line(name, [m["step"] for m in mine], *band(values)))
        steps = lines[0].x
        color = "#777777" if title == "held-out loss" else "#AAAAAA"
        lines.append(figures.Line(reference, steps, np.full(len(steps), level), color=color))
        panels.append(figures.LinePanel(title, lines, unit))
    figure = figures.line_panels(panels, x_label="updates", y_label="", share_y=False, columns=2)
    return figure, panels
