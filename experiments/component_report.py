"""What does component_control answer: claims, figures, tables and the page of a run."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.component_effects import (
    KINDS,
    Built,
    Effects,
    later_share,
    outcomes,
    ranks,
)
from experiments.toy_numbers import band, not_learned, told_interval
from experiments.toy_training import Found
from jaxfeat import stats
from jaxfeat.data import toy
from jaxfeat.io.parquet import write_table
from jaxfeat.report import figures, page, tables
from jaxfeat.report.claims import Statement, decide
from jaxfeat.run.results import publish
from jaxfeat.types import COMPONENTS

BY_POSITION = (
    "What influence predicts and what retraining removed, by position at the input stage, mean "
    "over features and layers below the last; bands are 95 % t intervals over seeds. Top: the "
    "precached share of R(theta_0). Bottom: probe quality r of the standard model minus that of a "
    "model retrained with another weight beta of what later positions send back, or untied."
)
COST = (
    "What taking a direction out at one node costs, in nats: the own next token and the sum of all "
    "later ones, mean over the compared nodes and seeds, on held-out sequences that did not find "
    "the directions. All goes that the direction's readout explains of the residual there."
)
OUTCOME = (
    "Held-out loss and probe quality at the input stage against the weight beta of the gradient "
    "that crosses positions; bands are 95 % t intervals over seeds."
)


class Result(NamedTuple):
    """A game's run, what influence predicts beside what retraining did, and its directions."""

    task: str
    found: Found
    effects: Effects
    built: Built


def weakened(result: Result) -> list[str]:
    """The variants with less pre-caching than standard."""
    betas = [name for name in result.found.config.variants if name.startswith("beta=")]
    return [name for name in betas if float(name[5:]) < 1]


def statements(results: list[Result]) -> list[Statement]:
    """Three claims a game, one statistic each by seed."""
    made = []
    for r in results:
        game, less, cost = r.task.replace("_", " "), weakened(r), r.built
        asked = [
            ("precached influence predicts what weakening pre-caching removes",
             f"Rank correlation over nodes and features, mean over {', '.join(less)}:",
             ranks(r.effects, "precached share", less)),
            ("influence of the shared part by tying predicts what untying removes",
             "Rank correlation over nodes and features:",
             ranks(r.effects, "shared by tying", ["untied"])),
            ("taking out precached-only directions falls on later tokens more than taking out "
             "direct-only ones",
             "Later tokens' share of the cost, precached only minus direct only:",
             later_share(cost, "precached only") - later_share(cost, "direct only")),
        ]  # fmt: skip
        for name, what, values in asked:
            told = stats.paired_interval(values, np.zeros(len(values)))
            blocked = not_learned(r.found)
            made.append(Statement(f"{game}: {name}", what, told, blocked=blocked))
    return made


def write(played: dict[str, Any], results: list[Result], workdir: Path) -> dict[str, Any]:
    """Tables, figures and `report.html`; the main numbers as a dict.

    Args:
        played: the settings, of each game as they were resolved.
    """
    for r in results:
        _write_tables(r, workdir)
    claims, numbers = decide(statements(results))
    pictures = page.save_pictures(
        workdir,
        [
            (_position_figure(results), "by_position", BY_POSITION),
            (_cost_figure(results), "cost", COST),
            (_outcome_figure(results), "outcome", OUTCOME),
        ],
    )
    return publish(
        workdir, title="Is the attribution true? Influence against retraining",
        summary=_summary(results, claims), claims=claims, figures=pictures,
        tables=[t for r in results for t in _tables(r)], config=played,
        numbers={"statistics": numbers},
    )  # fmt: skip


def _summary(results: list[Result], claims: list[page.Claim]) -> str:
    """The answers in plain words, out of the numbers."""
    words = [f"{claim.name[0].upper()}{claim.name[1:]}: {claim.verdict}." for claim in claims]
    for r in results:
        same, other = (x[:, 2].sum(axis=(1, 2)) for x in (r.effects.same, r.effects.other))
        share = np.abs(other) / np.maximum(np.abs(same) + np.abs(other), 1e-12)
        words.append(
            f"On {r.task.replace('_', ' ')} {told_interval(100 * share)} % of the shared part's "
            "influence at the compared nodes (by magnitude) came by tying across the first output."
        )
    return " ".join(words)


