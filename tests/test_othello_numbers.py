"""Do the contrasts of useful and useless squares say what they are named for?"""

import numpy as np
import pytest

from experiments import othello_numbers as numbers
from experiments.othello_training import Config, central
from jaxfeat.data.othello_games import symmetries

CONFIG = Config(size=6, layers=2, positions=(4, 8, 12), seeds=2)
NODES, SQUARES = 6, 16


def found(direct, counts, scale=1.0):
    """Arrays in which precached and shared built nothing; R falls by what direct built."""
    shape = (CONFIG.seeds, NODES, SQUARES, 3)
    full = lambda x: np.broadcast_to(np.asarray(x, float), shape).copy()
    arrays = {
        "influence_direct": full(direct), "influence_precached": full(0.0),
        "influence_shared": full(0.0), "influence_scale": full(scale),
        "influence_risk_start": full(scale), "influence_risk_stop": full(scale) - full(direct),
        "counts": full(counts).astype(int),
    }  # fmt: skip
    return numbers.Found(CONFIG, arrays)


def test_orbits():
    """The 16 central squares fall into 6 orbits of the four symmetries, of 2 or 4 squares."""
    for size in (4, 6, 8):
        groups = numbers.orbits(size)
        assert sorted(len(g) for g in groups) == [2, 2, 2, 2, 4, 4]
        assert sorted(s for g in groups for s in g) == list(range(16))
        inner = central(size)
        for turn in symmetries(size):
            for group in groups:
                moved = {inner.index(turn[inner[s]]) for s in group}
                assert moved == set(group)


def test_shares_and_differences():
    """Constant shares come back, over the type's own R(theta_0)."""
    told = found(direct=[0.0, 1.0, 6.0], counts=50, scale=[1.0, 2.0, 3.0])
    assert numbers.unmatched(told, "direct", numbers.USEFUL).mean == pytest.approx(2.0)
    assert numbers.unmatched(told, "direct", numbers.USELESS).mean == pytest.approx(0.5)
    assert numbers.difference(told, "combined").mean == pytest.approx(1.5)
    assert numbers.matched(told, "combined").mean == pytest.approx(1.5)
    np.testing.assert_allclose(told.influence("remainder"), 0, atol=1e-12)


def test_matching_takes_out_the_phase_of_the_game():
    """A part builds late moves more, and late squares are useless: only unmatched shows a gap."""
    by_move = np.tile([1.0, 2.0, 3.0], 2)[None, :, None, None]  # nodes: layer by layer, 3 moves
    counts = np.tile([0, 1, 1], (NODES, 1)) * 20
    counts[[0, 3], 1], counts[[2, 5], 2] = 2, 2  # hardly any useless early, hardly any useful late
    told = found(direct=by_move, counts=counts[None, :, None, :])
    assert numbers.difference(told, "direct").mean < -0.5
    matched = numbers.matched(told, "direct")
    assert matched.mean == pytest.approx(0.0) and matched.low == matched.high == 0.0


def test_rare_types_are_left_out():
    """Where a type has fewer games than needed its influence is not read, however large."""
    direct = np.zeros((1, NODES, SQUARES, 3))
    direct[:, 0, 0] = 1e6
    counts = np.full((1, NODES, SQUARES, 3), 50)
    counts[:, 0, 0] = numbers.LEAST - 1
    told = found(direct=direct, counts=counts)
    for part in ("direct", "combined"):
        assert numbers.unmatched(told, part, numbers.USEFUL).mean == 0
        assert numbers.difference(told, part).mean == 0 and numbers.matched(told, part).mean == 0
