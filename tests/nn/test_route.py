"""Do routes say what they are named for, and refuse what they cannot mean?"""

import numpy as np
import pytest

from jaxfeat.nn import route
from jaxfeat.types import UserError

LENGTH = 5
DIAGONAL = np.eye(LENGTH, dtype=bool)


def test_named_routes():
    """Each name as the array that it stands for."""
    assert route.resolve(None, LENGTH) is None
    assert route.resolve(route.full(), LENGTH) is None
    assert route.resolve(route.myopic(), LENGTH) == route.DIAGONAL
    assert route.resolve(route.DIAGONAL, LENGTH) == route.DIAGONAL
    np.testing.assert_array_equal(route.resolve(route.window(1), LENGTH), DIAGONAL)
    assert route.resolve(route.window(LENGTH), LENGTH).all()
    blocked = route.resolve(route.blocked(2), LENGTH)
    assert (~blocked).sum() == LENGTH - 1 and not blocked[[0, 1, 3, 4], 2].any()
    scaled = route.resolve(route.scaled(0.25), LENGTH)
    np.testing.assert_array_equal(scaled, np.where(DIAGONAL, 1, 0.25))


def test_weights_by_block():
    """One weight a block; 1 and 0 everywhere are the plain and the myopic graph themselves."""
    assert route.resolve(route.scaled(1), LENGTH) is None
    assert route.resolve(route.scaled(0.0, 0.0), LENGTH) == route.DIAGONAL
    both = route.resolve(route.scaled(0, 2), LENGTH)
    np.testing.assert_array_equal(both, [np.where(DIAGONAL, 1, beta) for beta in (0, 2)])
    np.testing.assert_array_equal(route.of_block(both, 1), both[1])
    for given in ([0, 2], np.array([0.0, 2.0])):
        np.testing.assert_array_equal(route.resolve(route.scaled(given), LENGTH), both)
    assert route.of_block(route.DIAGONAL, 1) == route.DIAGONAL and route.of_block(None, 0) is None
    assert route.crop(both, 3).shape == (2, 3, 3)
    np.testing.assert_array_equal(route.own_column(both), np.stack([np.eye(LENGTH)] * 2))
    with pytest.raises(UserError, match="given for 2 blocks, the model has 3"):
        route.check_blocks(both, 3)


def test_array_is_kept():
    """An array of the right shape is read as it stands."""
    given = np.random.default_rng(0).uniform(size=(LENGTH, LENGTH))
    assert route.resolve(given, LENGTH) is given


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (route.window(0), "at least 1"),
        (route.window(2.5), "whole number"),
        (route.blocked(1.5), "whole number"),
        (route.scaled(1.0, -1.0), ">= 0"),
        (route.scaled(), ">= 0"),
        (route.scaled("x"), ">= 0"),
        (route.window(float("inf")), "whole number"),
        (route.window("2x"), "whole number"),
        (route.window(None), "whole number"),
        ([[1, 2], [3]], "ragged"),
        (np.full((LENGTH, LENGTH), 1j), "real weights"),
        (route.blocked(LENGTH), "0..4"),
        (route.blocked(-1), "at least 0"),
        (route.scaled(-0.5), ">= 0"),
        (route.scaled(float("nan")), "finite"),
        (route.Route("sideways"), "full, myopic, window, blocked, scaled"),
        (np.ones((LENGTH, LENGTH + 1)), r"\(5, 5\) needed"),
        (np.ones(LENGTH), r"\(5, 5\) needed"),
        (np.full((LENGTH, LENGTH), np.nan), "finite"),
        (np.full((LENGTH, LENGTH), -1.0), "at least 0"),
    ],
)
def test_refused(given, words):
    """What cannot be a route is refused with what is needed."""
    with pytest.raises(UserError, match=words):
        route.resolve(given, LENGTH)


def test_own_column():
    """The route AND the diagonal, for every form of a route."""
    assert route.own_column(None) == route.own_column(route.DIAGONAL) == route.DIAGONAL
    np.testing.assert_array_equal(route.own_column(np.ones((3, 3), bool)), np.eye(3, dtype=bool))
    weights = np.arange(9.0).reshape(3, 3)
    np.testing.assert_array_equal(route.own_column(weights), np.diag([0.0, 4.0, 8.0]))


def test_rows_and_crops():
    """A row for one query; the first positions of a route."""
    weights = np.arange(9.0).reshape(3, 3)
    assert route.rows_of(None, 1, 3) is None and route.crop(None, 2) is None
    np.testing.assert_array_equal(route.rows_of(route.DIAGONAL, 1, 3), [False, True, False])
    np.testing.assert_array_equal(route.rows_of(weights, 1, 3), weights[1])
    assert route.crop(route.DIAGONAL, 2) == route.DIAGONAL
    np.testing.assert_array_equal(route.crop(weights, 2), weights[:2, :2])


def test_gate_ignores_infinity():
    """A closed boolean gate gives 0 whatever it closes off; weights multiply."""
    x = np.array([np.inf, 2.0], np.float32)
    assert route.gate(x, np.array([False, True])).tolist() == [0.0, 2.0]
    assert route.gate(x[1:], np.array([0.25])).tolist() == [0.5]
