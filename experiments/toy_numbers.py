"""What did a toy experiment's variants learn, in numbers: qualities, shares and contrasts?"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from experiments.toy_training import Found
from jaxfeat import stats
from jaxfeat.grads.ledger import influence
from jaxfeat.report import tables
from jaxfeat.report.claims import Statement

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


def learned(found: Found) -> bool:
    """Whether the STANDARD model has learned the task: else no claim is decided."""
    return float(first_output(found, "standard").mean()) >= LEARNED


def not_learned(found: Found) -> str:
    """Why nothing can be decided; empty where the standard model has learned the task."""
    if learned(found):
        return ""
    right = first_output(found, "standard").mean()
    return f"The standard model has not learned the task (first output {right:.2f})."


def statements(found: Found, asked: Sequence[Contrast]) -> list[Statement]:
    """The contrasts between variants that were trained, as differences paired by seed."""
    made = []
    for a in asked:
        if not {a.below, a.above} <= set(found.probes):
            continue
        low, high = a.value(found, a.below), a.value(found, a.above)
        # with a margin the claim is that the difference lies above -margin
        decides, note = stats.paired_interval(high, low), ""
        if a.margin is not None:
            decides = stats.paired_interval(low + a.margin, high)
            note = f" (of lying above -{a.margin})"
        sides = (a.above, a.below) if a.untrained else ()
        after = [_against(found, side, a.value) for side in sides]
        if found.config.seeds < 2:
            after.append("One seed gives no interval: at least 2 are needed to decide.")
        shown, what = stats.paired_interval(low, high), f"Difference of {a.what}"
        words = " ".join(after)
        made.append(Statement(a.name, what, shown, decides, note, words, not_learned(found)))
    return made


def _against(found: Found, name: str, value: Callable) -> str:
    """Whether a variant gained over the untrained model or lost against it, in words."""
    gap = stats.paired_interval(value(found, name), value(found, "untrained"))
    told = tables.format_interval(gap.mean, gap.low, gap.high)
    if not (gap.low > 0 or gap.high < 0):
        return f"{name.capitalize()} is not told apart from the untrained model ({told})."
    kind = "a gain in quality over" if gap.mean > 0 else "a loss of quality against"
    return f"{name.capitalize()} is {kind} the untrained model ({told})."
