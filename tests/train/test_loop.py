"""Is an interval the updates one by one, and a program of its own once?"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small
from small import CALLS, KEY, RATE, STEPS, near
from tiny import QUICK, same

from jaxfeat import tree
from jaxfeat.grads.ledger import add_movement, open_ledger
from jaxfeat.grads.moments import StepRule
from jaxfeat.grads.tally import add_to_tally, open_tally
from jaxfeat.grads.track import Movement
from jaxfeat.nn.route import myopic, scaled
from jaxfeat.train.checkpoint import saved_steps
from jaxfeat.train.loop import (
    Watch,
    finish_ledger,
    make_interval,
    make_stretch,
    over_seeds,
    start_run,
    take_in,
)
from jaxfeat.train.schedule import ladder_steps, train
from jaxfeat.train.step import init_state, make_update
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
    assert small.after(1, False)[0].tracked is None


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
        jax.jit(small.plain_interval(watched, steps=2)).trace(
            small.start(watched), KEY, jnp.float32(RATE)
        )
        assert len(CALLS) == 1
    run = small.after(2)[0]
    CALLS.clear()
    moved = []
    for rate in (1e-2, 3e-3, 0.0):
        new, _ = small.interval()(run, KEY, jnp.float32(rate))
        moved.append(float(tree.norm(tree.sub(new.state.params, run.state.params))))
        run, _ = small.interval()(run, jax.random.key(8), jnp.float32(RATE))
    assert not CALLS and moved[0] > moved[1] > moved[2] == 0


@pytest.mark.slow
def test_seeds_side_by_side():
    """Under vmap each seed is what it is alone."""
    inits = [small.params(seed) for seed in (0, 1)]
    keys = jax.random.split(KEY, 2)
    alone = [small.starter()(params) for params in inits]
    starts = jax.tree.map(lambda *x: jnp.stack(x), *alone)
    many = jax.vmap(small.plain_interval(), in_axes=(0, 0, None))
    many = jax.jit(many, compiler_options=QUICK)
    runs, losses = many(starts, keys, jnp.float32(RATE))
    assert losses.shape == (2, STEPS)
    for seed, begun in enumerate(alone):
        run, expected = small.interval()(begun, keys[seed], jnp.float32(RATE))
        np.testing.assert_allclose(losses[seed], expected, rtol=1e-5)
        near(tree.index(runs, seed).state, run.state, 1e-3)
        near(tree.index(runs, seed).tracked.sums, run.tracked.sums, 1e-3)


@pytest.mark.slow
def test_strided():
    """Two windows of two updates: their ledger is that of the steps taken by hand."""
    run, losses = small.interval(stride=2)(small.start(), KEY, jnp.float32(RATE))
    np.testing.assert_allclose(losses, small.after(1)[1], rtol=1e-5)
    near(run.state, small.after(1)[0].state, 1e-3)
    near(run.tracked.moments, small.after(1)[0].tracked.moments, 1e-3)
    begin, track, close = small.windows()
    state, moments, sums = small.start().state, *small.start().tracked[:2]
    for t in range(STEPS):
        if t % 2 == 0:
            window = begin(state.params, moments)
        new, _ = small.single()(state, KEY, RATE)
        window = track(window, state, new, KEY)
        state, moments = new, window.moments
        if t % 2:
            sums = close(sums, window, state.params)
    near(run.tracked.sums, sums, 1e-3)
    assert not np.allclose(sums.cross, small.after(1)[0].tracked.sums.cross, rtol=1e-2)


def test_masks_and_tallies_taken_in():
    """The node's own positions in E's mask; a tally grows beside the ledger."""
    held = small.HELD._replace(mask=jnp.asarray(np.arange(6)[None] < [[6], [3], [2], [6]]))
    watch, run = Watch(small.WATCH.tracker, held), small.after(1)[0]
    first = run.tracked.sums.first
    rng = np.random.default_rng(0)
    draw = lambda *shape: jnp.asarray(rng.standard_normal(shape), jnp.float32)
    movement = Movement(draw(2, 4, 8), draw(2, 4, 8), draw(2, 3, 4, 8), draw(2, 4))
    tally = open_tally(first, jnp.ones((2, 3, 8)))
    tracked = start_run(small.RULE, small.params(), watch, lambda r: open_tally(r, tally.w)).tracked
    assert tracked is not None and tracked.tally is not None
    same(tracked.tally.w, tally.w)
    new = take_in(
        tracked._replace(sums=open_ledger(first), tally=tally), tracked.moments, movement, watch
    )
    mask = jnp.array([[True, False, False, True], [True, True, False, True]])
    same(new.sums, add_movement(open_ledger(first), movement, mask))
    same(new.tally, add_to_tally(tally, movement))


def test_watch_of_an_untracked_run():
    with pytest.raises(UserError, match="the run tracks nothing"):
        small.plain_interval()(small.start(False), KEY, jnp.float32(RATE))
    with pytest.raises(UserError, match="the run is tracked: give its watch"):
        small.plain_interval(watched=False)(small.start(), KEY, jnp.float32(RATE))


@pytest.mark.parametrize(("steps", "stride"), [(5, 2), (4, 8), (4, 0), (4, -1)])
def test_stride_that_does_not_divide(steps, stride):
    watch = small.WATCH._replace(stride=stride)
    words = f"does not divide the {steps} updates" if stride > 0 else "a whole number, 1 or more"
    with pytest.raises(UserError, match=f"stride: {stride} .*{words}"):
        make_interval(small.UPDATE, small.SAMPLE, steps, watch=watch)


def test_divergence_is_noticed(tmp_path):
    """A loss that is not finite ends the run; the checkpoint before stands."""
    lost = lambda run, key, rate: (run, jnp.array([1.0, jnp.nan]) if rate > 1 else jnp.ones(2))
    run = small.start(False)
    train(lost, run, KEY, 0.5, steps=2, every=2, checkpoints=tmp_path)
    with pytest.raises(UserError, match=r"not finite within updates 2\.\.4: a lower learning_rate"):
        train(lost, run, KEY, 2.0, steps=4, every=2, checkpoints=tmp_path)
    assert saved_steps(tmp_path) == [2]
    train(lost, run, KEY, np.float32(0.5), steps=2, every=2)
    for rate in ("x", None, float("nan")):
        with pytest.raises(UserError, match=r"learning_rate: .* a finite number needed"):
            train(lost, run, KEY, rate, steps=2, every=2)
    with pytest.raises(UserError, match="holds step 2, which is no multiple of log_every 4"):
        train(lost, run, KEY, 2.0, steps=4, every=4, checkpoints=tmp_path)


def test_weights_one_and_zero():
    """A ledger with beta = 1 is the standard one bit for bit, with beta = 0 the myopic one.

    They are one program, operation by operation.
    """

    def program(route):
        watch = small.WATCH._replace(tracker=small.WATCH.tracker._replace(route=route))
        update = make_update(small.DECODER, small.RULE, route=route)
        interval = make_interval(update, small.SAMPLE, 2, watch=watch)
        return str(jax.make_jaxpr(interval)(small.start(), KEY, jnp.float32(RATE)))

    standard, cut = program(None), program(myopic())
    assert program(scaled(1.0)) == standard and program(scaled(0.0)) == cut
    assert cut != standard and program(scaled(0.5)) not in (cut, standard)


def test_finish_ledger():
    """A run's ledger by its values on the ladder; other runs, and no start, are refused."""
    first, last = small.start(), small.after(1)[0]
    told = finish_ledger(small.WATCH, [first, last])
    assert told.steps == (0, STEPS) and told.nodes == tuple(small.NODES)
    np.testing.assert_array_equal(told.moved[-1], last.tracked.sums.moved)
    np.testing.assert_array_equal(told.moved[0], 0)
    later = small.after(2)[0]
    elsewhere = small.WATCH._replace(held=small.tiny.batch_of(4, seed=99))
    for watch, runs, also, words in (
        (small.WATCH, [last, later], None, "the first must be this run before its update 1"),
        (elsewhere, [first, last], None, "the first must be this run before its update 1"),
        (small.WATCH, first, None, "a list of the run"),
        (small.WATCH, [first], None, "a list of the run"),
        (small.WATCH, [first, last], "sgd", "the run keeps no such"),
        (small.WATCH, [small.start(False), last], None, "the run keeps no such"),
    ):
        with pytest.raises(UserError, match=words):
            finish_ledger(watch, runs, also)


