"""Do the counting games follow their rules, their split and their exact floors?"""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxfeat.data import toy
from jaxfeat.types import UserError

TASKS = [
    toy.ToyTask("majority", 3, 6, 3),
    toy.ToyTask("conditioned_majority", 3, 6, 3),
    toy.ToyTask("conditioned_majority", 3, 6, 3, exclude0=True),
]
KEY = jax.random.key(0)


def allowed_by_rule(task, row, t):
    """The rule in plain Python: values that may follow the first t tokens after bos."""
    row = [v - 2 for v in row[1:]]
    if t < task.inputs:
        return set(range(task.values))
    if task.kind == "majority":
        counted = row[:t]
    else:
        pairs = itertools.pairwise(row[: task.inputs])
        counted = [b for a, b in pairs if a == 0]
    candidates = range(1 if task.exclude0 else 0, task.values)
    top = max(counted.count(v) for v in candidates)
    return {v for v in candidates if counted.count(v) == top}


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_rules(task):
    """Legal sets and features as by the plain rule; every token is legal; a given key repeats."""
    tokens = np.asarray(toy.sample(task, KEY, 60))
    assert tokens.dtype == np.int32 and tokens.shape == (60, 10) and (tokens[:, 0] == toy.BOS).all()
    allowed = np.asarray(toy.legal(task, jnp.asarray(tokens)))
    found = np.asarray(toy.features(task, jnp.asarray(tokens)))
    assert not found[:, 0].any() and not allowed[..., :2].any()
    for row, ok, seen in zip(tokens, allowed, found):
        for t in range(9):
            assert set(np.flatnonzero(ok[t]) - 2) == allowed_by_rule(task, row, t)
            assert ok[t, row[t + 1]]
        for t in range(1, 10):
            if task.kind == "majority":
                counts = np.bincount(row[1 : t + 1] - 2, minlength=3)
                expected = counts == counts.max()
            else:
                expected = (row[t - 1] - 2 == np.arange(3)) & (t > 1)
            np.testing.assert_array_equal(seen[t], expected)
    np.testing.assert_array_equal(tokens, toy.sample(task, KEY, 60))
    assert len(toy.feature_names(task)) == found.shape[-1]


def test_split():
    """Training never gives a held-out input and held_out nothing else; the parts never overlap."""
    task = TASKS[0]
    key = jax.random.key(3)
    draw = lambda split: np.asarray(toy.sample(task, key, 4096, split=split))[:, 1:7]
    train, held = draw("train"), draw("held_out")
    assert not np.asarray(toy.is_held_out(task, jnp.asarray(train))).any()
    assert np.asarray(toy.is_held_out(task, jnp.asarray(held))).all()
    assert not set(map(tuple, train)) & set(map(tuple, held))
    every = np.array(list(itertools.product(range(2, 5), repeat=6)))
    mine = toy.is_held_out(task, every)
    np.testing.assert_array_equal(mine, np.asarray(toy.is_held_out(task, jnp.asarray(every))))
    assert len(set(map(tuple, held))) == mine.sum()  # all 84 appear in 4,096 draws
    rng = np.random.default_rng(0)
    for task in (toy.ToyTask(), toy.ToyTask(values=2, inputs=40)):  # the second overflows 32 bits
        large = rng.integers(2, task.vocab_size, (20000, task.inputs))
        assert abs(toy.is_held_out(task, large).mean() - 1 / 8) < 0.01


def test_frequencies():
    """Inputs are uniform on their side of the split; ties are broken evenly."""
    task = TASKS[1]
    tokens = np.asarray(toy.sample(task, jax.random.key(3), 8192))
    index = (tokens[:, 1:7] - 2) @ 3 ** np.arange(6)
    counts = np.bincount(index, minlength=729)
    counts = counts[counts > 0]
    assert len(counts) == 729 - 84
    expected = 8192 / len(counts)
    chi = ((counts - expected) ** 2 / expected).sum()
    assert abs(chi - 644) < 5 * math.sqrt(2 * 644)
    free = np.asarray(toy.legal(task, jnp.asarray(tokens)))[:, 6].sum(-1) == 3
    outputs = tokens[free][:, 7:] - 2
    share = np.bincount(outputs.ravel(), minlength=3) / outputs.size
    np.testing.assert_allclose(share, 1 / 3, atol=0.03)
    assert abs((outputs[:, 0] == outputs[:, 1]).mean() - 1 / 3) < 0.05  # and drawn anew each time


