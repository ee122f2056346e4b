"""Do encoding and decoding say what NumPy says, and does an ablation take out its feature alone?"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from tiny import QUICK, WIDTH

from jaxfeat.features.activations import from_rows
from jaxfeat.features.sae import (
    SAE,
    ablated,
    among_largest,
    check_arrays,
    check_features,
    check_sae,
    decode,
    encode,
    encode_some,
    feature_column,
    fold_centre,
    fold_norms,
    fold_scale,
)
from jaxfeat.features.sae_facts import recovered_loss, sae_facts, told_facts
from jaxfeat.nn.blocks import forward
from jaxfeat.nn.loss import mean_loss
from jaxfeat.types import UserError

COUNT, LAYER, K = 20, 1, 3
DECODER = tiny.gpt2(2)
X = np.random.default_rng(1).standard_normal((7, 5, WIDTH))


def make(kind, seed=0, dtype=np.float64):
    """An SAE whose arrays are all random; thresholds of either sign."""
    rng = np.random.default_rng(seed)
    draw = lambda *shape: rng.standard_normal(shape).astype(dtype)
    threshold = draw(COUNT) if kind == "jumprelu" else np.zeros(COUNT, dtype)
    arrays = draw(WIDTH, COUNT), draw(COUNT), draw(COUNT, WIDTH), draw(WIDTH), threshold
    return SAE(*arrays, kind, K if kind == "topk" else 0, LAYER)


def by_hand(sae, x):
    """One position and feature at a time."""
    f = np.zeros((*x.shape[:-1], COUNT))
    for at in np.ndindex(x.shape[:-1]):
        pre = x[at] @ sae.w_enc + sae.b_enc
        largest = np.argsort(-pre)[: sae.k]
        for m in range(COUNT):
            least = max(sae.threshold[m], 0)
            if pre[m] > least and (sae.kind != "topk" or m in largest):
                f[(*at, m)] = pre[m]
    return f


@pytest.mark.parametrize("kind", ["jumprelu", "relu", "topk"])
def test_by_hand(kind):
    sae = make(kind)
    with jax.enable_x64(True):
        f = np.asarray(jax.jit(encode)(sae, X))
        np.testing.assert_allclose(f, by_hand(sae, X), atol=1e-13)
        np.testing.assert_allclose(decode(sae, f), f @ sae.w_dec + sae.b_dec, atol=1e-13)
        np.testing.assert_allclose(encode_some(sae, X, [4, 0]), f[..., [4, 0]], atol=1e-13)
    assert 0 < (f > 0).mean() < 0.6 and f.min() == 0
    if kind == "topk":
        assert (f > 0).sum(-1).max() == K


@pytest.mark.parametrize("dtype", [np.float32, np.float64, jnp.bfloat16])
def test_among_largest(dtype):
    """Numbers of all sizes, rows with fewer than k above 0, and ties, which all stay."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((40, 60)) * 10.0 ** rng.integers(-30, 30, (40, 60))
    rows[:4] -= 2 * np.abs(rows[:4])
    rows[4:8, 2:] = -1
    with jax.enable_x64(True):
        rows = np.asarray(jnp.asarray(rows, dtype))
        found = np.asarray(among_largest(jnp.asarray(rows), 5))
        tied = among_largest(jnp.array([3.0, 2, 2, 1, 0]), 2)
    assert tied.tolist() == [True, True, True, False, False]
    least = np.maximum(np.sort(rows.astype(np.float64), axis=1)[:, -5], 0)
    np.testing.assert_array_equal(found, rows.astype(np.float64) >= least[:, None])
    assert found[8:].sum() == 32 * 5


@pytest.mark.parametrize("kind", ["jumprelu", "relu", "topk"])
def test_ablation_leaves_the_error(kind):
    """x - f w_dec: the reconstruction loses the feature, the error stays; else x bit by bit."""
    sae, x = make(kind, dtype=np.float32), X.astype(np.float32)
    f = np.asarray(encode(sae, x))
    for m in (3, 11):
        out = np.asarray(jax.jit(ablated)(sae, x, m))
        idle = f[..., m] == 0
        assert idle.any() and not idle.all()
        np.testing.assert_array_equal(out[idle].view(np.int32), x[idle].view(np.int32))
        np.testing.assert_allclose(out, x - f[..., [m]] * sae.w_dec[m], atol=2e-6)
        error = x - decode(sae, f)
        np.testing.assert_allclose(out - decode(sae, f * (np.arange(COUNT) != m)), error, atol=5e-6)
        theirs = ablated(sae, x, m, error_term=False)
        np.testing.assert_allclose(theirs, out - error, atol=5e-6)
        assert np.abs(np.asarray(theirs)[idle] - x[idle]).max() > 0.1
    both = ablated(sae, x, [3, 11])
    np.testing.assert_allclose(both, x - f[..., [3, 11]] @ sae.w_dec[[3, 11]], atol=2e-6)
    each = jax.vmap(lambda m: ablated(sae, x, m))(jnp.arange(12))
    np.testing.assert_allclose(each[11], out, atol=2e-6)
    zero = -np.zeros((1, WIDTH), np.float32)
    off = dataclasses.replace(sae, b_enc=np.full(COUNT, -1e3, np.float32))
    assert np.signbit(ablated(off, zero, 3)).all()


