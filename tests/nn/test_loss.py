"""Do losses add up over anything, and do they not depend on how many logits are held?"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from tiny import LENGTH, QUICK, VOCAB, close, to64

from jaxfeat import tree
from jaxfeat.nn.loss import (
    batch_loss,
    count_targets,
    loss_terms,
    mean_loss,
    token_losses,
    token_nll,
)

GPT2 = tiny.gpt2(1, 2)
LOGITS = np.random.default_rng(0).normal(size=(4, LENGTH, VOCAB)) * 3


def test_token_nll():
    """Equals `-log softmax` in NumPy, for logits of any size."""
    target = tiny.batch_of(4).target
    with jax.enable_x64(True):
        for shift in (0.0, 1e4):
            found = token_nll(jnp.asarray(LOGITS + shift), target)
            share = np.exp(LOGITS) / np.exp(LOGITS).sum(-1, keepdims=True)
            expected = -np.log(np.take_along_axis(share, np.asarray(target)[..., None], -1))[..., 0]
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)


def test_uncounted_targets_are_nothing():
    """Loss and gradient exactly 0 where a target does not count, whatever stands there."""
    batch = tiny.batch_of(4, pads=1)
    weight = np.asarray(batch.weight)
    wild = np.where(weight[..., None], LOGITS, 1e30).astype(np.float32)
    batch = batch._replace(target=jnp.where(batch.weight, batch.target, -7))
    assert not np.asarray(loss_terms(LOGITS, batch))[~weight].any()
    grads = jax.grad(lambda x: mean_loss(x, batch))(jnp.asarray(wild))
    assert np.isfinite(grads).all() and not np.asarray(grads)[~weight].any()
    assert mean_loss(wild, batch) == mean_loss(LOGITS.astype(np.float32), batch)


def test_empty_batch():
    """No target at all: loss 0, count 1, finite gradient."""
    batch = tiny.batch_of(4)
    batch = batch._replace(weight=jnp.zeros_like(batch.weight))
    assert count_targets(batch) == 1 and mean_loss(LOGITS, batch) == 0
    assert not jax.grad(lambda x: mean_loss(x, batch))(jnp.asarray(LOGITS, jnp.float32)).any()


def test_microbatches_add_up():
    """Sums and counts over microbatches with ragged masks equal those of the whole batch."""
    batch = tiny.batch_of(4, pads=1)
    batch = batch._replace(weight=batch.weight & (batch.target > 3))
    with jax.enable_x64(True):
        logits = jnp.asarray(LOGITS)
        parts = [(logits[n : n + 2], tree.index(batch, slice(n, n + 2))) for n in (0, 2)]
        counts = [int(count_targets(b)) for _, b in parts]
        assert counts[0] != counts[1] and sum(counts) == int(count_targets(batch))
        summed = sum(loss_terms(x, b).sum() for x, b in parts)
        np.testing.assert_allclose(summed / sum(counts), mean_loss(logits, batch), rtol=1e-15)
        means = np.mean([float(mean_loss(x, b)) for x, b in parts])
        assert abs(means - float(summed) / sum(counts)) > 1e-3  # a mean of means differs


def test_bfloat16_sums_wide():
    """4,096 bfloat16 losses of about 2.4 sum in float32: bfloat16 would stop far below."""
    batch = tiny.batch_of(64, length=64)
    terms = loss_terms(jnp.zeros((64, 64, VOCAB), jnp.bfloat16), batch)
    assert terms.dtype == jnp.float32
    found = mean_loss(jnp.zeros((64, 64, VOCAB), jnp.bfloat16), batch)
    # n terms added one after another in float32 lose n eps / 2 of the sum at most
    bound = 64 * 64 * np.finfo(np.float32).eps / 2
    np.testing.assert_allclose(found, np.log(VOCAB), rtol=bound)


@partial(jax.jit, static_argnames=("entries", "copies"), compiler_options=QUICK)
def both(outer, resid, batch, entries, copies=None):
    """Loss, its gradients and the single losses, with few and with all logits held together."""
    found = []
    for most in (entries, 10**9):
        loss = lambda o, x, n=most: batch_loss(GPT2, o, x, batch, copies=copies, entries=n)
        terms = token_losses(GPT2, outer, resid, batch, copies=copies, entries=most)
        found.append((jax.value_and_grad(loss, (0, 1))(outer, resid), terms))
    return found


def readout(copies=0):
    """Parameters, residuals and a batch with padding, in float64."""
    outer = to64(tiny.params_of(GPT2, copies=copies)["outer"])
    resid = jnp.asarray(np.random.default_rng(1).normal(size=(4, LENGTH, 8)))
    return outer, resid, tiny.batch_of(4, pads=1)


@pytest.mark.parametrize("rows", [0, 1, 5, 8, LENGTH * 4 - 1])
def test_few_logits_at_a_time(rows):
    """Values and gradients are the same for groups that divide the positions and that do not."""
    with jax.enable_x64(True):
        outer, resid, batch = readout()
        few, whole = both(outer, resid, batch, max(1, rows * VOCAB))
        close(few, whole, 1e-13)
        logits = jax.vmap(jax.vmap(lambda x: GPT2.unembed(outer, GPT2.norm(outer, x))))(resid)
        close(whole[1], loss_terms(logits, batch), 1e-13)
        close(whole[0][0], mean_loss(logits, batch), 1e-13)


def test_few_logits_of_copies():
    """Each position reads its own copy's table, whole examples at a time."""
    with jax.enable_x64(True):
        few, whole = both(*readout(2), 2 * LENGTH * VOCAB, (0, 3))
        close(few, whole, 1e-13)


