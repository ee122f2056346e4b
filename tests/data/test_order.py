"""Does an epoch see every example exactly once, in an order of its own, wherever one looks?"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxfeat.data.order import epoch_rows, shuffled
from jaxfeat.types import UserError

KEY = jax.random.key(5)
PLACES = jax.jit(shuffled, static_argnums=3)
ROWS = jax.jit(epoch_rows, static_argnums=(2, 3))


def order(epoch, count, key=KEY):
    return np.asarray(PLACES(key, jnp.uint32(epoch), jnp.arange(count, dtype=jnp.uint32), count))


@pytest.mark.parametrize("count", [1, 2, 3, 5, 16, 17, 1000, 4097])
def test_permutation(count):
    """Every entry once; other epochs and keys give other orders."""
    first = order(0, count)
    assert sorted(first.tolist()) == list(range(count))
    if count >= 16:
        for other in (order(1, count), order(0, count, jax.random.key(6)), np.arange(count)):
            # as many places in common as two random orders have: one on average
            assert (first == other).sum() < 8


def test_order_is_random():
    """Over many epochs each example is as often first as any other, and neighbours are free."""
    orders = np.stack([order(e, 8) for e in range(800)])
    counts = np.stack([np.bincount(orders[:, place], minlength=8) for place in range(8)])
    assert np.abs(counts - 100).max() < 5 * np.sqrt(100)
    after = (orders[:, 1] - orders[:, 0]) % 8
    assert np.bincount(after, minlength=8)[0] == 0
    assert np.abs(np.bincount(after, minlength=8)[1:] - 800 / 7).max() < 5 * np.sqrt(800 / 7)


@pytest.mark.parametrize(("batch", "count"), [(3, 7), (7, 7), (4, 12), (10, 7), (25, 7), (1, 1)])
def test_epochs(batch, count):
    """Updates in a row run through one epoch after the other, batches across their ends."""
    rows = np.concatenate([ROWS(KEY, s, batch, count) for s in range(12)])
    for e in range(len(rows) // count):
        np.testing.assert_array_equal(rows[e * count : (e + 1) * count], order(e, count))


def test_an_interrupted_run_goes_on():
    """An update's examples follow from its number alone, under jit, and far into a run."""
    np.testing.assert_array_equal(ROWS(KEY, 11, 5, 23), epoch_rows(KEY, 11, 5, 23))
    step, batch, count = 4_000_000, 1000, 999_983
    first = step * batch
    near = [n % count for n in range(first, first + batch)]
    epoch = np.array([n // count for n in range(first, first + batch)], np.uint32)
    told = PLACES(KEY, jnp.asarray(epoch), jnp.array(near, jnp.uint32), count)
    np.testing.assert_array_equal(ROWS(KEY, jnp.uint32(step), batch, count), told)


def test_refused():
    for batch, count in ((0, 3), (3, 0), (1, 2**30 + 1)):
        with pytest.raises(UserError, match=r"batch: 0|count: "):
            epoch_rows(KEY, 0, batch, count)
