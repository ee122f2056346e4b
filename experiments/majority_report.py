"""What did a toy experiment's variants learn? Tables, figures, claims and the page of a run."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxfeat import stats
from jaxfeat.data import toy
from jaxfeat.grads.ledger import FLAG_CANCELLATION, Ledger, cancellation, influence
from jaxfeat.io.parquet import write_table
from jaxfeat.report import figures, page, tables
from jaxfeat.run import cli, folder
from jaxfeat.types import Node

LEARNED = 0.95  # first-output accuracy from which the standard model has learned the task
PARTS = ("direct", "precached", "shared", "remainder")

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
    "the loss and the best blind guess."
)


class Found(NamedTuple):
    """A run's numbers: probe results by variant, metric lines, ledgers by variant and seed.

    `nodes` are the probed nodes, the axis of every probe array after the seeds. `ledgers` are of
    Adam's steps, `sgd` of plain gradient steps on the same trajectories.
    """

    config: Any
    nodes: list[Node]
    probes: dict[str, dict[str, np.ndarray]]
    metrics: list[dict[str, Any]]
    ledgers: dict[str, list[Ledger]]
    sgd: dict[str, list[Ledger]]


def write(found: Found, workdir: Path) -> dict[str, Any]:
    """Write every table and figure and `report.html`; the main numbers as a dict."""
    config = found.config
    floors = toy.bayes_floors(config.task)
    write_tables(found, workdir)
    pictures = draw(found, floors, workdir)
    claims, learned, numbers = decide(found)
    contrasts = [
        tables.Table(
            "Probe quality at the input stage (mean Pearson r, 95 % t interval over seeds)",
            ("variant", "r", "r minus standard", "r minus untrained", "first output legal"),
            _contrast_rows(found),
        )
    ]
    page.write_page(
        workdir,
        title="Majority: why does the model know the current majority?",
        summary=_summary(found, claims, learned, floors),
        claims=claims,
        figures=pictures,
        tables=[*contrasts, *_ledger_tables(found)],
        config=cli.config_dict(config),
        provenance=folder.read_json(workdir / "provenance.json"),
    )
    numbers["split_residual"] = float(found.probes["standard"]["split_residual"])
    for name in found.ledgers:
        told, (_, inside) = sums(found, name), places(found, name)
        shares = {p: float(share(told, p, inside).mean()) for p in PARTS}
        numbers[f"influence_share_{name}"] = shares
    result = {"learned": learned, "claims": {c.name: c.verdict for c in claims}, **numbers}
    folder.write_json(workdir / "results.json", result)
    for claim in claims:
        print(f"{claim.verdict:>15}: {claim.name}. {claim.words}")
    return result


def input_stage(found: Found, name: str, key: str = "r") -> np.ndarray:
    """Mean probe quality over layers >= 1 and input positions from 2 on, by seed `[S]`."""
    nodes = found.nodes
    here = [n for n, (k, i) in enumerate(nodes) if k >= 1 and 2 <= i < found.config.task.inputs]
    return np.nanmean(found.probes[name][key][:, here], axis=(1, 2))


def first_output(found: Found, name: str) -> np.ndarray:
    """Final share of held-out sequences whose first output is legal, by seed `[S]`."""
    return np.array([m for m in found.metrics if m["variant"] == name][-1]["first_output_legal"])


def decide(found: Found) -> tuple[list[page.Claim], bool, dict[str, Any]]:
    """The paper's claims against the numbers: differences paired by seed, Holm across claims."""
    right = float(first_output(found, "standard").mean())
    learned = right >= LEARNED
    asked = [
        ("Both cuts together lie below standard", "both", "standard"),
        ("Myopic training lies below standard", "myopic", "standard"),
        ("Untying lies below standard", "untied", "standard"),
        ("Both cuts together lie below myopic alone", "both", "myopic"),
        ("Both cuts together lie below untying alone", "both", "untied"),
    ]
    asked = [(n, a, b) for n, a, b in asked if {a, b} <= set(found.probes)]
    gaps = [
        stats.paired_interval(input_stage(found, a), input_stage(found, b)) for _, a, b in asked
    ]
    adjusted = stats.holm([1.0 if np.isnan(g.p) else g.p for g in gaps]) if gaps else []
    base = input_stage(found, "untrained")
    claims, numbers = [], {}
    for (name, low, high), gap, p in zip(asked, gaps, adjusted, strict=True):
        verdict = "undecided"
        if learned and p < 0.05:
            verdict = "holds" if gap.mean < 0 else "does not hold"
        told = tables.format_interval(gap.mean, gap.low, gap.high)
        words = f"Difference of mean r at the input stage {told}, Holm-adjusted p {p:.2g}. "
        words += " ".join(_against(found, side, base) for side in (high, low))
        if found.config.seeds < 2:
            words += " One seed gives no interval: at least 2 are needed to decide."
        if not learned:
            words += f" The standard model has not learned the task (first output {right:.2f})."
        claims.append(page.Claim(f"{name} at the input stage", verdict, words))
        key = f"{low}_minus_{high}"
        numbers[key] = {"mean": gap.mean, "low": gap.low, "high": gap.high, "p_holm": float(p)}
    return claims, learned, {"first_output_standard": right, "contrasts": numbers}