def _tables(r: Result) -> list[tables.Table]:
    """Outcomes by variant, rank correlations by predictor, copies, directions."""
    game, told = r.task.replace("_", " "), outcomes(r.found)
    rows = [
        (name, *(told_interval(v) for v in values.values()),
         *("-" if name == "standard" else told_interval(values[k] - told["standard"][k])
           for k in values))
        for name, values in told.items()
    ]  # fmt: skip
    keys = list(told["standard"])
    made = [
        tables.Table(
            f"{game}: what each way of training came to (95 % t interval over seeds)",
            ("variant", *keys, *(f"{k} minus standard" for k in keys)), rows,
        )
    ]  # fmt: skip
    others = [name for name in r.found.config.variants if name != "standard"]
    rows = [
        (name, *(told_interval(ranks(r.effects, name, [other])) for other in others))
        for name in r.effects.predicted
    ]
    title = (
        f"{game}: rank correlation over {len(r.effects.nodes)} nodes x features of a predictor and "
        "what retraining removed (beta above 1: added)"
    )
    made.append(tables.Table(title, ("predictor", *others), rows))
    rows = [
        (name, *(told_interval(x[:, c].sum(axis=2).mean(axis=1))
                 for x in (r.effects.same, r.effects.other)))
        for c, name in enumerate(COMPONENTS)
    ]  # fmt: skip
    title = f"{game}: influence over R(theta_0) by parameter copy, split at the first output"
    made.append(tables.Table(title, ("component", "same copy", "other copy (tying)"), rows))
    rows = []
    for place, kind in enumerate(KINDS):
        values = [getattr(r.built, name)[..., place].mean(axis=1)
                  for name in (*COMPONENTS, "own", "later", "near")]  # fmt: skip
        rows.append((kind, *map(told_interval, values), told_interval(later_share(r.built, kind))))
    columns = (
        "direction", *(f"{name} / R(theta_0)" for name in COMPONENTS), "own loss (nats)",
        "later losses (nats)", "nearest probe |r|", "later share of the cost",
    )  # fmt: skip
    title = (
        f"{game}: directions on the half of E held back, and the cost of taking them out (shared "
        "is free to cancel what direct or precached built; where R is small shares are large)"
    )
    made.append(tables.Table(title, columns, rows))
    angles = [
        ("precached only", _angle(r.built.angles)), ("random", _angle(r.built.random_angles)),
    ]  # fmt: skip
    title = f"{game}: first principal angle between two seeds' directions (degrees; pairs of seeds)"
    made.append(tables.Table(title, ("directions", "mean [least, most]"), angles))
    return made


def _angle(values: np.ndarray) -> str:
    """Mean and range over pairs of seeds, which are not independent."""
    if not len(values):
        return "one seed"
    return f"{values.mean():.0f} [{values.min():.0f}, {values.max():.0f}]"


def _by_position(values: np.ndarray, nodes: np.ndarray) -> tuple[list[int], np.ndarray]:
    """Mean over layers and features at each position, `[S, positions]`."""
    positions = sorted(set(nodes[:, 1].tolist()))
    at = lambda i: np.nanmean(values[:, nodes[:, 1] == i], axis=(1, 2))
    return positions, np.stack([at(i) for i in positions], axis=1)


def _position_figure(results: list[Result]):
    """Prediction above what retraining removed, a column a game."""
    panels = []
    for r in results:
        x, share = _by_position(r.effects.predicted["precached share"], r.effects.nodes)
        line = figures.Line("precached", x, *band(share))
        panels.append(figures.LinePanel(r.task.replace("_", " "), [line], "precached / R(θ₀)"))
    for r in results:
        lines = []
        for name, values in r.effects.removed.items():
            x, gap = _by_position(values, r.effects.nodes)
            lines.append(figures.Line(name, x, *band(gap)))
        panels.append(figures.LinePanel(r.task.replace("_", " "), lines, "r removed"))
    figure = figures.line_panels(
        panels, x_label="position", y_label="", share_y=False, columns=len(results), zero=True
    )
    return figure, panels


def _cost_figure(results: list[Result]):
    """Own and later cost of each kind of direction, a panel a game."""
    panels = []
    for r in results:
        mean = lambda values: values.mean(axis=(0, 1))
        parts = {"own token": mean(r.built.own), "later tokens": mean(r.built.later)}
        kinds = [kind.replace(" ", "\n") for kind in KINDS]
        panels.append(figures.BarPanel(r.task.replace("_", " "), kinds, parts))
    figure = figures.stacked_bars(
        panels, x_label="direction taken out", y_label="rise of the loss (nats)", columns=2
    )
    return figure, panels


def _outcome_figure(results: list[Result]):
    """Loss and feature against beta."""
    panels = []
    for key, unit in (("held-out loss", "nats"), ("feature r", "r")):
        for r in results:
            told = outcomes(r.found)
            at = {1.0: "standard"} | {
                float(name[5:]): name for name in told if name.startswith("beta=")
            }
            x = sorted(at)
            values = np.stack([told[at[beta]][key] for beta in x], axis=1)
            line = figures.Line(key, x, *band(values))
            panels.append(figures.LinePanel(f"{r.task.replace('_', ' ')}, {key}", [line], unit))
    figure = figures.line_panels(
        panels, x_label="beta", y_label="", share_y=False, columns=len(results)
    )
    return figure, panels


def _write_tables(r: Result, workdir: Path) -> None:
    """Every pair of prediction and removal, and every direction, by seed and node."""
    names, e = toy.feature_names(r.found.config.task), r.effects
    seeds, count, features = e.predicted["precached share"].shape
    s, n, f = (x.ravel() for x in np.indices((seeds, count, features)))
    columns: dict[str, Any] = {
        "seed": s, "layer": e.nodes[n, 0], "position": e.nodes[n, 1],
        "feature": np.array(names)[f],
    }  # fmt: skip
    columns |= {name: value.ravel() for name, value in e.predicted.items()}
    columns |= {f"removed by {name}": value.ravel() for name, value in e.removed.items()}
    told = {f"removed by {name}": "probe quality r, standard minus it" for name in e.removed}
    write_table(workdir / "tables" / f"{r.task}_effects.parquet", columns, {}, told)
    s, n, k = (x.ravel() for x in np.indices(r.built.own.shape))
    columns = {
        "seed": s, "layer": e.nodes[n, 0], "position": e.nodes[n, 1],
        "direction": np.array(KINDS)[k],
    }  # fmt: skip
    values = {
        name: getattr(r.built, name).ravel() for name in (*COMPONENTS, "own", "later", "near")
    }
    units = {"own": "nats", "later": "nats"}
    write_table(workdir / "tables" / f"{r.task}_directions.parquet", columns | values, units)
