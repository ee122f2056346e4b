"""Which tables tell what built an OthelloGPT's board, and how well it is read?"""

from pathlib import Path
from typing import Any

import numpy as np

from experiments.othello_config import Config, central, nodes_of
from experiments.othello_numbers import (
    KINDS,
    OF_USEFUL,
    OF_USELESS,
    PARTS,
    Found,
    accuracy,
    all_moves,
    correlation,
    gap,
    intervals,
    square_name,
    squared_error,
)
from experiments.othello_probes import RIGHT, STATES
from experiments.toy_numbers import told_interval
from jaxfeat.grads.discover import discover, readouts
from jaxfeat.grads.ledger import cancellation, load_ledger
from jaxfeat.io.parquet import write_table
from jaxfeat.report import tables
from jaxfeat.stats import Interval


def all_tables(found: Found, workdir: Path) -> list[tables.Table]:
    """The page's tables."""
    return [
        *_influence_tables(found), _size_table(found.config, workdir), _score_table(found),
        _probe_table(found), _gap_table(found), _fragile_table(found),
        _directions(found, workdir), _words(),
    ]  # fmt: skip


def told(t: Interval) -> str:
    """An interval in words."""
    return tables.format_interval(t.mean, t.low, t.high)


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
            [(part, *(told(t) for t in intervals(found, part, steps))) for part in parts],
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
                    read = of(found, model, states, k, moves)
                    top = (read.values * read.weights).sum((1, 2))
                    cells.append(told_interval(top / np.maximum(read.weights.sum((1, 2)), 1)))
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
            told(gap(found, "trained", k, moves, of=of)),
            told(gap(found, "trained", k, moves, of=of, same_place=True)),
            told(gap(found, "trained", k, moves[:half], of=of)),
            told(gap(found, "trained", k, moves[half:], of=of)),
            told(gap(found, "untrained", k, moves, of=of)),
            told(gap(found, "untrained", k, moves, of=of, same_place=True)),
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
        named = ", ".join(f"{square_name(inner[s], c.size)} ({r[n, s]:.2f})" for s in best)
        parts = [getattr(lead.tested, p)[n, 0] / lead.tested.scale[n, 0] for p in PARTS[:2]]
        rows.append((*ledger.nodes[n], *map(float, parts[::-1]), named))
    columns = ("layer", "move", "precached / R(theta_0)", "direct / R(theta_0)", "nearest squares")
    return tables.Table(
        "Leading precached-only directions, seed 0, on held-back games", columns, rows
    )


def write_tables(found: Found, workdir: Path) -> None:
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
