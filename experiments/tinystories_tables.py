"""Which tables tell what pre-caching does to a model of stories?"""

from pathlib import Path
from typing import Any

import numpy as np

from experiments.tinystories_config import probed_nodes
from experiments.tinystories_numbers import (
    MODELS,
    PARTS,
    Found,
    answers,
    asked,
    chance,
    loss,
    parts_of,
    quality,
    share,
    told,
)
from experiments.tinystories_writing import coherence, samples
from jaxfeat.data.story_text import KINDS
from jaxfeat.grads.ledger import cancellation
from jaxfeat.io.parquet import write_table
from jaxfeat.report import tables

SAMPLES = 8
T = "95 % t intervals over seeds"


def all_tables(found: Found) -> list[tables.Table]:
    """The page's tables."""
    return [
        _main_table(found), *_influence_tables(found), _coherence_table(found),
        _sample_table(found), _feature_table(found), _words(),
    ]  # fmt: skip


def _main_table(found: Found) -> tables.Table:
    """Loss, probes and answers of each model."""
    rows = []
    for name in MODELS:
        row: list[Any] = [name, told(loss(found, name))]
        row += [told(quality(found, name, group)) for group in found.setup.data.groups]
        row += [told(answers(found, name, kind)) for kind in KINDS if asked(found, kind)]
        rows.append(row)
    gap = [told(loss(found, "myopic") - loss(found, "standard"))]
    for group in found.setup.data.groups:
        gap.append(told(quality(found, "myopic", group) - quality(found, "standard", group)))
    for kind in KINDS:
        if asked(found, kind):
            gap.append(told(answers(found, "myopic", kind) - answers(found, "standard", kind)))
    rows.append(["myopic minus standard", *gap])
    guesses = [
        f"{kind.replace('_', '-')} right (guess {chance(found, kind):.2f})"
        for kind in KINDS if asked(found, kind)
    ]  # fmt: skip
    columns = ("model", "loss (nats a token)", *(f"r, {g}" for g in found.setup.data.groups))
    return tables.Table(f"What was learned ({T}; r: mean over layers from 1 and positions)",
                        (*columns, *guesses), rows)  # fmt: skip


def _influence_tables(found: Found) -> list[tables.Table]:
    """What each part built, by group and layer."""
    made = []
    names = (*PARTS, "combined", "remainder")
    for variant in found.ledgers:
        for sgd in (False, True) if found.config.also_sgd else (False,):
            parts = parts_of(found, variant, sgd=sgd)
            layers = np.array([k for k, _ in found.ledgers[variant][0].nodes])
            rows = []
            for group, features in found.setup.data.groups.items():
                for layer in (0, *sorted(set(layers.tolist()))):
                    nodes = layers == layer if layer else slice(None)
                    cells = (told(share(parts, part, features, nodes)) for part in names)
                    rows.append((group, layer or "all", *cells))
            steps = "plain gradient steps on the same trajectory" if sgd else "Adam's steps"
            title = f"Influence over R(theta_0), {variant} training, {steps} ({T})"
            made.append(tables.Table(title, ("features", "layer", *names), rows))
        sizes = np.stack([cancellation(ledger) for ledger in found.ledgers[variant]])
        rows = [
            (k, *map(float, sizes[:, layers == k].mean(axis=(0, 1))),
             float(sizes[:, layers == k].max()))
            for k in sorted(set(layers.tolist()))
        ]  # fmt: skip
        title = f"Size of Adam's component steps over the real step, {variant} training"
        made.append(
            tables.Table(title, ("layer", *PARTS, "largest (above 10: components cancel)"), rows)
        )
    return made


def _coherence_table(found: Found) -> tables.Table:
    """How the continuations hold together."""
    rows = []
    for name in ("truth", *MODELS):
        c = coherence(found, name)
        label = "the story's own" if name == "truth" else name
        rows.append((label, *map(told, c)))
    columns = (
        "continuation", "names known before", "bindings that agree", "parts in order",
        "bindings said each", "repeated four words", "different pairs of words",
    )  # fmt: skip
    if found.setup.data.texts.generated is None:  # what is only known of generated stories
        known = (0, 1, 5, 6)
        rows, columns = [[row[n] for n in known] for row in rows], [columns[n] for n in known]
    count = len(found.setup.exam.prompts.ids)
    return tables.Table(f"Coherence of {count} continuations a model, shares ({T})", columns, rows)


def _sample_table(found: Found) -> tables.Table:
    """Continuations side by side."""
    columns = ("prompt", "the story goes on", "standard", "myopic")
    return tables.Table("Sampled continuations, seed 0", columns, samples(found, SAMPLES))


