"""Models and batches of a few positions for the tests."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxfeat.models.gpt2 import GPT2Config, make_gpt2
from jaxfeat.nn import route
from jaxfeat.nn.decoder import Decoder, layer_of
from jaxfeat.nn.route import resolve
from jaxfeat.types import Batch

VOCAB, WIDTH, LENGTH = 11, 8, 6
WEIGHTS = np.random.default_rng(3).uniform(0, 2, (LENGTH, LENGTH))
# For programs whose values alone are compared: half the time to compile.
QUICK = {"xla_backend_optimization_level": 0}
ROUTES = {
    "full": route.full(),
    "myopic": route.myopic(),
    "window": route.window(2),
    "blocked": route.blocked(2),
    "scaled": route.scaled(0.5),
    "booleans": WEIGHTS > 0.7,
    "weights": WEIGHTS,
}


def gpt2(layers=2, heads=2, dtype="float32", length=LENGTH):
    """A GPT-2 of width 8."""
    config = GPT2Config(VOCAB, length, WIDTH, heads, layers, mlp=12, dtype=dtype)
    return make_gpt2(config)


def params_of(decoder, seed=0, dtype=None, copies=0):
    """Parameters of which none is 0 or 1, in NumPy: biases and gains are random too."""
    rng = np.random.default_rng(seed)
    shapes = jax.eval_shape(decoder.init, jax.random.key(0))

    def draw(path, leaf):
        gain = 1.0 if "scale" in jax.tree_util.keystr(path) else 0.0
        axis = 0 if path[0].key == "outer" or isinstance(shapes["blocks"], tuple) else 1
        shape = list(leaf.shape)
        if copies:
            shape.insert(axis, copies)
        return (gain + 0.4 * rng.standard_normal(shape)).astype(dtype or leaf.dtype)

    return jax.tree_util.tree_map_with_path(draw, shapes)


def batch_of(size=2, length=LENGTH, pads=0, side="right", seed=0):
    """Random tokens; row n has n * pads padded positions, whose tokens are garbage."""
    rng = np.random.default_rng(seed)
    token, target = rng.integers(0, VOCAB, (2, size, length), dtype=np.int32)
    start = np.arange(size)[:, None] * pads
    t = np.arange(length)[None, :]
    mask = t >= start if side == "left" else t < length - start
    position = np.maximum(np.cumsum(mask, 1, dtype=np.int32) - 1, 0).astype(np.int32)
    return Batch(*map(jnp.asarray, (token, target, mask, mask, position)))


def windowed(layers=5, causal=True, as_tuple=False):
    """One linear head a block; what is visible depends on the block's constant, a window."""

    def init(key):
        keys = jax.random.split(key, 6)
        draw = lambda k, *shape: 0.4 * jax.random.normal(k, shape)
        outer = {"in": draw(keys[0], VOCAB, WIDTH), "out": draw(keys[1], VOCAB, WIDTH)}
        names = ("q", "k", "v", "o")
        blocks = {n: draw(k, layers, WIDTH, WIDTH) for n, k in zip(names, keys[2:])}
        return {"outer": outer, "blocks": unstack(blocks) if as_tuple else blocks}

    def unstack(tree):
        return tuple(layer_of(tree, b) for b in range(layers))

    def visible(const, t, s):
        far = t[:, None] - s[None, :]
        return (jnp.abs(far) < const["window"]) & ((far >= 0) | (not causal))

    consts = {"window": jnp.arange(layers) % 3 + 2}
    return Decoder(
        layers=layers,
        width=WIDTH,
        vocab=VOCAB,
        init=init,
        embed=lambda outer, token, position: outer["in"][token] + 0.1 * position,
        query=lambda b, const, x, position: (b["q"] @ x)[None],
        memory=lambda b, const, x, position: ((b["k"] @ x)[None], (b["v"] @ x)[None]),
        attn_out=lambda b, const, mixed: b["o"] @ mixed[0],
        mlp_out=lambda b, const, x, attn: 0.1 * jnp.tanh(x + attn),
        unembed=lambda outer, x, ids=None: (outer["out"] if ids is None else outer["out"][ids]) @ x,
        visible=visible,
        consts=unstack(consts) if as_tuple else consts,
        causal=causal,
    )


def as_tuple(params, layers):
    """The same parameters with the blocks as a tuple of trees."""
    blocks = tuple(layer_of(params["blocks"], b) for b in range(layers))
    return {"outer": params["outer"], "blocks": blocks}


def close(ours, theirs, relative, size_of=None):
    """Leaf by leaf `|a - b| <= relative max|c| + 1e-13`, c being b unless another tree is given."""
    trees = [jax.tree.leaves(t) for t in (ours, theirs, theirs if size_of is None else size_of)]
    for a, b, c in zip(*trees, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert a.shape == b.shape
        size = float(np.abs(c).max(initial=0))
        np.testing.assert_allclose(a, b, rtol=0, atol=relative * size + 1e-13)


def same(ours, theirs):
    """Leaf by leaf equal, bit for bit."""
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def to64(tree):
    """NumPy leaves as float64 arrays (inside `jax.enable_x64`)."""
    wide = lambda x: jnp.asarray(x, jnp.float64 if np.asarray(x).dtype.kind == "f" else None)
    return jax.tree.map(wide, tree)


def traced(fn, *args, route, **options):
    """Call with a resolved route as traced array, or as the static name of the diagonal."""
    found = resolve(route, LENGTH)
    if isinstance(found, str):
        options["kind"], found = found, None
    return fn(*args, None if found is None else jnp.asarray(found), **options)
