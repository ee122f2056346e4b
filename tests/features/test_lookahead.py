"""Does a mapper find what the residual says of a later token, and which directions it reads?"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from jaxfeat.features.lookahead import (
    ahead_batch,
    correlate_cosines,
    fit_mappers,
    identity_mappers,
    mapper_losses,
    projection_cosines,
)
from jaxfeat.nn.blocks import residuals
from jaxfeat.nn.decoder import Decoder
from jaxfeat.nn.loss import batch_loss
from jaxfeat.types import Batch, UserError

V, LENGTH = 6, 9  # token 0 is a marker, the others turn in a circle
KEY = jax.random.key(0)


def toy():
    """No block that does anything; one-hot tokens, beside them noise that the head also reads."""

    def init(key):
        outer = {"in": jnp.eye(V), "noise": jax.random.normal(key, (LENGTH, V, V))}
        return {"outer": outer, "blocks": {"o": jnp.zeros((1, 1))}}

    none = lambda b, const, x, position: jnp.zeros((1, 1), x.dtype)
    return Decoder(
        layers=1,
        width=2 * V,
        vocab=V,
        init=init,
        embed=lambda o, token, t: jnp.concatenate([o["in"][token], o["noise"][t, token]]),
        query=none,
        memory=lambda b, const, x, position: (none(b, const, x, position),) * 2,
        attn_out=lambda b, const, mixed: jnp.zeros(2 * V, mixed.dtype),
        mlp_out=lambda b, const, x, attn: jnp.zeros_like(x),
        unembed=lambda o, x, ids=None: o["in"] @ (x[:V] + x[V:]),
    )


def sequences():
    """Marker, then two chains beside one another: x[t+2] = x[t] + 1, x[t+1] says nothing."""
    a, b = np.meshgrid(np.arange(5), np.arange(5), indexing="ij")
    t = np.arange(LENGTH - 1)
    x = (np.where(t % 2, b.reshape(-1, 1), a.reshape(-1, 1)) + t // 2) % 5 + 1
    tokens = np.pad(x, ((0, 0), (1, 0))).astype(np.int32)
    tokens = tokens[np.random.default_rng(0).permutation(25)]
    return tokens, tokens == 0


def test_planted_next_but_one():
    """Only s = 2 is learned, on windows not seen; its mapper reads the tokens, not the noise."""
    decoder, (tokens, special) = toy(), sequences()
    params = decoder.init(jax.random.key(1))
    seen = []
    fit = fit_mappers(
        decoder, params, 1, (tokens[:18], special[:18]), (tokens[18:], special[18:]), KEY,
        ahead=3, updates=300, batch=6, rate=0.4, watch=lambda n, losses: seen.append(n),
    )  # fmt: skip
    assert seen == list(range(300)) and fit.trace.shape == (300, 3)
    np.testing.assert_array_equal(fit.targets, 7 * (LENGTH - 1 - np.arange(1, 4)))
    assert fit.after[1] < 0.1 < 1.5 < fit.before[1]
    assert fit.after[0] > 1.2  # ln 5 = 1.61 says nothing
    assert fit.trace[-1, 1] < 0.1 < fit.trace[0, 1]
    cosines = projection_cosines(fit.mappers.w[1], jnp.eye(2 * V))
    token, noise = np.asarray(cosines[1:V, 4]), np.asarray(cosines[V:, 4])
    assert token.min() > 0.8 > 0.6 > noise.max(), (token, noise)
    # the marker's direction is never trained
    read = correlate_cosines(cosines[1:], np.arange(1, 2 * V) < V, [5])[0]
    assert read.r > 0.7


def test_identity_is_the_model():
    """Untrained, s = 1, layer N: the model's own loss; float64, and logits a few at a time."""
    with jax.enable_x64(True):
        decoder = tiny.gpt2(dtype="float64")
        params = tiny.to64(tiny.params_of(decoder))
        batch = tiny.batch_of(3)
        special = batch.token % 4 == 1
        resid = residuals(decoder, params, batch)[0][:, -1]
        shifted = ahead_batch(batch.token, special, 1)
        count = int(shifted.weight.sum())
        own = batch_loss(decoder, params["outer"], resid, shifted)
        mappers = identity_mappers(tiny.WIDTH, 3, jnp.float64)
        args = (decoder, params["outer"], mappers, resid, batch.token, special)
        total, counts = mapper_losses(*args)
        few, _ = mapper_losses(*args, entries=40)
    assert counts[0] == count < special.size - 3
    np.testing.assert_allclose(float(total[0]) / count, own, rtol=1e-13)
    np.testing.assert_allclose(total, few, rtol=1e-13)


