"""Learned weights against their closed form: the specification's table, orders, bounds, zeros."""

import numpy as np
import pytest
from corpus.small_corpora import CORPORA, T, V, learned, statistics_of

from jaxfeat.corpus.closed_form import (
    NAMES,
    check_descent,
    conditions,
    error_bounds,
    leading_terms,
    params_of,
    remove_projection,
    weights_of,
)
from jaxfeat.corpus.next_order import layer_parts, next_order
from jaxfeat.types import UserError

# cosines of W_O, V, W, P at s eta = 1 with three blocks, less 2e-5
TABLE = {
    "markov": (0.999987, 0.999993, 0.999962, 0.999944),
    "topics": (0.999997, 0.999997, 0.999990, 0.999937),
}


def cosine(a, b):
    """Frobenius cosine."""
    return np.vdot(a, b) / np.sqrt(np.vdot(a, a) * np.vdot(b, b))


def least_cosines(found, terms):
    """The least cosine over blocks of each weight."""
    blocks = lambda x: [x] if x.ndim == 2 and len(x) == V else list(x)
    return [min(map(cosine, blocks(a), blocks(b))) for a, b in zip(found, terms)]


def errors(found, terms):
    """Relative error of each weight."""
    return np.array([np.linalg.norm(a - b) / np.linalg.norm(b) for a, b in zip(found, terms)])


@pytest.mark.parametrize("name", CORPORA)
@pytest.mark.parametrize("layers", [1, 3])
def test_table(name, layers):
    """Cosines at s eta = .1 and 1 reach the specification's figures."""
    for steps, rate, least in ((20, 0.005, (1,) * 4), (20, 0.05, TABLE[name])):
        terms = leading_terms(statistics_of(name), steps, rate, layers)
        found = learned(name, layers, steps, rate)
        reached = least_cosines(found, terms)
        print(name, layers, steps * rate, reached)
        assert np.all(np.array(reached) >= np.array(least) - 2e-5)


@pytest.mark.parametrize("name", CORPORA)
def test_halving_the_rate_halves_every_error(name):
    """First order in eta: the ratio is 2 within 5 % for all four weights."""
    terms = lambda rate: leading_terms(statistics_of(name), 20, rate, 3)
    whole = errors(learned(name, 3, 20, 0.002), terms(0.002))
    half = errors(learned(name, 3, 20, 0.001), terms(0.001))
    np.testing.assert_allclose(whole / half, 2.0, rtol=0.05)


@pytest.mark.parametrize("name", CORPORA)
def test_next_order_takes_errors_away(name):
    """At s eta = 1 the errors of W_O and V fall at least tenfold."""
    found, terms = learned(name, 3, 100, 0.01), leading_terms(statistics_of(name), 100, 0.01, 3)
    more = next_order(statistics_of(name), 100, 0.01, 3)
    before = errors(found[:2], terms[:2])
    after = errors(found[:2], [a + b for a, b in zip(terms[:2], more[:2])])
    print(before, after)
    assert np.all(after < before / 10)
    assert not more.attention.any() and not more.position.any()


@pytest.mark.parametrize("name", CORPORA)
def test_blocks_differ_as_derived(name):
    """V_1 - V_3 has cosine above .999 with its formula, and the same size within 2 %."""
    found = learned(name, 3, 100, 0.001).value
    first, second = layer_parts(statistics_of(name))
    formula = 2 * (3 * 3921225 + 2 * 161700) * 0.001**4 * (first - second)
    assert cosine(found[0] - found[2], formula) > 0.999
    size = np.linalg.norm(found[0] - found[2]) / np.linalg.norm(formula)
    assert abs(size - 1) < 0.02


def test_exact_zeros():
    """W and P are 0 up to two updates, V up to one, learned and in closed form."""
    for steps in (0, 1, 2, 3):
        found = learned("markov", 3, steps, 0.05)
        terms = leading_terms(statistics_of("markov"), steps, 0.05, 3)
        for weights in (found, terms):
            zero = [not x.any() for x in weights]
            assert zero == [steps < 1, steps < 2, steps < 3, steps < 3]


def test_bounds_hold():
    """Measured Frobenius errors lie within the paper's bounds, for one block and for three."""
    for layers in (1, 3):
        found = learned("markov", layers, 20, 0.0005)
        terms = leading_terms(statistics_of("markov"), 20, 0.0005, layers)
        bounds = error_bounds(20, 0.0005, layers, T)
        for name in NAMES:
            a, b = (np.reshape(getattr(w, name), (-1, V * V)) if name != "position" else w.position
                    for w in (found, terms))  # fmt: skip
            assert np.all(np.linalg.norm(a - b, axis=1) <= getattr(bounds, name))
    assert error_bounds(10, 0.05, 3, 8).attention == pytest.approx(13 * 0.5**5 * 8)


def test_conditions():
    """Each condition turns at its own number."""
    failed = lambda *given: [c.name for c in conditions(*given) if not c.holds]
    assert failed(10, 0.001, 1, 60, 500) == []
    assert failed(10, 0.001, 1, 59, 499) == ["length", "vocabulary"]
    assert failed(10, 0.002, 2, 64, 500) == []
    assert failed(10, 0.001, 3, 64, 500) == ["blocks"]
    assert failed(100, 0.001, 2, 64, 500) == ["step size"]


def test_projection_and_parameters():
    """The projection is gone, zeros take nothing, parameters come back."""
    rng = np.random.default_rng(0)
    w, t = rng.standard_normal((2, 5, 5))
    left = remove_projection(w, t)
    assert abs(np.vdot(left, t)) < 1e-12 and np.vdot(left, left) < np.vdot(w, w)
    assert np.array_equal(remove_projection(w, 0 * t), w)
    found = learned("markov", 3, 20, 0.05)
    for a, b in zip(weights_of(params_of(found, "float64")), found):
        assert np.array_equal(a, b)


def test_refusals():
    """Steps, rates and shapes that cannot be."""
    for steps, rate, layers in ((1.5, 0.1, 1), (-1, 0.1, 1), (1, 0.0, 1), (1, float("nan"), 1),
                                (1, 0.1, 0), (1, "x", 1)):  # fmt: skip
        with pytest.raises(UserError):
            check_descent(steps, rate, layers)
    with pytest.raises(UserError, match="term"):
        remove_projection(np.ones(2), np.ones(3))
