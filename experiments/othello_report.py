"""What built the board in an OthelloGPT? Figures, tables and the page of a run."""

from pathlib import Path
from typing import Any

import numpy as np

from experiments.othello_numbers import (
    LEAST,
    PARTS,
    USEFUL,
    USELESS,
    Found,
    difference,
    fall_covered,
    matched,
    read,
    share,
    statements,
    top1,
    unmatched,
)
from experiments.othello_training import Config, central, nodes_of
from experiments.toy_numbers import band, told_interval
from jaxfeat.grads.discover import discover, readouts
from jaxfeat.grads.ledger import load_ledger
from jaxfeat.io.parquet import write_table
from jaxfeat.report import figures, page, tables
from jaxfeat.report.claims import decide
from jaxfeat.run.results import publish

INFLUENCE = (
    "Influence on the squares' probes by move, over the type's own R(theta_0), mean over layers "
    "and the central squares; bands are 95 % t intervals over seeds{few}. Above 0: the part builds "
    "the feature."
)
MAPS = (
    "Influence of each part on each central square over its R(theta_0), mean over tracked nodes "
    "and seeds, useful (top) and useless (bottom) squares; descriptive."
)
GAP = (
    "Accuracy of the decoded squares (mine, theirs or empty), useful minus useless, by move and "
    "layer; held-out games, mean over seeds. Dashed: untrained model, last layer."
)
LEGAL = (
    "Share of held-out positions whose most likely next move is legal, and the probability on "
    "legal moves, by move; mean over seeds."
)


def write(config: Config, workdir: Path) -> dict[str, Any]:
    """Tables, figures and `report.html`; the main numbers as a dict."""
    found = read(config, workdir)
    claims, numbers = decide(statements(found))
    _write_tables(found, workdir)
    few = "" if config.seeds > 1 else " (one seed: none)"
    pictures = page.save_pictures(
        workdir,
        [
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
            _influence_table(found), _score_table(found), _fragile_table(found),
            _directions(found, workdir),
        ],
        config=config, numbers=told,
    )  # fmt: skip


def _summary(found: Found, claims: list[page.Claim]) -> str:
    """The answer in plain words, out of the numbers."""
    c, fall = found.config, fall_covered(found)
    return " ".join(
        [
            f"A model of {c.layers} blocks and width {c.width} on {c.size} x {c.size} boards: its "
            f"most likely move is legal in {top1(found):.1%} of held-out positions.",
            *(f"{claim.name}: {claim.verdict}." for claim in claims),
            f"Influence is that of the first {c.tracked} of {c.steps} updates, in which "
            f"{fall['covered_fall']:.0%} of R(theta_0) fell; {fall['remainder_of_fall']:.1%} of "
            "that fall is the remainder.",
        ]
    )


def _influence_table(found: Found) -> tables.Table:
    """Every part by type, unmatched and matched."""
    told = lambda t: tables.format_interval(t.mean, t.low, t.high)
    rows = [
        (part, told(unmatched(found, part, USEFUL)), told(unmatched(found, part, USELESS)),
         told(difference(found, part)), told(matched(found, part)))
        for part in (*PARTS, "remainder", "fall")
    ]  # fmt: skip
    columns = ("part", "useful", "useless", "useful minus useless", "same square and move")
    return tables.Table("Influence over R(theta_0) (95 % bootstrap intervals)", columns, rows)


def _accuracy(found: Found, model: str, kinds: list[int]) -> np.ndarray:
    """Share of squares decoded right, `[S, layers, moves]`."""
    right, count = (
        found.arrays[f"{model}_{name}"][..., kinds].sum((-2, -1)) for name in ("right", "count")
    )
    return np.divide(right, count, out=np.full(right.shape, np.nan), where=count > 0)


def _score_table(found: Found) -> tables.Table:
    """Decoding by layer: per class of square, per board, against majority and untrained."""
    rows, moves = [], slice(1, None)
    best = float(found.arrays["majority"][:, moves].mean())
    for k in range(found.config.layers + 1):
        cells = []
        for model in ("trained", "untrained"):
            for kinds in ([0, 1, 2], [USEFUL], [USELESS]):
                values = np.nanmean(_accuracy(found, model, kinds)[:, k, moves], axis=1)
                cells.append(told_interval(values))
            cells.append(told_interval(found.arrays[f"{model}_board"][:, k, moves].mean(axis=1)))
        rows.append((k, *cells, best))
    names = ("squares", "useful", "useless", "whole board")
    columns = ("layer", *names, *(f"{n}, untrained" for n in names), "squares, majority class")
    return tables.Table("Accuracy of the decoded board, mean over moves", columns, rows)


