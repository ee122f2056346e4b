"""What did a toy experiment's variants learn, in numbers: qualities, shares and contrasts?"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from experiments.toy_training import Found
from jaxfeat import stats
from jaxfeat.grads.ledger import influence
from jaxfeat.report import page, tables

LEARNED = 0.95  # first-output accuracy from which the standard model has learned the task
PARTS = ("direct", "precached", "shared", "remainder")


def input_stage(found: Found, name: str, features: slice = slice(None)) -> np.ndarray:
    """Mean probe quality r over layers >= 1 and input positions from 2 on, by seed `[S]`."""
    nodes = found.nodes
    here = [n for n, (k, i) in enumerate(nodes) if k >= 1 and 2 <= i < found.config.task.inputs]
    return np.nanmean(found.probes[name]["r"][:, here, features], axis=(1, 2))


def first_output(found: Found, name: str) -> np.ndarray:
    """Final share of held-out sequences whose first output is legal, by seed `[S]`."""
    return np.array([m for m in found.metrics if m["variant"] == name][-1]["first_output_legal"])


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


def band(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean and 95 % t interval over the leading axis of seeds."""
    flat = values.reshape(len(values), -1)
    told = [stats.paired_interval(column, np.zeros(len(column))) for column in flat.T]
    shape = values.shape[1:]
    mean, low, high = (
        np.array([getattr(t, k) for t in told]).reshape(shape) for k in ("mean", "low", "high")
    )
    return mean, low, high


def told_interval(values: np.ndarray) -> str:
    """Mean and 95 % t interval over seeds."""
    mean, low, high = band(values)
    return tables.format_interval(float(mean), float(low), float(high))


class Contrast(NamedTuple):
    """A claim named beforehand: `below` lies below `above` in a quantity.

    `value` gives the quantity of a variant by seed, `what` names it. With a `margin` the claim is
    the opposite, that `below` does not lie below `above` by the margin or more. `untrained`:
    whether the quantity is one of the untrained model too, which then stands beside.
    """

    name: str
    below: str
    above: str
    value: Callable[[Found, str], np.ndarray]
    what: str
    margin: float | None = None
    untrained: bool = True


def decide(found: Found, asked: list[Contrast]) -> tuple[list[page.Claim], bool, dict[str, Any]]:
    """The claims against the numbers: differences paired by seed, Holm across claims.

    Nothing is decided unless the STANDARD model has learned the task.
    """
    right = float(first_output(found, "standard").mean())
    learned = right >= LEARNED
    asked = [a for a in asked if {a.below, a.above} <= set(found.probes)]
    gaps = [stats.paired_interval(a.value(found, a.below), a.value(found, a.above)) for a in asked]
    # with a margin the question is whether the difference lies above -margin
    tests = [_above(found, a) if a.margin is not None else g for a, g in zip(asked, gaps)]
    adjusted = stats.holm([1.0 if np.isnan(t.p) else t.p for t in tests]) if tests else []
    claims, numbers = [], {}
    for a, gap, test, p in zip(asked, gaps, tests, adjusted, strict=True):
        verdict = "undecided"
        if learned and p < 0.05:
            sign = test.mean < 0 if a.margin is None else test.mean > 0
            verdict = "holds" if sign else "does not hold"
        told = tables.format_interval(gap.mean, gap.low, gap.high)
        words = f"Difference of {a.what} {told}, Holm-adjusted p {p:.2g}"
        words += f" (of lying above -{a.margin}). " if a.margin is not None else ". "
        if a.untrained:
            words += " ".join(_against(found, side, a.value) for side in (a.above, a.below))
        if found.config.seeds < 2:
            words = words.strip() + " One seed gives no interval: at least 2 are needed to decide."
        if not learned:
            words = (
                words.strip()
                + f" The standard model has not learned the task (first output {right:.2f})."
            )
        claims.append(page.Claim(a.name, verdict, words.strip()))
        numbers[f"{a.below}_minus_{a.above}, {a.what}"] = {
            "mean": gap.mean, "low": gap.low, "high": gap.high, "p_holm": float(p),
        }  # fmt: skip
    return claims, learned, {"first_output_standard": right, "contrasts": numbers}


def _above(found: Found, asked: Contrast) -> stats.Interval:
    """The paired difference shifted by the margin: it is above 0 where the claim holds."""
    shifted = asked.value(found, asked.below) + asked.margin
    return stats.paired_interval(shifted, asked.value(found, asked.above))


def _against(found: Found, name: str, value: Callable) -> str:
    """Whether a variant gained over the untrained model or lost against it, in words."""
    gap = stats.paired_interval(value(found, name), value(found, "untrained"))
    told = tables.format_interval(gap.mean, gap.low, gap.high)
    if not (gap.low > 0 or gap.high < 0):
        return f"{name.capitalize()} is not told apart from the untrained model ({told})."
    kind = "a gain in quality over" if gap.mean > 0 else "a loss of quality against"
    return f"{name.capitalize()} is {kind} the untrained model ({told})."