def test_ablation_in_a_model():
    """One position changes; a feature that is not active there leaves the logits bit by bit."""
    params, batch, i = tiny.params_of(DECODER), tiny.batch_of(1), 2
    sae = make("jumprelu", dtype=np.float32)
    here = (jnp.arange(tiny.LENGTH) == i)[:, None]

    @jax.jit
    def run(m, on):
        edit = lambda x: jnp.where(here & on, ablated(sae, x, m), x)
        out = forward(DECODER, params, batch, edits={LAYER: edit})
        return out.logits[0], out.resid[0]

    logits, resid = map(np.asarray, run(0, False))
    f = np.asarray(encode(sae, resid[LAYER, i]))
    idle, active = np.flatnonzero(f == 0)[0], f.argmax()
    np.testing.assert_array_equal(np.asarray(run(idle, True)[0]), logits)
    after, changed = map(np.asarray, run(active, True))
    np.testing.assert_array_equal(after[:i], logits[:i])
    assert np.abs(after[i] - logits[i]).max() > 1e-4
    others = np.arange(tiny.LENGTH) != i
    np.testing.assert_array_equal(changed[LAYER, others], resid[LAYER, others])
    moved = resid[LAYER, i] - f[active] * sae.w_dec[active]
    np.testing.assert_allclose(changed[LAYER, i], moved, atol=1e-5)


@pytest.mark.parametrize("kind", ["jumprelu", "relu", "topk"])
def test_folding(kind):
    """What is folded reads raw inputs as the other reads prepared ones."""
    sae, scale, centre = make(kind), 0.37, X[0, 0]
    with jax.enable_x64(True):
        scaled, centred, unit = fold_scale(sae, scale), fold_centre(sae, centre), fold_norms(sae)
        f = encode(sae, scale * X)
        np.testing.assert_allclose(encode(scaled, X), f, atol=1e-13)
        np.testing.assert_allclose(decode(scaled, f), decode(sae, f) / scale, atol=1e-12)
        np.testing.assert_allclose(encode(centred, X), encode(sae, X - centre), atol=1e-13)
        np.testing.assert_allclose(np.linalg.norm(unit.w_dec, axis=1), 1)
        if kind != "topk":  # which chooses by pre |w_dec| now
            np.testing.assert_allclose(
                decode(unit, encode(unit, X)), decode(sae, encode(sae, X)), atol=1e-12
            )
        np.testing.assert_array_equal(encode(fold_scale(sae, 0.5), X), encode(sae, 0.5 * X))
    assert scaled.scale == scale and sae.scale == 1.0


def test_static():
    """kind, k and layer are known while a program is traced; arrays are leaves."""
    sae = make("topk")
    assert len(jax.tree.leaves(sae)) == 6
    seen = jax.jit(lambda s: jnp.zeros((s.k, s.layer)), compiler_options=QUICK)(sae)
    assert seen.shape == (K, LAYER)


def test_columns_and_ids():
    sae = make("relu", dtype=np.float32)
    np.testing.assert_array_equal(feature_column(sae, 4), sae.w_dec[4])
    np.testing.assert_array_equal(feature_column(sae, [4, 0]), sae.w_dec[[4, 0]])
    for wrong in (-1, COUNT, [0, COUNT]):
        with pytest.raises(UserError, match=rf"out of range: valid ids are 0\.\.{COUNT - 1}"):
            check_features(sae, wrong)
    for wrong in (1.5, [], [[1]], "a", True):
        with pytest.raises(UserError, match=r"features: .* whole numbers in 0\.\.19 needed"):
            check_features(sae, wrong)
    for call in (encode_some, ablated):
        with pytest.raises(UserError, match="id 20 is out of range"):
            call(sae, X, COUNT)
    with pytest.raises(UserError, match="only once"):
        ablated(sae, X, [1, 1])