def _against(found: Found, name: str, base: np.ndarray) -> str:
    """Whether a variant gained over the untrained model or lost against it, in words."""
    gap = stats.paired_interval(input_stage(found, name), base)
    told = tables.format_interval(gap.mean, gap.low, gap.high)
    if not (gap.low > 0 or gap.high < 0):
        return f"{name.capitalize()} is not told apart from the untrained model ({told})."
    kind = "a gain over" if gap.mean > 0 else "a loss against"
    return f"{name.capitalize()} is {kind} the untrained model ({told})."


def sums(found: Found, name: str, *, stop: int = -1, sgd: bool = False) -> dict[str, np.ndarray]:
    """Influence of each part up to a ladder place, summed over features, `[S, nodes]`; `scale`."""
    nodes = {node: n for n, node in enumerate(found.nodes)}
    rows = []
    for s, ledger in enumerate((found.sgd if sgd else found.ledgers)[name]):
        w = found.probes[name]["coef"][s, [nodes[node] for node in ledger.nodes]]
        told = influence(ledger, w, stop=stop, target=-1)
        names = (*PARTS, "combined", "fall", "scale")
        rows.append({part: getattr(told, part).sum(axis=1) for part in names})
    return {part: np.stack([row[part] for row in rows]) for part in rows[0]}


def share(told: dict[str, np.ndarray], part: str, here: np.ndarray) -> np.ndarray:
    """A part over R(theta_0), both summed over nodes, by seed `[S]`."""
    return told[part][:, here].sum(axis=1) / told["scale"][:, here].sum(axis=1)


def signed_share(told: dict[str, np.ndarray], part: str, here: np.ndarray) -> np.ndarray:
    """A component over the sum of all components' magnitudes, summed over nodes, `[S]`."""
    whole = sum(np.abs(told[p][:, here].sum(axis=1)) for p in PARTS[:3])
    return told[part][:, here].sum(axis=1) / whole


def places(found: Found, name: str) -> tuple[np.ndarray, np.ndarray]:
    """The tracked nodes `[nodes, 2]`, and which of them lie in the input stage."""
    nodes = np.array(found.ledgers[name][0].nodes)
    return nodes, nodes[:, 1] < found.config.task.inputs


