"""Does each position use its own copy, and are equal copies the tied model?"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from tiny import LENGTH, QUICK, close, to64

from jaxfeat.nn.blocks import forward
from jaxfeat.nn.copies import check_copies, copy_of, crop_copies, over_positions, stack_copies
from jaxfeat.nn.loss import loss_terms
from jaxfeat.types import UserError

GPT2 = tiny.gpt2(1, 2)
SEGMENTS = [(0,), (0, 3), (0, 2), (0, 1, 4), tuple(range(LENGTH))]


@pytest.mark.parametrize("copies", SEGMENTS)
def test_each_position_its_own(copies):
    """Equal and unequal segments equal a loop over positions; the copy is that of `copy_of`."""
    rng = np.random.default_rng(0)
    params = {"w": rng.normal(size=(len(copies), 3, 4)), "b": rng.normal(size=(len(copies), 3))}
    x = rng.normal(size=(LENGTH, 4))
    fn = lambda p, x: {"y": p["w"] @ x + p["b"], "sum": x.sum()}
    with jax.enable_x64(True):
        found = over_positions(fn, params, copies, jnp.asarray(x))
    for i in range(LENGTH):
        c = max(n for n, start in enumerate(copies) if start <= i)
        assert copy_of(copies, jnp.array(i)) == c
        expected = params["w"][c] @ x[i] + params["b"][c]
        np.testing.assert_allclose(found["y"][i], expected, rtol=1e-13)
        np.testing.assert_allclose(found["sum"][i], x[i].sum(), rtol=1e-13)


def test_crop():
    """The segments that the first positions meet; a tied model has copy 0 everywhere."""
    assert crop_copies((0, 2, 4), 4) == (0, 2) and crop_copies((0, 2, 4), 5) == (0, 2, 4)
    assert crop_copies(None, 3) is None and copy_of(None, jnp.array(5)) == 0


@partial(jax.jit, static_argnames="copies", compiler_options=QUICK)
def position_gradients(params, batch, copies):
    """Logits, and the gradient of the loss of each position, leading axis T."""

    def losses(params):
        out = forward(GPT2, params, batch, copies=copies)
        return loss_terms(out.logits, batch).sum(0), out.logits

    return jax.jacrev(losses, has_aux=True)(params)[::-1]


@pytest.mark.parametrize("copies", [(0, 2), (0, 3), tuple(range(LENGTH))])
def test_equal_copies_are_the_tied_model(copies):
    """Equal logits, gradients that sum to the tied one, and exact zeros for copies to come."""
    batch = tiny.batch_of(2, pads=1)
    with jax.enable_x64(True):
        params = to64(tiny.params_of(GPT2))
        logits, tied = position_gradients(params, batch, None)
        stacked = stack_copies([params] * len(copies))
        found, untied = position_gradients(stacked, batch, copies)
    tied, untied = jax.tree.map(np.asarray, (tied, untied))
    close(found, logits, 1e-14)
    summed = {
        "outer": jax.tree.map(lambda x: x.sum(1), untied["outer"]),
        "blocks": jax.tree.map(lambda x: x.sum(2), untied["blocks"]),
    }
    close(summed, tied, 1e-12)
    for c, start in enumerate(copies):
        future = [x[:start, c] for x in jax.tree.leaves(untied["outer"])]
        future += [x[:start, :, c] for x in jax.tree.leaves(untied["blocks"])]
        assert not any(np.asarray(x).any() for x in future)
        own = np.asarray(untied["blocks"]["v"]["kernel"])[start:, :, c]
        assert start + 1 >= LENGTH or own.any()


@pytest.mark.parametrize("form", ["stacked", "tuple"])
def test_stack_copies(form):
    """Copies stand on axis 0 of outer and of each block's own leaves."""
    sets = [tiny.params_of(GPT2, seed) for seed in range(3)]
    sets = sets if form == "stacked" else [tiny.as_tuple(s, 1) for s in sets]
    found = stack_copies(sets)
    for c, one in enumerate(sets):
        kernel = found["blocks"]["q"] if form == "stacked" else found["blocks"][0]["q"]
        mine = one["blocks"]["q"] if form == "stacked" else one["blocks"][0]["q"]
        at = kernel["kernel"][:, c] if form == "stacked" else kernel["kernel"][c]
        np.testing.assert_array_equal(at, mine["kernel"])
        np.testing.assert_array_equal(
            found["outer"]["wte"]["embedding"][c], one["outer"]["wte"]["embedding"]
        )


@pytest.mark.parametrize("copies", [(), (1,), (0, 0), (0, 3, 2), (0, LENGTH), (0, -1)])
def test_refused(copies):
    """Starts must increase from 0 and lie inside."""
    with pytest.raises(UserError, match=r"increase from 0|outside 0\.\.5"):
        check_copies(copies, LENGTH)
