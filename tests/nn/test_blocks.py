"""Is every question an argument of one pass, and does none of them change what it must not?"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from tiny import LENGTH, QUICK, ROUTES, close, same, to64, traced

from jaxfeat import tree
from jaxfeat.nn.blocks import ACTIVATIONS, forward, run_blocks
from jaxfeat.nn.loss import loss_terms, mean_loss
from jaxfeat.nn.route import DIAGONAL, resolve
from jaxfeat.types import Batch, UserError

GPT2 = tiny.gpt2(2, 2)
WINDOWS, SMALL = tiny.windowed(5), tiny.windowed(2)


def taps_of(decoder, batch, dtype=np.float32):
    """Zeros at every node."""
    size, length = batch.token.shape
    return np.zeros((size, decoder.layers + 1, length, decoder.width), dtype)


@partial(jax.jit, static_argnames=("kind", "decoder"))
def learn(params, batch, taps, route, kind=None, decoder=GPT2):
    """Output, gradient of the parameters and gradient at every node."""

    def loss(params, taps):
        out = forward(decoder, params, batch, route=kind if kind else route, taps=taps)
        return mean_loss(out.logits, batch), out

    grads, out = jax.grad(loss, (0, 1), has_aux=True)(params, taps)
    return out, *grads


@pytest.mark.parametrize("name", ROUTES)
def test_forward_is_bitwise_the_same(name):
    """Training with a route computes the very same values."""
    batch = tiny.batch_of(3, pads=1)
    with jax.enable_x64(True):
        args = to64(tiny.params_of(GPT2)), batch, jnp.asarray(taps_of(GPT2, batch, np.float64))
        same(traced(learn, *args, route=ROUTES[name])[0], traced(learn, *args, route=None)[0])


def test_forward_alone_is_bitwise_the_same():
    """Also in float32, in a program without a gradient, for a constant route."""
    params, batch = tiny.params_of(GPT2), tiny.batch_of(3, pads=1)
    logits = [
        jax.jit(lambda p, route=route: forward(GPT2, p, batch, route=route).logits)(params)
        for route in (None, ROUTES["myopic"], ROUTES["scaled"])
    ]
    same(logits[1:], logits[:1] * 2)


def test_myopic_forms_agree():
    """myopic = the identity = window(1): equal gradients, and not those of the full graph."""
    batch = tiny.batch_of(3, pads=1)
    with jax.enable_x64(True):
        args = to64(tiny.params_of(GPT2)), batch, jnp.asarray(taps_of(GPT2, batch, np.float64))
        myopic = traced(learn, *args, route=ROUTES["myopic"])
        for form in (np.eye(LENGTH, dtype=bool), np.eye(LENGTH)):
            close(traced(learn, *args, route=form), myopic, 1e-12)
        whole = traced(learn, *args, route=None)
    change = np.abs(whole[1]["blocks"]["v"]["kernel"] - myopic[1]["blocks"]["v"]["kernel"])
    assert change.max() > 1e-3


@partial(jax.jit, static_argnames="kind")
def node_gradients(params, batch, taps, route, kind=None):
    """`[T, B, N+1, T, D]`: d L_j / d r[k, i]."""

    def losses(taps):
        out = forward(GPT2, params, batch, route=kind if kind else route, taps=taps)
        return loss_terms(out.logits, batch).sum(0)

    return jax.jacrev(losses)(taps)


def test_gradient_crosses_only_where_it_may():
    """`dL_j/dr[k, i]` is exactly 0 for i > j, and for i != j in the myopic graph."""
    batch = tiny.batch_of(3, pads=1)
    with jax.enable_x64(True):
        args = to64(tiny.params_of(GPT2)), batch, jnp.asarray(taps_of(GPT2, batch, np.float64))
        whole = np.asarray(traced(node_gradients, *args, route=None))
        myopic = np.asarray(traced(node_gradients, *args, route=ROUTES["myopic"]))
        total = traced(learn, *args, route=None)[2] * batch.weight.sum()
    close(whole.sum(0), total, 1e-12)
    size = np.abs(whole).max((1, 2, 4))  # [T of the loss, T of the node]
    assert not np.triu(size, 1).any() and (size[np.tril_indices(LENGTH)] > 0).all()
    own = np.abs(myopic).max((1, 2, 4))
    assert not own[~np.eye(LENGTH, dtype=bool)].any() and (np.diag(own) > 0).all()


def test_masked_gradient():
    """A window of w: one block passes gradient over distances below w exactly, two over more."""
    batch = tiny.batch_of(2)
    with jax.enable_x64(True):
        args = to64(tiny.params_of(GPT2)), batch, jnp.asarray(taps_of(GPT2, batch, np.float64))
        found = np.asarray(traced(node_gradients, *args, route=ROUTES["window"]))
    t, i = np.indices((LENGTH, LENGTH))
    for k, reach in ((2, 1), (1, 2), (0, 3)):
        size = np.abs(found[:, :, k]).max((1, 3))
        assert ((size > 0) == ((t - i >= 0) & (t - i < reach))).all()


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", ["full", "myopic"])
def test_padding(side, name):
    """Padded rows equal the unpadded run; what stands in the padding contributes exactly 0."""
    batch = tiny.batch_of(3, pads=1, side=side)
    last = jnp.arange(3)[:, None] == 2  # the row of most padding alone has a loss
    batch = batch._replace(weight=batch.weight & last)
    with jax.enable_x64(True):
        params = to64(tiny.params_of(GPT2))
        args = params, batch, jnp.asarray(taps_of(GPT2, batch, np.float64))
        out, grads, nodes = traced(learn, *args, route=ROUTES[name])
        real = np.asarray(batch.mask)
        assert np.isfinite(out.logits).all()
        assert not np.asarray(nodes).swapaxes(1, 2)[~real].any()
        cut = Batch(*(np.asarray(x)[2:, real[2]] for x in batch))
        logits, resid, expected = unpadded(params, cut, name)
        close(out.logits[2, real[2]], logits[0], 1e-13)
        close(out.resid[2][:, real[2]], resid[0], 1e-13)
        close(grads, expected, 1e-12)
        garbage = batch._replace(token=jnp.where(batch.mask, batch.token, 3))
        same(traced(learn, params, garbage, args[2], route=ROUTES[name])[1], grads)


@partial(jax.jit, static_argnames="name", compiler_options=QUICK)
def unpadded(params, batch, name):
    """Logits, residuals and gradient."""

    def loss(params):
        out = forward(GPT2, params, batch, route=ROUTES[name])
        return mean_loss(out.logits, batch), out

    grads, out = jax.grad(loss, has_aux=True)(params)
    return out.logits, out.resid, grads


def test_compiled_or_not_and_batch_or_loop():
    """jit = no jit; a batch = its examples one by one."""
    batch, decoder = tiny.batch_of(3, pads=1), SMALL
    with jax.enable_x64(True):
        params = to64(tiny.params_of(decoder))
        plain = forward(decoder, params, batch)
        together = jax.jit(lambda b: forward(decoder, params, b), compiler_options=QUICK)
        close(together(batch), plain, 1e-13)
        one = [together(tree.index(batch, slice(n, n + 1))) for n in range(3)]
        close(tree.concat(one), plain, 1e-13)


def test_grad_of_vmap():
    """grad(vmap) = vmap(grad), with an edit and a route; jacfwd = jacrev."""
    batch = tiny.batch_of(2, pads=1)
    edits = {1: lambda x: jnp.where(jnp.arange(LENGTH)[:, None] == 2, jax.lax.stop_gradient(x), x)}

    def losses(params, scale):
        gained = {"outer": params["outer"], "blocks": tree.scale(scale, params["blocks"])}
        out = forward(SMALL, gained, batch, route=ROUTES["window"], edits=edits)
        return loss_terms(out.logits, batch).sum()

    @jax.jit
    def both(params, scales):
        together = jax.grad(lambda s: jax.vmap(losses, (None, 0))(params, s).sum())(scales)
        apart = jax.vmap(jax.grad(losses, 1), (None, 0))(params, scales)
        return together, apart, jax.vmap(jax.jacfwd(losses, 1), (None, 0))(params, scales)

    with jax.enable_x64(True):
        together, apart, ahead = both(to64(tiny.params_of(SMALL)), jnp.array([0.5, 1.0, 2.0]))
    close(apart, together, 1e-13)
    close(ahead, together, 1e-12)


@partial(jax.jit, static_argnames=("scan", "names", "form"), compiler_options=QUICK)
def passes(params, batch, taps, shift, scan, names=(), form="stacked"):
    """Output and gradients of a model whose blocks differ by a constant, with an edit."""
    decoder = WINDOWS if form == "stacked" else tiny.windowed(5, as_tuple=True)

    def loss(params, taps, shift):
        edits = {2: lambda x: x.at[1].add(shift)}
        own = params if form == "stacked" else tiny.as_tuple(params, 5)
        out = forward(decoder, own, batch, scan=scan, taps=taps, edits=edits, want=names)
        return mean_loss(out.logits, batch), out

    grads, out = jax.grad(loss, (0, 1, 2), has_aux=True)(params, taps, shift)
    return out, grads


def test_scan_is_unrolled():
    """One scan, single blocks and a tuple of blocks: values, gradients and activations agree."""
    batch, names = tiny.batch_of(2, pads=1), ("pattern", "resid_mid")
    with jax.enable_x64(True):
        params = to64(tiny.params_of(WINDOWS))
        args = params, batch, jnp.asarray(taps_of(WINDOWS, batch, np.float64)), jnp.ones(8)
        scanned = passes(*args, scan=True, names=names)
        close(passes(*args, scan=False, names=names), scanned, 1e-12)
        close(passes(*args, scan=True, names=names, form="tuple"), scanned, 1e-12)
        moved = passes(*args[:3], jnp.zeros(8), scan=True, names=names)[0]
    widths = (np.arange(5) % 3 + 2)[:, None, None]
    t, s = np.indices((LENGTH, LENGTH))
    seen = np.asarray(scanned[0].acts["pattern"])[0, :, :, 0] > 0
    assert (seen == ((t >= s) & (t - s < widths))).all()
    # an edit acts at its layer and position alone
    change = np.asarray(scanned[0].resid - moved.resid)
    assert not change[:, :2].any() and not change[:, :, 0].any()
    np.testing.assert_allclose(change[0, 2], np.eye(LENGTH)[1][:, None] * np.ones(8), atol=1e-15)
    assert np.abs(change[:, 3:, 2:]).max() > 1e-3


def test_edits_at_both_ends():
    """An edit at layer 0 comes after the embedding, one at layer N before the final norm."""
    params, batch = tiny.params_of(GPT2), tiny.batch_of(2)

    @partial(jax.jit, compiler_options=QUICK)
    def three(p):
        zero = jnp.zeros_like
        return [forward(GPT2, p, batch, edits=edits) for edits in (None, {0: zero}, {2: zero})]

    plain, first, last = three(params)
    assert not first.resid[:, 0].any() and np.abs(first.logits - plain.logits).max() > 1e-3
    np.testing.assert_allclose(last.resid[:, :2], plain.resid[:, :2], rtol=1e-5, atol=1e-6)
    assert not last.resid[:, 2].any()
    flat = params["outer"]["wte"]["embedding"] @ params["outer"]["ln_f"]["bias"]
    np.testing.assert_allclose(last.logits[0, 0], flat, rtol=1e-5)


@pytest.mark.parametrize(("lo", "hi"), [(0, 5), (1, 4), (4, 5), (2, 2)])
def test_start_in_the_middle(lo, hi):
    """Blocks lo..hi-1 equal that part of the whole, with taps and edits at their own layers."""
    batch, taps = tiny.batch_of(1), np.random.default_rng(0).normal(size=(6, LENGTH, 8))
    edits = {2: lambda x: 2 * x, 3: lambda x: x - 1}

    @partial(jax.jit, compiler_options=QUICK)
    def both(params):
        whole = forward(WINDOWS, params, batch, taps=taps[None], edits=edits).resid[0]
        part, acts = run_blocks(
            WINDOWS, params, whole[lo], batch.position[0], lo=lo, hi=hi, taps=taps, edits=edits,
            want=("q",),
        )  # fmt: skip
        return whole, part, acts

    with jax.enable_x64(True):  # blocks without norms amplify rounding
        whole, part, acts = both(to64(tiny.params_of(WINDOWS)))
    np.testing.assert_allclose(part, whole[lo : hi + 1], rtol=1e-11, atol=1e-11)
    assert acts.get("q", np.empty(0)).shape[0] == hi - lo


def test_activations():
    """Only what is requested leaves the program, and it obeys the block's own sums."""
    params, batch = tiny.params_of(GPT2), tiny.batch_of(2, pads=1)
    assert jax.eval_shape(lambda p: forward(GPT2, p, batch), params).acts == {}
    fn = lambda p: forward(GPT2, p, batch, want=ACTIVATIONS).acts
    acts = jax.jit(fn, compiler_options=QUICK)(params)
    assert set(acts) == set(ACTIVATIONS)
    shapes = {name: x.shape[2:] for name, x in acts.items()}
    wide, heads, head = (LENGTH, 8), (LENGTH, 2, 4), (LENGTH, 2, LENGTH)
    assert shapes == dict.fromkeys(ACTIVATIONS, wide) | dict.fromkeys(
        ("q", "k", "v", "mixed"), heads) | {"pattern": head}  # fmt: skip
    sums = acts["resid_pre"] + acts["attn_out"]
    np.testing.assert_allclose(acts["resid_mid"], sums, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(acts["resid_post"], sums + acts["mlp_out"], rtol=1e-5, atol=1e-5)
    same(acts["resid_post"][:, 0], acts["resid_pre"][:, 1])
    mixed = np.einsum("bnths,bnshe->bnthe", acts["pattern"], acts["v"])
    np.testing.assert_allclose(acts["mixed"], mixed, rtol=1e-4, atol=1e-5)
    real = np.asarray(batch.mask)
    rows = acts["pattern"].sum(-1).transpose(0, 2, 1, 3)
    np.testing.assert_allclose(rows[real], 1, rtol=1e-5)
    assert not rows[~real].any()


def test_large_scores_stay_finite():
    """Scores of 1e4 and an example of padding alone: finite output and gradients."""
    batch = tiny.batch_of(3, pads=LENGTH)
    assert batch.mask[0].all() and not batch.mask[1:].any()
    with jax.enable_x64(True):
        params = to64(tiny.params_of(GPT2))
        params["blocks"]["q"]["kernel"] *= 1e4
        for name in ("full", "myopic", "weights"):
            args = params, batch, jnp.asarray(taps_of(GPT2, batch, np.float64))
            found = traced(learn, *args, route=ROUTES[name])
            assert all(np.isfinite(x).all() for x in jax.tree.leaves(found))
            assert not found[2][1:].any()


def test_bfloat16():
    """A bfloat16 model keeps its type in values and gradients; the loss is summed in float32."""
    decoder, batch = tiny.gpt2(1, 2, dtype="bfloat16"), tiny.batch_of(2)
    params = jax.tree.map(lambda x: jnp.asarray(x, jnp.bfloat16), tiny.params_of(decoder))

    @partial(jax.jit, compiler_options=QUICK)
    def narrow(p):
        def loss(p):
            out = forward(decoder, p, batch, route=ROUTES["weights"])
            return mean_loss(out.logits, batch), out

        return jax.value_and_grad(loss, has_aux=True)(p)

    (value, out), grads = narrow(params)
    assert out.logits.dtype == out.resid.dtype == jnp.bfloat16 and value.dtype == jnp.float32
    assert {x.dtype for x in jax.tree.leaves(grads)} == {jnp.dtype(jnp.bfloat16)}
    (wide, _), wide_grads = narrow(jax.tree.map(lambda x: x.astype(jnp.float32), params))
    np.testing.assert_allclose(value, wide, rtol=0.03)
    close(jax.tree.map(lambda x: x.astype(jnp.float32), grads), wide_grads, 0.1)


def test_program_does_not_grow_with_depth():
    """12 scanned blocks make the same program as 5, but for the sizes in it."""
    batch = tiny.batch_of(2)

    def lines(layers):
        decoder = tiny.windowed(layers)
        params = tiny.params_of(decoder)
        grad = jax.grad(lambda p: mean_loss(forward(decoder, p, batch).logits, batch))
        return len(jax.jit(grad).lower(params).as_text().splitlines())

    assert lines(12) <= 1.02 * lines(5)


@pytest.mark.slow
def test_compile_time_does_not_grow_with_depth(monkeypatch):
    """12 scanned blocks compile in at most 1.2 times the time of 3, without the cache."""
    import time

    batch, times = tiny.batch_of(2), {}
    for layers in (3, 12, 3, 12, 3, 12):
        decoder = tiny.gpt2(layers)
        params = tiny.params_of(decoder)
        grad = jax.grad(lambda p, d=decoder: mean_loss(forward(d, p, batch).logits, batch))
        lowered = jax.jit(grad).lower(params)
        # a changed option makes another key: the persistent cache has no such entry
        options = {"xla_dump_max_hlo_modules": len(times) + time.time_ns() % 10**6}
        start = time.perf_counter()
        lowered.compile(compiler_options=options)
        times.setdefault(layers, []).append(time.perf_counter() - start)
    assert min(times[12]) <= 1.2 * min(times[3])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"want": ("patern",)}, "'patern' is unknown; valid: resid_pre"),
        ({"edits": {3: jnp.zeros_like}}, r"\[3\] given, valid are 0\.\.2"),
        ({"edits": {-1: jnp.zeros_like}}, r"valid are 0\.\.2"),
        ({"route": np.ones((3, 3))}, r"\(6, 6\) needed"),
        ({"route": np.full((6, 6), np.nan)}, "finite"),
        ({"route": -np.ones((6, 6))}, "at least 0"),
        ({"copies": (0, 9)}, r"outside 0\.\.5"),
        ({"copies": (1, 2)}, "increase from 0"),
    ],
)
def test_refused(options, words):
    """What cannot be asked is refused with the valid range."""
    with pytest.raises(UserError, match=words):
        forward(GPT2, tiny.params_of(GPT2), tiny.batch_of(2), **options)


@pytest.mark.parametrize(("lo", "hi"), [(-1, 2), (2, 1), (0, 3)])
def test_blocks_refused(lo, hi):
    """Blocks out of range."""
    x, position = jnp.zeros((LENGTH, 8)), jnp.arange(LENGTH)
    with pytest.raises(UserError, match=r"valid are 0\.\.2"):
        run_blocks(GPT2, tiny.params_of(GPT2), x, position, lo=lo, hi=hi)


def test_diagonal_is_a_public_name():
    """What the myopic route resolves to may be given itself."""
    assert resolve(DIAGONAL, LENGTH) == resolve(ROUTES["myopic"], LENGTH)
