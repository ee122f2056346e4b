"""Is the fast split the definition, and do its parts sum to the gradient?"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
import user_model
from tiny import LENGTH, QUICK, ROUTES, close, to64

from jaxfeat import tree
from jaxfeat.grads.split import split_by_definition, split_gradient
from jaxfeat.nn.blocks import forward
from jaxfeat.nn.decoder import Decoder
from jaxfeat.nn.loss import mean_loss
from jaxfeat.nn.route import resolve, scaled
from jaxfeat.types import Batch, UserError

BY_BLOCK = {"by_block": scaled(0.5, 2.0)}
ALL_COPIES = tuple(range(LENGTH))
USER = user_model.make_decoder()
USER_NODES, AT_ONCE = [(2, 3), (1, 1)], {"chunks": 1, "at_once": 9}
PROGRAMS = {}


def gradient(decoder, params, batch, **options):
    """`grad L`."""
    loss = lambda p: mean_loss(forward(decoder, p, batch, **options).logits, batch)
    return jax.grad(loss)(params)


def three(decoder, nodes, grouping, route=None, copies=None):
    """A program, kept: the fast split, the definition, the gradient; an array route is traced."""
    key = (id(decoder), tuple(nodes), str(grouping), route if isinstance(route, str) else 0, copies)

    def run(params, batch, array):
        graph = {"route": array if array is not None else route, "copies": copies}
        return (
            split_gradient(decoder, params, batch, nodes, **grouping, **graph),
            split_by_definition(decoder, params, batch, nodes, **graph),
            gradient(decoder, params, batch, **graph),
        )

    return PROGRAMS.setdefault(key, jax.jit(run, compiler_options=QUICK))


def compare(decoder, batch, nodes, grouping, route, copies, relative, dtype):
    """All three components equal the definition's; they sum to the gradient; the exact zeros."""
    route = resolve(route, batch.token.shape[1])
    array = None if route is None or isinstance(route, str) else route
    params = tiny.params_of(decoder, copies=len(copies or ()))
    params = to64(params) if dtype == jnp.float64 else params
    run = three(decoder, nodes, grouping, route, copies)
    if array is not None:
        array = jnp.asarray(array, bool if route is ROUTES["booleans"] else dtype)
    fast, slow, whole = jax.tree.map(np.asarray, run(params, batch, array))
    each = jax.tree.map(lambda x: np.broadcast_to(x, (len(nodes), *x.shape)), whole)
    for ours, theirs in zip(fast, slow):
        # the size is that of the leaf's gradient: a part of it may be 0 but for rounding
        close(ours, theirs, relative, size_of=each)
    for parts in (fast, slow):
        close(jax.tree.map(lambda d, p, s: d + p + s, *parts), each, relative)
    for n, (k, _) in enumerate(nodes):
        direct, cached = tree.index(fast.direct, n), tree.index(fast.precached, n)
        if k == decoder.layers or isinstance(route, str):
            assert all_zero(cached)
        for blocks in (direct["blocks"], cached["blocks"]):
            if isinstance(blocks, tuple):
                assert all_zero(blocks[k:])
            else:
                assert all_zero(tree.index(blocks, slice(k, None)))


def all_zero(values):
    """Whether every number in a tree is exactly 0."""
    return not any(np.asarray(x).any() for x in jax.tree.leaves(values))


