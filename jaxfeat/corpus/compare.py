"""How near are learned weights to their closed form, and nearer than to wrong maps?

Every cosine is told beside the one that is left without the unigram null
(`jaxfeat.corpus.unigram_null`), and beside those against maps that the weight should not follow.
"""

from typing import Any, NamedTuple

import numpy as np

from jaxfeat.corpus.closed_form import NAMES, Weights, value_map
from jaxfeat.corpus.statistics import Statistics
from jaxfeat.corpus.unigram_null import project_out
from jaxfeat.types import UserError

SHUFFLED = "shuffled"  # the control of tokens in random order


class Row(NamedTuple):
    """One weight of one block (from 1; 0 for W_O, which has none) against one map."""

    weight: str
    block: int
    against: str
    cosine: float
    beyond: float  # without the unigram null
    error: float  # |learned - predicted| / |predicted|, Frobenius; NaN against wrong maps


def cosine(a: Any, b: Any) -> float:
    """Frobenius cosine; NaN where one side is 0.

    >>> cosine([1.0, 0.0], [1.0, 1.0]).__round__(4)
    0.7071
    """
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if a.shape != b.shape:
        raise UserError(f"cosine: shapes {a.shape} and {b.shape} given, equal ones needed")
    size = np.linalg.norm(a) * np.linalg.norm(b)
    return float(np.vdot(a, b) / size) if size > 0 else float("nan")


def relative_error(learned: Any, predicted: Any) -> float:
    """|learned - predicted| / |predicted|, Frobenius; NaN where nothing is predicted."""
    learned, predicted = np.asarray(learned, np.float64), np.asarray(predicted, np.float64)
    size = np.linalg.norm(predicted)
    return float(np.linalg.norm(learned - predicted) / size) if size > 0 else float("nan")


def compare_weights(learned: Weights, predicted: Weights, null: Weights) -> list[Row]:
    """Every weight of every block against its prediction.

    Args:
        learned: weights of the model. predicted: `leading_terms`, with or without the next order.
        null: `null_terms`, of one block.

    Returns:
        A `Row` a weight and block, `against` its own name.
    """
    rows = []
    for name, block, weight in blocks_of(learned):
        map_ = _block(predicted, name, block)
        rows.append(_row(name, block, name, weight, map_, getattr(null, name),
                         relative_error(weight, map_)))  # fmt: skip
    return rows


def wrong_maps(statistics: Statistics, shuffled: Statistics) -> dict[str, dict[str, np.ndarray]]:
    """By weight, the maps that it should not follow: the other weights', and its own of a text in
    random order.

    Args:
        statistics: of the text. shuffled: of the same tokens in random order.
    """
    own, control = direction(statistics), direction(shuffled)
    square = [name for name in NAMES if name != "position"]
    found = {}
    for name in NAMES:
        others = square if name in square else []
        found[name] = {other: own[other] for other in others if other != name}
        found[name][SHUFFLED] = control[name]
    return found


def direction(statistics: Statistics) -> dict[str, np.ndarray]:
    """The leading terms without their factors of s and eta: B, Phi^T B^T, Q, Delta."""
    s = statistics
    return dict(zip(NAMES, (s.bigram, value_map(s), s.attention, s.offset), strict=True))


def control_cosines(
    learned: Weights, wrong: dict[str, dict[str, np.ndarray]], null: Weights
) -> list[Row]:
    """Every weight of every block against the maps of `wrong_maps`."""
    return [
        _row(name, block, other, weight, map_, getattr(null, name), float("nan"))
        for name, block, weight in blocks_of(learned)
        for other, map_ in wrong[name].items()
    ]


def blocks_of(weights: Weights) -> list[tuple[str, int, np.ndarray]]:
    """(name, block, array) of every weight; W_O, outside the blocks, is of block 0."""
    found = [("output", 0, np.asarray(weights.output))]
    for name in NAMES[1:]:
        found += [(name, b, x) for b, x in enumerate(np.asarray(getattr(weights, name)), 1)]
    return found


def _block(weights: Weights, name: str, block: int) -> np.ndarray:
    """One weight of one block."""
    found = np.asarray(getattr(weights, name))
    return found[block - 1] if block else found


def _row(
    name: str, block: int, against: str, weight: Any, map_: Any, null: Any, error: float
) -> Row:
    """One comparison."""
    beyond = cosine(project_out(weight, null), project_out(map_, null))
    return Row(name, block, against, cosine(weight, map_), beyond, error)
