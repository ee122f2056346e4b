"""What built the board in an OthelloGPT? Figures, tables and the page of a run."""

from pathlib import Path
from typing import Any

import numpy as np

from experiments.othello_config import Config, central, nodes_of
from experiments.othello_numbers import (
    LEAST,
    OF_USEFUL,
    OF_USELESS,
    PARTS,
    USEFUL,
    USELESS,
    Found,
    accuracy,
    all_moves,
    built,
    correlation,
    fall_covered,
    gap,
    matched,
    nested,
    read,
    squared_error,
    statements,
    top1,
)
from experiments.othello_probes import RIGHT, STATES
from experiments.toy_numbers import band, told_interval
from jaxfeat.grads.discover import discover, readouts
from jaxfeat.grads.ledger import cancellation, load_ledger
from jaxfeat.io.parquet import write_table
from jaxfeat.report import figures, page, tables
from jaxfeat.report.claims import decide
from jaxfeat.run.results import publish
from jaxfeat.stats import Interval

KINDS = (("useful", USEFUL), ("useless", USELESS))
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


def write(config: Config, workdir: Path) -> dict[str, Any]:
    """Tables, figures and `report.html`; the main numbers as a dict."""
    found = read(config, workdir)
    claims, numbers = decide(statements(found))
    _write_tables(found, workdir)
    few = "" if config.seeds > 1 else " (one seed: none)"
    seeds = f"{config.seeds} seeds" if config.seeds > 1 else "one seed (within run)"
    pictures = page.save_pictures(
        workdir,
        [
            (_parts_figure(found), "parts", PARTS_TOLD.format(seeds=seeds)),
            (_influence_figure(found), "influence", INFLUENCE.format(few=few)),
            (_gap_figure(found), "gap", GAP),
            (_maps_figure(found), "boards", MAPS),
            (_legal_figure(found), "legal", LEGAL),
        ],
    )
    told = {
        "statistics": numbers, "legal_top1": top1(found),
        "legal_mass": float(found.arrays["trained_mass"].mean()),
        "covered_updates": float(found.arrays["covered"].mean()), **fall_covered(found),
    }  # fmt: skip
    return publish(
        workdir, title="Othello: which part of the gradient builds useless squares?",
        summary=_summary(found, claims), claims=claims, figures=pictures,
        tables=[
            *_influence_tables(found), _size_table(config, workdir), _score_table(found),
            _probe_table(found), _gap_table(found), _fragile_table(found),
            _directions(found, workdir), _words(),
        ],
        config=config, numbers=told,
    )  # fmt: skip


def _summary(found: Found, claims: list[page.Claim]) -> str:
    """The answer in plain words, out of the numbers."""
    c, fall = found.config, fall_covered(found)
    read = gap(found, "trained", c.layers, all_moves(c))
    return " ".join(
        [
            f"A model of {c.layers} blocks and width {c.width} on {c.size} x {c.size} boards: its "
            f"most likely move is legal in {top1(found):.1%} of held-out positions.",
            *(f"{claim.name}: {claim.verdict}." for claim in claims),
            f"Useful minus useless squares' accuracy at the last layer: {_told(read)}.",
            f"Influence is that of the first {c.tracked} of {c.steps} updates, in which "
            f"{fall['covered_fall']:.0%} of R(theta_0) fell; {fall['remainder_of_fall']:.1%} of "
            "that fall is the remainder, which exceeds 5 % at "
            f"{fall['places_with_large_remainder']:.0%} of nodes and squares.",
        ]
    )


def _told(t: Interval) -> str:
    """An interval in words."""
    return tables.format_interval(t.mean, t.low, t.high)


def _intervals(found: Found, part: str, steps: str = "influence") -> tuple[Interval, ...]:
    """Useful, useless, their difference, that at the same square and move, that over R(theta_0)."""
    useful, useless = (built(found, part, kind, steps) for _, kind in KINDS)
    told = lambda *cells: nested(found.config, *cells)
    same = (told(matched(found, part, steps, scaled=scaled)) for scaled in (False, True))
    return told(useful), told(useless), told(useful, useless), *same


def _influence_tables(found: Found) -> list[tables.Table]:
    """Every part by type, unmatched and matched: Adam's steps, and plain ones where tracked."""
    columns = ("part", "useful", "useless", "useful minus useless", "same square and move",
               "the same over R(theta_0)")  # fmt: skip
    within = "" if found.config.seeds > 1 else ", within run"
    asked: list[tuple[str, str, tuple[str, ...]]] = [
        ("influence", "Influence", (*PARTS, "remainder", "fall"))
    ]
    if found.config.also_sgd:
        plain = "Influence of plain gradient steps on the same trajectory (they move nothing)"
        asked.append(("sgd", plain, PARTS))
    return [
        tables.Table(
            f"{title}, squares of a probe's value (95 % bootstrap intervals{within})",
            columns,
            [(part, *(_told(t) for t in _intervals(found, part, steps))) for part in parts],
        )
        for steps, title, parts in asked
    ]


