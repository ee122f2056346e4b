"""Between the reference's flat parameter vectors and our trees.

The index lists `[name, offset, shape]` of every parameter, in Hugging Face's GPT-2 names behind a
prefix. A wrapper holds several models: then its index has as many prefixes, and our leaves a copy
axis. `Conv1D` weights are `[in, out]` there and `[out, in]` here; `c_attn` is `[q | k | v]`.
"""

import json

import jax
import numpy as np

from jaxfeat.models.gpt2 import GPT2Config
from jaxfeat.types import Batch

OUTER = {
    ("wte", "embedding"): "wte.weight",
    ("wpe", "embedding"): "wpe.weight",
    ("ln_f", "scale"): "ln_f.weight",
    ("ln_f", "bias"): "ln_f.bias",
}
BLOCK = {
    ("ln_1", "scale"): "ln_1.weight",
    ("ln_1", "bias"): "ln_1.bias",
    ("o", "kernel"): "attn.c_proj.weight",
    ("o", "bias"): "attn.c_proj.bias",
    ("ln_2", "scale"): "ln_2.weight",
    ("ln_2", "bias"): "ln_2.bias",
    ("mlp", "fc", "kernel"): "mlp.c_fc.weight",
    ("mlp", "fc", "bias"): "mlp.c_fc.bias",
    ("mlp", "proj", "kernel"): "mlp.c_proj.weight",
    ("mlp", "proj", "bias"): "mlp.c_proj.bias",
}
READS = ("q", "k", "v")


def load(file):
    """The arrays of a file, with its config and index decoded."""
    with np.load(file) as z:
        found = dict(z)
    return found, json.loads(str(found["config"])), json.loads(str(found["param_index"]))


def config_of(config):
    """The model of a reference config."""
    c = config
    return GPT2Config(c["V"], c["T"], c["h"], c["H"], c["L"], 4 * c["h"], dtype="float64")


def batch_of(tokens):
    """All T positions of whole sequences; the last has no target."""
    tokens = np.asarray(tokens, np.int32)
    real = np.ones(tokens.shape, bool)
    position = np.broadcast_to(np.arange(tokens.shape[1], dtype=np.int32), tokens.shape)
    counted = real.copy()
    counted[:, -1] = False
    return Batch(tokens, np.roll(tokens, -1, axis=1), real, counted, position)


def prefixes_of(index):
    """What stands before the names, one prefix a copy, in the order of the vector."""
    return [n.removesuffix("wte.weight") for n, _, _ in index if n.endswith("wte.weight")]


def to_params(vector, index, config):
    """`[..., P]` to a tree with the same leading axes; several prefixes become copies."""
    vector = np.asarray(vector)
    lead, layers = vector.shape[:-1], config["L"]
    at = {n: vector[..., o : o + int(np.prod(s))].reshape(*lead, *s) for n, o, s in index}
    sets = []
    for prefix in prefixes_of(index):
        outer = _nest({path: at[prefix + name] for path, name in OUTER.items()})
        blocks = [_read_block(at, f"{prefix}h.{b}.") for b in range(layers)]
        blocks = jax.tree.map(lambda *x: np.stack(x, len(lead)), *blocks)
        sets.append({"outer": outer, "blocks": blocks})
    if len(sets) == 1:
        return sets[0]
    axis = len(lead)
    outer, blocks = ([s[name] for s in sets] for name in ("outer", "blocks"))
    return {
        "outer": jax.tree.map(lambda *x: np.stack(x, axis), *outer),
        "blocks": jax.tree.map(lambda *x: np.stack(x, axis + 1), *blocks),
    }


def to_vector(tree, index, config):
    """The inverse of `to_params`: `[..., P]` in the order of the index."""
    tree = jax.tree.map(np.asarray, tree)
    prefixes, at = prefixes_of(index), {}
    axis = tree["outer"]["wte"]["embedding"].ndim - 2 - (len(prefixes) > 1)
    for c, prefix in enumerate(prefixes):
        own = tree
        if len(prefixes) > 1:
            own = {
                "outer": _taken(tree["outer"], c, axis),
                "blocks": _taken(tree["blocks"], c, axis + 1),
            }
        at |= {prefix + name: _at(own["outer"], path) for path, name in OUTER.items()}
        for b in range(config["L"]):
            at |= _write_block(_taken(own["blocks"], b, axis), f"{prefix}h.{b}.")
    flat = [at[n].reshape(*at[n].shape[:axis], int(np.prod(s))) for n, _, s in index]
    return np.concatenate(flat, axis=-1)


def _read_block(at, prefix):
    """One block's tree out of named arrays."""
    found = {path: at[prefix + name] for path, name in BLOCK.items()}
    found = {p: _turned(x) if p[-1] == "kernel" else x for p, x in found.items()}
    kernels = np.split(at[prefix + "attn.c_attn.weight"], 3, axis=-1)
    biases = np.split(at[prefix + "attn.c_attn.bias"], 3, axis=-1)
    for name, kernel, bias in zip(READS, kernels, biases):
        found |= {(name, "kernel"): _turned(kernel), (name, "bias"): bias}
    return _nest(found)


def _write_block(block, prefix):
    """Named arrays out of one block's tree."""
    found = {path: _at(block, path) for path in BLOCK}
    at = {
        prefix + name: _turned(found[p]) if p[-1] == "kernel" else found[p]
        for p, name in BLOCK.items()
    }
    kernels = [_turned(block[name]["kernel"]) for name in READS]
    at[prefix + "attn.c_attn.weight"] = np.concatenate(kernels, axis=-1)
    biases = [block[name]["bias"] for name in READS]
    at[prefix + "attn.c_attn.bias"] = np.concatenate(biases, axis=-1)
    return at


def _taken(tree, n, axis):
    """The n-th entry of an axis of every leaf."""
    return jax.tree.map(lambda x: x.take(n, axis), tree)


def _turned(kernel):
    """`[in, out]` to `[out, in]` and back."""
    return np.swapaxes(kernel, -1, -2)


def _nest(flat):
    """`{path: leaf}` as nested dicts."""
    tree = {}
    for path, leaf in flat.items():
        inside = tree
        for name in path[:-1]:
            inside = inside.setdefault(name, {})
        inside[path[-1]] = leaf
    return tree


def _at(tree, path):
    """The leaf at a path."""
    for name in path:
        tree = tree[name]
    return tree


def check(ours, theirs, what="", relative=1e-9):
    """`|a - b| <= relative max|b| + 1e-13`, NaN equals NaN."""
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    assert ours.shape == theirs.shape, what
    finite = np.abs(theirs[np.isfinite(theirs)])
    bound = relative * float(finite.max(initial=0)) + 1e-13
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=bound, equal_nan=True, err_msg=what)
