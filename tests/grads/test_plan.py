"""Does a plan hold every row once, and are the slices that a sweep takes the right ones?"""

import itertools

import numpy as np
import pytest

from jaxfeat.grads.plan import DIRECT, PRECACHED, Row, make_plan, row_index
from jaxfeat.types import UserError

LAYERS, LENGTH = 3, 5
ALL = list(itertools.product(range(LAYERS + 1), range(LENGTH)))


def random_nodes(seed):
    """Some nodes in any order."""
    rng = np.random.default_rng(seed)
    return [ALL[n] for n in rng.permutation(len(ALL))[: rng.integers(1, len(ALL) + 1)]]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("chunks", [1, 3, 9])
def test_rows(seed, chunks):
    """Each component once; chunks divide the rows and reach as far as their positions."""
    nodes = random_nodes(seed)
    plan = make_plan(nodes, layers=LAYERS, length=LENGTH, chunks=chunks)
    expected = {Row(k, i, DIRECT) for k, i in nodes}
    expected |= {Row(k, i, PRECACHED) for k, i in nodes if k < LAYERS}
    assert plan.nodes == tuple(nodes)
    assert set(plan.rows) == expected and len(plan.rows) == len(expected)
    assert sorted(n for c in plan.chunks for n in c.index) == list(range(len(plan.rows)))
    assert len(plan.chunks) == min(chunks, len({i for _, i in nodes}))
    for chunk in plan.chunks:
        assert chunk.length == 1 + max(plan.rows[n].position for n in chunk.index)
    reach = [c.length for c in plan.chunks]
    assert reach == sorted(set(reach))


@pytest.mark.parametrize("seed", range(6))
def test_slices(seed):
    """Rows stand by descending layer: those at a layer are a slice, those above a prefix."""
    plan = make_plan(random_nodes(seed), layers=LAYERS, length=LENGTH, chunks=2)
    layers = [r.layer for r in plan.rows]
    assert layers == sorted(layers, reverse=True) and plan.top == max(layers)
    for k in range(LAYERS + 1):
        rows = plan.rows[plan.ending(k)]
        assert {r.layer for r in rows} <= {k} and len(rows) == layers.count(k)
        for chunk in plan.chunks:
            count = plan.above(chunk, k)
            held = [plan.rows[n].layer for n in chunk.index]
            assert all(q > k for q in held[:count]) and all(q <= k for q in held[count:])


def test_row_index():
    """Where each node's rows stand; -1 where precached does not exist."""
    nodes = [(3, 1), (0, 4), (2, 0)]
    plan = make_plan(nodes, layers=LAYERS, length=LENGTH)
    for (k, i), rows in zip(nodes, row_index(plan)):
        for component, n in enumerate(rows):
            there = component == DIRECT or k < LAYERS
            assert (n >= 0) == there and (not there or plan.rows[n] == Row(k, i, component))


def test_without_precached():
    """In a myopic graph only direct rows are worked on."""
    plan = make_plan(ALL, layers=LAYERS, length=LENGTH, precached=False)
    assert {r.component for r in plan.rows} == {DIRECT} and len(plan.rows) == len(ALL)


@pytest.mark.parametrize(
    ("nodes", "options", "words"),
    [
        ([], {}, "at least one"),
        ([(4, 0)], {}, r"0\.\.3"),
        ([(-1, 0)], {}, r"0\.\.3"),
        ([(0, 5)], {}, r"0\.\.4"),
        ([(0, -1)], {}, r"0\.\.4"),
        ([(0, 1), (0, 1)], {}, "once"),
        ([(0, 1)], {"chunks": 0}, "1 or more"),
        ([(0, 1)], {"at_once": 0}, "1 or more"),
    ],
)
def test_refused(nodes, options, words):
    """A node out of range or a size below 1 is refused with the valid range."""
    with pytest.raises(UserError, match=words):
        make_plan(nodes, layers=LAYERS, length=LENGTH, **options)
