"""Does training find planted directions, keep its promises step by step, and revive the dead?"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxfeat.features.activations import Activations, from_rows
from jaxfeat.features.sae import SAE, decode, encode
from jaxfeat.features.sae_train import in_model_units, train_sae
from jaxfeat.features.sae_update import (
    ADAM,
    SAEConfig,
    init_state,
    learning_rate,
    revive,
    update,
)
from jaxfeat.types import UserError

WIDTH, PLANTED, ACTIVE = 32, 64, 3
CONFIG = SAEConfig(features=PLANTED, k=ACTIVE, batch=256, steps=1000, learning_rate=3e-3,
                   dead_after=5000)  # fmt: skip
SMALL = SAEConfig(features=12, k=2, batch=16, steps=40, warm_up=10, dead_after=100)
KEY = jax.random.key(0)


def planted(rows=20_000, seed=0):
    """Unit directions `[64, 32]`, and rows that are sums of three of them, away from 0."""
    rng = np.random.default_rng(seed)
    w = rng.standard_normal((PLANTED, WIDTH))
    w /= np.linalg.norm(w, axis=1, keepdims=True)
    active = rng.random((rows, PLANTED)).argsort(axis=1) < ACTIVE
    f = active * rng.uniform(0.5, 2, (rows, PLANTED))
    return w, (7 * (f @ w) + 30 * rng.standard_normal(WIDTH)).astype(np.float32)


W, ROWS = planted()
FOUND = from_rows(ROWS, layer=3)


def best_cosine(sae):
    return (W @ np.asarray(sae.w_dec).T).max(axis=1).mean()


def rows_of(count, width=6, seed=2):
    return np.random.default_rng(seed).standard_normal((count, width)).astype(np.float32)


@pytest.mark.slow
def test_planted_directions():
    """Two seeds find what is there, each in its own way, and the same key the same bits."""
    first, again, other = (train_sae(jax.random.key(n), FOUND, CONFIG) for n in (0, 0, 1))
    for out in (first, other):
        assert best_cosine(out.sae) > 0.95
        assert out.metrics.explained > 0.85 and out.metrics.l0 <= ACTIVE
        assert out.metrics.rows == 1000
        assert out.history["missed"].shape == (CONFIG.steps,)
        assert out.history["missed"][-50:].mean() < 0.2 < out.history["missed"][:10].mean()
        np.testing.assert_allclose(np.linalg.norm(out.sae.w_dec, axis=1), 1, rtol=1e-5)
        assert (out.sae.kind, out.sae.k, out.sae.layer) == ("topk", ACTIVE, 3)
    for a, b, c in zip(*(jax.tree.leaves(x.sae)[:4] for x in (first, again, other))):
        np.testing.assert_array_equal(a, b)
        assert np.abs(a - c).max() > 0.1
    assert best_cosine(untrained := in_units(init_state(KEY, CONFIG, WIDTH).params)) < 0.7
    assert untrained.scale == 2.0


def in_units(params, config=CONFIG):
    return in_model_units(config, params, np.full(len(params["b_dec"]), 0.5), 2.0, 3)


@pytest.mark.parametrize(
    ("kind", "penalty", "rate"), [("relu", 0.1, 6e-3), ("jumprelu", 0.02, 3e-3)]
)
def test_other_kinds(kind, penalty, rate):
    """Penalties make codes sparse; thresholds learn to lie between noise and signal."""
    how = {"kind": kind, "penalty": penalty, "learning_rate": rate, "steps": 2000}
    config = dataclasses.replace(CONFIG, **how)
    out = train_sae(KEY, FOUND, config)
    assert best_cosine(out.sae) > 0.95
    assert out.metrics.l0 < 10 and out.metrics.explained > 0.85
    free = dataclasses.replace(config, penalty=1e-6, steps=300)
    assert train_sae(KEY, FOUND, free).metrics.l0 > 15
    start = config.bandwidth / float(out.sae.scale)
    threshold = np.asarray(out.sae.threshold)
    assert (threshold > 2 * start).mean() > 0.8 if kind == "jumprelu" else not threshold.any()


def test_dead_features_are_revived():
    """Encoders that see nothing: with revival all is found, without it nothing can be."""
    config = dataclasses.replace(CONFIG, dead_after=2000)
    kept = init_state(KEY, config, WIDTH)
    blind = kept._replace(params=kept.params | {"b_enc": jnp.full(PLANTED, -1e4)})
    x = ROWS - ROWS.mean(0)
    x = jnp.asarray(x / x.std())

    @jax.jit(static_argnums=1)
    def run(state, config):
        def step(state, n):
            rows = jax.lax.dynamic_slice_in_dim(x, n % 78 * 256, 256)
            return update(config, state, rows, jax.random.fold_in(KEY, n), n)

        return jax.lax.scan(step, state, jnp.arange(300))

    out, told = run(blind, config)
    revived = np.asarray(told["revived"])
    assert not revived[:8].any() and revived[8] == PLANTED
    assert np.asarray(told["dead"])[[7, 8, 9]].tolist() == [0, 1, 0]
    assert told["missed"][-1] < 0.4 and out.idle.max() < 2000
    lost, told = run(blind, dataclasses.replace(config, dead_after=10**9))
    assert told["missed"][-1] > 0.95 and not told["l0"].any()
    np.testing.assert_array_equal(lost.params["w_enc"], blind.params["w_enc"])


def test_revive():
    """Only the dead change: unit errors of rows that differ, encoder as long as the living's."""
    config = dataclasses.replace(SMALL, kind="jumprelu", penalty=1.0)
    state = init_state(KEY, config, 6)
    some = jax.tree.map(lambda m: m + 1, state.moments)
    state = state._replace(moments=some, idle=jnp.arange(12), params=state.params | {
        "w_enc": 3 * state.params["w_enc"], "threshold": jnp.full(12, 9.0)})  # fmt: skip
    dead, x = np.isin(np.arange(12), (1, 7)), rows_of(16)
    out = revive(config, state, jnp.asarray(x), jnp.asarray(dead), KEY)
    for name, axis in (("w_enc", 1), ("w_dec", 0), ("b_enc", 0), ("threshold", 0)):
        for old, new in zip(*((s.params, s.moments.mu, s.moments.nu) for s in (state, out))):
            new, old = (np.moveaxis(np.asarray(tree[name]), axis, 0) for tree in (new, old))
            np.testing.assert_array_equal(new[~dead], old[~dead])
        assert not new[dead].any() and new[~dead].all()  # of the moments
    new = np.asarray(out.params["w_dec"])[dead]
    error = x - np.asarray(state.params["b_dec"])  # nothing passes a threshold of 9
    unit = error / np.linalg.norm(error, axis=1, keepdims=True)
    matches = np.isclose(new @ unit.T, 1, atol=1e-5)
    assert (matches.sum(1) == 1).all() and (matches.sum(0) <= 1).all()
    np.testing.assert_allclose(np.asarray(out.params["w_enc"]).T[dead], 3 * new, rtol=1e-5)
    assert np.asarray(out.params["threshold"])[dead].tolist() == pytest.approx([0.3, 0.3])
    assert out.idle.tolist() == [0, 0, 2, 3, 4, 5, 6, 0, 8, 9, 10, 11]


