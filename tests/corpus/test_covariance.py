"""Do traces of thin factors give the cosines of whole covariances?"""

import math

import numpy as np
import pytest

from jaxfeat.corpus.covariance import (
    agreement,
    centre_rows,
    gram,
    gram_side,
    root_of,
    rounding_of,
    side_of,
)


def cosine(a, b):
    return np.vdot(a, b) / np.linalg.norm(a) / np.linalg.norm(b)


def test_agreement():
    """Against covariances written out, and with the all-ones matrix projected out of both."""
    rng = np.random.default_rng(0)
    f, g = (centre_rows(rng.standard_normal((9, d)) + 0.5) for d in (4, 5))
    f, g = f + 0.3, g + 0.1  # so that both hold something of the all-ones matrix
    found = agreement(float(np.linalg.norm(f.T @ g) ** 2), side_of(f), side_of(g), 9)
    a, b = f @ f.T, g @ g.T
    assert found.cosine == pytest.approx(cosine(a, b), rel=1e-12)
    left = [x - x.mean() for x in (a, b)]  # the projection on J is the mean everywhere
    assert found.beyond == pytest.approx(cosine(*left), rel=1e-12)
    assert abs(found.cosine - found.beyond) > 1e-3


def test_nothing_left():
    """Rows that coincide leave nothing beyond the all-ones matrix; zero has no cosine."""
    same, other = side_of(np.ones((5, 2))), side_of(np.arange(5.0)[:, None])
    found = agreement(2 * 100.0, same, other, 5)
    assert found.cosine > 0.5 and math.isnan(found.beyond)
    zero = side_of(np.zeros((5, 2)))
    assert all(math.isnan(x) for x in agreement(0.0, zero, other, 5))


def test_only_rounding_is_left():
    """Rows of one direction in float32: their covariance is all ones but for rounding."""
    rng = np.random.default_rng(0)
    row = rng.standard_normal(30)
    factor = (row / np.linalg.norm(row) + 1e-5 * rng.standard_normal((50, 30))).astype(np.float32)
    exact = factor.astype(np.float64)
    assert math.isnan(agreement(1.0, side_of(factor), side_of(factor), 50).beyond)
    same = agreement(side_of(exact).norm ** 2, side_of(exact), side_of(exact), 50)
    assert same.beyond == pytest.approx(1, rel=1e-5)  # 1e-9 of it is left


def test_through_a_root():
    """Norm and sum of `F R R^T F^T`, also where `R R^T` is singular."""
    rng = np.random.default_rng(1)
    f, k = rng.standard_normal((7, 3)), rng.standard_normal((6, 3))
    k[:, 2] = k[:, 0]
    root = root_of(k.T @ k)
    np.testing.assert_allclose(root @ root.T, k.T @ k, atol=1e-12)
    whole = (f @ k.T) @ (f @ k.T).T
    found = gram_side(gram(f), f.sum(axis=0), rounding_of(f.dtype), root)
    assert found.norm == pytest.approx(np.linalg.norm(whole), rel=1e-12)
    assert found.ones == pytest.approx(whole.sum(), rel=1e-12)
