"""Which tensor of a checkpoint is which parameter?

A family lists its tensors by their names in Hugging Face's files. Tensors are read one at a time
into arrays that are made beforehand, so that no more than the parameters and one tensor are held.
"""

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfeat.nn.decoder import Decoder
from jaxfeat.types import Tree, UserError

Target = str | Mapping[str, Callable[[np.ndarray], np.ndarray]]


class Names(NamedTuple):
    """Where tensors go. A target is a path "a/b/c" of the tree, or several with what each takes.

    `outer` and `block` are by tensor name, of a block after `at` with the block's number in it.
    The first of `prefixes` that a name begins with is no part of it: checkpoints of the bare model
    lack it. A tensor whose whole name matches a pattern of `ignored` is passed over. A target that
    the model's tree lacks is not read.
    """

    outer: Mapping[str, Target]
    block: Mapping[str, Target]
    at: str = "layers.{}."
    prefixes: tuple[str, ...] = ("model.",)
    ignored: tuple[str, ...] = ()


def read_tree(decoder: Decoder, tensors: Mapping[str, np.ndarray], names: Names) -> Tree:
    """The parameters of a model out of named tensors, as NumPy arrays.

    Args:
        decoder: its `init` says the shapes and types.
        tensors: reads an array at each access; each is accessed once.

    Returns:
        A tree as `decoder.init` makes it.

    Raises:
        UserError: a missing tensor, one of another shape or type, one that no rule knows.
    """
    like = jax.eval_shape(decoder.init, jax.random.key(0))
    params = jax.tree.map(lambda x: np.empty(x.shape, x.dtype), like)
    stored = _stored(tensors, names.prefixes)
    left = {name for name in stored if not any(re.fullmatch(p, name) for p in names.ignored)}
    for prefix, rules, leaves in _parts(params, names, decoder.layers):
        open_paths = set(leaves)
        for name, target in rules.items():
            takes = {target: None} if isinstance(target, str) else target
            takes = {path: part for path, part in takes.items() if path in leaves}
            if not takes:
                continue
            full = prefix + name
            if full not in stored:
                raise UserError(f"checkpoint: tensor {full} is missing")
            _write(full, tensors[stored[full]], takes, leaves)
            open_paths -= set(takes)
            left.discard(full)
        if open_paths:
            raise UserError(f"checkpoint: no tensor is known for {prefix}{min(open_paths)}")
    if left:
        raise UserError(f"checkpoint: tensor {min(left)} is none of this model")
    return params


def rows(n: int, of: int) -> Callable[[np.ndarray], np.ndarray]:
    """Takes the n-th of so many equal groups of rows."""
    return lambda x: np.split(x, of)[n]


def _stored(tensors: Mapping[str, np.ndarray], prefixes: tuple[str, ...]) -> dict[str, str]:
    """The file's name of each tensor, by its name without prefix."""
    stored = {}
    for name in tensors:
        prefix = next((p for p in prefixes if name.startswith(p)), "")
        short = name[len(prefix) :]
        if short in stored:
            raise UserError(f"checkpoint: tensors {stored[short]} and {name} are the same one")
        stored[short] = name
    return stored


def _parts(params: Tree, names: Names, layers: int):
    """Name prefix, rules and leaves `{path: array}` of `outer` and of each block."""
    yield "", names.outer, _leaves(params["outer"])
    blocks = params["blocks"]
    stacked = None if isinstance(blocks, tuple) else _leaves(blocks)
    for b in range(layers):
        leaves = {p: x[b] for p, x in stacked.items()} if stacked else _leaves(blocks[b])
        yield names.at.format(b), names.block, leaves


def _leaves(tree: Tree, before: str = "") -> dict[str, np.ndarray]:
    """The arrays of nested dicts by their path."""
    found = {}
    for name, inside in tree.items():
        path = before + name
        found |= _leaves(inside, path + "/") if isinstance(inside, dict) else {path: inside}
    return found


def _write(
    name: str,
    tensor: np.ndarray,
    takes: Mapping[str, Callable | None],
    leaves: Mapping[str, np.ndarray],
) -> None:
    """Put the parts of one tensor into their arrays."""
    if not jnp.issubdtype(tensor.dtype, jnp.floating):
        raise UserError(f"checkpoint: tensor {name} has type {tensor.dtype}, real numbers needed")
    for path, part in takes.items():
        try:
            x = tensor if part is None else part(tensor)
        except ValueError:  # a shape that cannot be divided
            x = None
        if x is None or x.shape != leaves[path].shape:
            told = (
                tensor.shape if x is None or part is None else f"{tensor.shape}, its part {x.shape}"
            )
            need = leaves[path].shape
            raise UserError(f"checkpoint: tensor {name} has shape {told}, {path} needs {need}")
        leaves[path][...] = x
