"""Is the batched ridge scikit-learn's, on every awkward input?"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.linear_model import Ridge as Reference

from jaxfeat.linear import GCV_GRID, centred_moments, fit_ridge, predict
from jaxfeat.types import UserError


def data(n=30, width=5, targets=3, seed=0, kind=np.float64):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, width)) * rng.uniform(0.3, 3, width) + 2
    y = x[:, :2] @ rng.normal(size=(2, targets)) + rng.normal(size=(n, targets))
    return x.astype(kind), y


def awkward(kind):
    """Collinear and constant columns, and fewer rows than columns."""
    x, y = data(kind=kind)
    x = np.concatenate([x, x[:, :2], np.full((30, 1), 0.1, kind), np.full((30, 1), 7, kind)], 1)
    few = np.random.default_rng(1).normal(size=(6, 9)).astype(kind)
    return [(x, y), (few, y[:6]), (x * 0 + 3, y)]


@pytest.mark.parametrize("alpha", [0.1, 1.0, 100.0])
def test_equals_sklearn(alpha):
    for kind, tolerance in ((np.float64, 1e-9), (np.float32, 1e-4)):
        for x, y in [data(kind=kind), *awkward(kind)]:
            expected = Reference(alpha, solver="svd").fit(x.astype(np.float64), y)
            with jax.enable_x64(kind is np.float64):
                before = jnp.asarray(x)
                ridge = fit_ridge(before, jnp.asarray(y, kind), alpha=alpha)
            np.testing.assert_allclose(ridge.coef, expected.coef_, atol=tolerance)
            np.testing.assert_allclose(ridge.intercept, expected.intercept_, atol=10 * tolerance)
            assert ridge.coef.dtype == kind
            np.testing.assert_array_equal(before, x)


def test_ten_lines_of_numpy():
    """An independent reference: an augmented least-squares problem; also the condition number."""
    x, y = data()
    mask = np.arange(30) % 4 != 1
    xc, yc = x[mask] - x[mask].mean(0), y[mask] - y[mask].mean(0)
    stacked = np.concatenate([xc, np.sqrt(2.5) * np.eye(5)])
    coef = np.linalg.lstsq(stacked, np.concatenate([yc, np.zeros((5, 3))]), rcond=None)[0].T
    with jax.enable_x64(True):
        dirty = jnp.where(jnp.asarray(mask)[:, None], x, jnp.nan)
        ridge = fit_ridge(dirty, jnp.asarray(y), alpha=2.5, mask=jnp.asarray(mask))
        fitted = predict(ridge, jnp.asarray(x))
    np.testing.assert_allclose(ridge.coef, coef, atol=1e-12)
    np.testing.assert_allclose(ridge.condition, np.linalg.cond(stacked) ** 2, rtol=1e-9)
    np.testing.assert_allclose(fitted, (x - x[mask].mean(0)) @ coef.T + y[mask].mean(0), atol=1e-12)


def test_without_penalty():
    """alpha = 0 is least squares, of least norm where it is not unique."""
    with jax.enable_x64(True):
        for x, y in [data(), *awkward(np.float64)]:
            ridge = fit_ridge(jnp.asarray(x), jnp.asarray(y), alpha=0.0)
            expected = np.linalg.pinv(x - x.mean(0), rcond=1e-10) @ (y - y.mean(0))
            np.testing.assert_allclose(ridge.coef, expected.T, atol=1e-9)


def test_batch_jit_blocks_and_vmap():
    """Leading axes, jit, vmap, row blocks: the same numbers."""
    problems = [data(seed=s) for s in range(3)]
    x, y = (np.stack(parts) for parts in zip(*problems))
    mask = np.random.default_rng(5).random((3, 30)) < 0.8
    with jax.enable_x64(True):
        x, y, mask = jnp.asarray(x), jnp.asarray(y), jnp.asarray(mask)
        whole = fit_ridge(x, y, alpha="gcv", mask=mask)
        fits = [
            jax.jit(lambda *a: fit_ridge(*a[:2], alpha="gcv", mask=a[2]))(x, y, mask),
            jax.vmap(lambda *a: fit_ridge(*a[:2], alpha="gcv", mask=a[2], block=8))(x, y, mask),
        ]
        one = [fit_ridge(a, b, alpha="gcv", mask=c) for a, b, c in zip(x, y, mask)]
        fits.append(jax.tree.map(lambda *a: jnp.stack(a), *one))
    for fit in fits:
        for a, b in zip(whole, fit):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_gcv():
    """The chosen alpha has the least score by the hat matrix; scaling x scales it."""
    x, y = data(n=24, width=6)
    y = np.concatenate([y, np.full((24, 1), 4.0)], 1)  # a constant target has no vote
    xc, yc = x - x.mean(0), (y - y.mean(0))[:, :3]
    unit = (xc**2).sum() / 6

    def score(alpha):
        hat = xc @ np.linalg.solve(xc.T @ xc + alpha * np.eye(6), xc.T)
        rss = ((yc - hat @ yc) ** 2).sum(0) / (yc**2).sum(0)
        return rss.mean() / (1 - (1 + np.trace(hat)) / 24) ** 2

    best = min((g * unit for g in GCV_GRID), key=score)
    with jax.enable_x64(True):
        ridge = fit_ridge(jnp.asarray(x), jnp.asarray(y), alpha="gcv")
        scaled = fit_ridge(jnp.asarray(1e-3 * x), jnp.asarray(y), alpha="gcv")
        relative = fit_ridge(jnp.asarray(x), jnp.asarray(y), alpha=best / unit, relative=True)
        ridge, scaled, relative = jax.tree.map(np.asarray, (ridge, scaled, relative))
    np.testing.assert_allclose(ridge.alpha, best, rtol=1e-12)
    np.testing.assert_allclose(scaled.coef, 1e3 * ridge.coef, rtol=1e-9, atol=1e-8)
    np.testing.assert_allclose(relative.coef, ridge.coef, rtol=1e-10, atol=1e-13)
    for x, y in awkward(np.float32):
        ridge = fit_ridge(jnp.asarray(x), jnp.asarray(y, np.float32), alpha="gcv")
        assert all(np.isfinite(a).all() for a in ridge)


def test_precision_and_memory():
    """A large mean costs no digits; the program's scratch memory does not grow with the rows."""
    x, y = data(n=40, kind=np.float32)
    far = fit_ridge(jnp.asarray(x + 512), jnp.asarray(y, np.float32))
    expected = Reference(1.0, solver="svd").fit((x + np.float32(512)).astype(np.float64), y)
    np.testing.assert_allclose(far.coef, expected.coef_, atol=1e-4)
    fit = jax.jit(lambda x, y: fit_ridge(x, y, block=64))
    scratch = []
    for n in (1024, 8192):
        shapes = [jax.ShapeDtypeStruct((n, 16), jnp.float32)] * 2
        scratch.append(fit.lower(*shapes).compile().memory_analysis().temp_size_in_bytes)
    assert scratch[1] - scratch[0] < 2 * 8192  # a mask of one byte a row, no copy of the rows