def write_tables(found: Found, workdir: Path) -> None:
    """Probe quality and influence, every number by seed, node and feature."""
    c = found.config
    names = toy.feature_names(c.task)
    nodes = found.nodes
    rows: dict[str, list] = {k: [] for k in ("variant", "seed", "layer", "position", "feature")}
    values: dict[str, list] = {k: [] for k in ("r", "mse", "r_gcv")}
    for variant, probes in found.probes.items():
        for s, n, f in np.ndindex(probes["r"].shape):
            for key, value in zip(rows, (variant, s, *nodes[n], names[f]), strict=True):
                rows[key].append(value)
            for key in values:
                values[key].append(probes[key][s, n, f])
    write_table(
        workdir / "tables" / "probes.parquet",
        rows | values,
        {"mse": "feature squared"},
        {"r": "Pearson r on held-out sequences", "r_gcv": "the same with a scale-free penalty"},
    )
    columns: dict[str, list] = {
        k: [] for k in ("variant", "seed", "layer", "position", "feature", "step_from", "step_to")
    }
    told_columns: dict[str, list] = {
        k: []
        for k in (*PARTS, "combined", "uncentred_combined", "risk_start", "risk_stop", "scale")
    }
    index = {node: n for n, node in enumerate(nodes)}
    for variant, ledgers in found.ledgers.items():
        for s, ledger in enumerate(ledgers):
            w = found.probes[variant]["coef"][s, [index[node] for node in ledger.nodes]]
            for a in range(len(ledger.steps) - 1):
                told = influence(ledger, w, start=a, stop=a + 1, target=-1)
                plain = influence(ledger, w, start=a, stop=a + 1, target=-1, centred=False)
                ends = (ledger.steps[a], ledger.steps[a + 1])
                for n, f in np.ndindex(told.direct.shape):
                    where = (variant, s, *ledger.nodes[n], names[f], *ends)
                    for key, value in zip(columns, where, strict=True):
                        columns[key].append(value)
                    for key in told_columns:
                        source = plain.combined if key.startswith("unc") else getattr(told, key)
                        told_columns[key].append(source[n, f])
    units = dict.fromkeys(told_columns, "feature squared") | {
        "step_from": "steps",
        "step_to": "steps",
    }
    write_table(workdir / "tables" / "influence.parquet", columns | told_columns, units)


def draw(found: Found, floors: dict[str, Any], workdir: Path) -> list[page.Picture]:
    """The figures, main ones first."""
    place = workdir / "figures"
    made = [
        (_probe_figure, "probes", PROBES.format(output=found.config.task.inputs + 1)),
        (_influence_figure, "influence", INFLUENCE),
        *([(_sgd_figure, "influence_plain_steps", PLAIN)] if found.sgd else []),
        (_time_figure, "influence_over_time", OVER_TIME),
        (lambda f: _loss_figure(f, floors), "training", TRAINING),
    ]
    pictures = []
    for make, name, caption in made:
        figure, panels = make(found)
        png = figures.save_figure(figure, place, name, figures.numbers_of(panels))
        pictures.append(page.Picture(png, caption))
    return pictures


