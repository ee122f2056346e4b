"""Are movements the same with the embedding rows of occurring tokens alone?"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from tiny import LENGTH, QUICK, VOCAB, close

from jaxfeat import tree
from jaxfeat.grads.moments import StepRule
from jaxfeat.grads.occurring import cut_tables, occurring_ids, renumber
from jaxfeat.grads.plan import make_plan
from jaxfeat.grads.track import Tracker, advance, measure, start_window
from jaxfeat.train.step import init_state, make_update
from jaxfeat.types import UserError

DECODER, RULE = tiny.gpt2(1, dtype="float64"), StepRule("adam")
PLAN = make_plan([(0, 1), (1, 3)], layers=1, length=LENGTH, chunks=1)
IDS = np.array([1, 3, 4, 8, 10])


def listed_batch(seed, pads=1):
    """A batch of listed tokens; its padding holds unlisted ones."""
    batch = tiny.batch_of(4, pads=pads, seed=seed)
    token = jnp.asarray(IDS)[batch.token % len(IDS)]
    return batch._replace(token=jnp.where(batch.mask, token, 0))


@functools.lru_cache
def moved(occurring, copies=None, by_copy=None, held_seed=9):
    """Two updates in a window, with every row or the listed ones."""
    ids = IDS if occurring else None
    tracker = Tracker(
        DECODER, PLAN, RULE, copies=copies, by_copy=by_copy, occurring=ids, also_sgd=copies is None
    )
    update, rate = make_update(DECODER, RULE, copies=copies), jnp.asarray(1e-2)

    def run(state):
        window = start_window(tracker, state.params)
        for seed in (0, 1):
            batch = listed_batch(seed)
            new, _ = update(state, batch, rate)
            window = advance(tracker, window, state.params, new.opt_state, batch, rate)
            state = new
        return window, measure(tracker, window, state.params, listed_batch(held_seed))

    with jax.enable_x64(True):
        params = tiny.to64(tiny.params_of(DECODER, copies=len(copies or ())))
        state = init_state(RULE, params)
        window, movement = jax.jit(run, compiler_options=QUICK)(state)
        return jax.tree.map(np.asarray, (window, movement))


@pytest.mark.parametrize(
    ("copies", "by_copy"),
    [
        (None, None),
        pytest.param((0, 3), None, marks=pytest.mark.slow),
        pytest.param(None, (0, 3), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_exact(copies, by_copy):
    """Movements, along gradient steps and the same copy too, and sizes; what is left out is 0."""
    (whole, expected), (kept, found) = (moved(o, copies, by_copy) for o in (False, True))
    real = np.asarray(listed_batch(9).mask)[:, [i for _, i in PLAN.nodes]].T  # [nodes, E]
    along = lambda m: {"whole": m.along, **m.also}
    for name, x in along(found).items():
        close(x * real[:, None, :, None], along(expected)[name] * real[:, None, :, None], 1e-12)
    for name in ("before", "after", "sizes"):
        close(getattr(found, name), getattr(expected, name), 1e-12)
    cut = lambda t: jnp.take(t, IDS, axis=-2)
    with jax.enable_x64(True):
        for a, b in zip(kept.moments.rows.outer, whole.moments.rows.outer, strict=True):
            close(a["wte"]["embedding"], cut(b["wte"]["embedding"]), 1e-12)
            others = np.delete(b["wte"]["embedding"], IDS, axis=-2)
            assert others.shape[-2] == VOCAB - len(IDS) and not others.any()
    assert tree.bytes_of(kept.steps) < tree.bytes_of(whole.steps)


def test_unlisted_tokens_are_not_passed_over():
    """A token that is not listed makes what it reaches NaN, in training and in E."""
    tracker = Tracker(DECODER, PLAN, RULE, occurring=IDS)
    good = listed_batch(0)
    bad = good._replace(token=good.token.at[0, 0].set(0))

    @functools.partial(jax.jit, compiler_options=QUICK)
    def run(state, batch, held):
        rate = jnp.asarray(1e-2)
        new, _ = make_update(DECODER, RULE)(state, good, rate)
        window = start_window(tracker, state.params)
        window = advance(tracker, window, state.params, new.opt_state, batch, rate)
        return measure(tracker, window, new.params, held).along

    with jax.enable_x64(True):
        state = init_state(RULE, tiny.to64(tiny.params_of(DECODER)))
        assert np.isfinite(run(state, good, good)).all()
        assert np.isnan(run(state, bad, good)).all(axis=(2, 3))[:, 0].any()
        assert np.isnan(run(state, good, bad)).any()


def test_lists():
    """Ids are checked; a model that names no tables cannot be cut."""
    assert occurring_ids(np.array([[4, 2], [2, 0]]), 5).tolist() == [0, 2, 4]
    for tokens in (np.array([], int), np.array([-1, 2]), np.array([5])):
        with pytest.raises(UserError, match=r"tokens: ids .* some of 0\.\.4 needed"):
            occurring_ids(tokens, 5)
    params = tiny.params_of(tiny.gpt2(1))
    assert cut_tables(DECODER, params, None) is params
    for wrong in ([3, 1], [1, 1], [], [VOCAB], [0.5]):
        with pytest.raises(UserError, match=r"occurring: ids must ascend|tokens: ids"):
            cut_tables(DECODER, params, np.array(wrong))
    with pytest.raises(UserError, match="by_token"):
        cut_tables(DECODER._replace(by_token=()), params, IDS)
    cut = cut_tables(DECODER, params, IDS)["outer"]
    np.testing.assert_array_equal(cut["wte"]["embedding"], params["outer"]["wte"]["embedding"][IDS])
    np.testing.assert_array_equal(cut["wpe"]["embedding"], params["outer"]["wpe"]["embedding"])
    batch = listed_batch(2)
    numbered, listed = renumber(batch, IDS, VOCAB)
    real = np.asarray(batch.mask)
    assert bool(listed)
    np.testing.assert_array_equal(IDS[numbered.token][real], np.asarray(batch.token)[real])
