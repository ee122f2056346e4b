"""Does the mixer attend, and does a route touch the gradient of keys and values alone?"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from tiny import ROUTES, close, same, to64

from jaxfeat import tree
from jaxfeat.nn.attention import masked_softmax, mix, tangent_only
from jaxfeat.nn.modules import gelu_tanh, standardize
from jaxfeat.nn.route import DIAGONAL, own_column, resolve

T, H, G, K, E = 6, 4, 2, 3, 5
CAUSAL = np.tril(np.ones((T, T), bool))
CAUSAL[2, :] = False  # a query that sees nothing
SOFTCAP = 2.0
rng = np.random.default_rng(0)
QKV = (rng.normal(size=(T, H, K)), rng.normal(size=(T, G, K)), rng.normal(size=(T, G, E)))
PROBE = rng.normal(size=(T, H, E))


@partial(jax.jit, static_argnames=("kind", "softcap"))
def value_and_grads(q, k, v, route, probe, kind=None, softcap=None):
    """The mixture and the gradients of its product with a probe."""

    def loss(q, k, v):
        mixed = mix(q, k, v, CAUSAL, kind if kind else route, softcap)
        return jnp.sum(mixed * probe), mixed

    return jax.value_and_grad(loss, (0, 1, 2), has_aux=True)(q, k, v)


@partial(jax.jit, static_argnames="kind")
def jacobians(q, k, v, route, kind=None):
    """d mixed[t] / d (q, k, v)[s]."""
    return jax.jacrev(lambda *x: mix(*x, CAUSAL, kind if kind else route), (0, 1, 2))(q, k, v)


def run(fn, given, **options):
    """Call with a route as traced array or as the static name of the diagonal."""
    found = resolve(given, T)
    if isinstance(found, str):
        options["kind"], found = found, None
    return fn(*to64(QKV), None if found is None else jnp.asarray(found), **options)


def by_loops(q, k, v, softcap):
    """Attention written out in NumPy."""
    out = np.zeros((T, H, E))
    for t in range(T):
        for h in range(H):
            seen = np.flatnonzero(CAUSAL[t])
            scores = np.array([q[t, h] @ k[s, h // (H // G)] for s in seen])
            scores = scores if softcap is None else softcap * np.tanh(scores / softcap)
            weights = np.exp(scores) / np.exp(scores).sum()
            out[t, h] = sum((p * v[s, h // (H // G)] for p, s in zip(weights, seen)), np.zeros(E))
    return out


@pytest.mark.parametrize("softcap", [None, SOFTCAP])
def test_values(softcap):
    """Grouped heads, the mask, an empty row and the softcap equal loops in NumPy."""
    with jax.enable_x64(True):
        (_, mixed), _ = run(value_and_grads, None, probe=PROBE, softcap=softcap)
        close(mixed, by_loops(*QKV, softcap), 1e-14)
    assert not mixed[2].any()


@pytest.mark.parametrize("name", ROUTES)
def test_forward_is_bitwise_the_same(name):
    """A route changes no bit of the value and none of the query's gradient."""
    with jax.enable_x64(True):
        (_, plain), (dq, *_) = run(value_and_grads, None, probe=PROBE)
        (_, routed), (dq_routed, *_) = run(value_and_grads, ROUTES[name], probe=PROBE)
        same(plain, routed)
        close(dq_routed, dq, 1e-14)


@pytest.mark.parametrize("name", ROUTES)
def test_gradient_is_masked(name):
    """`d mixed[t] / d k[s]` and `/ d v[s]` are the whole ones times `route[t, s]`."""
    found = resolve(ROUTES[name], T)
    weight = np.eye(T) if isinstance(found, str) else np.ones((T, T)) if found is None else found
    with jax.enable_x64(True):
        dq, dk, dv = run(jacobians, None)
        found_q, found_k, found_v = run(jacobians, ROUTES[name])
        gate = np.asarray(weight, float)[:, None, None, :, None, None]
        close(found_q, dq, 1e-14)
        close((found_k, found_v), (dk * gate, dv * gate), 1e-14)
    closed = np.argwhere(weight == 0)
    assert not any(np.asarray(g)[t, :, :, s].any() for g in (found_k, found_v) for t, s in closed)


@pytest.mark.parametrize("given", [np.eye(T, dtype=bool), np.eye(T), own_column(np.ones((T, T)))])
def test_diagonal_forms_agree(given):
    """The myopic route in its own form and as arrays: the same gradients."""
    with jax.enable_x64(True):
        myopic = run(value_and_grads, DIAGONAL, probe=PROBE)
        close(run(value_and_grads, given, probe=PROBE), myopic, 1e-14)


