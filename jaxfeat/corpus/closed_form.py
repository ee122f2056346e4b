"""Which weights does plain descent from zero give after s updates? Leading terms in closed form.

Im, Oh, Fang, Li, arXiv 2601.19208, Theorems 4.1, D.7, D.10, D.13. The terms are the same for every
block; their order in s eta is 1 (W_O), 2 (V), 4 (W, P).
"""

import math
from typing import Any, NamedTuple

import numpy as np

from jaxfeat.corpus.statistics import Statistics, product
from jaxfeat.types import Tree, UserError, check_whole

NAMES = ("output", "value", "attention", "position")
SYMBOLS = {"output": "W_O", "value": "V", "attention": "W", "position": "P"}


class Weights(NamedTuple):
    """The model's weights, or terms of them: float64 on the host, or one number each."""

    output: Any  # W_O [V, V]
    value: Any  # V [N, V, V]
    attention: Any  # W [N, V, V]
    position: Any  # P [N, T]


class Condition(NamedTuple):
    """One condition of the theorem, whether it holds, and its numbers in words."""

    name: str
    holds: bool
    words: str


def weights_of(params: Tree) -> Weights:
    """The weights of a one-hot model's parameters (`jaxfeat.models.onehot`)."""
    blocks = params["blocks"]
    found = (params["outer"]["output"], blocks["value"], blocks["attention"], blocks["position"])
    return Weights(*(np.asarray(x, np.float64) for x in found))


def params_of(weights: Weights, dtype: str = "float32") -> Tree:
    """Parameters of a one-hot model with these weights."""
    w = Weights(*(np.asarray(x, dtype) for x in weights))
    blocks = {"attention": w.attention, "position": w.position, "value": w.value}
    return {"outer": {"output": w.output}, "blocks": blocks}


def check_descent(steps: int, rate: float, layers: int = 1) -> tuple[int, float]:
    """Updates and learning rate, if a descent can have them.

    >>> check_descent(20, 0.05)
    (20, 0.05)
    """
    check_whole("layers", layers, 1)
    steps = check_whole("steps", steps, 0)
    number = isinstance(rate, int | float | np.number) and not isinstance(rate, bool)
    if not number or not 0 < rate < math.inf:
        raise UserError(f"rate: {rate!r} given, a finite number above 0 needed")
    return steps, float(rate)


def fourth(steps: int) -> int:
    """c4(s) = 3 C(s, 4) + 2 C(s, 3) = s (s-1) (s-2) (3s-1) / 24.

    >>> [fourth(s) for s in range(5)]
    [0, 0, 0, 2, 11]
    """
    return 3 * math.comb(steps, 4) + 2 * math.comb(steps, 3)


def leading_terms(statistics: Statistics, steps: int, rate: float, layers: int) -> Weights:
    """W_O ~ s eta B, V ~ C(s, 2) eta^2 Phi^T B^T, W ~ c4(s) eta^4 Q, P ~ c4(s) eta^4 Delta.

    Args:
        statistics: of the text that is descended on, whole batches.
        steps: s, updates done; V is exactly 0 up to 1 of them, W and P up to 2.
        rate: eta. layers: N.

    Returns:
        `Weights`, blocks stacked.

    >>> from jaxfeat.corpus.statistics import corpus_statistics
    >>> terms = leading_terms(corpus_statistics([[0, 1, 0]], 2), steps=2, rate=0.1, layers=3)
    >>> terms.value.shape, float(abs(terms.attention).max())
    ((3, 2, 2), 0.0)
    """
    steps, rate = check_descent(steps, rate, layers)
    s, high = statistics, fourth(steps) * rate**4
    blocks = lambda x: np.repeat(x[None], layers, axis=0)
    return Weights(
        output=steps * rate * s.bigram,
        value=blocks(math.comb(steps, 2) * rate**2 * value_map(s)),
        attention=blocks(high * s.attention),
        position=blocks(high * s.offset),
    )


def value_map(statistics: Statistics) -> np.ndarray:
    """Phi^T B^T `[V, V]`: rows prefix tokens, columns tokens whose successors they foretell."""
    return product(statistics.context.T, statistics.bigram.T)


def error_bounds(steps: int, rate: float, layers: int, length: int) -> Weights:
    """Bounds of the Frobenius errors: 3 (s eta)^2, 12 (s eta)^3, 13 (s eta)^5 T twice.

    With one block 4 and 6 take the places of 12 and 13. They are proven where `conditions` hold.

    >>> error_bounds(10, 0.05, 1, 8).output
    0.75
    """
    steps, rate = check_descent(steps, rate, layers)
    x, one = steps * rate, layers == 1
    high = (6 if one else 13) * x**5 * check_whole("length", length, 1)
    return Weights(3 * x**2, (4 if one else 12) * x**3, high, high)


def conditions(steps: int, rate: float, layers: int, length: int, vocab: int) -> list[Condition]:
    """What the theorem asks for, from zero initialisation, each with its numbers.

    T >= 60, V >= 500, L <= sqrt(T) / 4, s eta <= min(1 / (12 L), 5 / (8 sqrt T)); with one block
    s eta <= 3 / (8 T^(3/8)).

    >>> [c.name for c in conditions(10, 0.1, 3, 64, 1000) if not c.holds]
    ['blocks', 'step size']
    """
    steps, rate = check_descent(steps, rate, layers)
    x, one = steps * rate, layers == 1
    most = 3 / (8 * length**0.375) if one else min(1 / (12 * layers), 5 / (8 * math.sqrt(length)))
    deep = layers == 1 or layers <= math.sqrt(length) / 4
    told = "one block" if one else f"L = {layers} <= sqrt(T) / 4 = {math.sqrt(length) / 4:.2g}"
    return [
        Condition("length", length >= 60, f"T = {length} >= 60"),
        Condition("vocabulary", vocab >= 500, f"V = {vocab} >= 500"),
        Condition("blocks", deep, told),
        Condition("step size", x <= most, f"s eta = {x:.3g} <= {most:.3g}"),
    ]


def remove_projection(weight: Any, term: Any) -> np.ndarray:
    """The weight less its Frobenius projection on the term: w - (<w, t> / <t, t>) t.

    A term of zeros takes nothing away.

    >>> remove_projection([3.0, 4.0], [0.0, 2.0]).tolist()
    [3.0, 0.0]
    """
    weight, term = np.asarray(weight, np.float64), np.asarray(term, np.float64)
    if weight.shape != term.shape:
        raise UserError(f"term: shape {term.shape} given, {weight.shape} needed, the weight's")
    size = np.vdot(term, term)
    return weight - (np.vdot(weight, term) / size) * term if size > 0 else weight