def _feature_table(found: Found) -> tables.Table:
    """Every feature's probe at its best layer."""
    rows, nodes = [], np.array([k for k, _ in probed_nodes(found.config)])
    for n, name in enumerate(found.setup.data.names):
        row: list[Any] = [name]
        for model in MODELS:
            r = found.arrays[model]["r"][..., n]
            if np.isnan(r).all():  # no held-out window has it
                row += [None, None]
                continue
            by_layer = [np.nanmean(r[:, nodes == k]) for k in range(found.config.layers + 1)]
            best = int(np.nanargmax(by_layer))
            row += [told(np.nanmean(r[:, nodes == best], axis=1)), best]
        rows.append(row)
    columns = ["feature"]
    for model in MODELS:
        columns += [f"r, {model}", "at layer"]
    return tables.Table(f"Probes of each feature at their best layer ({T})", columns, rows)


def _words() -> tables.Table:
    """What the page's terms mean."""
    rows = [
        ("myopic", "trained without the gradient that later tokens send back through attention"),
        ("direct", "what the position's own next token asks for"),
        ("precached", "what later positions send back through attention"),
        ("shared", "what the same parameters do elsewhere; combined: the sum of the three"),
        ("R", "half the variance, over held-out windows, of what a feature's final probe reads now "
         "less what it reads in the final model; R(theta_0): before training"),
        ("influence", "by how much a part's steps lowered R, summed over training"),
        ("remainder", "what the parts leave of the fall of R"),
        ("pos_int, pos_prop", "number of the token in its story; the same over the story's length"),
        ("two-hop", "a question that needs two facts: who has a thing, and where who is"),
        ("recall", "a question whose answer is the only word of its kind in the paragraph"),
        ("names known before", "of the names that a continuation says, those that stand in the "
         "story before it (in text that is not generated: with a capital letter)"),
        ("bindings", "statements who has what, or who or what is where; they agree if the "
         "paragraph says nothing else"),
        ("parts in order", "ordinals that follow the last one by one"),
        ("repeated four words", "stretches of four words that the same continuation had before"),
        ("different pairs", "pairs of neighbouring words, each counted once, over all pairs"),
    ]  # fmt: skip
    return tables.Table("Words", ("word", "meaning"), rows)


def write_tables(found: Found, workdir: Path) -> None:
    """Every number by seed: probes, influence, loss by place."""
    names, nodes = np.array(found.setup.data.names), np.array(probed_nodes(found.config))
    shape = found.arrays["standard"]["r"].shape
    s, n, f = (x.ravel() for x in np.indices(shape))
    columns: dict[str, Any] = {
        "seed": s, "layer": nodes[n, 0], "position": nodes[n, 1], "feature": names[f]
    }  # fmt: skip
    for model in MODELS:
        for key in ("r", "r_gcv", "mse"):
            columns[f"{model} {key}"] = found.arrays[model][key].ravel()
    units = {name: "feature squared" for name in columns if name.endswith("mse")}
    write_table(workdir / "tables" / "probes.parquet", columns, units)
    for variant, held in found.ledgers.items():
        parted, nodes = parts_of(found, variant), np.array(held[0].nodes)
        parts: tuple[str, ...] = (*PARTS, "combined", "remainder", "fall", "scale")
        values = {part: np.stack([np.asarray(getattr(t, part)) for t in parted]) for part in parts}
        s, n, f = (x.ravel() for x in np.indices(values["direct"].shape))
        columns = {
            "seed": s, "layer": nodes[n, 0], "position": nodes[n, 1], "feature": names[f]
        }  # fmt: skip
        columns |= {part: value.ravel() for part, value in values.items()}
        units = {part: "feature variances" for part in parts}  # noqa: C420 (its type)
        write_table(workdir / "tables" / f"influence_{variant}.parquet", columns, units)
    _write_places(found, workdir)


def _write_places(found: Found, workdir: Path) -> None:
    """Loss by place in the story, of every model and seed."""
    counted = found.setup.exam.counted
    place = np.asarray(found.setup.data.held_out.place)[np.asarray(found.setup.exam.cut.index)]
    at = np.minimum(place[:, 1:], place[:, 1:][counted].max())
    rows: dict[str, list] = {"place": [], "model": [], "seed": [], "loss": [], "targets": []}
    for model in MODELS:
        losses = found.arrays[model]["losses"]
        for s in range(len(losses)):
            number = np.bincount(at[counted])
            total = np.bincount(at[counted], losses[s][counted])
            rows["place"] += range(len(number))
            rows["model"] += [model] * len(number)
            rows["seed"] += [s] * len(number)
            rows["loss"] += (total / np.maximum(number, 1)).tolist()
            rows["targets"] += number.tolist()
    units = {"place": "tokens", "loss": "nats", "targets": "tokens"}
    write_table(workdir / "tables" / "loss_by_place.parquet", rows, units)
