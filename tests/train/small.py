"""A small run that the tests of training share: its programs are compiled once."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import tiny
from tiny import LENGTH, QUICK, VOCAB

from jaxfeat.grads.moments import StepRule
from jaxfeat.grads.plan import make_plan
from jaxfeat.grads.track import Tracker
from jaxfeat.train.loop import Watch, make_interval, start_run, step_key
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
CALLS = []  # one entry a trace of `sample`


def sample(key):
    """A batch of random tokens, made on the device."""
    CALLS.append(key)
    token, target = jax.random.randint(key, (2, 4, LENGTH), 0, VOCAB)
    real = jnp.ones(token.shape, bool)
    position = jnp.broadcast_to(jnp.arange(LENGTH, dtype=jnp.int32), token.shape)
    return Batch(token, target, real, real, position)


@functools.lru_cache
def interval(watched=True, stride=1):
    """STEPS updates."""
    watch = WATCH._replace(stride=stride) if watched else None
    return jax.jit(make_interval(UPDATE, sample, STEPS, watch=watch), compiler_options=QUICK)


@functools.lru_cache
def single():
    """One update, dispatched alone: `(state, key, rate) -> state, loss`."""
    return jax.jit(
        lambda state, key, rate: UPDATE(state, sample(step_key(key, state.step)), rate),
        compiler_options=QUICK,
    )


@functools.lru_cache
def params(seed=0):
    return jax.tree.map(jnp.asarray, tiny.params_of(DECODER, seed))


@functools.lru_cache
def start(watched=True):
    return start_run(RULE, params(), WATCH if watched else None)


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