def test_one_update_by_hand():
    """Adam's first step is the rate in the direction of the gradient's sign; rows keep norm 1."""
    config = dataclasses.replace(SMALL, kind="relu", penalty=0.3, warm_up=0)
    state, x = init_state(KEY, config, 6), rows_of(16)
    p = {name: np.asarray(value, np.float64) for name, value in state.params.items()}
    f = np.maximum(x @ p["w_enc"], 0)
    error = f @ p["w_dec"] - x
    pull = 2 * error / error.size  # of mean |error|^2 / D
    back = (pull @ p["w_dec"].T + 0.3 / np.sqrt(6) / 16) * (f > 0)
    turned = f.T @ pull
    turned -= (turned * p["w_dec"]).sum(1, keepdims=True) * p["w_dec"]
    out, told = update(config, state, jnp.asarray(x), KEY, 0)
    rate = config.learning_rate
    for name, grad in (("w_enc", x.T @ back), ("b_enc", back.sum(0)), ("b_dec", pull.sum(0))):
        np.testing.assert_allclose(out.params[name], p[name] - rate * np.sign(grad), atol=1e-5)
    moved = p["w_dec"] - rate * np.sign(turned)
    moved /= np.linalg.norm(moved, axis=1, keepdims=True)
    np.testing.assert_allclose(out.params["w_dec"], moved, atol=1e-5)
    assert float(told["missed"]) == pytest.approx((error**2).mean(), rel=1e-5)
    assert float(told["l0"]) == pytest.approx((f > 0).sum(1).mean(), rel=1e-6)
    np.testing.assert_array_equal(out.idle, np.where((f > 0).any(0), 0, 16))


def test_thresholds_learn():
    """Straight-through gradients: `-t near` through f and `-near` through the count."""
    config = dataclasses.replace(SMALL, kind="jumprelu", penalty=0.7, bandwidth=1.0)
    state, x = init_state(KEY, config, 6), rows_of(16)
    p = {name: np.asarray(value, np.float64) for name, value in state.params.items()}
    pre, t = x @ p["w_enc"], p["threshold"]
    f, near = pre * (pre > t), np.abs(pre - t) < 0.5
    pull = 2 * (f @ p["w_dec"] - x) / x.size
    wanted = (-(t * (pull @ p["w_dec"].T) + 0.7 / 16) * near).sum(0)
    moments = update(config, state, jnp.asarray(x), KEY, 0)[0].moments
    np.testing.assert_allclose(moments.mu["threshold"] / 0.1, wanted, atol=1e-6)
    assert near.any() and ADAM.init(state.params).mu["threshold"].shape == (12,)