def _fragile_table(found: Found) -> tables.Table:
    """How often a square is wrongly decoded where the most likely move is legal all the same."""
    rows = []
    for k in range(1, found.config.layers + 1):
        cells = []
        for kind in (USEFUL, USELESS):
            wrong = found.arrays["trained_fragile"][:, k, ..., kind]
            count = found.arrays["trained_fragile_count"][:, k, ..., kind]
            axes = tuple(range(1, wrong.ndim))
            cells.append(told_interval(wrong.sum(axes) / np.maximum(count.sum(axes), 1)))
        rows.append((k, *cells))
    title = "Fragility: share of squares wrongly decoded where the most likely move is legal"
    return tables.Table(title, ("layer", "useful", "useless"), rows)


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
        named = ", ".join(
            f"{'abcdefgh'[inner[s] % c.size]}{inner[s] // c.size + 1} ({r[n, s]:.2f})" for s in best
        )
        share = [getattr(lead.tested, p)[n, 0] / lead.tested.scale[n, 0] for p in PARTS[:2]]
        rows.append((*ledger.nodes[n], *map(float, share), named))
    columns = ("layer", "move", "precached / R(theta_0)", "direct / R(theta_0)", "nearest squares")
    return tables.Table(
        "Leading precached-only directions, seed 0, on held-back games", columns, rows
    )


def _band(values: np.ndarray) -> tuple:
    """Mean and band over seeds; no band for one seed."""
    if len(values) == 1:
        return values[0], None, None
    return band(values)


def _influence_figure(found: Found):
    """Each part by move, useful and useless."""
    nodes, panels = np.array(nodes_of(found.config)), []
    for part in PARTS:
        lines = []
        for name, kind in (("useful", USEFUL), ("useless", USELESS)):
            value, weight = share(found, part, kind)
            at = [nodes[:, 1] == i for i in found.config.positions]
            rows = [
                (value[:, a] * weight[:, a]).sum((1, 2)) / np.maximum(weight[:, a].sum((1, 2)), 1)
                for a in at
            ]
            lines.append(figures.Line(name, found.config.positions, *_band(np.stack(rows, axis=1))))
        panels.append(figures.LinePanel(part, lines))
    figure = figures.line_panels(
        panels, x_label="move", y_label="influence / R(θ₀)", columns=2, zero=True
    )
    return figure, panels


def _gap_figure(found: Found):
    """Useful minus useless accuracy by move and layer."""
    gap = {
        model: _accuracy(found, model, [USEFUL]) - _accuracy(found, model, [USELESS])
        for model in ("trained", "untrained")
    }
    counts = found.arrays["trained_count"][..., [USELESS, USEFUL]].sum(axis=(0, 3)).min(axis=-1)
    moves = [i for i in range(gap["trained"].shape[2]) if counts[1, i] >= 10 * LEAST]
    lines = [
        figures.Line(f"layer {k}", moves, gap["trained"][:, k, moves].mean(axis=0))
        for k in range(1, found.config.layers + 1)
    ]
    last = found.config.layers
    lines.append(figures.Line("untrained", moves, gap["untrained"][:, last, moves].mean(axis=0)))
    panels = [figures.LinePanel("useful minus useless", lines)]
    figure = figures.line_panels(
        panels, x_label="move", y_label="difference of accuracy", columns=1, zero=True
    )
    return figure, panels


def _maps_figure(found: Found):
    """A central board for each part and type."""
    panels = []
    for name, kind in (("useful", USEFUL), ("useless", USELESS)):
        for part in PARTS:
            value, weight = share(found, part, kind)
            whole = weight.sum((0, 1))
            mean = np.divide(
                (value * weight).sum((0, 1)), whole, out=np.full(whole.shape, np.nan),
                where=whole > 0,
            )  # fmt: skip
            panels.append(figures.MapPanel(f"{part}, {name}", mean.reshape(4, 4)))
    figure = figures.heat_maps(
        panels, x_label="column", y_label="row", bar_label="influence / R(θ₀)", diverging=True,
        columns=4,
    )  # fmt: skip
    return figure, panels


def _legal_figure(found: Found):
    """Legality by move."""
    lines = []
    for label, key in (("most likely move legal", "top1"), ("probability on legal", "mass")):
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
    columns["scale"] = found.arrays["influence_scale"].ravel()
    units = {str(p): "feature squared" for p in (*PARTS, "remainder", "fall", "scale")}
    write_table(workdir / "tables" / "influence.parquet", columns, units)
    right = found.arrays["trained_right"]
    s, layer, move, square, k = (x.ravel() for x in np.indices(right.shape))
    columns = {"seed": s, "layer": layer, "move": move, "square": square, "type": names[k]}
    for model in ("trained", "untrained"):
        columns |= {f"{model} right": found.arrays[f"{model}_right"].ravel()}
    columns["games"] = found.arrays["trained_count"].ravel()
    write_table(workdir / "tables" / "decoding.parquet", columns, {"games": "games"})