def test_losses_are_those_of_a_loop():
    """Random maps, position by position in NumPy, without a norm; what is special never counts."""
    decoder, rng = tiny.windowed(2), np.random.default_rng(0)
    out = rng.normal(size=(tiny.VOCAB, tiny.WIDTH))
    resid = rng.normal(size=(2, 5, tiny.WIDTH))
    w, b = rng.normal(size=(3, tiny.WIDTH, tiny.WIDTH)), rng.normal(size=(3, tiny.WIDTH))
    tokens = rng.integers(0, tiny.VOCAB, (2, 5))
    special = np.zeros((2, 5), bool)
    special[0, 0] = special[1, 2] = True
    dirty = np.where(special[..., None], np.nan, resid)
    with jax.enable_x64(True):
        mappers = identity_mappers(tiny.WIDTH, 3, jnp.float64)._replace(w=jnp.asarray(w), b=b)
        found = mapper_losses(
            decoder, {"out": out}, mappers, jnp.asarray(dirty), jnp.asarray(tokens), special
        )
    for s in (1, 2, 3):
        losses = []
        for n in range(2):
            for t in range(5 - s):
                if special[n, t] or special[n, t + s]:
                    continue
                logits = out @ (w[s - 1] @ resid[n, t] + b[s - 1])
                losses.append(np.log(np.exp(logits).sum()) - logits[tokens[n, t + s]])
        np.testing.assert_allclose(found[0][s - 1], sum(losses), rtol=1e-12)
        assert found[1][s - 1] == len(losses)


def test_targets_end_with_the_window():
    """Nothing wraps around, at any s; s may be traced."""
    tokens = jnp.arange(8).reshape(2, 4)
    for s in range(1, 5):
        batch = jax.jit(ahead_batch)(tokens, jnp.zeros((2, 4), bool), s)
        assert isinstance(batch, Batch)
        assert batch.weight.tolist() == [[t + s < 4 for t in range(4)]] * 2
        np.testing.assert_array_equal(batch.target[:, : 4 - s], tokens[:, s:])


def test_cosines_equal_a_loop():
    """Against NumPy's SVD, rank by rank; the last is 1; scale does not matter, zeros give NaN."""
    rng = np.random.default_rng(3)
    w, e = rng.normal(size=(6, 6)), rng.normal(size=(9, 6))
    e[8] = 0
    with jax.enable_x64(True):
        found = np.asarray(projection_cosines(w, e))
        scaled = np.asarray(projection_cosines(3 * w, -7 * e))
    right = np.linalg.svd(w)[2]
    for m in range(8):
        for r in range(1, 7):
            expected = np.linalg.norm(right[:r] @ e[m]) / np.linalg.norm(e[m])
            np.testing.assert_allclose(found[m, r - 1], expected, rtol=1e-12)
    np.testing.assert_allclose(found[:8, -1], 1, rtol=1e-14)
    np.testing.assert_allclose(scaled, found, rtol=1e-12)
    assert np.isnan(found[8]).all() and (found[:8] <= 1).all()
    planted = np.eye(6) + 5 * np.outer(e[0], e[1]) / np.linalg.norm(e[1])
    # what is read is the right factor of what was added, not the left one
    cosines = projection_cosines(planted, e[:2])[:, 0]
    assert cosines[1] > 0.99 > cosines[0]


def test_correlation_leaves_out_the_unknown():
    cosines = np.array([[0.1, 1], [0.2, 1], [np.nan, 1], [0.3, 1], [0.9, 1]])
    first, last = correlate_cosines(cosines, [5, 4, 1, 3, np.nan], [1, 2])
    assert first.r == -1 and first.n == 3 and np.isnan(last.r)


def test_refusals():
    """What does not fit is named."""
    decoder, (tokens, special) = toy(), sequences()
    params = decoder.init(KEY)
    train, held = (tokens[:4], special[:4]), (tokens[4:6], special[4:6])
    for sides, options, words in (
        ((train, train), {}, "held: 4 windows also stand in train"),
        ((train, held), {"ahead": 9}, r"ahead: 9 given, a whole number, 1\.\.8"),
        ((train, held), {"rate": 0.0}, "rate: 0.0"),
        ((train, held), {"updates": 0}, "updates: 0"),
        ((train, (tokens + 1, special)), {}, r"held: ids 1\.\.6"),
        ((train, (tokens, special[:1])), {}, "special: shape"),
    ):
        with pytest.raises(UserError, match=words):
            fit_mappers(decoder, params, 1, *sides, KEY, **options)
    with pytest.raises(UserError, match=r"layer: 2 given, a whole number, 0\.\.1"):
        fit_mappers(decoder, params, 2, train, held, KEY)
    with pytest.raises(UserError, match=r"directions \(2, 3\)"):
        projection_cosines(np.eye(2), np.ones((2, 3)))
    for cosines, q, ranks, words in (
        (np.ones((2, 3)), [1.0], [1], r"cosines \(2, 3\) and q \(1,\)"),
        (np.ones((2, 3)), [1.0, 2.0], [4], r"ranks: 4 given, a whole number, 1\.\.3"),
        (np.ones((1, 3)), [np.nan], [1], "a: no values"),
    ):
        with pytest.raises(UserError, match=words):
            correlate_cosines(cosines, q, ranks)