def test_rows_jit_and_vmap():
    """A row depends on the key and its number; jit and vmap over keys change nothing."""
    task = TASKS[1]
    whole = np.asarray(toy.sample(task, KEY, 60))
    np.testing.assert_array_equal(toy.sample(task, KEY, 3), whole[:3])
    keys = jax.random.split(KEY, 2)
    both = np.asarray(jax.jit(jax.vmap(lambda key: toy.sample(task, key, 60)))(keys))
    for row, key in zip(both, keys):
        np.testing.assert_array_equal(row, toy.sample(task, key, 60))
    measure = lambda x: (toy.legal(task, x), toy.features(task, x))
    for a, b in zip(jax.jit(measure)(both), measure(jnp.asarray(both))):
        assert a.shape[:2] == (2, 60)
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_floors(task):
    """Against the enumeration of all inputs, with the rule in plain Python."""
    tie, known, blind = 0.0, {}, np.zeros(3)
    for row in itertools.product(range(2, 5), repeat=6):
        best = allowed_by_rule(task, (1, *row), 6)
        tie += math.log(len(best)) / 729
        for v in best:
            blind[v] += 1 / 729
            known.setdefault(tuple(sorted(row)), np.zeros(3))[v] += 1 / 729
    floors = toy.bayes_floors(task)
    later = 0 if task.kind == "majority" else tie
    expected = [math.log(3)] * 6 + [tie, later, later]
    np.testing.assert_allclose(floors["per_position"], expected, atol=1e-12)
    np.testing.assert_allclose(floors["mean"], np.mean(expected), atol=1e-12)
    chance = floors["first_output_chance"]
    np.testing.assert_allclose(chance["blind"], blind.max(), atol=1e-12)
    np.testing.assert_allclose(chance["counts"], sum(w.max() for w in known.values()), atol=1e-12)


def test_floor_of_the_published_sizes():
    """Ten inputs: exact values; sampled games agree with them."""
    task = toy.ToyTask("conditioned_majority")
    floors = toy.bayes_floors(task)
    np.testing.assert_allclose(floors["first_output_chance"]["counts"], 0.7378787, atol=1e-7)
    np.testing.assert_allclose(toy.bayes_floors(toy.ToyTask())["mean"], 0.5552963, atol=1e-7)
    inputs = np.random.default_rng(0).integers(2, 5, (20000, 10))
    tokens = np.concatenate([np.ones((20000, 1), int), inputs, inputs], 1)
    ties = np.asarray(toy.legal(task, jnp.asarray(tokens)))[:, 10].sum(-1)
    np.testing.assert_allclose(np.log(ties).mean(), floors["per_position"][10], atol=0.015)


def test_errors():
    for call in (
        lambda: toy.ToyTask("minority"),
        lambda: toy.ToyTask(values=1),
        lambda: toy.ToyTask(inputs=0),
        lambda: toy.ToyTask(outputs=0),
        lambda: toy.ToyTask(exclude0=True),
        lambda: toy.sample(TASKS[0], KEY, 2, split="test"),
        lambda: toy.sample(toy.ToyTask(inputs=2), KEY, 2),
        lambda: toy.legal(TASKS[0], jnp.zeros((2, 4), jnp.int32)),
        lambda: toy.is_held_out(TASKS[0], jnp.zeros((2, 4), jnp.int32)),
    ):
        with pytest.raises(UserError):
            call()
    assert toy.sample(toy.ToyTask(inputs=2), KEY, 2, split="all").shape == (2, 13)
