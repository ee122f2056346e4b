"""Are recomputed columns those of a whole forward pass, and the scores those that were planted?"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from experiments.planted_scores import LAYER, known_effects, plant
from jaxfeat.features.effects import Effects, Jobs, make_effects, make_packs
from jaxfeat.features.sae import SAE, ablation, encode
from jaxfeat.features.score import precaching_scores
from jaxfeat.nn.blocks import forward
from jaxfeat.types import UserError

SPAN = 4
minus = lambda given, feature, resid: -given[feature]
DECODERS = {
    "gpt2": tiny.gpt2(2),
    "windows": tiny.windowed(4),
    "tuple": tiny.windowed(3, as_tuple=True),
}


def make_whole(decoder, params, batch, span):
    """KL by two whole forward passes and NumPy: `(layer, s, i, delta) -> [span]`, one job."""

    batch = jax.tree.map(np.asarray, batch)

    @jax.jit
    def logits(token, mask, position, taps):
        one = batch._replace(token=token, mask=mask, position=position, target=token, weight=mask)
        one = jax.tree.map(lambda x: x[None], one)
        return forward(decoder, params, one, taps=taps[None]).logits[0]

    def log_p(s, layer, i, delta):
        taps = np.zeros((decoder.layers + 1, batch.token.shape[1], decoder.width))
        taps[layer, i] = delta
        found = logits(batch.token[s], batch.mask[s], batch.position[s], taps)
        found = np.asarray(found, np.float64)
        return found - np.log(np.exp(found).sum(1, keepdims=True))

    def kl(layer, s, i, delta):
        base, other = (log_p(s, layer, i, d) for d in (0, delta))
        found = (np.exp(base) * (base - other)).sum(1)
        found = np.where(np.asarray(batch.mask[s]), found, 0)
        return np.pad(found, (0, span))[i : i + span]

    return kl


def jobs_of(batch, features, seed=0):
    """Jobs at every real place, some places with several features, in random order."""
    rng = np.random.default_rng(seed)
    s, i = np.nonzero(np.asarray(batch.mask))
    jobs = np.stack([np.repeat(s, 2), np.repeat(i, 2), rng.integers(0, features, 2 * len(s))])
    return Jobs(*jobs[:, rng.permutation(jobs.shape[1])[: len(s)]])


@pytest.mark.parametrize("name", DECODERS)
def test_columns_are_those_of_a_whole_pass(name):
    """Every layer, padding on either side, windows that reach beyond the end, any packing."""
    decoder = DECODERS[name]
    batch = tiny.batch_of(4, pads=1, side="left" if name == "windows" else "right")
    rng = np.random.default_rng(1)
    with jax.enable_x64(True):
        params = tiny.to64(tiny.params_of(decoder))
        given = jnp.asarray(rng.standard_normal((5, tiny.WIDTH)))
        whole = make_whole(decoder, params, batch, SPAN)
        packs = {0: (1, 3), 1: (4, 2), 2: (2, 4)} if name == "gpt2" else {1: (2, 4)}
        for layer, (pack, at_once) in packs.items():
            jobs = jobs_of(batch, 5, layer)
            expected = [whole(layer, s, i, -given[f]) for s, i, f in zip(*jobs)]
            run = make_effects(decoder, layer, minus, span=SPAN, pack=pack, at_once=at_once)
            found = run(params, batch, jobs, given)
            np.testing.assert_allclose(found.kl, expected, rtol=1e-9, atol=1e-13)
            mask = np.pad(np.asarray(batch.mask), ((0, 0), (0, SPAN)))
            inside = [mask[s, i : i + SPAN] for s, i, _ in zip(*jobs)]
            np.testing.assert_array_equal(found.counted, inside)


def test_planted_scores():
    """Q is what the construction says: below .05 if direct, above 20 if pre-cached."""
    planted = plant(sequences=4)
    count = len(planted.directions)
    s, f = np.divmod(np.arange(4 * count), count)
    jobs = Jobs(s, 3 + s, f)
    run = make_effects(planted.decoder, LAYER, minus, pack=16, at_once=4)
    with jax.enable_x64(True):
        found = run(tiny.to64(planted.params), planted.batch, jobs, jnp.asarray(planted.directions))
    tokens = np.asarray(planted.batch.token)
    known = [
        known_effects(planted.params, tokens[s], i, -planted.directions[f], 10)
        for s, i, f in zip(*jobs)
    ]
    np.testing.assert_allclose(found.kl, known, rtol=1e-9, atol=1e-14)
    q = precaching_scores(found, f, count).q
    expected = precaching_scores(Effects(np.array(known), found.counted), f, count).q
    np.testing.assert_allclose(q[:-1], expected[:-1], rtol=1e-9, atol=1e-12)
    assert q[0] < 0.05 and q[-1] > 20 and (np.diff(q) > 0).all()


def test_quadratic_form():
    """At f = .01 the KL is its quadratic form within 2 %, and the form scales as f squared."""
    decoder, batch = DECODERS["gpt2"], tiny.batch_of(3)
    with jax.enable_x64(True):
        params = tiny.to64(tiny.params_of(decoder))
        rng = np.random.default_rng(0)
        w = rng.standard_normal((40, tiny.WIDTH))
        w /= np.linalg.norm(w, axis=1, keepdims=True)
        jobs = Jobs(np.arange(40) % 3, np.arange(40) % 3, np.arange(40))
        run, form = (
            make_effects(decoder, 1, minus, span=SPAN, quadratic=q, pack=8) for q in (False, True)
        )
        small, whole_form = run(params, batch, jobs, 0.01 * w), form(params, batch, jobs, w)
    np.testing.assert_allclose(small.kl, 1e-4 * whole_form.kl, rtol=0.02, atol=1e-12)
    assert whole_form.kl.min() > 1e-6


def test_packs():
    """Every job stands in one place; packs repeat real jobs where nothing is asked."""
    rng = np.random.default_rng(0)
    jobs = Jobs(*(rng.integers(0, n, 200) for n in (7, 5, 30)))
    for pack in (1, 2, 8, 64):
        made = make_packs(jobs, pack)
        asked = made.job >= 0
        np.testing.assert_array_equal(np.sort(made.job[asked]), np.arange(200))
        where = np.broadcast_to(made.position[..., None], made.job.shape)
        np.testing.assert_array_equal(where[asked], jobs.position[made.job[asked]])
        np.testing.assert_array_equal(made.feature[asked], jobs.feature[made.job[asked]])
        rows = np.broadcast_to(made.sequence[:, None, None], made.job.shape)
        np.testing.assert_array_equal(rows[asked], jobs.sequence[made.job[asked]])
        assert np.prod(made.job.shape[1:]) <= pack


def test_scores():
    """Both ratios, interval, dropped features and near-zero denominators, against plain loops."""
    rng = np.random.default_rng(0)
    kl = rng.gamma(1.0, 1.0, (60, 3)) * 0.1
    feature = np.r_[np.repeat([0, 1, 3], 18), [4] * 6]
    kl[feature == 1] *= 1e-3
    kl[18 * 2 :, 0][:2] = 0
    kl[feature == 4, 0] = 0
    found = precaching_scores(Effects(kl, kl >= 0), feature, 5, draws=4000)
    for f in (0, 1, 3):
        own, later = kl[feature == f, 0], kl[feature == f, 1:].sum(1)
        assert found.q[f] == pytest.approx(later.sum() / own.sum())
        assert found.mean_of_ratios[f] == pytest.approx((later[own > 0] / own[own > 0]).mean())
        drawn = rng.integers(0, len(own), (4000, len(own)))
        ratio = later[drawn].sum(1) / own[drawn].sum(1)
        for low, q in ((found.low[f], 2.5), (found.high[f], 97.5)):
            assert low == pytest.approx(np.percentile(ratio, q), rel=0.08)
    assert found.kept.tolist() == [True, False, False, True, True]
    assert found.near_zero.tolist() == [0, 0, 0, 2, 6]
    assert np.isnan(found.q[2]) and np.isnan(found.q[4]) and np.isnan(found.mean_of_ratios[4])


def test_refusals():
    """What cannot be measured is named with what can."""
    decoder, batch = DECODERS["gpt2"], tiny.batch_of(2, pads=1)
    run = make_effects(decoder, 1, minus)
    given = jnp.zeros((1, tiny.WIDTH))
    params = jax.tree.map(jnp.asarray, tiny.params_of(decoder))
    for call, words in (
        (lambda: make_effects(decoder, 3, minus), "layer 3 is out of range: valid layers are 0..2"),
        (lambda: make_effects(tiny.windowed(2, causal=False), 1, minus), "bidirectional"),
        (lambda: make_effects(decoder, 1, minus, span=0), "span: 0"),
        (lambda: run(params, batch, Jobs([2], [0], [0]), given), "sequence 2..2, valid are 0..1"),
        (lambda: run(params, batch, Jobs([0], [-1], [0]), given), "position -1"),
        (lambda: run(params, batch, Jobs([1], [5], [0]), given), "padding"),
        (lambda: run(params, batch, Jobs([], [], []), given), "jobs: shapes"),
        (lambda: run(params, batch, Jobs([0.5], [0], [0]), given), "whole numbers"),
        (lambda: precaching_scores(Effects(np.ones((1, 2)), None), [3], 3), "valid are 0..2"),
        (lambda: precaching_scores(Effects(np.ones((1, 2)), None), [0, 0], 3), "1,"),
    ):
        with pytest.raises(UserError, match=words):
            call()


def test_autoencoders_that_do_not_fit():
    """Of another width or layer, or without the feature: refused before anything is computed."""
    decoder, batch = tiny.gpt2(2), tiny.batch_of(2)
    params = jax.tree.map(jnp.asarray, tiny.params_of(decoder))
    run = make_effects(decoder, 1, ablation, span=SPAN)

    def sae(width=tiny.WIDTH, layer=1):
        w = np.ones((width, 3), np.float32)
        return SAE(w, np.zeros(3), w.T, np.zeros(width), np.zeros(3), "relu", 0, layer)

    for given, feature, words in (
        (sae(layer=2), 0, "sae: of layer 2, layer 1 asked for"),
        (sae(width=5), 0, "sae: of width 5"),
        (sae(), 3, r"id 3 is out of range: valid ids are 0\.\.2"),
        (sae(), -1, "id -1 is out of range"),
    ):
        with pytest.raises(UserError, match=words):
            run(params, batch, Jobs([0], [1], [feature]), given)
    with pytest.raises(UserError, match="sae: of width 5, the residual has"):
        encode(sae(width=5), jnp.ones((2, tiny.WIDTH)))