GPT2_1, GPT2_2, GPT2_3 = tiny.gpt2(1, 4), tiny.gpt2(2, 2), tiny.gpt2(3, 1)
WINDOWS, IN_TUPLE = tiny.windowed(2), tiny.windowed(3, as_tuple=True)
BOTH_ENDS, SOME = [(1, 4), (0, 0), (1, 0), (0, 5)], [(2, 5), (1, 2), (1, 0)]
EVERY = [(k, i) for i in range(LENGTH) for k in (2, 0, 1)]
DEEP = [(3, 5), (0, 0), (2, 3), (1, 1), (3, 0)]
LOW = [(1, 4), (1, 0), (1, 5)]
BY_TWO = {"chunks": 2, "at_once": 2}
slow = pytest.mark.slow
# model, pads of row n: n times, their side, nodes, how the work is grouped, route, copies
CASES = [
    pytest.param(GPT2_2, 1, "right", SOME, {}, None, None, id="gpt2-full", marks=slow),
    pytest.param(
        GPT2_1, 2, "left", BOTH_ENDS, BY_TWO, "window", None, id="gpt2-window", marks=slow
    ),
    pytest.param(GPT2_1, 0, "right", BOTH_ENDS, BY_TWO, "blocked", None, id="gpt2-blocked"),
    pytest.param(GPT2_1, 1, "right", BOTH_ENDS, BY_TWO, "scaled", None, id="gpt2-scaled"),
    pytest.param(GPT2_1, 1, "left", BOTH_ENDS, BY_TWO, "weights", None, id="gpt2-weights"),
    pytest.param(
        GPT2_2, 1, "right", SOME, BY_TWO, "by_block", None, id="gpt2-by-block", marks=slow
    ),
    pytest.param(USER, 1, "left", USER_NODES, AT_ONCE, None, None, id="user-full"),
    pytest.param(USER, 1, "right", LOW, {"chunks": 1}, "myopic", (0, 2), id="user-unequal-myopic"),
    pytest.param(
        USER, 1, "right", LOW, {"chunks": 9, "at_once": 64}, "weights", ALL_COPIES, id="user-all"
    ),
    pytest.param(WINDOWS, 1, "left", LOW, {"chunks": 3}, "booleans", None, id="windows"),
    pytest.param(GPT2_2, 1, "left", SOME, {}, "myopic", None, id="gpt2-myopic", marks=slow),
    pytest.param(GPT2_2, 1, "left", EVERY, {"chunks": 3}, "weights", None, id="every", marks=slow),
    pytest.param(GPT2_3, 2, "left", DEEP, BY_TWO, None, None, id="deep", marks=slow),
    pytest.param(GPT2_2, 1, "right", SOME, {}, None, (0, 3), id="gpt2-halves", marks=slow),
    pytest.param(GPT2_2, 1, "left", SOME, BY_TWO, "scaled", ALL_COPIES, id="gpt2-all", marks=slow),
    pytest.param(IN_TUPLE, 0, "right", DEEP, {"chunks": 3}, None, None, id="tuple", marks=slow),
]


@pytest.mark.parametrize(("decoder", "pads", "side", "nodes", "grouping", "route", "copies"), CASES)
def test_equals_definition(decoder, pads, side, nodes, grouping, route, copies):
    """To 1e-10 in float64, over models, padding, graphs, nodes in any order and grouping."""
    route = None if route is None else (ROUTES | BY_BLOCK)[route]
    with jax.enable_x64(True):
        batch = tiny.batch_of(3, pads=pads, side=side)
        compare(decoder, batch, nodes, grouping, route, copies, 1e-10, jnp.float64)


def test_float32():
    """In float32 the parts are those of float64, and sum to the gradient, to 1e-5."""
    batch, params = tiny.batch_of(3, pads=1), tiny.params_of(WINDOWS)

    def fast(p):
        return split_gradient(WINDOWS, p, batch, LOW), gradient(WINDOWS, p, batch)

    fast = jax.jit(fast, compiler_options=QUICK)
    found, whole = fast(params)
    with jax.enable_x64(True):
        exact, exact_whole = fast(to64(params))
    each = jax.tree.map(lambda x: np.broadcast_to(x, (len(LOW), *x.shape)), exact_whole)
    for ours, theirs in zip(found, exact):
        close(ours, theirs, 1e-5, size_of=each)
    close(whole, exact_whole, 1e-5)
    close(jax.tree.map(lambda d, p, s: d + p + s, *found), each, 1e-5)


@pytest.mark.slow
def test_examples_apart():
    """Example i has the same components in batches of 1, 2 and 7; examples add up."""

    def run(params, batch, count):
        return split_gradient(WINDOWS, params, batch, LOW[:2], count=count, chunks=1)

    def alone(batch, i):
        return batch._replace(weight=batch.weight & (jnp.arange(len(batch.token)) == i)[:, None])

    run = jax.jit(run, compiler_options=QUICK)
    with jax.enable_x64(True):
        params, batch = to64(tiny.params_of(WINDOWS)), tiny.batch_of(7)
        batch = batch._replace(weight=batch.weight & (batch.target > 2))  # ragged
        count = batch.weight.sum()
        singles = [run(params, alone(batch, i), count) for i in range(7)]
        for size in (1, 2):
            close(run(params, alone(tree.index(batch, slice(size)), 0), count), singles[0], 1e-12)
        summed = jax.tree.map(lambda *x: sum(x), *singles)
        close(run(params, batch, count), summed, 1e-12)


@pytest.mark.slow
def test_user_model_under_vmap():
    """A model of plain functions, vmapped over its parameters, equals one at a time."""
    with jax.enable_x64(True):
        batch = tiny.batch_of(3, pads=1, side="left")
        params = jax.vmap(USER.init)(jax.random.split(jax.random.key(0), 2))
        fast = lambda p: split_gradient(USER, p, batch, USER_NODES, **AT_ONCE)
        together = jax.jit(jax.vmap(fast), compiler_options=QUICK)(params)
        for n in range(2):
            alone = three(USER, USER_NODES, AT_ONCE)(tree.index(params, n), batch, None)[0]
            close(tree.index(together, n), alone, 1e-12)


