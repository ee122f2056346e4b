"""Is the fast split the definition, and do its parts sum to the gradient?"""

import itertools

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
from jaxfeat.types import Batch, UserError

ALL_COPIES = tuple(range(LENGTH))


def some_nodes(layers, count, seed=0):
    """`count` nodes of all layers in any order, both ends among them."""
    every = list(itertools.product(range(layers + 1), range(LENGTH)))
    chosen = np.random.default_rng(seed).permutation(len(every))
    ends = [(layers, LENGTH - 1), (0, 0), (layers, 1), (1, 2)]
    return (ends + [every[n] for n in chosen if every[n] not in ends])[:count]


def gradient(decoder, params, batch, **options):
    """`grad L`."""
    loss = lambda p: mean_loss(forward(decoder, p, batch, **options).logits, batch)
    return jax.grad(loss)(params)


def three(decoder, nodes, grouping, **options):
    """A program: the fast split, the definition, the gradient."""

    def run(params, batch):
        return (
            split_gradient(decoder, params, batch, nodes, **grouping, **options),
            split_by_definition(decoder, params, batch, nodes, **options),
            gradient(decoder, params, batch, **options),
        )

    return jax.jit(run, compiler_options=QUICK)


def total(split):
    """The sum of the parts."""
    return tree.add(tree.add(split.direct, split.precached), split.shared)


# model, padding, graph, nodes, how the work is grouped: every value of each occurs
CASES = {
    "one block": (tiny.gpt2(1, 1), (0, "right"), {}, 12, {"chunks": 9, "at_once": 3}),
    "two blocks": (tiny.gpt2(2, 2), (1, "right"), {}, 9, {}),
    "three blocks": (tiny.gpt2(3, 4), (2, "left"), {}, 7, {"chunks": 2, "at_once": 2}),
    "myopic": (tiny.gpt2(2, 2), (1, "left"), {"route": ROUTES["myopic"]}, 5, {"at_once": 64}),
    "window": (tiny.gpt2(2, 1), (2, "right"), {"route": ROUTES["window"]}, 5, {"chunks": 1}),
    "blocked": (tiny.gpt2(2, 4), (0, "right"), {"route": ROUTES["blocked"]}, 5, {}),
    "scaled": (tiny.gpt2(2, 2), (1, "left"), {"route": ROUTES["scaled"]}, 5, {"chunks": 3}),
    "weights": (tiny.gpt2(2, 2), (1, "right"), {"route": ROUTES["weights"]}, 5, {"at_once": 2}),
    "two copies": (tiny.gpt2(2, 2), (1, "right"), {"copies": (0, 3)}, 5, {"chunks": 2}),
    "unequal copies": (
        tiny.gpt2(2, 2), (1, "left"), {"copies": (0, 2), "route": ROUTES["myopic"]}, 5, {},
    ),
    "all copies": (
        tiny.gpt2(1, 2), (1, "right"), {"copies": ALL_COPIES, "route": ROUTES["scaled"]}, 5, {},
    ),
    "user": (user_model.make_decoder(), (1, "left"), {}, 6, {"chunks": 2, "at_once": 2}),
    "windows": (tiny.windowed(3), (1, "right"), {"route": ROUTES["booleans"]}, 5, {}),
    "tuple": (tiny.windowed(2, as_tuple=True), (0, "right"), {}, 5, {"chunks": 3}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_equals_definition(name):
    """All three components to 1e-10 in float64; they sum to the gradient; the exact zeros."""
    decoder, (pads, side), graph, count, grouping = CASES[name]
    nodes = some_nodes(decoder.layers, count)
    copies = len(graph.get("copies", ()))
    with jax.enable_x64(True):
        params = to64(tiny.params_of(decoder, copies=copies))
        batch = tiny.batch_of(3, pads=pads, side=side)
        fast, slow, whole = three(decoder, nodes, grouping, **graph)(params, batch)
        for ours, theirs in zip(fast, slow):
            close(ours, theirs, 1e-10)
        close(total(fast), jax.tree.map(lambda x: jnp.broadcast_to(x, (count, *x.shape)), whole), 1e-10)
    for n, (k, _) in enumerate(nodes):
        cached, direct = tree.index(fast.precached, n), tree.index(fast.direct, n)
        if k == decoder.layers or graph.get("route") == ROUTES["myopic"]:
            assert not any(np.asarray(x).any() for x in jax.tree.leaves(cached))
        for part in (direct, cached):
            above = part["blocks"][k:] if isinstance(part["blocks"], tuple) else tree.index(
                part["blocks"], slice(k, None))  # fmt: skip
            assert not any(np.asarray(x).any() for x in jax.tree.leaves(above))


def test_float32():
    """In float32 the parts equal the definition's, and sum to the gradient, to 1e-5."""
    decoder, _, graph, count, grouping = CASES["two blocks"]
    nodes, batch = some_nodes(2, count), tiny.batch_of(3, pads=1)
    params = tiny.params_of(decoder)
    fast, slow, whole = three(decoder, nodes, grouping, **graph)(params, batch)
    for ours, theirs in zip(fast, slow):
        close(ours, theirs, 1e-5)
    for parts in (fast, slow):
        close(total(parts), jax.tree.map(lambda x: np.broadcast_to(x, (count, *x.shape)), whole), 1e-5)


def test_examples_apart():
    """Each example's components are the same in batches of 1, 2 and 7: they add up."""
    decoder = tiny.gpt2(2, 2)
    nodes = some_nodes(2, 4)

    def run(params, batch, count):
        return split_gradient(decoder, params, batch, nodes, count=count, chunks=2)

    some = jax.jit(run, compiler_options=QUICK)
    apart = jax.jit(jax.vmap(run, (None, 0, None)), compiler_options=QUICK)
    with jax.enable_x64(True):
        params, seven = to64(tiny.params_of(decoder)), tiny.batch_of(7)
        batch = seven._replace(weight=seven.weight & (seven.target > 2))
        count = batch.weight.sum()
        singles = apart(params, jax.tree.map(lambda x: x[:, None], batch), count)
        for size in (1, 2, 7):
            whole = some(params, tree.index(batch, slice(size)), count)
            close(whole, jax.tree.map(lambda x: x[:size].sum(0), singles), 1e-12)
        close(some(params, batch, count), run(params, batch, None), 1e-12)


def test_user_model_under_vmap():
    """A model of plain functions, vmapped over its parameters, equals a loop."""
    decoder = user_model.make_decoder()
    nodes, batch = [(1, 1), (2, 3), (0, 2)], tiny.batch_of(2)
    run = lambda p: split_gradient(decoder, p, batch, nodes)
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(0), 2)
        params = jax.vmap(decoder.init)(keys)
        together = jax.jit(jax.vmap(run), compiler_options=QUICK)(params)
        alone = jax.jit(run, compiler_options=QUICK)
        for n in range(2):
            close(tree.index(together, n), alone(tree.index(params, n)), 1e-12)


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
    with pytest.raises(UserError, match="increase from 0"):
        split(decoder, params, batch, [(1, 1)], copies=(0, 3, 3))
