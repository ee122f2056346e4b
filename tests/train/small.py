"""A small run that the tests of training share: its programs are compiled once."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import tiny
from tiny import LENGTH, QUICK, VOCAB

from jaxfeat.grads.ledger import add_movement
from jaxfeat.grads.moments import StepRule
from jaxfeat.grads.plan import make_plan
from jaxfeat.grads.track import Tracker, advance, measure, start_window
from jaxfeat.train.loop import Watch, fresh, make_interval, start_run
from jaxfeat.train.step import make_update
from jaxfeat.types import Batch

RULE, RATE, STEPS = StepRule("adam"), 1e-2, 4
NODES = [(1, 3), (0, 2)]
DECODER = tiny.gpt2(1)
UPDATE = make_update(DECODER, RULE)
KEY = jax.random.key(3)
HELD = tiny.batch_of(4, seed=8)
PLAN = make_plan(NODES, layers=1, length=LENGTH, chunks=1, at_once=8)
WATCH = Watch(Tracker(DECODER, PLAN, RULE), HELD)
CALLS = []  # one entry a trace of `draw`


def draw(key):
    """A batch of random tokens, made on the device."""
    CALLS.append(key)
    token, target = jax.random.randint(key, (2, 4, LENGTH), 0, VOCAB)
    real = jnp.ones(token.shape, bool)
    position = jnp.broadcast_to(jnp.arange(LENGTH, dtype=jnp.int32), token.shape)
    return Batch(token, target, real, real, position)


SAMPLE = fresh(draw)


def plain_interval(watched=True, stride=1, steps=STEPS):
    """The function that `interval` compiles."""
    watch = WATCH._replace(stride=stride) if watched else None
    return make_interval(UPDATE, SAMPLE, steps, watch=watch)


@functools.lru_cache
def interval(watched=True, stride=1):
    """STEPS updates."""
    return jax.jit(plain_interval(watched, stride), compiler_options=QUICK)


@functools.lru_cache
def windows():
    """`begin(params, moments)`, `track(window, state, new, key)`, `close(sums, window, params)`."""
    tracker = WATCH.tracker

    def track(window, state, new, key):
        batch = SAMPLE(key, state.step)
        return advance(tracker, window, state.params, new.opt_state, batch, jnp.float32(RATE))

    def close(sums, window, params):
        return add_movement(sums, measure(tracker, window, params, HELD), jnp.ones((2, 4), bool))

    begin = functools.partial(start_window, tracker)
    return [jax.jit(fn, compiler_options=QUICK) for fn in (begin, track, close)]


@functools.lru_cache
def single():
    """One update, dispatched alone: `(state, key, rate) -> state, loss`."""
    return jax.jit(
        lambda state, key, rate: UPDATE(state, SAMPLE(key, state.step), rate),
        compiler_options=QUICK,
    )


@functools.lru_cache
def params(seed=0):
    return jax.tree.map(jnp.asarray, tiny.params_of(DECODER, seed))


@functools.lru_cache
def starter():
    """Parameters to a watched run before its first update."""
    return jax.jit(lambda p: start_run(RULE, p, WATCH), compiler_options=QUICK)


@functools.lru_cache
def start(watched=True):
    run = starter()(params())
    return run if watched else run._replace(tracked=None)


@functools.lru_cache
def after(intervals, watched=True):
    """A run and all its losses."""
    run, losses = start(watched), []
    for _ in range(intervals):
        run, new = interval(watched)(run, KEY, jnp.float32(RATE))
        losses.append(np.asarray(new))
    return run, np.concatenate(losses)


def near(ours, theirs, relative=1e-4):
    """Leaf by leaf, against the size of the leaf; key biases have no gradient but rounding."""
    pairs = zip(jax.tree_util.tree_leaves_with_path(ours), jax.tree.leaves(theirs), strict=True)
    for (path, x), y in pairs:
        name = jax.tree_util.keystr(path)
        if "['k']['bias']" in name:
            continue
        x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
        atol = relative * np.abs(y).max(initial=0) + 1e-7
        np.testing.assert_allclose(x, y, rtol=0, atol=atol, err_msg=name)