def _band(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean and 95 % t interval over the leading axis of seeds."""
    flat = values.reshape(len(values), -1)
    told = [stats.paired_interval(column, np.zeros(len(column))) for column in flat.T]
    shape = values.shape[1:]
    mean, low, high = (
        np.array([getattr(t, k) for t in told]).reshape(shape) for k in ("mean", "low", "high")
    )
    return mean, low, high


def _probe_figure(found: Found):
    """Probe quality by position, a panel a layer."""
    nodes = np.array(found.nodes)
    panels = []
    for k in range(1, found.config.layers + 1):
        here = nodes[:, 0] == k
        lines = []
        for name in [*found.config.variants, "untrained"]:
            mean, low, high = _band(np.nanmean(found.probes[name]["r"][:, here], axis=-1))
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
                lines.append(figures.Line(part, steps, *_band(values)))
            panels.append(figures.LinePanel(f"{name}, after block {k}", lines))
    figure = figures.line_panels(
        panels, x_label="updates", y_label="influence / R(θ₀), input stage", columns=2, zero=True
    )
    return figure, panels


def _loss_figure(found: Found, floors: dict[str, Any]):
    """Loss and accuracy over training by variant."""
    least, guess = np.mean(floors["per_position"]), floors["first_output_chance"]["blind"]
    kinds = [
        ("held-out loss", "held_out_loss", "nats", "Bayes floor", least),
        ("first output legal", "first_output_legal", "share", "best blind guess", guess),
    ]
    panels = []
    for title, key, unit, reference, level in kinds:
        lines = []
        for name in found.config.variants:
            mine = [m for m in found.metrics if m["variant"] == name]
            values = np.array([m[key] for m in mine]).T
            lines.append(figures.Line(name, [m["step"] for m in mine], *_band(values)))
        steps = lines[0].x
        color = "#777777" if title == "held-out loss" else "#AAAAAA"
        lines.append(figures.Line(reference, steps, np.full(len(steps), level), color=color))
        panels.append(figures.LinePanel(title, lines, unit))
    figure = figures.line_panels(panels, x_label="updates", y_label="", share_y=False, columns=2)
    return figure, panels


def _contrast_rows(found: Found) -> list[tuple]:
    """One row a variant: quality, its difference from standard and untrained, accuracy."""
    rows = []
    for name in [*found.config.variants, "untrained"]:
        own = input_stage(found, name)
        gap = lambda other, own=own: stats.paired_interval(own, input_stage(found, other))
        told = [tables.format_interval(*_triple(g)) for g in (gap("standard"), gap("untrained"))]
        right = first_output(found, name).mean() if name != "untrained" else float("nan")
        mean = tables.format_interval(*_triple(stats.paired_interval(own, np.zeros(len(own)))))
        rows.append((name, mean, *told, tables.format_number(right)))
    return rows


def _triple(interval: stats.Interval) -> tuple[float, float, float]:
    """Mean and bounds."""
    return interval.mean, interval.low, interval.high


def _ledger_tables(found: Found) -> list[tables.Table]:
    """Shares at the input stage by layer, with the flags on remainder and cancellation."""
    made = []
    for name, ledgers in found.ledgers.items():
        told, (nodes, inside) = sums(found, name), places(found, name)
        plain = sums(found, name, sgd=True) if found.sgd else None
        sizes = np.stack([cancellation(ledger) for ledger in ledgers])
        rows = []
        for k in range(1, found.config.layers + 1):
            here = inside & (nodes[:, 0] == k)
            cells = [_told(share(told, part, here)) for part in (*PARTS, "fall")]
            missed = np.abs(told["remainder"][:, here]) > 0.05 * np.abs(told["fall"][:, here])
            large = sizes[:, here].max(axis=-1)
            cells += [f"{missed.mean():.0%}", f"{np.median(large):.1f}"]
            cells += [f"{(large > FLAG_CANCELLATION).mean():.0%}"]
            if plain is not None:
                cells += [_told(signed_share(plain, part, here)) for part in PARTS[:3]]
            rows.append((k, *cells))
        columns = ("layer", *PARTS, "fall of R", "nodes with remainder > 5 %")
        columns += ("largest |G_c|/|G| (median)", "nodes with |G_c|/|G| > 10")
        if plain is not None:
            columns += tuple(f"{part}, plain gradient steps (signed share)" for part in PARTS[:3])
        title = f"Influence over R(theta_0) at the input stage, {name} (95 % t interval over seeds)"
        made.append(tables.Table(title, columns, rows))
    return made


def _told(values: np.ndarray) -> str:
    """Mean and 95 % t interval over seeds."""
    mean, low, high = _band(values)
    return tables.format_interval(float(mean), float(low), float(high))


def _summary(found: Found, claims, learned: bool, floors: dict[str, Any]) -> str:
    """The answer in plain words, out of the numbers."""
    right = float(first_output(found, "standard").mean())
    words = [
        'Features: "token v is a (tied) maximum so far", read by linear probes from the residual '
        "stream. Position 0 is bos; the input stage is positions "
        f"2..{found.config.task.inputs - 1}, before any output depends on the count. "
        f"The standard model {'has' if learned else 'has NOT'} learned the task: its first output "
        f"is legal in {right:.1%} of held-out sequences ({LEARNED:.0%} is learned; blind guess "
        f"{floors['first_output_chance']['blind']:.1%}).",
        *(f"{claim.name}: {claim.verdict}." for claim in claims),
    ]
    if "standard" in found.ledgers:
        told, (_, inside) = sums(found, "standard"), places(found, "standard")
        part = {p: share(told, p, inside).mean() for p in PARTS}
        words.append(
            "At the input stage the updates' direct part built "
            f"{part['direct']:.0%} of R(theta_0) of the standard model's features, the precached "
            f"part {part['precached']:.0%} and the shared part {part['shared']:.0%}; "
            f"{part['remainder']:.0%} is the remainder."
        )
        if found.sgd:
            plain = sums(found, "standard", sgd=True)
            part = {p: signed_share(plain, p, inside).mean() for p in PARTS[:3]}
            words.append(
                "Adam scales each part by the whole gradient's size, so that parts can cancel "
                "above the real step; of plain gradient steps on the same trajectory the signed "
                "shares (below 0: against the feature) are "
                f"direct {part['direct']:.0%}, precached {part['precached']:.0%}, "
                f"shared {part['shared']:.0%}."
            )
    return " ".join(words)
