"""Are all nodes' probes fitted and scored as one by one, and never by a crash?"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, Ridge

from jaxfeat.features.probe import (
    explained_share,
    features_at,
    fit_probes,
    score_probes,
)
from jaxfeat.nn.blocks import at_nodes
from jaxfeat.types import UserError

NODES = [(0, 1), (1, 3), (2, 2)]


def data(seed=0):
    """Residuals [N+1, B, T, D], features [B, T, F] (the last one constant), mask [B, T], types."""
    rng = np.random.default_rng(seed)
    resid = rng.normal(size=(3, 40, 4, 5))
    features = (resid[1, ..., :3] + rng.normal(size=(40, 4, 3)) > 0).astype(np.float64)
    features[..., 2] = 1
    return resid, features, rng.random((40, 4)) < 0.8, rng.integers(0, 2, (40, 4, 3))


def place(resid, features, mask, types):
    resid, features, mask, types = (jnp.asarray(a) for a in (resid, features, mask, types))
    there = [features_at(a, NODES) for a in (features, mask, types)]
    return at_nodes(jnp.moveaxis(resid, 0, 1), NODES), *there


def test_equals_a_loop():
    """Fit, mse and r against scikit-learn and numpy.corrcoef node by node."""
    resid, features, mask, types = data()
    types[:, 3, 0] = 1  # type 0 of feature 0 is empty at node 1
    with jax.enable_x64(True):
        r, f, m, t = place(resid, features, mask, types)
        probes = fit_probes(r, f, m, alpha=1.0)
        scores = score_probes(probes, r, f, m, t, n_types=2)
        probes, scores = jax.tree.map(np.asarray, (probes, scores))
    for n, (k, i) in enumerate(NODES):
        keep = mask[:, i]
        x, y, kind = resid[k, keep, i], features[keep, i], types[keep, i]
        model = Ridge(1.0).fit(x, y)
        np.testing.assert_allclose(probes.coef[n], model.coef_, atol=1e-12)
        fitted = model.predict(x)
        np.testing.assert_allclose(scores.mse[n], ((fitted - y) ** 2).mean(0), atol=1e-12)
        assert scores.count[n] == keep.sum() and scores.undefined[n] == 1
        assert np.isnan(scores.r[n, 2])
        for q in (0, 1):
            expected = np.corrcoef(fitted[:, q], y[:, q])[0, 1]
            np.testing.assert_allclose(scores.r[n, q], expected, atol=1e-12)
            for s in (0, 1):
                of_type = kind[:, q] == s
                assert scores.type_count[n, q, s] == of_type.sum()
                if not of_type.any():
                    assert np.isnan(scores.type_r[n, q, s]) and np.isnan(scores.type_mse[n, q, s])
                    continue
                expected = np.corrcoef(fitted[of_type, q], y[of_type, q])[0, 1]
                np.testing.assert_allclose(scores.type_r[n, q, s], expected, atol=1e-12)
    assert (np.asarray(scores.type_count) == 0).sum() == 1


def test_seeds_and_masked_rows():
    """A leading seeds axis as it is equals vmap over it; masked rows are never read."""
    parts = [place(*data(s)) for s in range(2)]
    r, f, m, t = (jnp.stack(a) for a in zip(*parts))
    dirty = jnp.where(m[..., None], r, jnp.nan)

    @jax.jit
    def both(r, f, m, t):
        probes = fit_probes(r, f, m, alpha="gcv")
        return probes, score_probes(probes, r, f, m, t, n_types=2), explained_share(r, f, m)

    whole = both(dirty, f, m, t)
    same = lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)
    jax.tree.map(same, whole, jax.vmap(both)(r, f, m, t))


def test_explained_share():
    """R^2 of the residual regressed on the features; a constant feature explains nothing."""
    resid, features, mask, types = data()
    with jax.enable_x64(True):
        r, f, m, _ = place(resid, features, mask, types)
        share, own = (jax.jit(explained_share)(r, a, m) for a in (f, r))
        share, own = jax.tree.map(np.asarray, (share, own))
    for n, (k, i) in enumerate(NODES):
        x, y = resid[k, mask[:, i], i], features[mask[:, i], i]
        total = ((x - x.mean(0)) ** 2).sum()
        for found, z in ((share.joint[n], y), (share.each[n, 0], y[:, :1])):
            left = ((x - LinearRegression().fit(z, x).predict(z)) ** 2).sum()
            np.testing.assert_allclose(found, 1 - left / total, atol=1e-12)
        assert np.isnan(share.each[n, 2])
    np.testing.assert_allclose(own.joint, 1, atol=1e-12)


def test_constant_prediction_and_empty_mask():
    """Undefined values are NaN and counted, whatever their cause."""
    r, f, m, _ = place(*data())
    probes = fit_probes(r, jnp.full_like(f, 0.1), m)
    scores = score_probes(probes, r, f, m)
    assert scores.undefined.tolist() == [3, 3, 3] and np.isfinite(scores.mse).all()
    nobody = score_probes(probes, r, f, jnp.zeros_like(m))
    assert np.isnan(nobody.mse).all() and nobody.count.tolist() == [0, 0, 0]


def test_errors_name_the_range():
    r, f, m, t = place(*data())
    with pytest.raises(UserError, match=r"0\.\.2"):
        at_nodes(jnp.zeros((2, 3, 4, 5)), [(3, 0)])
    with pytest.raises(UserError, match=r"0\.\.3"):
        features_at(jnp.zeros((2, 4, 1)), [(1, 4)])
    probes = fit_probes(r, f, m)
    for call in (
        lambda: fit_probes(r, f[:, :-1]),
        lambda: score_probes(probes, r, f[..., :2]),
        lambda: score_probes(probes, r, f, m[:2]),
        lambda: score_probes(probes, r, f, m, t),
    ):
        with pytest.raises(UserError):
            call()
