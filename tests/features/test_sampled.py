"""Do sampled cotangents give the second-order scores of all features at once?"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from jaxfeat.features.effects import Jobs, make_effects
from jaxfeat.features.sampled import all_features, make_sampler, of_jobs
from jaxfeat.models.gpt2 import GPT2Config, make_gpt2
from jaxfeat.nn.blocks import forward
from jaxfeat.stats import spearman
from jaxfeat.types import UserError, make_batch

SPAN = 6
LAYER = 1


def model(spread):
    """A small model with random weights, the larger the more its predictions differ."""
    decoder = make_gpt2(GPT2Config(vocab=40, length=12, width=16, heads=2, layers=2))
    rng = np.random.default_rng(0)

    def draw(path, leaf):
        gain = "scale" in jax.tree_util.keystr(path)
        return jnp.asarray(gain + spread * rng.standard_normal(leaf.shape), jnp.float32)

    shapes = jax.eval_shape(decoder.init, jax.random.key(0))
    params = jax.tree_util.tree_map_with_path(draw, shapes)
    batch = make_batch(np.random.default_rng(1).integers(0, 40, (96, 13)))
    return decoder, params, batch


def test_rank_of_all_features():
    """Spearman with the exact second-order Q at least .95 for 16 draws over 400 features."""
    decoder, params, batch = model(0.25)
    rng = np.random.default_rng(2)
    sequence, position = np.arange(96), rng.integers(1, 6, 96)
    w = rng.standard_normal((400, 16)).astype(np.float32)
    w /= np.linalg.norm(w, axis=1, keepdims=True)
    active = (rng.random((96, 400)) < 0.5) * rng.gamma(2, 1, (96, 400)).astype(np.float32)
    place, feature = np.nonzero(active)
    delta = active[place, feature][:, None] * w[feature]
    jobs = Jobs(sequence[place], position[place], np.arange(len(place)))
    minus = lambda given, n, resid: -given[n]
    form = make_effects(decoder, LAYER, minus, span=SPAN, quadratic=True, pack=8, at_once=32)
    exact = form(params, batch, jobs, jnp.asarray(delta))
    own = np.bincount(feature, exact.kl[:, 0])
    later = np.bincount(feature, exact.kl[:, 1:].sum(1))
    sampler = make_sampler(decoder, LAYER, span=SPAN, draws=16, at_once=32)
    sampled = sampler(params, batch, sequence, position, jax.random.key(0))
    found = all_features(sampled, jnp.asarray(active), jnp.asarray(w))
    rank = spearman(np.asarray(found.later / found.own), later / own)
    assert rank.r >= 0.95
    # by jobs: the same sums, and unbiased
    single = of_jobs(sampled, jnp.asarray(place), jnp.asarray(delta))
    for name, mine, truth in (("own", 0, exact.kl[:, 0]), ("later", 1, exact.kl[:, 1:].sum(1))):
        sums = np.bincount(feature, single[mine])
        np.testing.assert_allclose(sums, found[mine], rtol=2e-4, err_msg=name)
        assert single[mine].sum() == pytest.approx(truth.sum(), rel=0.1)


def test_unbiased():
    """Many draws at one place: the matrices themselves, from a Jacobian in NumPy."""
    decoder, params, batch = model(0.2)
    s, i, draws = 5, 3, 4096
    one = jax.tree.map(lambda x: x[s : s + 1], batch)
    time = jnp.arange(12)

    def logits(delta):
        edit = lambda x: jnp.where((time == i)[:, None], x + delta, x)
        return forward(decoder, params, one, edits={LAYER: edit}).logits[0, i : i + SPAN]

    both = jax.jit(lambda x: (jax.jacrev(logits)(x), jax.nn.softmax(logits(x))))
    jacobian, p = map(np.asarray, both(jnp.zeros(16)))  # [span, V, D], [span, V]
    fisher = np.stack([np.diag(row) - np.outer(row, row) for row in p])
    each = np.einsum("jvd,jvu,jue->jde", jacobian, fisher, jacobian)
    for kind in ("signs", "labels"):
        sampler = make_sampler(decoder, LAYER, span=SPAN, draws=draws, kind=kind, pack=1, at_once=1)
        found = sampler(params, batch, [s], [i], jax.random.key(0))
        for cotangent, truth in zip(found, (each[0], each[1:].sum(0))):
            mean = np.einsum("md,me->de", cotangent[0], cotangent[0]) / draws
            # an entry's standard error is sqrt(2 / 4096) = 2.2 % of the largest: five of them
            np.testing.assert_allclose(mean, truth, atol=0.12 * np.abs(truth).max(), err_msg=kind)


def test_repeated_places_and_last_layer():
    """A place that stands twice has the same cotangents; at layer N nothing is pre-cached."""
    decoder = tiny.gpt2(2)
    params = jax.tree.map(jnp.asarray, tiny.params_of(decoder))
    batch = tiny.batch_of(3)
    sampler = make_sampler(decoder, 2, span=3, draws=2, pack=2, at_once=2)
    found = sampler(params, batch, [2, 0, 2], [1, 4, 1], jax.random.key(0))
    np.testing.assert_array_equal(found.direct[0], found.direct[2])
    assert np.abs(found.direct).min(axis=(1, 2)).max() > 0
    np.testing.assert_array_equal(found.precached, 0)
    with pytest.raises(UserError, match="draws: 0"):
        make_sampler(decoder, 2, draws=0)
    with pytest.raises(UserError, match=r"layer 3 is out of range: valid layers are 0..2"):
        make_sampler(decoder, 3)
