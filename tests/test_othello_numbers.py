"""Do the contrasts of useful and useless squares say what they are named for?"""

from dataclasses import replace

import numpy as np
import pytest

from experiments import othello_numbers as numbers
from experiments.othello_config import Config, central
from experiments.othello_probes import STATES
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


def unmatched(told, part, kind):
    return numbers.nested(CONFIG, numbers.built(told, part, kind, scaled=True))


def difference(told, part):
    kinds = (numbers.USEFUL, numbers.USELESS)
    return numbers.nested(CONFIG, *(numbers.built(told, part, k, scaled=True) for k in kinds))


def matched(told, part):
    return numbers.nested(CONFIG, numbers.matched(told, part, scaled=True))


def test_orbits():
    """The 16 central squares fall into 6 orbits of the four symmetries, of 2 or 4 squares."""
    for size in (4, 6, 8):
        groups = numbers.orbits(size, central(size))
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
    assert unmatched(told, "direct", numbers.USEFUL).mean == pytest.approx(2.0)
    assert unmatched(told, "direct", numbers.USELESS).mean == pytest.approx(0.5)
    assert difference(told, "combined").mean == pytest.approx(1.5)
    assert matched(told, "combined").mean == pytest.approx(1.5)
    raw = numbers.nested(CONFIG, numbers.built(told, "direct", numbers.USEFUL))
    assert raw.mean == pytest.approx(6.0)
    assert numbers.nested(CONFIG, numbers.matched(told, "direct")).mean == pytest.approx(5.0)
    np.testing.assert_allclose(told.influence("remainder"), 0, atol=1e-12)


def test_matching_takes_out_the_phase_of_the_game():
    """A part builds late moves more, and late squares are useless: only unmatched shows a gap."""
    by_move = np.tile([1.0, 2.0, 3.0], 2)[None, :, None, None]  # nodes: layer by layer, 3 moves
    counts = np.tile([0, 1, 1], (NODES, 1)) * 20
    counts[[0, 3], 1], counts[[2, 5], 2] = 2, 2  # hardly any useless early, hardly any useful late
    told = found(direct=by_move, counts=counts[None, :, None, :])
    assert difference(told, "direct").mean < -0.5
    same = matched(told, "direct")
    assert same.mean == pytest.approx(0.0) and same.low == same.high == 0.0


def test_rare_types_are_left_out():
    """Where a type has fewer games than needed its influence is not read, however large."""
    direct = np.zeros((1, NODES, SQUARES, 3))
    direct[:, 0, 0] = 1e6
    counts = np.full((1, NODES, SQUARES, 3), 50)
    counts[:, 0, 0] = numbers.LEAST - 1
    told = found(direct=direct, counts=counts)
    for part in ("direct", "combined"):
        assert unmatched(told, part, numbers.USEFUL).mean == 0
        assert difference(told, part).mean == 0 and matched(told, part).mean == 0


def test_claims():
    """Decided by the seeds' own means; not by one seed, nor where the game is not learned."""
    rng = np.random.default_rng(0)
    kinds = np.array([0.0, 1.0, 3.0]) + 0.01 * rng.normal(size=(CONFIG.seeds, 1, 1, 1))
    told = found(direct=kinds, counts=50)
    told.arrays["trained_top1"] = np.full((CONFIG.seeds, 5), 0.9)
    by_name = {s.name: s for s in numbers.statements(told)}
    direct = by_name["Direct builds useful squares"]
    assert not direct.blocked and direct.interval.mean == pytest.approx(3.0, abs=0.05)
    assert direct.decides.p < 0.02 and direct.decides.n == 2
    same = by_name["All parts together build more of useful squares at the same square and move"]
    assert same.interval.mean == pytest.approx(2.0) and same.decides.mean == pytest.approx(2.0)
    told.arrays["trained_top1"] -= 0.2
    assert all("not learned" in s.blocked for s in numbers.statements(told))
    one = numbers.Found(
        replace(CONFIG, seeds=1),
        {name: x[:1] for name, x in told.arrays.items()} | {"trained_top1": np.ones((1, 5))},
    )
    assert all("Within one run" in s.blocked for s in numbers.statements(one))


def test_gap():
    """Useful squares read better by .25 at each place; late moves are read worse and useless."""
    config = Config(size=4, layers=1, seeds=2)
    moves = numbers.all_moves(config)
    assert moves == range(1, 12)
    count = np.zeros((2, 2, 12, 16, len(STATES)))
    count[..., 1] = np.linspace(4, 36, 12)[:, None].round()
    count[..., 3] = np.linspace(36, 4, 12)[:, None].round()
    level = np.linspace(0.7, 0.3, 12)[:, None]
    right = count.copy()
    right[..., 1] *= level
    right[..., 3] *= level + 0.25
    told = numbers.Found(config, {"trained_right": right, "trained_count": count})
    same = numbers.gap(told, "trained", 1, moves, same_place=True)
    assert same.mean == pytest.approx(0.25) and same.low == pytest.approx(0.25)
    whole = numbers.gap(told, "trained", 1, moves)
    share = lambda s: right[0, 1, 1:, :, s].sum() / count[0, 1, 1:, :, s].sum()
    assert whole.mean == pytest.approx(share(3) - share(1)) and whole.mean > 0.3
    assert whole.low <= whole.mean <= whole.high