def linear_model():
    """Width 1, uniform attention: block b adds `w[b]` times the mean of what is visible."""
    return Decoder(
        layers=2,
        width=1,
        vocab=2,
        init=lambda key: {"outer": jnp.zeros(2), "blocks": jnp.zeros(2)},
        embed=lambda outer, token, position: outer[token][None],
        query=lambda w, const, x, position: jnp.zeros((1, 1)),
        memory=lambda w, const, x, position: (jnp.zeros((1, 1)), (w * x)[None]),
        attn_out=lambda w, const, mixed: mixed[0],
        mlp_out=lambda w, const, x, attn: jnp.zeros(1),
        unembed=lambda outer, x, ids=None: jnp.concatenate([jnp.zeros(1), x]),
    )


def test_by_hand():
    """A linear model of two positions and two blocks: the split at (1, 0) in closed form."""
    x0, x1, w1, w2 = 0.7, -1.1, 0.5, -0.3
    one = np.ones((1, 2), bool)
    batch = Batch(np.array([[0, 1]]), np.array([[1, 0]]), one, one, np.array([[0, 1]]))
    with jax.enable_x64(True):
        params = {"outer": jnp.array([x0, x1]), "blocks": jnp.array([w1, w2])}
        found = jax.jit(lambda p: split_gradient(linear_model(), p, batch, [(1, 0)]))(params)
    a0, a1 = (1 + w1) * x0, x1 + w1 * (x0 + x1) / 2  # after block 1
    b0, b1 = (1 + w2) * a0, a1 + w2 * (a0 + a1) / 2  # after block 2: the logit of token 1
    s0, s1 = 1 / (1 + np.exp(-b0)) - 1, 1 / (1 + np.exp(-b1))  # d loss / d logit; targets 1, 0
    direct, cached, other = s0 * (1 + w2) / 2, s1 * w2 / 4, s1 * (1 + w2 / 2) / 2
    expected = {
        "direct": [direct * (1 + w1), 0, direct * x0, 0],
        "precached": [cached * (1 + w1), 0, cached * x0, 0],
        "shared": [
            other * w1 / 2, other * (1 + w1 / 2), other * (x0 + x1) / 2,
            (s0 * a0 + s1 * (a0 + a1) / 2) / 2,
        ],
    }  # fmt: skip
    for name, values in expected.items():
        part = getattr(found, name)
        ours = np.concatenate([part["outer"][0], part["blocks"][0]])
        np.testing.assert_allclose(ours, values, rtol=0, atol=1e-15)


@pytest.mark.parametrize("split", [split_gradient, split_by_definition])
def test_refused(split):
    """A bidirectional model, nodes, a route or copies that do not fit."""
    batch, decoder = tiny.batch_of(2), tiny.gpt2()
    params = tiny.params_of(decoder)
    both_ways = tiny.windowed(causal=False)
    with pytest.raises(UserError, match="bidirectional"):
        split(both_ways, tiny.params_of(both_ways), batch, [(1, 1)])
    with pytest.raises(UserError, match=r"layer 3 .* 0\.\.2"):
        split(decoder, params, batch, [(3, 1)])
    with pytest.raises(UserError, match=r"position 6 .* 0\.\.5"):
        split(decoder, params, batch, [(1, 6)])
    with pytest.raises(UserError, match=r"\(6, 6\) needed"):
        split(decoder, params, batch, [(1, 1)], route=np.ones((5, 5)))
    with pytest.raises(UserError, match="given for 3 blocks, the model has 2"):
        split(decoder, params, batch, [(1, 1)], route=np.ones((3, 6, 6)))
    with pytest.raises(UserError, match=r"7 positions given, the model has 6"):
        split(decoder, params, tiny.batch_of(2, length=7), [(1, 1)])
    for name in ("token", "target"):
        strange = batch._replace(**{name: batch.token.at[0, 0].set(tiny.VOCAB)})
        with pytest.raises(UserError, match=rf"{name}: ids .*\.\.11 given, valid are 0\.\.10"):
            split(decoder, params, strange, [(1, 1)])
    for copies in ((0, 2.5), 5, "ab"):
        with pytest.raises(UserError, match="whole-number starts"):
            split(decoder, params, batch, [(1, 1)], copies=copies)
    for copies, given in (((0, 3), params), ((0, 2, 4), tiny.params_of(decoder, copies=2))):
        with pytest.raises(UserError, match=r"params: .* has shape .* needed"):
            split(decoder, given, batch, [(1, 1)], copies=copies)
    with pytest.raises(UserError, match="layers: 1 given, the model's init makes 2"):
        split(decoder._replace(layers=1), params, batch, [(1, 1)])
    for count in (0, -1, float("nan")):
        with pytest.raises(UserError, match="above 0 needed"):
            split(decoder, params, batch, [(1, 1)], count=count)
    with pytest.raises(UserError, match="increase from 0"):
        split(decoder, params, batch, [(1, 1)], copies=(0, 3, 3))
