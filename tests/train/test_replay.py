"""Does the second run end where the first did, and does it measure what one tracked run does?"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small
from jax.experimental import io_callback
from small import CALLS, KEY, RATE, RULE, STEPS, WATCH, near
from tiny import same

from jaxfeat import tree
from jaxfeat.grads.ledger import open_ledger
from jaxfeat.grads.tally import open_tally
from jaxfeat.grads.track import node_resid
from jaxfeat.train.replay import replay, replay_programs
from jaxfeat.types import UserError

FITTED = []


def fit_probes(params):
    """Anything may come of theta*."""
    FITTED.append(params)
    return {"w": jnp.ones((2, 3, 8))}


def run(watch=WATCH, update=small.UPDATE, steps=2 * STEPS, **options):
    FITTED.clear()
    CALLS.clear()
    programs = replay_programs(update, small.SAMPLE, watch)
    return replay(
        programs, RULE, small.params(), KEY,
        steps=steps, learning_rate=RATE, fit_probes=fit_probes, **options,
    )  # fmt: skip


@pytest.fixture(scope="module")
def whole():
    """A replay of all updates, with a tally."""
    found = run(tally_of=lambda probes, resid: open_tally(resid, probes["w"]))
    return found, list(CALLS), list(FITTED)


def test_equals_the_scanned_run(whole):
    """Losses, theta*, moments and ledger of the same data tracked inside the scan."""
    found, _, fitted = whole
    scanned, losses = small.after(2)
    np.testing.assert_allclose(found.losses, losses, rtol=1e-4)
    near(found.params, scanned.state.params, 1e-3)
    near(found.tracked.moments, scanned.tracked.moments, 1e-3)
    near(found.tracked.sums, scanned.tracked.sums, 1e-3)
    assert found.covered == 1 and len(fitted) == 1
    same(fitted[0], found.params)
    same(found.probes["w"], jnp.ones((2, 3, 8)))
    moved = jnp.einsum("nfd,nced->ncef", found.probes["w"], found.tracked.sums.moved)
    np.testing.assert_allclose(found.tracked.tally.moved, moved, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_plain_steps_beside():
    """What is measured beside Adam's steps has a ledger and, with given features, a tally."""
    watch = WATCH._replace(stride=4, tracker=WATCH.tracker._replace(also_sgd=True))
    found = run(watch, tally_of=lambda probes, resid: open_tally(resid, probes["w"]))
    tally, sums = found.tracked.also_tally["sgd"], found.tracked.also["sgd"]
    moved = jnp.einsum("nfd,nced->ncef", tally.w, sums.moved)
    np.testing.assert_allclose(tally.moved, moved, rtol=1e-3, atol=1e-6)
    assert np.abs(moved).max() > 0 and not np.allclose(moved, found.tracked.tally.moved)


def test_theta_is_the_update_alone(whole):
    """The first run is the update and nothing else, bit for bit; each program is traced once."""
    found, calls, _ = whole
    assert len(calls) == 2  # the update's batch and the tracking program's

    @jax.jit
    def step(state):
        batch = small.SAMPLE(KEY, state.step)
        return small.UPDATE(state, batch, jnp.float32(RATE))[0]

    state = small.start().state
    for _ in range(2 * STEPS):
        state = step(state)
    same(state.params, found.params)


@pytest.mark.slow
def test_spans():
    """Two spans one after the other and a gap: what the whole run saw in them.

    With a burn-in that reaches back to the start, moments are the whole run's.
    """
    steps = [small.after(n)[0] if n else small.start() for n in (0, 1, 2)]
    watch = WATCH._replace(stride=2)
    found = run(watch, spans=((4, 6), (6, 8)))
    assert found.covered == 0.5
    strided = small.interval(stride=2)(steps[1], KEY, jnp.float32(RATE))[0]
    moved = strided.tracked.sums.moved - steps[1].tracked.sums.moved
    near(found.tracked.sums.moved, moved, 2e-3)
    near(found.tracked.moments, steps[2].tracked.moments, 2e-3)
    first = node_resid(WATCH.tracker, steps[1].state.params, small.HELD)
    near(found.tracked.sums.first, first, 1e-3)


def test_burn_in():
    """Moments start at zero `burn_in` updates before a span; between spans nothing is measured."""
    begin, track, close = small.windows()
    found = run(spans=((3, 4), (6, 8)), burn_in=1)
    assert found.covered == 3 / 8
    state, window, sums = small.start().state, begin(small.params()), None
    for t in range(2 * STEPS):
        if t in (2, 5):  # one update before each span
            window = begin(state.params)
        if t in (3, 6, 7):
            window = begin(state.params, window.moments)
            if sums is None:
                sums = open_ledger(node_resid(WATCH.tracker, state.params, small.HELD))
        new, _ = small.single()(state, KEY, RATE)
        if t in (2, 3, 5, 6, 7):
            window = track(window, state, new, KEY)
        state = new
        if t in (3, 6, 7):
            sums = close(sums, window, state.params)
    near(found.tracked.sums, sums, 2e-3)
    near(found.tracked.moments, window.moments, 2e-3)


def test_another_second_run_is_refused():
    """An update that reads a list on the host: its second run has other learning rates."""
    rates = iter(np.linspace(1e-3, 2e-3, 4 * STEPS))

    def update(state, batch, learning_rate):
        like = jax.ShapeDtypeStruct((), jnp.float32)
        rate = io_callback(lambda: np.float32(next(rates)), like, ordered=True)
        return small.UPDATE(state, batch, rate)

    with pytest.raises(RuntimeError, match="did not reach the first run's parameters bit for bit"):
        run(update=update, steps=2)


@pytest.mark.parametrize(
    ("spans", "stride", "words"),
    [
        (((0, 9),), 1, r"span 0..9: spans must follow each other within 0..8"),
        (((-1, 2),), 1, r"span -1..2: spans must"),
        (((2, 2),), 1, r"span 2..2: spans must"),
        (((4, 6), (0, 2)), 1, r"span 0..2: spans must"),
        (((0, 4), (3, 6)), 1, r"span 3..6: spans must"),
        (((0, 3),), 2, r"span 0..3: both ends must be multiples of the stride 2"),
        (((1, 3),), 2, r"span 1..3: both ends must be multiples of the stride 2"),
        (None, 3, r"steps: 8 given, a multiple of the stride 3 needed"),
    ],
)
def test_bad_spans(spans, stride, words):
    """Refused before anything is trained."""
    with pytest.raises(UserError, match=words):
        run(WATCH._replace(stride=stride), spans=spans)
    assert not CALLS and not FITTED


def test_movement_is_the_change():
    """The tracked movement sums to the change of the representation, to first order."""
    sums = small.after(1)[0].tracked.sums
    change = sums.first - node_resid(WATCH.tracker, small.after(1)[0].state.params, small.HELD)
    assert float(tree.norm(sums.moved.sum(1) - change)) < 0.2 * float(tree.norm(change))
