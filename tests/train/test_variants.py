"""Do all variants start as one function, and keep apart what they untie?"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from tiny import LENGTH, QUICK

from jaxfeat.grads.moments import StepRule
from jaxfeat.nn.blocks import forward
from jaxfeat.train.step import init_state, make_update
from jaxfeat.train.variants import VARIANTS, init_params, is_myopic, make_variant
from jaxfeat.types import UserError

M, KEY = 2, jax.random.key(1)
DECODER, BATCH = tiny.gpt2(1), tiny.batch_of(3)
COPIES = {
    "standard": None,
    "myopic": None,
    "untied": (0, 2),
    "both": (0, 2),
    "fully_untied": (0, 1, 2, 3, 4, 5),
}
variant_of = partial(make_variant, m=M, length=LENGTH)


def logits(name, **options):
    variant = variant_of(name)
    params = init_params(DECODER, variant, KEY, **options)
    run = lambda p: forward(DECODER, p, BATCH, route=variant.route, copies=variant.copies).logits
    return np.asarray(jax.jit(run, compiler_options=QUICK)(params))


def test_same_function_at_the_start():
    """Equal copies: one function; independent copies: another."""
    standard = logits("standard")
    for name in VARIANTS:
        assert variant_of(name).copies == COPIES[name]
        np.testing.assert_allclose(logits(name), standard, rtol=0, atol=1e-6)
    for name in ("untied", "fully_untied"):
        other = logits(name, independent=True)
        assert (np.abs(other - standard).max((0, 2)) > 1e-3).all()
    np.testing.assert_array_equal(logits("standard", independent=True), standard)


@pytest.mark.parametrize("name", ["untied", "both", "fully_untied"])
def test_copies_of_the_future(name):
    """Losses give copies strictly later than their positions exactly nothing: no update."""
    variant = variant_of(name)
    params = init_params(DECODER, variant, KEY)
    weight = jnp.asarray(BATCH.weight & (np.arange(LENGTH) < M))
    batch = BATCH._replace(weight=weight)

    rule, later = StepRule(), 1 if name != "fully_untied" else M
    update = make_update(DECODER, rule, route=variant.route, copies=variant.copies)
    new, _ = jax.jit(update, compiler_options=QUICK)(init_state(rule, params), batch, 0.01)
    grads = new.opt_state.mu
    for x in jax.tree.leaves(grads["outer"]):
        assert x[:later].any() and not x[later:].any()
    for path, x in jax.tree_util.tree_leaves_with_path(grads["blocks"]):
        assert not x[:, later:].any(), path
        assert x[:, :later].any() or "'k'" in jax.tree_util.keystr(path)
    for before, after in zip(*map(jax.tree.leaves, (params["outer"], new.params["outer"]))):
        assert np.array_equal(before[later:], after[later:])
        assert not np.array_equal(before[:later], after[:later])


def test_independent_copies_differ():
    params = init_params(DECODER, variant_of("fully_untied"), KEY, independent=True)
    table = np.asarray(params["outer"]["wte"]["embedding"])
    assert len({row.tobytes() for row in table}) == LENGTH
    equal = init_params(DECODER, variant_of("fully_untied"), KEY)["blocks"]["q"]["kernel"]
    assert equal.shape == (1, LENGTH, 8, 8) and (equal == equal[:, :1]).all()


def test_refused():
    with pytest.raises(UserError, match="variant 'tied' is unknown; valid: standard, myopic"):
        variant_of("tied")
    for m in (0, LENGTH, -1):
        with pytest.raises(UserError, match=rf"m: {m} given, a whole number, 1..{LENGTH - 1}"):
            make_variant("standard", m=m, length=LENGTH)


def test_weights():
    """beta = 1 is the standard model and beta = 0 the myopic one; others train another way."""

    def step(name):
        variant = variant_of(name)
        update = make_update(DECODER, StepRule("sgd"), route=variant.route)
        state = init_state(StepRule("sgd"), init_params(DECODER, variant, KEY))
        new = jax.jit(update, compiler_options=QUICK)(state, BATCH, 0.1)[0].params
        return jax.tree.map(np.asarray, new)

    tiny.same(step("beta=1"), step("standard"))
    tiny.same(step("beta=0,0"), step("myopic"))
    low, half, high = step("beta=0"), step("beta=0.5"), step("beta=1")
    # one block: what crosses positions enters the gradient linearly
    tiny.close(half, jax.tree.map(lambda a, b: (a + b) / 2, low, high), 1e-6)
    assert is_myopic(variant_of("beta=0"), LENGTH) and not is_myopic(variant_of("beta=2"), LENGTH)
    for name in ("beta=-1", "beta=nan", "beta=", "beta=1,x"):
        with pytest.raises(UserError, match="beta takes finite numbers >= 0"):
            variant_of(name)
