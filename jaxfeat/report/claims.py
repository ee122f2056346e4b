"""How are claims decided together? Each by one interval named beforehand, Holm across all."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxfeat.report.page import Claim
from jaxfeat.report.tables import format_interval
from jaxfeat.stats import Interval, holm

LEVEL = 0.05


class Statement(NamedTuple):
    """A claim, the quantity that it is about and what may stand in the way of deciding it.

    `interval` is of the quantity `what`; the claim says that `decides` (by default the same
    interval) lies above 0. `note` explains the p value, `after` are further sentences, `blocked`
    says why nothing can be decided (empty where it can).
    """

    name: str
    what: str
    interval: Interval
    decides: Interval | None = None
    note: str = ""
    after: str = ""
    blocked: str = ""


def decide(asked: Sequence[Statement]) -> tuple[list[Claim], dict[str, dict[str, float]]]:
    """Verdicts with their numbers in words, and the numbers by claim.

    A claim holds (does not hold) where `decides` lies above (below) 0 with a Holm-adjusted p below
    .05; else it is undecided.

    >>> far = Interval(1.0, 0.9, 1.1, 5, 1e-6)
    >>> claims, _ = decide([Statement("a", "x", far), Statement("b", "y", far, blocked="No.")])
    >>> [claim.verdict for claim in claims]
    ['holds', 'undecided']
    """
    tests = [s.interval if s.decides is None else s.decides for s in asked]
    adjusted = holm([1.0 if np.isnan(t.p) else t.p for t in tests]) if tests else []
    claims, numbers = [], {}
    for s, test, p in zip(asked, tests, adjusted, strict=True):
        verdict = "undecided"
        if not s.blocked and p < LEVEL:
            verdict = "holds" if test.mean > 0 else "does not hold"
        mean, low, high = s.interval[:3]
        told = f"{s.what} {format_interval(mean, low, high)}, Holm-adjusted p {p:.2g}{s.note}."
        words = " ".join(part for part in (told, s.after, s.blocked) if part)
        claims.append(Claim(s.name, verdict, words))
        numbers[s.name] = {"mean": mean, "low": low, "high": high, "p_holm": float(p)}
    return claims, numbers
