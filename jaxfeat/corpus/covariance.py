"""How alike are the covariances of two V x V maps, which nobody ever writes down?

`cov(M) = Mc Mc^T / (d - 1)` of a matrix `[V, d]` whose rows lose their mean (arXiv 2601.19208). All
that the cosine of two covariances needs are traces: `<F F^T, K K^T> = |K^T F|^2` in Frobenius
norms, and the size of each side by itself; d - 1 cancels.
"""

import math
from typing import NamedTuple

import numpy as np


class Side(NamedTuple):
    """One covariance: its Frobenius norm, the sum of all its entries, and what share of the squared
    norm may be rounding."""

    norm: float
    ones: float
    rounding: float


def rounding_of(dtype: np.dtype | str) -> float:
    """The share of a squared norm that sums of such numbers may miss.

    >>> rounding_of("float64") < 2e-14 < 1e-6 < rounding_of("float32")
    True
    """
    return 64 * float(np.finfo(dtype).eps)


class Agreement(NamedTuple):
    """A Frobenius cosine, and that of the parts orthogonal to the all-ones matrix (`beyond`)."""

    cosine: float
    beyond: float


def centre_rows(m: np.ndarray) -> np.ndarray:
    """A matrix whose rows have lost their mean.

    >>> centre_rows(np.array([[1.0, 3.0]])).tolist()
    [[-1.0, 1.0]]
    """
    return m - m.mean(axis=1, keepdims=True)


def side_of(factor: np.ndarray) -> Side:
    """Norm and sum of `F F^T` out of the thin factor `[n, d]`.

    >>> side_of(np.array([[1.0], [2.0]]))[:2]
    (5.0, 9.0)
    """
    rounding = rounding_of(factor.dtype)
    return gram_side(gram(factor), factor.sum(axis=0, dtype=np.float64), rounding)


def gram_side(
    inner: np.ndarray, sums: np.ndarray, rounding: float, root: np.ndarray | None = None
) -> Side:
    """Norm and sum of `F R (F R)^T` out of `F^T F`, the column sums of F, and R.

    Args:
        inner: `[d, d]`. sums: `[d]`. rounding: of the factor's numbers (`rounding_of`).
        root: `[d, d]`; by default the identity.
    """
    if root is not None:
        inner, sums = root.T @ inner @ root, sums @ root
    return Side(float(np.linalg.norm(inner)), float(sums @ sums), rounding)


def gram(factor: np.ndarray) -> np.ndarray:
    """`F^T F` in float64, of `[n, d]`."""
    return (factor.T @ factor).astype(np.float64)


def root_of(square: np.ndarray) -> np.ndarray:
    """R with `R R^T` this matrix, which has no negative eigenvalue but by rounding.

    >>> root_of(np.array([[4.0]])).tolist()
    [[2.0]]
    """
    values, vectors = np.linalg.eigh(square)
    return vectors * np.sqrt(np.maximum(values, 0))


def agreement(inner: float, a: Side, b: Side, rows: int) -> Agreement:
    """Cosine of two covariances, and the same of what is orthogonal to the all-ones matrix.

    Where tokens are independent draws, the rows of a theory map are one row times a number: scaled
    to unit norm they coincide, and the covariance is the all-ones matrix J, whatever the model
    learned. With `<C, J> = 1^T C 1` and `<J, J> = n^2` its projection leaves both sides.

    Args:
        inner: `<Ca, Cb>`. a, b: the sides. rows: n.

    Returns:
        NaN where a side has nothing left but rounding.

    >>> one, two = side_of(np.array([[1.0], [0.0]])), side_of(np.array([[1.0], [1.0]]))
    >>> found = agreement(1.0, one, two, 2)
    >>> round(found.cosine, 3), found.beyond
    (0.5, nan)
    """
    cosine = _ratio(inner, a.norm**2, b.norm**2)
    left = [side.norm**2 - (side.ones / rows) ** 2 for side in (a, b)]
    rounding = [side.rounding * side.norm**2 for side in (a, b)]
    if any(x <= small for x, small in zip(left, rounding, strict=True)):
        return Agreement(cosine, math.nan)
    return Agreement(cosine, _ratio(inner - a.ones * b.ones / rows**2, *left))


def _ratio(inner: float, a: float, b: float) -> float:
    """`inner / sqrt(a b)`; NaN where a side is zero."""
    return float(inner / (math.sqrt(a) * math.sqrt(b))) if a > 0 and b > 0 else math.nan
