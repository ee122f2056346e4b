"""Which tables tell how long weights follow their closed form, and what stands beside a word?"""

from pathlib import Path

import numpy as np

from experiments.token_association_measures import FORMS, WHOLE, Found
from experiments.token_association_numbers import largest, least, s_eta, told_rung, worst_control
from jaxfeat.corpus.by_parts import PARTS
from jaxfeat.corpus.closed_form import NAMES, SYMBOLS
from jaxfeat.corpus.compare import Row
from jaxfeat.corpus.neighbours import MAPS, WEIGHTINGS, neighbours, reading_map
from jaxfeat.io.parquet import write_table
from jaxfeat.report.tables import Table

READ = {"joint": "joint, as in the theory", "conditional": "conditional", "pmi": "PMI"}


def all_tables(found: Found) -> list[Table]:
    """The page's tables."""
    return [
        _cosines(found),
        _conditions(found),
        _losses(found),
        _removed(found),
        _ranks(found),
        *[_neighbours(found, weighting) for weighting in WEIGHTINGS],
    ]


def write_tables(found: Found, workdir: Path) -> None:
    """`tables/`: every cosine, loss, departure, rank correlation and neighbour."""
    (workdir / "tables").mkdir(exist_ok=True)
    rows = [
        (rung.step, s_eta(found, rung), kind, *row)
        for rung in found.rungs
        for kind, part in (("leading terms", rung.rows), ("next order", rung.next_rows),
                           ("wrong map", rung.controls))
        for row in part
    ]  # fmt: skip
    names = ("step", "s_eta", "kind", *Row._fields)
    _write(workdir, "cosines", names, rows, {"step": "updates"})
    rows = [
        (rung.step, s_eta(found, rung), form, part, loss)
        for rung in found.rungs
        for form in FORMS
        for part, loss in rung.losses[form].items()
    ]
    _write(workdir, "losses", ("step", "s_eta", "weights", "part", "loss"), rows,
           {"step": "updates", "loss": "nats"})  # fmt: skip
    rows = [(name, loss, loss - found.removed["nothing"]) for name, loss in found.removed.items()]
    _write(workdir, "removed", ("without", "loss", "added"), rows,
           {"loss": "nats", "added": "nats"})  # fmt: skip
    rows = [(r.step, s_eta(found, r), *r.departures) for r in found.rungs]
    _write(workdir, "departures", ("step", "s_eta", *found.rungs[0].departures._fields), rows,
           {"step": "updates"})  # fmt: skip
    rows = [
        (r.step, b + 1, t + 1, value)
        for r in found.rungs
        for b, by_query in enumerate(r.ranks.by_query)
        for t, value in enumerate(by_query)
    ]
    _write(workdir, "attention_ranks", ("step", "block", "query", "rank_correlation"), rows,
           {"step": "updates"})  # fmt: skip
    rows = [
        (word, name, weighting, rank, found.data.words.names[i], value)
        for weighting in WEIGHTINGS
        for name in MAPS
        for word, (ids, values) in _found(found, name, weighting).items()
        for rank, (i, value) in enumerate(zip(ids, values), 1)
    ]
    if rows:
        columns = ("word", "map", "weighting", "rank", "neighbour", "value")
        _write(workdir, "neighbours", columns, rows, {})


def _write(workdir: Path, name: str, columns: tuple, rows: list, units: dict) -> None:
    """Rows as one Parquet file."""
    held = {column: np.array([row[j] for row in rows]) for j, column in enumerate(columns)}
    write_table(workdir / "tables" / f"{name}.parquet", held, units)


def _cosines(found: Found) -> Table:
    """By rung and weight."""
    rows = []
    for rung in found.rungs:
        for n in NAMES:
            wrong, near = worst_control(rung, n)
            rows.append((
                told_rung(found, rung), SYMBOLS[n], least(rung.rows, n),
                least(rung.rows, n, "beyond"), near, wrong, largest(rung.rows, n),
                largest(rung.next_rows, n) if n in ("output", "value") else None,
                getattr(rung.bounds, n),
            ))  # fmt: skip
    columns = (
        "s eta", "weight", "least cosine", "without the null", "nearest wrong map", "which",
        "relative error", "with the next order", "bound",
    )  # fmt: skip
    return Table("Learned weights against their closed form", columns, rows)


def _conditions(found: Found) -> Table:
    """The theorem's conditions by rung."""
    rows = [(told_rung(found, r), c.name, c.words, c.holds) for r in found.rungs
            for c in r.conditions]  # fmt: skip
    return Table("Conditions of the theorem", ("s eta", "condition", "asked", "holds"), rows)


def _losses(found: Found) -> Table:
    """Losses by part."""
    rows = [
        (told_rung(found, r), form, *(r.losses[form][part] for part in (*PARTS, WHOLE)))
        for r in found.rungs
        for form in FORMS
    ]
    return Table("Loss by parts (nats a token)", ("s eta", "weights", *PARTS, WHOLE), rows)


def _removed(found: Found) -> Table:
    """Loss without leading terms."""
    start = found.removed["nothing"]
    rows = [(name, loss, loss - start) for name, loss in found.removed.items()]
    title = "Loss at the last rung without a weight's projection on its leading term"
    return Table(title, ("without", "loss (nats a token)", "added"), rows)


def _ranks(found: Found) -> Table:
    """Rank correlations by block."""
    blocks = [f"block {b + 1}" for b in range(found.config.layers)]
    rows = [(told_rung(found, r), *r.ranks.mean.tolist(), int(r.ranks.count[0]))
            for r in found.rungs]  # fmt: skip
    title = "Rank correlation of learned attention with q"
    return Table(title, ("s eta", *blocks, "queries"), rows)


def _found(found: Found, name: str, weighting: str) -> dict:
    """Neighbours of every word that has an id."""
    table = reading_map(found.maps.text, name, weighting)
    ids = {word: i for i, word in enumerate(found.data.words.names)}
    top = min(found.config.top, len(table))
    return {w: neighbours(table, ids[w], top) for w in found.config.words if w in ids}


def _neighbours(found: Found, weighting: str) -> Table:
    """Neighbours by map."""
    names = found.data.words.names
    rows = [
        (word, told, ", ".join(names[i] for i in near.ids))
        for name, told in MAPS.items()
        for word, near in _found(found, name, weighting).items()
    ]
    return Table(f"Neighbours of words, {READ[weighting]}", ("word", "map", "nearest first"), rows)