def test_another_optimiser_is_refused():
    """The state of one rule is not trained on by another, nor tracked."""
    state = init_state(StepRule("sgd"), small.params())
    with pytest.raises(UserError, match="EmptyState of another optimiser given, 'adam'"):
        make_update(small.DECODER, StepRule("adam"))(state, small.HELD, 0.1)


def test_ladder(tmp_path):
    """Powers of two on the way: the same updates; interrupted at any, the same bits."""
    assert ladder_steps(6, 4) == (0, 1, 2, 4, 6) and ladder_steps(1, 5) == (0, 1)
    stretch = jax.jit(make_stretch(small.UPDATE, small.SAMPLE, 3), compiler_options=QUICK)

    def go(folder, stop_at=None):
        seen = {}

        def on_log(step, run, losses):
            seen[step] = (run.state.params, np.asarray(losses))
            if step == stop_at:
                raise KeyboardInterrupt

        run = train(
            stretch, small.start(False), KEY, RATE, steps=8, every=4, checkpoints=folder,
            on_log=on_log, ladder=ladder_steps(8, 4), stretch=3,
        )  # fmt: skip
        return run, seen

    last, seen = go(tmp_path / "whole")
    assert list(seen) == [1, 2, 4, 8] and [len(x) for _, x in seen.values()] == [1, 1, 2, 4]
    losses = np.concatenate([x for _, x in seen.values()])
    np.testing.assert_allclose(losses[:STEPS], small.after(1, False)[1], rtol=1e-5)
    for stop in (1, 2, 4, 8):
        with pytest.raises(KeyboardInterrupt):
            go(tmp_path / "cut", stop)
    assert saved_steps(tmp_path / "cut") == [4]
    again, seen_last = go(tmp_path / "cut")
    same(again, last)
    same(seen_last[8], seen[8])
    with pytest.raises(UserError, match="only multiples of 4"):
        train(stretch, small.start(False), KEY, RATE, steps=8, every=4, ladder=(1,))


@pytest.mark.slow
def test_stretch_is_a_window():
    """A window of any length is that of the strided interval; seeds run side by side."""
    stretch = make_stretch(small.UPDATE, small.SAMPLE, 6, watch=small.WATCH)
    both = jax.tree.map(lambda x: jnp.stack([x, x]), small.start())
    keys = jnp.stack([KEY, KEY])
    run = jax.jit(over_seeds(stretch, 1), compiler_options=QUICK)
    found, losses = run(both, keys, jnp.float32(RATE), jnp.int32(STEPS))
    expected, told = small.interval(stride=STEPS)(small.start(), KEY, jnp.float32(RATE))
    assert losses.shape == (2, 6)
    np.testing.assert_allclose(losses[1, :STEPS], told, rtol=1e-5)
    near(tree.index(found.tracked.sums, 1), expected.tracked.sums, 1e-3)
    near(tree.index(found.state.params, 0), expected.state.params, 1e-3)
    with pytest.raises(UserError, match="tracked"):
        stretch(small.start(False), KEY, jnp.float32(RATE), jnp.int32(1))