def test_few_logits_of_size_1e4():
    """Logits of 1e4: finite, and equal to the whole in float32."""
    outer = tiny.params_of(GPT2)["outer"]
    outer["ln_f"]["scale"] = outer["ln_f"]["scale"] * 1e4
    resid = np.random.default_rng(1).normal(size=(4, LENGTH, 8)).astype(np.float32)
    few, whole = both(outer, resid, tiny.batch_of(4), 4 * VOCAB)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(few))
    close(few, whole, 1e-5)


def test_few_logits_scale():
    """A multiple of the loss has that multiple of the gradient; seeds run under vmap."""
    with jax.enable_x64(True):
        outer, resid, batch = readout()
        loss = lambda x, c: c * batch_loss(GPT2, outer, x, batch, entries=5 * VOCAB)
        one, three = (jax.grad(loss)(resid, c) for c in (1.0, 3.0))
        close(three, 3 * one, 1e-13)
        two = jax.vmap(jax.grad(loss), (0, None))(jnp.stack([resid, 2 * resid]), 1.0)
        close(two[0], one, 1e-13)


def test_the_vocabulary_is_never_held_at_all_positions():
    """No array of the program, gradient included, has B T V entries; memory follows `entries`."""
    vocab = 4096
    decoder = tiny.make_gpt2(tiny.GPT2Config(vocab, LENGTH, width=8, heads=2, layers=1))
    outer = jax.eval_shape(decoder.init, jax.random.key(0))["outer"]
    resid = jax.ShapeDtypeStruct((16, LENGTH, 8), jnp.float32)
    batch = jax.eval_shape(lambda: tiny.batch_of(16))
    memory = []
    for rows in (4, 32):
        loss = lambda o, x, b, n=rows: batch_loss(decoder, o, x, b, entries=n * vocab)
        program = jax.jit(jax.grad(loss, (0, 1))).lower(outer, resid, batch).compile()
        text = program.as_text()
        assert f"f32[{rows},{vocab}]" in text or f"f32[{rows},1,{vocab}]" in text
        assert f"f32[{16 * LENGTH},{vocab}]" not in text
        memory.append(program.memory_analysis().temp_size_in_bytes)
    assert memory[1] - memory[0] > 28 * vocab * 4
