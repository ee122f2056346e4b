"""What built the board in an OthelloGPT? Claims, figures, tables and the page of a run."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.othello_training import Config, central, nodes_of
from experiments.toy_numbers import band, told_interval
from jaxfeat import stats
from jaxfeat.data import othello, othello_games
from jaxfeat.grads.discover import discover, readouts
from jaxfeat.grads.ledger import load_ledger
from jaxfeat.io.arrays import load_arrays
from jaxfeat.io.parquet import write_table
from jaxfeat.report import figures, page, tables
from jaxfeat.run import cli, folder

LEARNED = 0.85  # mean legality of the most likely move from which the game has been learned
LEAST = 8  # games of a type at a node and square, below which its influence is not read
PARTS = ("direct", "precached", "shared", "combined")
USELESS, USEFUL = othello.USELESS, othello.USEFUL
DRAWS = 2000

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


class Found(NamedTuple):
    """Arrays of every seed, `[S, ...]`: influence by part `[S, nodes, squares, types]` and scores.

    `scale` is R(theta_0) and `fall` what R lost over the tracked updates, by type.
    """

    config: Config
    arrays: dict[str, np.ndarray]

    def influence(self, part: str) -> np.ndarray:
        """Of a part, "combined", "fall" or "remainder"."""
        get = lambda name: self.arrays[f"influence_{name}"]
        if part == "combined":
            return get("direct") + get("precached") + get("shared")
        if part == "fall":
            return get("risk_start") - get("risk_stop")
        if part == "remainder":
            return self.influence("fall") - self.influence("combined")
        return get(part)


def read(config: Config, workdir: Path) -> Found:
    """What the seeds left."""
    seeds = [load_arrays(workdir / "seeds" / f"{s}.npz") for s in range(config.seeds)]
    return Found(config, {name: np.stack([x[name] for x in seeds]) for name in seeds[0]})


def orbits(size: int) -> list[list[int]]:
    """The central squares (places among them) that the four symmetries carry into each other."""
    inner, maps = central(size), othello_games.symmetries(size)
    found: dict[tuple[int, ...], list[int]] = {}
    for place, square in enumerate(inner):
        found.setdefault(tuple(sorted(set(maps[:, square].tolist()))), []).append(place)
    return list(found.values())


def nested(found: Found, values: np.ndarray, weights: np.ndarray) -> stats.Interval:
    """Interval of a weighted mean of `[S, nodes, squares]`: seeds, orbits of squares, moves."""
    c = found.config
    nodes = np.array(nodes_of(c))
    mass = np.where(weights > 0, values * weights, 0)
    shape = (c.seeds, len(orbits(c.size)), len(c.positions))
    top, bottom = np.zeros(shape), np.zeros(shape)
    for o, squares in enumerate(orbits(c.size)):
        for m, i in enumerate(c.positions):
            here = np.ix_(range(c.seeds), nodes[:, 1] == i, squares)
            top[:, o, m], bottom[:, o, m] = mass[here].sum((1, 2)), weights[here].sum((1, 2))
    means = np.divide(top, bottom, out=np.zeros(shape), where=bottom > 0)
    return stats.nested_interval(means, bottom, draws=DRAWS, seed=c.seed)


def share(found: Found, part: str, kind: int) -> tuple[np.ndarray, np.ndarray]:
    """A part over the type's R(theta_0), and which entries count, `[S, nodes, squares]`."""
    scale = found.arrays["influence_scale"][..., kind]
    good = (found.arrays["counts"][..., kind] >= LEAST) & (scale > 0)
    value = np.divide(found.influence(part)[..., kind], scale, out=np.zeros_like(scale), where=good)
    return value, good.astype(float)


def unmatched(found: Found, part: str, kind: int) -> stats.Interval:
    """As the paper shows it: the mean over nodes and squares."""
    return nested(found, *share(found, part, kind))


def difference(found: Found, part: str) -> stats.Interval:
    """Useful minus useless, each over its own nodes and squares."""
    (a, wa), (b, wb) = share(found, part, USEFUL), share(found, part, USELESS)
    # the difference of two weighted means as one weighted mean
    whole = (wa + wb) / 2
    scaled = a * wa / wa.mean() - b * wb / wb.mean()
    values = np.divide(scaled * whole.mean(), whole, out=np.zeros_like(whole), where=whole > 0)
    return nested(found, values, whole)


