"""Is the rise of the losses what an edit by hand gives, and does it keep to its position?"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from tiny import LENGTH, QUICK, WIDTH

from jaxfeat.features.ablate import ablation_rise
from jaxfeat.nn.blocks import forward
from jaxfeat.nn.loss import token_nll
from jaxfeat.types import UserError

DECODER, NODES = tiny.gpt2(2), [(2, 1), (1, 3), (0, 0)]
BATCH = tiny.batch_of(5, pads=1)
W = np.random.default_rng(0).standard_normal((3, 2, WIDTH)).astype(np.float32)


def by_hand(params, node, direction, along):
    """The edit as it is written down, one example and position at a time."""
    k, i = node
    base = forward(DECODER, params, BATCH)
    resid, real = np.asarray(base.resid)[:, k, i], np.asarray(BATCH.mask)[:, i]
    mean = resid[real].mean(0)
    read = (resid - mean) @ direction
    carrier = direction / (direction @ direction)
    if along == "pattern":
        pattern = np.cov(np.c_[resid, resid @ direction][real].T, bias=True)
        carrier = pattern[:-1, -1] / pattern[-1, -1]
    new = resid - read[:, None] * carrier
    tap = np.zeros_like(np.asarray(base.resid))
    tap[:, k, i] = new - resid
    after = forward(DECODER, params, BATCH, taps=jnp.asarray(tap))
    nll = lambda out: np.asarray(token_nll(out.logits, BATCH.target)) * np.asarray(BATCH.weight)
    rise = (nll(after) - nll(base))[real]
    assert not rise[:, :i].any()
    return rise[:, i].mean(), rise[:, i + 1 :].sum(1).mean()


@pytest.mark.parametrize("along", ["pattern", "w"])
def test_by_hand(along):
    params = tiny.params_of(DECODER)
    run = lambda p: ablation_rise(DECODER, p, BATCH, NODES, W, along=along)
    found = jax.jit(run, compiler_options=QUICK)(params)
    for n, node in enumerate(NODES):
        for f in range(2):
            own, later = by_hand(params, node, W[n, f], along)
            np.testing.assert_allclose(found.own[n, f], own, atol=2e-6)
            np.testing.assert_allclose(found.later[n, f], later, atol=5e-6)
    assert np.abs(found.later[0]).max() == 0  # nothing later reads the last layer
    assert np.abs(found.own).min() > 1e-5


def test_nothing_taken_out():
    zero = ablation_rise(DECODER, tiny.params_of(DECODER), BATCH, [(1, 2)], np.zeros((1, WIDTH)))
    assert max(np.abs(zero.own).max(), np.abs(zero.later).max()) < 1e-6


def test_scale_does_not_matter():
    """A direction is a direction, however long its vector."""
    params = tiny.params_of(DECODER)
    run = jax.jit(lambda w: ablation_rise(DECODER, params, BATCH, [(1, 2)], w))
    one = run(W[:1])
    for scale in (1e-20, 1e18):
        other = run(np.float32(scale) * W[:1])
        np.testing.assert_allclose(other.own, one.own, rtol=1e-3, atol=1e-7)


def test_refused():
    params = tiny.params_of(DECODER)
    with pytest.raises(UserError, match=r"\(1 nodes, features, 8\) needed"):
        ablation_rise(DECODER, params, BATCH, [(1, 2)], np.ones((1, WIDTH + 1)))
    with pytest.raises(UserError, match="finite real number"):
        ablation_rise(DECODER, params, BATCH, [(1, 2)], np.full((1, WIDTH), np.nan))
    with pytest.raises(UserError, match="along: 'v' given; valid are pattern and w"):
        ablation_rise(DECODER, params, BATCH, [(1, 2)], np.ones((1, WIDTH)), along="v")
    with pytest.raises(UserError, match=rf"position {LENGTH} .*0\.\.{LENGTH - 1}"):
        ablation_rise(DECODER, params, BATCH, [(1, LENGTH)], np.ones((1, WIDTH)))