@pytest.mark.parametrize("name", ["full", "myopic", "booleans", "weights"])
def test_modes_of_differentiation_agree(name):
    """jacfwd = jacrev, and the jvp of a gradient is the transpose of its vjp."""
    found = resolve(ROUTES[name], T)

    @jax.jit
    def both(q, k, v):
        def loss(k, v):
            return jnp.sum(mix(q, k, v, CAUSAL, found, SOFTCAP) * PROBE)

        step, other = (jnp.cos(k), jnp.sin(v)), (jnp.sin(k), jnp.cos(v))
        gradient = jax.grad(loss, (0, 1))
        forward = tree.dot(jax.jvp(gradient, (k, v), step)[1], other)
        backward = tree.dot(jax.vjp(gradient, k, v)[1](other), step)
        return jax.jacfwd(loss, (0, 1))(k, v), jax.jacrev(loss, (0, 1))(k, v), forward, backward

    with jax.enable_x64(True):
        ahead, back, forward, backward = both(*to64(QKV))
    close(ahead, back, 1e-13)
    close(forward, backward, 1e-12)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("softcap", [None, 50.0])
@pytest.mark.parametrize("kind", [None, DIAGONAL])
def test_large_scores_stay_finite(dtype, softcap, kind):
    """Scores of +-1e4, with a row that sees nothing: finite value and gradients."""
    q, k, v = (jnp.asarray(x, dtype) for x in QKV)
    q, k = jnp.sign(q) * 100, jnp.sign(k) * 100  # products of +-1e4 and +-3e4
    (_, mixed), grads = value_and_grads(q, k, v, None, PROBE, kind, softcap)
    assert mixed.dtype == dtype
    assert all(np.isfinite(np.asarray(x, float)).all() for x in (mixed, *grads))
    assert not mixed[2].any() and not grads[0][2].any()


def test_scores_accumulate_wide():
    """In bfloat16 the softmax itself is computed in float32."""
    q, k, v = (jnp.asarray(x, jnp.bfloat16) for x in QKV)
    program = str(jax.make_jaxpr(lambda *x: mix(*x, CAUSAL))(q, k, v))
    assert "exp" in program
    assert all("f32" in line for line in program.splitlines() if " exp " in line)


def test_masked_softmax():
    """Softmax among the visible; unmoved by a constant; finite differences of both orders."""
    visible = jnp.asarray(CAUSAL)
    with jax.enable_x64(True):
        scores = jnp.asarray(rng.normal(size=(T, T)))
        pattern = masked_softmax(scores, visible)
        empty = ~CAUSAL.any(-1)
        np.testing.assert_allclose(pattern.sum(-1), ~empty, atol=1e-15)
        assert not np.asarray(pattern)[~CAUSAL].any()
        close(masked_softmax(scores + 1e4, visible), pattern, 1e-11)
        check_grads(lambda s: masked_softmax(s, visible), (scores,), 2)
    whole = jnp.full((1, 3), 3e38).at[0, 1].set(-3e38)
    assert masked_softmax(whole, jnp.ones((1, 3), bool)).tolist() == [[0.5, 0.0, 0.5]]


def test_tangent_only():
    """Value exactly 0, derivative that of the argument."""
    x = jnp.array([2.0, jnp.inf])
    value, moved = jax.jvp(tangent_only, (x,), (jnp.array([3.0, 4.0]),))
    assert value.tolist() == [0.0, 0.0] and moved.tolist() == [3.0, 4.0]
    assert jax.grad(lambda y: tangent_only(y**2))(3.0) == 6.0


@pytest.mark.parametrize("fn", [lambda x: standardize(x, 1e-5), gelu_tanh])
def test_hand_written_derivatives(fn):
    """Finite differences of both orders agree with the rules."""
    with jax.enable_x64(True):
        x = jnp.asarray(rng.normal(size=(2, 7)) * 2)
        check_grads(fn, (x,), 2)


def test_hand_written_values():
    """The layer norm's and the GELU's values equal their formulas in NumPy."""
    with jax.enable_x64(True):
        x = rng.normal(size=(3, 7)) * 3
        close(standardize(x, 1e-5), (x - x.mean(-1, keepdims=True))
              / np.sqrt(x.var(-1, keepdims=True) + 1e-5), 1e-14)  # fmt: skip
        gelu = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
        close(gelu_tanh(x), gelu, 1e-14)


@pytest.mark.parametrize("fn", [lambda x: standardize(x, 1e-5), gelu_tanh])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_hand_written_at_the_edge(fn, dtype):
    """Constant and large inputs: finite value and gradient in the input's own type."""
    for x in (jnp.zeros(4, dtype), jnp.full(4, 1e4, dtype), jnp.array([-1e4, 1e4, 0, 1], dtype)):
        value, back = jax.vjp(fn, x)
        assert value.dtype == dtype
        assert np.isfinite(np.asarray([value, *back(jnp.ones(4, dtype))], float)).all()