def test_refused():
    sae = make("topk")
    assert check_sae(sae, DECODER) is sae and check_sae(sae, DECODER, LAYER) is sae
    replace = dataclasses.replace
    wide = replace(sae, w_enc=np.zeros((9, COUNT)))
    for call, told in (
        (lambda: check_sae(wide, DECODER), "of width 9, the model's residual has 8"),
        (lambda: check_sae(replace(sae, layer=3), DECODER), r"layer: 3 given, .* 0\.\.2"),
        (lambda: check_sae(sae, DECODER, 2), "of layer 1, layer 2 asked for"),
        (lambda: check_arrays(wide), r"w_dec has shape \(20, 8\), \(20, 9\) needed"),
        (lambda: check_arrays(replace(sae, w_enc=np.zeros(3))), r"w_enc has shape \(3,\)"),
        (lambda: check_arrays(replace(sae, kind="gated")), "'gated' given; valid: jumprelu"),
        (lambda: check_arrays(replace(sae, k=COUNT + 1)), r"k: 21 given, .* 1\.\.20"),
        (lambda: check_arrays(replace(sae, kind="relu")), r"k: 3 given, .* 0\.\.0"),
        (lambda: check_arrays(replace(sae, layer=-1)), "layer: -1 given"),
        (lambda: check_arrays(replace(sae, b_dec=sae.b_dec * np.nan)), "b_dec holds .* finite"),
    ):
        with pytest.raises(UserError, match=told):
            call()


def test_facts():
    """Against sums over all rows at once; the last chunk is part of one, a row is left out."""
    sae, x = make("jumprelu", dtype=np.float32), X.reshape(-1, WIDTH).astype(np.float32) + 3
    found = from_rows(x, LAYER)
    found.kept[5] = False
    facts, x = sae_facts(sae, found, at_once=8), np.delete(x, 5, axis=0)
    f = by_hand(sae, x)
    missed = ((x - f @ sae.w_dec - sae.b_dec) ** 2).sum() / ((x - x.mean(0)) ** 2).sum()
    np.testing.assert_allclose(facts.explained, 1 - missed, rtol=1e-5)
    np.testing.assert_allclose(facts.rate, (f > 0).mean(0), rtol=1e-12)
    assert (facts.l0, facts.rows) == (pytest.approx((f > 0).sum(1).mean()), len(x))
    assert facts.dead == (f == 0).all(0).mean()
    with pytest.raises(UserError, match="width 8 at layer 1, the activations are of width 8 at la"):
        sae_facts(sae, from_rows(x, 2))


def test_recovered_loss():
    """Losses with the edits written out, one example at a time; special positions stay."""
    params, batch = tiny.params_of(DECODER), tiny.batch_of(3, pads=1)
    sae = make("relu", dtype=np.float32)
    special = np.zeros(batch.token.shape, bool)
    special[:, 0] = special[1, 3] = True
    found = recovered_loss(DECODER, params, batch, sae, special, at_once=2)

    @jax.jit
    def loss(edit):
        def one(token, target, mask, weight, position, special):
            example = type(batch)(*(x[None] for x in (token, target, mask, weight, position)))
            rebuilt = lambda x: decode(sae, encode(sae, x))
            new = lambda x: jnp.stack([x, rebuilt(x), jnp.zeros_like(x)])[edit]
            edits = {LAYER: lambda x: jnp.where(special[:, None], x, new(x))}
            return forward(DECODER, params, example, edits=edits).logits[0]

        return mean_loss(jax.vmap(one)(*batch, special), batch)

    losses = [float(loss(edit)) for edit in range(3)]
    np.testing.assert_allclose(found[1:4], losses, rtol=2e-6)
    assert found.share == pytest.approx((losses[2] - losses[1]) / (losses[2] - losses[0]), rel=1e-3)
    assert found.targets == int(batch.weight.sum())
    line = told_facts(sae_facts(sae, from_rows(X[0].astype(np.float32), LAYER)), found)
    assert "explained variance" in line and f"recovered loss {found.share:.3f}" in line
    perfect = SAE(np.eye(WIDTH, 2 * WIDTH) - np.eye(WIDTH, 2 * WIDTH, WIDTH), np.zeros(16),
                  np.r_[np.eye(WIDTH), -np.eye(WIDTH)], np.zeros(WIDTH), np.zeros(16),
                  "relu", 0, 2)  # fmt: skip
    at_last = recovered_loss(DECODER, params, batch, jax.tree.map(jnp.float32, perfect))
    assert at_last.share == 1.0 and at_last.loss == pytest.approx(losses[0])
    with pytest.raises(UserError, match=r"special: shape \(2,\) given, \(3, 6\) needed"):
        recovered_loss(DECODER, params, batch, sae, np.zeros(2))
    with pytest.raises(UserError, match="no target counts"):
        recovered_loss(DECODER, params, batch._replace(weight=batch.weight & False), sae)
