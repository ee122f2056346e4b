"""What does the page of a toy experiment say first: the answer, its claims, figures and tables?"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments import toy_figures, toy_tables
from experiments.toy_numbers import (
    LEARNED,
    PARTS,
    Contrast,
    band,
    first_output,
    learned,
    places,
    share,
    signed_share,
    statements,
    sums,
    told_interval,
)
from experiments.toy_training import Found
from jaxfeat.data import toy
from jaxfeat.report import tables
from jaxfeat.report.claims import decide
from jaxfeat.run.results import publish


def write(
    found: Found,
    workdir: Path,
    asked: Sequence[Contrast],
    *,
    title: str,
    feature: str,
    figures: Sequence[toy_figures.Made] = (),
    more: Sequence[tables.Table] = (),
    words: Sequence[str] = (),
) -> dict[str, Any]:
    """Write every table and figure and `report.html`; the main numbers as a dict.

    Args:
        asked: the claims, named beforehand.
        title: the question. feature: what the probes read, in words.
        figures: further figures, shown after the probes'. more: further tables. words: further
            sentences of the summary.
    """
    floors = toy.bayes_floors(found.config.task)
    toy_tables.write_tables(found, workdir)
    pictures = toy_figures.draw(found, floors, workdir, figures)
    claims, contrasts = decide(statements(found, asked))
    quality = tables.Table(
        "Probe quality at the input stage (mean Pearson r, 95 % t interval over seeds)",
        ("variant", "r", "r minus standard", "r minus untrained", "first output legal"),
        toy_tables.contrast_rows(found),
    )
    numbers = {
        "learned": learned(found),
        "first_output_standard": float(first_output(found, "standard").mean()),
        "contrasts": contrasts,
        "split_residual": float(found.probes["standard"]["split_residual"]),
    }
    for name in found.ledgers:
        told, (_, inside) = sums(found, name), places(found, name)
        shares = {p: float(share(told, p, inside).mean()) for p in PARTS}
        numbers[f"influence_share_{name}"] = shares
    return publish(
        workdir, title=title, summary=_summary(found, claims, floors, feature, words),
        claims=claims, figures=pictures, tables=[quality, *more, *toy_tables.ledger_tables(found)],
        config=found.config, numbers=numbers,
    )  # fmt: skip


def _summary(found: Found, claims, floors, feature: str, words) -> str:
    """The answer in plain words, out of the numbers."""
    right, chance = float(first_output(found, "standard").mean()), floors["first_output_chance"]
    told = [
        f'Features: "{feature}", read by linear probes from the residual stream. Position 0 is '
        f"bos; the input stage is positions 2..{found.config.task.inputs - 1}. "
        f"The standard model {'has' if learned(found) else 'has NOT'} learned the task: its first "
        "output "
        f"is legal in {right:.1%} of held-out sequences ({LEARNED:.0%} is learned; blind guess "
        f"{chance['blind']:.1%}, best guess from unordered counts {chance['counts']:.1%}).",
        *(f"{claim.name}: {claim.verdict}." for claim in claims),
        *words,
    ]
    for name in found.ledgers:
        told.append(_ledger_words(found, name))
    return " ".join(told)


def _ledger_words(found: Found, name: str) -> str:
    """What each part built at the input stage of a variant, of Adam's and of plain steps."""
    told, (_, inside) = sums(found, name), places(found, name)
    part = {p: told_interval(share(told, p, inside)) for p in PARTS}
    words = (
        f"At the input stage of the {name} model the parts of the updates built, over R(theta_0) "
        f"of the features (95 % interval over seeds): direct {part['direct']}, precached "
        f"{part['precached']}, shared {part['shared']}; remainder {part['remainder']}. "
    )
    unsure = [p for p in PARTS[:3] if _open(share(told, p, inside))]
    if unsure:
        words += f"Not determined in sign: {', '.join(unsure)}. "
    if not found.sgd:
        return words.strip()
    plain = sums(found, name, sgd=True)
    part = {p: told_interval(signed_share(plain, p, inside)) for p in PARTS[:3]}
    return words + (
        "Adam scales each part by the whole gradient's size, so that parts can cancel above the "
        "real step; of plain gradient steps on the same trajectory the signed shares (below 0: "
        f"against the feature) are direct {part['direct']}, precached {part['precached']}, shared "
        f"{part['shared']}."
    )


def _open(values: np.ndarray) -> bool:
    """Whether the interval over seeds holds 0, so that the sign is not known."""
    _, low, high = band(values)
    return not (low > 0 or high < 0) and bool(np.any(values))
