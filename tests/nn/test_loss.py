"""Do losses add up over anything, and does reading the vocabulary in chunks change nothing?"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from tiny import LENGTH, QUICK, VOCAB, close, to64

from jaxfeat import tree
from jaxfeat.nn.loss import chunked_nll, count_targets, loss_terms, mean_loss, token_nll

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
    np.testing.assert_allclose(found, np.log(VOCAB), rtol=1e-5)


@partial(jax.jit, static_argnames=("chunk", "copies"), compiler_options=QUICK)
def both(outer, resid, target, chunk, copies=None):
    """Losses and gradients of a weighted sum of them, chunked and not."""
    weight = jnp.arange(1.0, LENGTH + 1)

    def chunked(outer, resid):
        found = chunked_nll(GPT2, outer, resid, target, chunk=chunk, copies=copies)
        return found @ weight, found

    def whole(outer, resid):
        def one(o, x, t):
            return token_nll(GPT2.unembed(o, GPT2.norm(o, x)), t)

        if copies is None:
            found = jax.vmap(one, (None, 0, 0))(outer, resid, target)
        else:
            own = jax.tree.map(lambda a: jnp.repeat(a, LENGTH // len(copies), 0), outer)
            found = jax.vmap(one)(own, resid, target)
        return found @ weight, found

    return [jax.grad(f, (0, 1), has_aux=True)(outer, resid) for f in (chunked, whole)]


@pytest.mark.parametrize("chunk", [1, 4, VOCAB, 50])
def test_chunked(chunk):
    """Values and gradients equal for chunks that divide the vocabulary, do not, or exceed it."""
    with jax.enable_x64(True):
        outer = to64(tiny.params_of(GPT2)["outer"])
        resid = jnp.asarray(np.random.default_rng(1).normal(size=(LENGTH, 8)))
        chunked, whole = both(outer, resid, tiny.batch_of(1).target[0], chunk)
    close(chunked, whole, 1e-13)


def test_chunked_copies():
    """Each position reads its own copy's table."""
    with jax.enable_x64(True):
        outer = to64(tiny.params_of(GPT2, copies=2)["outer"])
        resid = jnp.asarray(np.random.default_rng(1).normal(size=(LENGTH, 8)))
        chunked, whole = both(outer, resid, tiny.batch_of(1).target[0], 4, (0, 3))
    close(chunked, whole, 1e-13)


def test_chunked_large_logits():
    """Logits of 1e4: finite, and equal to the whole in float32."""
    outer = tiny.params_of(GPT2)["outer"]
    outer["ln_f"]["scale"] = outer["ln_f"]["scale"] * 1e4
    resid = np.random.default_rng(1).normal(size=(LENGTH, 8)).astype(np.float32)
    chunked, whole = both(outer, resid, tiny.batch_of(1).target[0], 4)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(chunked))
    close(chunked, whole, 1e-5)


def test_chunked_never_holds_the_vocabulary():
    """No array of the program, gradient included, has T times V entries."""
    decoder = tiny.make_gpt2(tiny.GPT2Config(vocab=4096, length=LENGTH, width=8, heads=2, layers=1))
    outer = jax.eval_shape(decoder.init, jax.random.key(0))["outer"]
    resid = jax.ShapeDtypeStruct((64, 8), jnp.float32)
    target = jax.ShapeDtypeStruct((64,), jnp.int32)
    grad = jax.grad(lambda o, x, t: chunked_nll(decoder, o, x, t, chunk=256).sum(), (0, 1))
    program = jax.jit(grad).lower(outer, resid, target).as_text()
    assert "tensor<64x256xf32>" in program and "64x4096" not in program