def test_units_are_folded():
    """What is folded does to x what the normalised one does to `scale (x - centre)`."""
    x = rows_of(50).astype(np.float64) + 4
    with jax.enable_x64(True):
        for kind in ("topk", "relu", "jumprelu"):
            config = dataclasses.replace(SMALL, kind=kind)
            params = jax.tree.map(
                lambda a: jnp.asarray(np.random.default_rng(a.size).normal(size=a.shape)),
                init_state(KEY, config, 6).params,
            )
            centre, scale = x[0] + 1, 0.37
            inner = SAE(**params, kind=kind, k=2, layer=3)
            sae = in_model_units(config, params, centre, scale, 3)
            f, out = encode(inner, scale * (x - centre[None])), encode(sae, x)
            np.testing.assert_allclose(out, f / scale, atol=1e-12)
            wanted = decode(inner, f) / scale + centre[None]
            np.testing.assert_allclose(decode(sae, out), wanted, atol=1e-12)
            assert (sae.scale, sae.k) == (scale, 2 if kind == "topk" else 0)


def test_normalised_rows():
    """Shifting and scaling all rows changes the SAE's units alone."""
    x = rows_of(400)
    a = train_sae(KEY, from_rows(x, 0), SMALL)
    b = train_sae(KEY, from_rows(4 * x, 0), SMALL)  # a power of two, so that bits agree
    np.testing.assert_array_equal(a.sae.w_dec, b.sae.w_dec)
    np.testing.assert_array_equal(4 * np.asarray(a.sae.b_dec), b.sae.b_dec)
    assert a.sae.scale == 4 * b.sae.scale and a.metrics.explained == b.metrics.explained
    centred = x[:380].astype(np.float64) - x[:380].mean(0)
    assert (a.sae.scale**2 * (centred**2).sum(1)).mean() == pytest.approx(6)


def test_rows_are_kept_apart(tmp_path):
    """Special positions and held-out sequences hold what training must not see; also from disk."""
    x = rows_of(60 * 5).reshape(60, 5, 6)
    kept = np.ones((60, 5), bool)
    kept[:, 0] = False
    x[:, 0], x[57:] = np.nan, 1e3 + 1e6 * x[57:]
    disk = np.memmap(tmp_path / "x", np.float32, "w+", shape=x.shape)
    disk[:] = x
    seen = []
    out = train_sae(KEY, Activations(disk, kept, 0), SMALL, on_log=lambda *a: seen.append(a))
    assert out.metrics.rows == 3 * 4 and 0.5 < float(out.sae.scale) < 2
    clean = np.where(np.isnan(x), 0, x)
    clean[57:] = 0
    clean[57:, 1:] += rows_of(12).reshape(3, 4, 6)
    other = train_sae(KEY, Activations(clean, kept, 0), SMALL)
    np.testing.assert_array_equal(out.sae.w_dec, other.sae.w_dec)
    assert seen[-1][0] == SMALL.steps
    assert sum(len(history["l0"]) for _, history in seen) == SMALL.steps


def test_dispatches(monkeypatch):
    """How many updates go in one dispatch changes nothing; the last one may be shorter."""
    whole = train_sae(KEY, from_rows(rows_of(400), 0), SMALL)
    monkeypatch.setattr("jaxfeat.features.sae_train.MOST", 15)
    parts = train_sae(KEY, from_rows(rows_of(400), 0), SMALL)
    for a, b in zip(jax.tree.leaves(whole[:2]), jax.tree.leaves(parts[:2]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_rate():
    """Up, flat, and down to nearly 0."""
    rates = [float(learning_rate(SMALL, step)) / SMALL.learning_rate for step in range(40)]
    np.testing.assert_allclose(rates[:11], [*(np.arange(10) + 1) / 10, 1], rtol=1e-6)
    assert [rates[n] for n in (32, 36, 39)] == pytest.approx([1, 0.5, 1 / 8])


@pytest.mark.parametrize(("changed", "told"), [
    ({"kind": "gated"}, "kind: 'gated' given; valid: jumprelu, relu, topk"),
    ({"features": 0}, "features: 0 given"),
    ({"k": 13}, r"k: 13 given, a whole number, 1\.\.12"),
    ({"steps": 0}, "steps: 0 given"),
    ({"batch": 2.5}, "batch: 2.5 given"),
    ({"dead_after": 0}, "dead_after: 0 given"),
    ({"warm_up": -1}, "warm_up: -1 given"),
    ({"learning_rate": 0.0}, "learning_rate: 0 given, a number above 0"),
    ({"learning_rate": float("nan")}, "learning_rate: nan given, a finite number"),
    ({"bandwidth": "wide"}, "bandwidth: 'wide' given, a finite number"),
    ({"penalty": 0.1}, "penalty: 0.1 given; topk has 0"),
    ({"kind": "relu"}, "penalty: 0.0 given; topk has 0, relu and jumprelu more than 0"),
    ({"held_out": 0.0}, "held_out: 0.0 given"),
    ({"learning_rate": 1e30, "warm_up": 0}, r"not finite within updates 0\.\.40: a lower"),
])  # fmt: skip
def test_refused(changed, told):
    config = dataclasses.replace(SMALL, **changed)
    with pytest.raises(UserError, match=told):
        train_sae(KEY, from_rows(rows_of(400), 0), config)


def test_equal_rows():
    with pytest.raises(UserError, match="stream: rows that differ and are finite needed"):
        train_sae(KEY, from_rows(np.ones((100, 6), np.float32), 0), SMALL)
