"""Is an update what its rule says, in every type of number?"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from tiny import QUICK, close, same

from jaxfeat import tree
from jaxfeat.grads.moments import StepRule
from jaxfeat.nn.blocks import forward
from jaxfeat.nn.loss import count_targets, loss_terms, mean_loss
from jaxfeat.nn.route import myopic
from jaxfeat.train.step import init_state, make_update

RATE = 0.01
RULES = {"adam": StepRule("adam", 0.8, 0.95, 1e-6), "sgd": StepRule("sgd")}


def gradient(decoder, params, batch):
    """Loss and gradient."""
    loss = lambda p: mean_loss(forward(decoder, p, batch).logits, batch)
    return jax.value_and_grad(loss)(params)


@pytest.mark.parametrize("name", RULES)
def test_by_hand(name):
    """Three updates against NumPy's, in float64; the loss is that before the update."""
    rule, decoder = RULES[name], tiny.gpt2(1, dtype="float64")
    with jax.enable_x64(True):
        update = jax.jit(make_update(decoder, rule), compiler_options=QUICK)
        grad = jax.jit(functools.partial(gradient, decoder), compiler_options=QUICK)
        state = init_state(rule, tiny.to64(tiny.params_of(decoder)))
        params = jax.tree.map(np.asarray, state.params)
        mu = nu = jax.tree.map(np.zeros_like, params)
        for t in range(1, 4):
            batch = tiny.batch_of(3, pads=1, seed=t)
            value, g = jax.tree.map(np.asarray, grad(params, batch))
            new, loss = update(state, batch, RATE)
            np.testing.assert_allclose(loss, value, rtol=1e-13)
            state, step = new, g
            if name == "adam":
                mu = jax.tree.map(lambda m, x: 0.8 * m + 0.2 * x, mu, g)
                nu = jax.tree.map(lambda v, x: 0.95 * v + 0.05 * x**2, nu, g)
                step = jax.tree.map(
                    lambda m, v, t=t: m / (1 - 0.8**t) / (np.sqrt(v / (1 - 0.95**t)) + 1e-6), mu, nu
                )
            params = jax.tree.map(lambda p, s: p - RATE * s, params, step)
            close(state.params, params, 1e-11)
            assert int(state.step) == t


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("name", RULES)
def test_zero_gradient_is_no_update(name, dtype):
    """No target counts: loss 0, parameters bit for bit, moments 0; then a finite update."""
    decoder, rule = tiny.gpt2(1, dtype=dtype), RULES[name]
    rule = StepRule() if name == "adam" else rule  # eps 1e-8 is 0 in float16
    params = jax.tree.map(lambda x: jnp.asarray(x, dtype), tiny.params_of(decoder))
    state = init_state(rule, params)
    batch = tiny.batch_of(2)
    update = jax.jit(make_update(decoder, rule), compiler_options=QUICK)
    still = state
    for _ in range(2):
        still, loss = update(still, batch._replace(weight=jnp.zeros_like(batch.mask)), RATE)
        assert loss == 0
    for before, after in zip(*map(jax.tree.leaves, (params, still.params)), strict=True):
        assert after.dtype == dtype and np.asarray(before).tobytes() == np.asarray(after).tobytes()
    if name == "adam":
        moments = jax.tree.leaves((still.opt_state.mu, still.opt_state.nu))
        assert not any(x.any() for x in moments) and {x.dtype for x in moments} == {
            jnp.float32.dtype
        }
    moved, loss = update(still, batch, RATE)
    assert jnp.isfinite(loss) and loss.dtype == jnp.float32
    changed = 0
    for before, after in zip(*map(jax.tree.leaves, (params, moved.params)), strict=True):
        assert after.dtype == dtype and jnp.isfinite(after).all()
        changed += not np.array_equal(before, after)
    assert changed > 10


def test_route_of_training():
    """A myopic update is an SGD step along the myopic gradient."""
    decoder, batch = tiny.gpt2(1, dtype="float64"), tiny.batch_of(2)
    with jax.enable_x64(True):
        state = init_state(RULES["sgd"], tiny.to64(tiny.params_of(decoder)))
        moved = {}
        for name, route in {"full": None, "myopic": myopic()}.items():
            update = make_update(decoder, RULES["sgd"], route=route)
            moved[name] = jax.jit(update, compiler_options=QUICK)(state, batch, RATE)
        assert moved["full"][1] == moved["myopic"][1]
        # the output projection stands above the mixer: its gradient is the same
        full, cut = (moved[n][0].params["blocks"] for n in ("full", "myopic"))
        close(full["o"]["kernel"], cut["o"]["kernel"], 1e-12)
        gap = np.abs(np.asarray(full["v"]["kernel"] - cut["v"]["kernel"])).max()
        assert gap > 1e-5


def test_microbatches():
    """K ragged microbatches with the whole batch's count sum to its gradient."""
    decoder, batch = tiny.gpt2(1, dtype="float64"), tiny.batch_of(6, pads=1)
    # equal shapes: rows 0-2 have more targets than rows 3-5
    parts = [tree.index(batch, slice(a, a + 3)) for a in (0, 3)]
    count = count_targets(batch)
    assert len({int(count_targets(p)) for p in parts}) == 2

    @functools.partial(jax.jit, compiler_options=QUICK)
    def run(params, batch, count):
        def loss(params):
            terms = loss_terms(forward(decoder, params, batch).logits, batch)
            return jnp.sum(terms) / count

        return jax.grad(loss)(params)

    with jax.enable_x64(True):
        params = tiny.to64(tiny.params_of(decoder))
        whole = run(params, batch, count)
        summed = tree.add(*(run(params, part, count) for part in parts))
        close(summed, whole, 1e-12)
        update = jax.jit(make_update(decoder, RULES["sgd"]), compiler_options=QUICK)
        moved = update(init_state(RULES["sgd"], params), batch, 1.0)[0].params
        close(tree.sub(params, moved), whole, 1e-12, size_of=params)


def test_step_counts_updates():
    state = init_state(RULES["adam"], {"x": jnp.ones(2, jnp.bfloat16)})
    assert int(state.step) == 0 and state.opt_state.mu["x"].dtype == jnp.float32
    same(state.params, {"x": jnp.ones(2, jnp.bfloat16)})
