"""Which pictures show what built an OthelloGPT's board, and how well it is read?"""

import numpy as np

from experiments.othello_config import central
from experiments.othello_numbers import (
    KINDS,
    LEAST,
    OF_USEFUL,
    OF_USELESS,
    PARTS,
    Found,
    accuracy,
    all_moves,
    built,
    correlation,
    intervals,
    square_name,
)
from experiments.toy_numbers import band
from jaxfeat.report import figures

PARTS_TOLD = (
    "What each part of the gradient built of the squares' probes: useful and useless squares, in "
    "squares of the value that a probe reads (left), and useful minus useless at the same square "
    "and move, over each type's own R(theta_0) (right); 95 % bootstrap intervals over {seeds}, "
    "orbits of squares, moves. Above 0: the part builds the feature. Where the whole run is "
    "tracked, all parts together are R(theta_0) less the remainder: combined is 0 on the right."
)
INFLUENCE = (
    "The same by move, mean over layers and the central squares; bands are 95 % t intervals over "
    "seeds{few}."
)
MAPS = (
    "What each part built of each central square, mean over tracked nodes and seeds, useful (top) "
    "and useless (bottom) squares, all on one scale; hatched: too few games. Descriptive."
)
UNIT = "influence (value²)"
GAP = (
    "How well squares are read, useful minus useless, by move and layer: accuracy of the decoded "
    "class (mine, theirs or empty) and Pearson r of the value within a type; held-out games, mean "
    "over seeds. Dashed: untrained model, last layer."
)
LEGAL = (
    "Share of held-out positions whose most likely next move is legal, in which all legal moves "
    "come before all others, and the probability on legal moves, by move; mean over seeds."
)


def all_figures(found: Found) -> list[tuple]:
    """((figure, its panels), name, caption), the main one first."""
    count = found.config.seeds
    few = "" if count > 1 else " (one seed: none)"
    seeds = f"{count} seeds" if count > 1 else "one seed (within run)"
    return [
        (_parts_figure(found), "parts", PARTS_TOLD.format(seeds=seeds)),
        (_influence_figure(found), "influence", INFLUENCE.format(few=few)),
        (_gap_figure(found), "gap", GAP),
        (_maps_figure(found), "boards", MAPS),
        (_legal_figure(found), "legal", LEGAL),
    ]


def _band(values: np.ndarray) -> tuple:
    """Mean and band over seeds; no band for one seed."""
    if len(values) == 1:
        return values[0], None, None
    return band(values)


def _parts_figure(found: Found):
    """Each part by type, and the matched difference, with intervals."""
    told = {part: intervals(found, part) for part in PARTS}

    def line(label: str, n: int) -> figures.Line:
        values = np.array([told[part][n][:3] for part in PARTS])
        return figures.Line(label, PARTS, values[:, 0], values[:, 1], values[:, 2])

    difference = [line("useful minus useless", 4)]
    panels = [
        figures.LinePanel("by type", [line("useful", 0), line("useless", 1)]),
        figures.LinePanel("same square and move", difference, "difference / R(θ₀)"),
    ]
    return figures.interval_points(panels, y_label=UNIT, share_y=False), panels


def _influence_figure(found: Found):
    """Each part by move, useful and useless."""
    panels = []
    for part in PARTS:
        lines = []
        for name, kind in KINDS:
            cells = built(found, part, kind)
            at = [cells.moves == i for i in found.config.positions]
            rows = [
                (cells.values[:, a] * cells.weights[:, a]).sum((1, 2))
                / np.maximum(cells.weights[:, a].sum((1, 2)), 1)
                for a in at
            ]
            lines.append(figures.Line(name, found.config.positions, *_band(np.stack(rows, axis=1))))
        panels.append(figures.LinePanel(part, lines))
    figure = figures.line_panels(panels, x_label="move", y_label=UNIT, columns=2, zero=True)
    return figure, panels


def _gap_figure(found: Found):
    """Useful minus useless accuracy by move and layer."""
    c, moves = found.config, all_moves(found.config)

    def line(of, label: str, model: str, layer: int) -> figures.Line:
        by_move, games = [], []
        for states in (OF_USEFUL, OF_USELESS):
            cells = of(found, model, states, layer, moves)
            games.append(cells.weights.sum(axis=(0, 2)))
            top = (cells.values * cells.weights).sum(axis=(0, 2))
            by_move.append(top / np.maximum(games[-1], 1))
        enough = np.minimum(*games) >= 10 * LEAST
        return figures.Line(label, np.array(moves)[enough], (by_move[0] - by_move[1])[enough])

    panels = []
    for name, of in (("accuracy of the decoded class", accuracy), ("r of the value", correlation)):
        lines = [line(of, f"layer {k}", "trained", k) for k in range(1, c.layers + 1)]
        lines.append(line(of, "untrained", "untrained", c.layers))
        panels.append(figures.LinePanel(name, lines))
    figure = figures.line_panels(
        panels, x_label="move", y_label="useful minus useless", columns=2, zero=True
    )
    return figure, panels


def _maps_figure(found: Found):
    """A central board for each part and type, row 1 on top as players see it."""
    panels, inner = [], central(found.config.size)
    letters = [square_name(s, found.config.size)[0] for s in inner[:4]]
    digits = [square_name(s, found.config.size)[1] for s in inner[::4]]
    for name, kind in KINDS:
        for part in PARTS:
            cells = built(found, part, kind)
            whole = cells.weights.sum((0, 1))
            mean = np.divide(
                (cells.values * cells.weights).sum((0, 1)), whole,
                out=np.full(whole.shape, np.nan), where=whole > 0,
            )  # fmt: skip
            board = mean.reshape(4, 4)[::-1]
            panels.append(figures.MapPanel(f"{part}, {name}", board, letters, digits[::-1]))
    figure = figures.heat_maps(
        panels, x_label="column", y_label="row", bar_label=UNIT, diverging=True,
        columns=4,
    )  # fmt: skip
    return figure, panels


def _legal_figure(found: Found):
    """Legality by move."""
    lines = []
    for label, key in (
        ("most likely move legal", "top1"), ("all legal moves first", "all"),
        ("probability on legal", "mass"),
    ):  # fmt: skip
        values = found.arrays[f"trained_{key}"]
        lines.append(figures.Line(label, range(values.shape[1]), *_band(values)))
    panels = [figures.LinePanel("held-out games", lines)]
    figure = figures.line_panels(panels, x_label="move", y_label="share", columns=1)
    return figure, panels