def _size_table(config: Config, workdir: Path) -> tables.Table:
    """How large the component steps are against the real step, by layer."""
    nodes = np.array(nodes_of(config))
    ledgers = (load_ledger(workdir / "ledger" / f"{s}.npz") for s in range(config.seeds))
    sizes = np.stack([cancellation(ledger) for ledger in ledgers])
    rows = []
    for k in range(1, config.layers + 1):
        here = sizes[:, nodes[:, 0] == k]
        cancels = bool((here > 10).any())
        rows.append((k, *map(float, here.mean(axis=(0, 1))), float(here.max()), cancels))
    title = "Size of Adam's component steps over the real step, mean over nodes and seeds"
    columns = ("layer", *PARTS[:3], "largest at a node", "above 10: components cancel")
    return tables.Table(title, columns, rows)


def _words() -> tables.Table:
    """What the page's terms mean."""
    rows = [
        ("useful, useless", "a disc whose turning would, would not change the legal moves"),
        ("direct", "what the position's own next move asks for"),
        ("precached", "what later positions send back through attention"),
        ("shared", "what the same parameters do elsewhere; combined: the sum of the three"),
        ("R", "half the variance, over held-out games, of what a square's final probe reads now "
         "less what it reads in the final model; R(theta_0): before training"),
        ("influence", "by how much a part's steps lowered R, summed over the tracked updates"),
        ("fall, remainder", "by how much R fell, and what the parts leave of it"),
        ("plain gradient steps", "learning rate times gradient at each update, without Adam"),
        ("orbit", "squares that the 4 symmetries of the start position carry into each other"),
        ("precached-only", "a direction found on half of the games where precached built most "
         "and direct little, told on the other half"),
    ]  # fmt: skip
    return tables.Table("Words", ("word", "meaning"), rows)


def _score_table(found: Found) -> tables.Table:
    """Decoding by layer, per class of square and per whole board, beside both baselines."""
    c, rows = found.config, []
    classes = {
        "squares": range(len(STATES)), "empty": [0], "mine": [1, 3], "theirs": [2, 4],
        "useful": OF_USEFUL, "useless": OF_USELESS,
    }  # fmt: skip
    models = [("majority class", "majority", 0)]
    for k in range(c.layers + 1):
        models += [(f"layer {k}", "trained", k), (f"layer {k}, untrained", "untrained", k)]
    for name, model, k in models:
        cells = []
        for states in classes.values():
            found_here = accuracy(found, model, list(states), k, all_moves(c))
            top, bottom = (found_here.values * found_here.weights), found_here.weights
            cells.append(told_interval(top.sum((1, 2)) / np.maximum(bottom.sum((1, 2)), 1)))
        board = found.arrays[f"{model}_board"]
        board = board if model == "majority" else board[:, k]
        rows.append((name, *cells, told_interval(board[:, 1:].mean(axis=1))))
    title = (
        "Accuracy of the decoded board, held-out games, mean over moves (95 % t intervals over "
        "seeds; useful and useless are discs, squares are empty ones too)"
    )
    return tables.Table(title, ("read from", *classes, "whole board"), rows)


def _probe_table(found: Found) -> tables.Table:
    """How well the value probes read useful and useless squares, by layer."""
    rows, moves = [], all_moves(found.config)
    for k in range(found.config.layers + 1):
        cells = []
        for model in ("trained", "untrained"):
            for of in (correlation, squared_error):
                for states in (OF_USEFUL, OF_USELESS):
                    told = of(found, model, states, k, moves)
                    top = (told.values * told.weights).sum((1, 2))
                    cells.append(told_interval(top / np.maximum(told.weights.sum((1, 2)), 1)))
        rows.append((k, *cells))
    names = [f"{q} {kind}" for q in ("r", "error") for kind, _ in KINDS]
    columns = ("layer", *names, *(f"{name}, untrained" for name in names))
    title = "Value probes (mine 1, theirs -1): Pearson r and mean squared error within a type"
    return tables.Table(f"{title} (95 % t intervals)", columns, rows)


def _gap_table(found: Found) -> tables.Table:
    """Useful minus useless squares' accuracy by layer: as it is, matched, early and late."""
    c, moves = found.config, all_moves(found.config)
    half = len(moves) // 2
    rows = [
        (
            name, k,
            _told(gap(found, "trained", k, moves, of=of)),
            _told(gap(found, "trained", k, moves, of=of, same_place=True)),
            _told(gap(found, "trained", k, moves[:half], of=of)),
            _told(gap(found, "trained", k, moves[half:], of=of)),
            _told(gap(found, "untrained", k, moves, of=of)),
            _told(gap(found, "untrained", k, moves, of=of, same_place=True)),
        )
        for name, of in (("accuracy", accuracy), ("r", correlation))
        for k in range(1, c.layers + 1)
    ]  # fmt: skip
    columns = ("quantity", "layer", "all moves", "same square and move", "first half",
               "second half", "untrained", "untrained, same square and move")  # fmt: skip
    title = "Useful minus useless squares (95 % bootstrap intervals)"
    return tables.Table(title, columns, rows)