def test_nothing_to_fit_and_errors():
    x, y = (jnp.asarray(a, jnp.float32) for a in data())
    empty = fit_ridge(x, y, mask=jnp.zeros(30, bool))
    assert not np.asarray(empty.coef).any() and not np.asarray(empty.intercept).any()
    half = centred_moments(x.astype(jnp.bfloat16), y.astype(jnp.bfloat16))
    assert half.gram.dtype == jnp.float32
    for call in (
        lambda: fit_ridge(x, y[:-1]),
        lambda: fit_ridge(x, y[:, 0]),
        lambda: fit_ridge(x, y, mask=jnp.ones(29, bool)),
        lambda: fit_ridge(x, y, alpha=-1.0),
        lambda: fit_ridge(x, y, alpha="loo"),
    ):
        with pytest.raises(UserError):
            call()


def test_one_eigendecomposition_at_a_time():
    """No batched one is left in the program, under vmap too: two at once could wait for ever."""
    x, y = np.zeros((2, 3, 9, 4), np.float32), np.zeros((2, 3, 9, 2), np.float32)
    fit = jax.vmap(lambda x, y: (fit_ridge(x, y).coef, fit_ridge(2 * x, y, alpha="gcv").coef))
    text = jax.jit(fit).lower(x, y).compile().as_text()
    calls = [line for line in text.splitlines() if "custom-call(" in line and "syevd" in line]
    assert calls and all("f32[4,4]" in line and ",4,4]" not in line for line in calls)
