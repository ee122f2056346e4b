"""Do probes equal the reference's? (numbers: scikit-learn's Ridge, metrics of the authors' code)"""

import json

import jax
import jax.numpy as jnp
import numpy as np

from jaxfeat.features.probe import features_at, fit_probes, score_probes
from jaxfeat.nn.blocks import at_nodes

TRAIN = 28  # of 40 sequences; the other 12 are scored
GOLDEN = ("split/*_core.npz",)


def check(ours, theirs, relative):
    """|a - b| <= relative max|b| + 1e-13, NaN equals NaN."""
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    assert ours.shape == theirs.shape
    size = float(np.nanmax(np.abs(theirs)))
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=relative * size + 1e-13, equal_nan=True)


def metrics(scores, nodes, layers):
    """The reference's flat names out of `Scores`."""
    mse, r, type_r = (np.asarray(a) for a in (scores.mse, scores.r, scores.type_r))
    found = {}
    for n, (k, i) in enumerate(nodes):
        found[f"mse_layer_{k}_{i}"] = mse[n].mean()
        found[f"pearson_layer_{k}_{i}"] = r[n].mean()
        for f in range(r.shape[1]):
            found[f"pearson_f{f}_layer_{k}_{i}"] = r[n, f]
            for t in range(type_r.shape[2]):
                found[f"pearson_f{f}_layer_{k}_{i}_type_{t}"] = type_r[n, f, t]
    for k in range(layers):
        for name in ("mse", "pearson"):
            # The reference's layer average leaves out position 1.
            same = [found[f"{name}_layer_{q}_{i}"] for q, i in nodes if q == k and i > 1]
            found[f"{name}_layer_{k}_avg"] = np.mean(same)
    return found


def test_ridge(golden):
    """Coefficients to 1e-8, intercepts and every metric to 1e-9 of the largest of its family."""
    z = np.load(golden)
    layers, _, length, _ = z["ridge_hidden"].shape
    nodes = [(k, i) for k in range(layers) for i in range(1, length)]
    with jax.enable_x64(True):
        resid = at_nodes(jnp.moveaxis(jnp.asarray(z["ridge_hidden"]), 0, 1), nodes)
        features = features_at(jnp.asarray(z["ridge_features"]), nodes)
        types = features_at(jnp.asarray(z["ridge_types"].astype(np.int32)), nodes)
        fit = jax.jit(lambda r, f: fit_probes(r, f, alpha=float(z["ridge_alpha"])))
        probes = fit(resid[:, :TRAIN], features[:, :TRAIN])
        parts = (resid[:, TRAIN:], features[:, TRAIN:], None, types[:, TRAIN:])
        n_types = int(z["ridge_types"].max()) + 1
        scores = jax.jit(score_probes, static_argnames="n_types")(probes, *parts, n_types=n_types)
        probes, scores = jax.tree.map(np.asarray, (probes, scores))
    check(probes.coef.reshape(z["ridge_coef"].shape), z["ridge_coef"], 1e-8)
    check(probes.intercept.reshape(z["ridge_intercept"].shape), z["ridge_intercept"], 1e-9)
    found = metrics(scores, nodes, layers)
    names = json.loads(str(z["ridge_metric_names"]))
    theirs = dict(zip(names, z["ridge_metric_values"]))
    for family in ("mse", "pearson"):
        some = [n for n in names if n.startswith(family)]
        check([found[n] for n in some], [theirs[n] for n in some], 1e-9)
    # A type that the reference leaves out is one in which its target does not vary.
    left_out = [found[n] for n in found if "_type_" in n and n not in theirs]
    assert np.isnan(left_out).all()