def _fragile_table(found: Found) -> tables.Table:
    """How often a square is wrongly decoded where the next move is right all the same."""
    rows = []
    for k in range(1, found.config.layers + 1):
        cells = []
        for n in range(len(RIGHT)):
            for states in (OF_USEFUL, OF_USELESS):
                wrong, cases = (
                    found.arrays[f"trained_{name}"][:, k, 1:, n][..., states].sum((1, 2))
                    for name in ("wrong", "cases")
                )
                cells.append(told_interval(wrong / np.maximum(cases, 1)))
        rows.append((k, *cells))
    columns = ("layer", *(f"{kind}, {right}" for right in RIGHT for kind, _ in KINDS))
    title = "Fragility: share of squares wrongly decoded where the next move is right"
    return tables.Table(title, columns, rows)


def _directions(found: Found, workdir: Path) -> tables.Table:
    """The leading precached-only direction at each node of the first seed and its squares."""
    c, rows = found.config, []
    ledger = load_ledger(workdir / "ledger" / "0.npz")
    below = [n for n, (k, _) in enumerate(ledger.nodes) if k < c.layers]
    try:
        lead = discover(ledger, "precached", without=("direct",), count=1)
    except ValueError as error:  # too few games for the width: said in the table
        return tables.Table("Leading precached directions", ("none",), [(str(error),)])
    w = found.arrays["trained_w"][0]
    mine, squares = readouts(ledger, lead.w), readouts(ledger, w)
    size = lambda x: np.sqrt((x**2).sum(axis=1))
    cross = np.einsum("ne,nes->ns", mine[..., 0], squares)
    r = cross / np.maximum(size(mine)[:, :1] * size(squares), 1e-12)
    for n in below:
        best = np.argsort(-np.abs(r[n]))[:3]
        inner = central(c.size)
        named = ", ".join(f"{_name(inner[s], c.size)} ({r[n, s]:.2f})" for s in best)
        told = [getattr(lead.tested, p)[n, 0] / lead.tested.scale[n, 0] for p in PARTS[:2]]
        rows.append((*ledger.nodes[n], *map(float, told[::-1]), named))
    columns = ("layer", "move", "precached / R(theta_0)", "direct / R(theta_0)", "nearest squares")
    return tables.Table(
        "Leading precached-only directions, seed 0, on held-back games", columns, rows
    )


def _name(square: int, size: int) -> str:
    """A square as a letter and a digit."""
    return f"{'abcdefgh'[square % size]}{square // size + 1}"


def _band(values: np.ndarray) -> tuple:
    """Mean and band over seeds; no band for one seed."""
    if len(values) == 1:
        return values[0], None, None
    return band(values)


def _parts_figure(found: Found):
    """Each part by type, and the matched difference, with intervals."""
    told = {part: _intervals(found, part) for part in PARTS}

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
    letters = [_name(s, found.config.size)[0] for s in inner[:4]]
    digits = [_name(s, found.config.size)[1] for s in inner[::4]]
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


def _write_tables(found: Found, workdir: Path) -> None:
    """Influence and accuracy, every number by seed, node, square and type."""
    c, nodes = found.config, np.array(nodes_of(found.config))
    names = np.array(["empty", "useless", "useful"])
    value = found.influence("direct")
    s, n, f, k = (x.ravel() for x in np.indices(value.shape))
    columns: dict[str, Any] = {
        "seed": s, "layer": nodes[n, 0], "move": nodes[n, 1],
        "square": np.array(central(c.size))[f], "type": names[k],
        "games": found.arrays["counts"].ravel(),
    }  # fmt: skip
    columns |= {p: found.influence(p).ravel() for p in (*PARTS, "remainder", "fall")}
    if c.also_sgd:
        columns |= {f"{p}, plain steps": found.influence(p, "sgd").ravel() for p in PARTS}
    columns["scale"] = found.arrays["influence_scale"].ravel()
    units = {str(name): "feature squared" for name in list(columns)[6:]}
    write_table(workdir / "tables" / "influence.parquet", columns, units)
    right = found.arrays["trained_right"]
    s, layer, move, square, k = (x.ravel() for x in np.indices(right.shape))
    columns = {
        "seed": s, "layer": layer, "move": move, "square": square, "state": np.array(STATES)[k],
    }  # fmt: skip
    for model in ("trained", "untrained"):
        columns[f"{model} right"] = found.arrays[f"{model}_right"].ravel()
    guessed = found.arrays["majority_right"][:, None]
    columns["majority right"] = np.broadcast_to(guessed, right.shape).ravel()
    columns["games"] = found.arrays["trained_count"].ravel()
    units = {name: "games" for name in columns if name.endswith("right") or name == "games"}
    write_table(workdir / "tables" / "decoding.parquet", columns, units)
