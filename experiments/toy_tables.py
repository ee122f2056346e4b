"""Which tables does a toy experiment leave: every number, and the few that are read first?"""

from pathlib import Path

import numpy as np

from experiments.toy_numbers import (
    PARTS,
    first_output,
    input_stage,
    places,
    share,
    signed_share,
    sums,
    told_interval,
)
from experiments.toy_training import Found
from jaxfeat import stats
from jaxfeat.data import toy
from jaxfeat.grads.ledger import FLAG_CANCELLATION, cancellation, influence
from jaxfeat.io.parquet import write_table
from jaxfeat.report import tables


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


def contrast_rows(found: Found) -> list[tuple]:
    """One row a variant: quality, its difference from standard and untrained, accuracy."""
    rows = []
    for name in [*found.config.variants, "untrained"]:
        own = input_stage(found, name)
        gap = lambda other, own=own: stats.paired_interval(own, input_stage(found, other))
        told = []
        for other in ("standard", "untrained"):
            g = gap(other)
            told.append("-" if name == other else tables.format_interval(g.mean, g.low, g.high))
        right = first_output(found, name).mean() if name != "untrained" else float("nan")
        rows.append((name, told_interval(own), *told, tables.format_number(right)))
    return rows


def ledger_tables(found: Found) -> list[tables.Table]:
    """Shares at the input stage by layer, with the flags on remainder and cancellation."""
    made = []
    for name, ledgers in found.ledgers.items():
        told, (nodes, inside) = sums(found, name), places(found, name)
        plain = sums(found, name, sgd=True) if found.sgd else None
        sizes = np.stack([cancellation(ledger) for ledger in ledgers])
        rows = []
        for k in range(1, found.config.layers + 1):
            here = inside & (nodes[:, 0] == k)
            cells = [told_interval(share(told, part, here)) for part in (*PARTS, "fall")]
            missed = np.abs(told["remainder"][:, here]) > 0.05 * np.abs(told["fall"][:, here])
            large = sizes[:, here].max(axis=-1)
            cells += [f"{missed.mean():.0%}", f"{np.median(large):.1f}"]
            cells += [f"{(large > FLAG_CANCELLATION).mean():.0%}"]
            if plain is not None:
                cells += [told_interval(signed_share(plain, part, here)) for part in PARTS[:3]]
            rows.append((k, *cells))
        columns = ("layer", *PARTS, "fall of R", "nodes with remainder > 5 %")
        columns += ("largest |G_c|/|G| (median)", "nodes with |G_c|/|G| > 10")
        if plain is not None:
            columns += tuple(f"{part}, plain gradient steps (signed share)" for part in PARTS[:3])
        title = f"Influence over R(theta_0) at the input stage, {name} (95 % t interval over seeds)"
        made.append(tables.Table(title, columns, rows))
    return made
