"""Is an interval the updates one by one, and a program of its own once?"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small
from small import CALLS, KEY, RATE, STEPS, near
from tiny import same

from jaxfeat import tree
from jaxfeat.grads.ledger import add_movement, open_ledger
from jaxfeat.grads.tally import add_to_tally, open_tally
from jaxfeat.grads.track import advance, measure, node_resid, start_window
from jaxfeat.train.loop import Watch, make_interval, start_run, step_key, take_in
from jaxfeat.types import UserError


def test_equals_single_updates():
    """Losses and state of a scanned interval, with and without tracking."""
    state, losses = small.start().state, []
    for _ in range(STEPS):
        state, loss = small.single()(state, KEY, RATE)
        losses.append(float(loss))
    assert losses[-1] != losses[0]
    for watched in (False, True):
        run, found = small.after(1, watched)
        np.testing.assert_allclose(found, losses, rtol=1e-5)
        near(run.state, state, 1e-3)
        assert int(run.state.step) == STEPS and run.state.step.dtype == jnp.int32
        assert found.shape == (STEPS,)
    assert small.after(1, False)[0].tracked == ()


def test_run_to_run():
    """The same seed gives the same bits; another key other data."""
    run, losses = small.interval()(small.start(), KEY, jnp.float32(RATE))
    same((run, losses), small.after(1))
    other, _ = small.interval()(small.start(), jax.random.key(4), jnp.float32(RATE))
    assert not np.array_equal(other.tracked.sums.moved, run.tracked.sums.moved)


def test_traced_once():
    """Update, tracking and data are traced once; a new learning rate or key traces nothing."""
    for watched in (True, False):
        CALLS.clear()
        program = jax.jit(
            make_interval(small.UPDATE, small.sample, 2, watch=small.WATCH if watched else None)
        )
        lowered = program.trace(small.start(watched), KEY, jnp.float32(RATE))
        assert len(CALLS) == 1 and lowered.jaxpr is not None
    run = small.after(2)[0]
    CALLS.clear()
    moved = []
    for rate in (1e-2, 3e-3, 0.0):
        new, _ = small.interval()(run, KEY, jnp.float32(rate))
        moved.append(float(tree.norm(tree.sub(new.state.params, run.state.params))))
        run, _ = small.interval()(run, jax.random.key(8), jnp.float32(RATE))
    assert not CALLS and moved[0] > moved[1] > moved[2] == 0


def test_seeds_side_by_side():
    """Under vmap each seed is what it is alone."""
    inits = [small.params(seed) for seed in (0, 1)]
    keys = jax.random.split(KEY, 2)
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *inits)
    starts = jax.vmap(lambda p: start_run(small.RULE, p, small.WATCH))(stacked)
    many = jax.jit(jax.vmap(small.interval(), in_axes=(0, 0, None)))
    runs, losses = many(starts, keys, jnp.float32(RATE))
    assert losses.shape == (2, STEPS)
    for seed, params in enumerate(inits):
        begun = start_run(small.RULE, params, small.WATCH)
        alone, expected = small.interval()(begun, keys[seed], jnp.float32(RATE))
        np.testing.assert_allclose(losses[seed], expected, rtol=1e-5)
        near(tree.index(runs, seed).state, alone.state, 1e-3)
        near(tree.index(runs, seed).tracked.sums, alone.tracked.sums, 1e-3)


def test_strided():
    """Two windows of two updates: their ledger is that of the steps taken by hand."""
    run, losses = small.interval(stride=2)(small.start(), KEY, jnp.float32(RATE))
    np.testing.assert_allclose(losses, small.after(1)[1], rtol=1e-5)
    near(run.state, small.after(1)[0].state, 1e-3)
    near(run.tracked.moments, small.after(1)[0].tracked.moments, 1e-3)
    tracker, state = small.WATCH.tracker, small.start().state
    step = jax.jit(lambda w, s, n, b: advance(tracker, w, s.params, n.opt_state, b, RATE))
    close = jax.jit(lambda w, p: measure(tracker, w, p, small.HELD))
    moments, sums = small.start().tracked.moments, small.start().tracked.sums
    for t in range(STEPS):
        if t % 2 == 0:
            window = start_window(tracker, state.params, moments)
        new, _ = small.single()(state, KEY, RATE)
        window = step(window, state, new, small.sample(step_key(KEY, state.step)))
        state, moments = new, window.moments
        if t % 2:
            movement = close(window, state.params)
            sums = add_movement(sums, movement, jnp.ones((2, 4), bool))
    near(run.tracked.sums, sums, 1e-3)
    # the whole is the representation's change, whatever the stride
    first, last = (
        small.start().tracked.sums.first,
        node_resid(tracker, run.state.params, small.HELD),
    )
    np.testing.assert_allclose(run.tracked.sums.moved.sum(1), first - last, atol=0.1)


def test_masks_and_tallies_taken_in():
    """The node's own positions in E's mask; a tally grows beside the ledger."""
    held = small.HELD._replace(mask=jnp.asarray(np.arange(6)[None] < [[6], [3], [2], [6]]))
    watch, run = Watch(small.WATCH.tracker, held), small.after(1)[0]
    first = run.tracked.sums.first
    movement = measure(
        watch.tracker, start_window(watch.tracker, small.params()), small.params(1), held
    )
    tally = open_tally(first, jnp.ones((2, 3, 8)))
    tracked = start_run(small.RULE, small.params(), watch, lambda r: open_tally(r, tally.w)).tracked
    same(tracked.tally.w, tally.w)
    new = take_in(tracked._replace(sums=open_ledger(first), tally=tally), (), movement, watch)
    mask = jnp.array([[True, False, False, True], [True, True, False, True]])
    same(new.sums, add_movement(open_ledger(first), movement, mask))
    same(new.tally, add_to_tally(tally, movement))


@pytest.mark.parametrize(("steps", "stride"), [(5, 2), (4, 8), (4, 0), (4, -1)])
def test_stride_that_does_not_divide(steps, stride):
    watch = small.WATCH._replace(stride=stride)
    with pytest.raises(UserError, match=f"stride: {stride} does not divide the {steps} updates"):
        make_interval(small.UPDATE, small.sample, steps, watch=watch)