def matched(found: Found, part: str) -> stats.Interval:
    """Useful minus useless of the same square at the same move, weighted n_u n_v / (n_u + n_v)."""
    (a, wa), (b, wb) = share(found, part, USEFUL), share(found, part, USELESS)
    n, m = (found.arrays["counts"][..., kind].astype(float) for kind in (USEFUL, USELESS))
    weights = np.where((wa > 0) & (wb > 0), n * m / np.maximum(n + m, 1), 0)
    return nested(found, a - b, weights)


def top1(found: Found) -> float:
    """Mean legality of the most likely move, over moves and seeds."""
    return float(found.arrays["trained_top1"].mean())


def decide(found: Found) -> tuple[list[page.Claim], dict[str, Any]]:
    """The paper's claims: one statistic each named beforehand, Holm across them."""
    asked = [
        ("Direct builds useful squares", "direct, useful", unmatched(found, "direct", USEFUL)),
        ("Precached builds useless squares", "precached, useless",
         unmatched(found, "precached", USELESS)),
        ("Shared builds useless squares", "shared, useless", unmatched(found, "shared", USELESS)),
        ("All parts together build more of useful squares", "combined, useful minus useless",
         difference(found, "combined")),
        ("The same at the same square and move", "combined, matched difference",
         matched(found, "combined")),
        ("Direct builds more of useful squares at the same square and move",
         "direct, matched difference", matched(found, "direct")),
    ]  # fmt: skip
    adjusted = stats.holm([t.p for *_, t in asked])
    right, seeds = top1(found), found.config.seeds
    kind = "within run: one seed" if seeds == 1 else f"{seeds} seeds, orbits of squares, moves"
    claims, numbers = [], {}
    for (name, what, t), p in zip(asked, adjusted, strict=True):
        verdict = "undecided"
        if right >= LEARNED and p < 0.05 and seeds > 1:
            verdict = "holds" if t.mean > 0 else "does not hold"
        told = tables.format_interval(t.mean, t.low, t.high)
        words = f"{what}: {told} of R(theta_0) (95 % bootstrap, {kind}), Holm-adjusted p {p:.2g}."
        if seeds == 1:
            words += " One run does not tell what another would show."
        if right < LEARNED:
            words += f" The model has not learned the game (legal top move {right:.2f})."
        claims.append(page.Claim(name, verdict, words))
        numbers[name] = {"mean": t.mean, "low": t.low, "high": t.high, "p_holm": float(p)}
    return claims, numbers


def write(config: Config, workdir: Path) -> dict[str, Any]:
    """Tables, figures and `report.html`; the main numbers as a dict."""
    found = read(config, workdir)
    claims, numbers = decide(found)
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
    page.write_page(
        workdir,
        title="Othello: which part of the gradient builds useless squares?",
        summary=_summary(found, claims),
        claims=claims,
        figures=pictures,
        tables=[
            _influence_table(found), _score_table(found), _fragile_table(found),
            _directions(found, workdir),
        ],
        config=cli.config_dict(config),
        provenance=folder.read_json(workdir / "provenance.json"),
    )  # fmt: skip
    result = {
        "claims": {c.name: c.verdict for c in claims}, "statistics": numbers,
        "legal_top1": top1(found), "legal_mass": float(found.arrays["trained_mass"].mean()),
        "covered_updates": float(found.arrays["covered"].mean()), **_fall(found),
    }  # fmt: skip
    folder.write_json(workdir / "results.json", result)
    for claim in claims:
        print(f"{claim.verdict:>15}: {claim.name}. {claim.words}")
    return result


def _fall(found: Found) -> dict[str, float]:
    """The share of R(theta_0) that fell in the tracked updates, and of that fall the remainder."""
    scale = found.arrays["influence_scale"][..., [USELESS, USEFUL]].sum()
    fall = found.influence("fall")[..., [USELESS, USEFUL]].sum()
    rest = found.influence("remainder")[..., [USELESS, USEFUL]].sum()
    return {"covered_fall": float(fall / scale), "remainder_of_fall": float(rest / fall)}


def _summary(found: Found, claims: list[page.Claim]) -> str:
    """The answer in plain words, out of the numbers."""
    c, fall = found.config, _fall(found)
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
