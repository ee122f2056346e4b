"""Arithmetic on pytrees: which operations do gradients, moments and steps share?"""

from typing import Any

import jax
import jax.numpy as jnp

from jaxfeat.types import Array, Tree


def add(a: Tree, b: Tree) -> Tree:
    """`a + b`, leaf by leaf."""
    return jax.tree.map(jnp.add, a, b)


def sub(a: Tree, b: Tree) -> Tree:
    """`a - b`, leaf by leaf."""
    return jax.tree.map(jnp.subtract, a, b)


def scale(c: float | Array, a: Tree) -> Tree:
    """`c * a`, each leaf in its own type."""
    return jax.tree.map(lambda x: jnp.asarray(c, x.dtype) * x, a)


def zeros(a: Tree) -> Tree:
    """A tree of zeros like `a`."""
    return jax.tree.map(jnp.zeros_like, a)


def dot(a: Tree, b: Tree) -> Array:
    """`<a, b>` over all leaves, accumulated in at least float32.

    >>> float(dot({"x": jnp.array([1.0, 2.0])}, {"x": jnp.array([3.0, 4.0])}))
    11.0
    """
    parts = jax.tree.map(lambda x, y: jnp.sum(widen(x) * widen(y)), a, b)
    return sum(jax.tree.leaves(parts), start=jnp.zeros(()))


def norm(a: Tree) -> Array:
    """`|a|_2` over all leaves."""
    return jnp.sqrt(dot(a, a))


def widen(x: Array) -> Array:
    """`x` in float32 where it is narrower, else as it is: what sums accumulate in."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def index(a: Tree, i: Any) -> Tree:
    """`a[i]` on the leading axis of every leaf."""
    return jax.tree.map(lambda x: x[i], a)


def concat(trees: list[Tree]) -> Tree:
    """Trees joined on the leading axis of every leaf."""
    return trees[0] if len(trees) == 1 else jax.tree.map(lambda *x: jnp.concatenate(x), *trees)


def bytes_of(a: Tree) -> int:
    """Bytes that the leaves take (arrays or shapes)."""
    return sum(x.size * jnp.dtype(x.dtype).itemsize for x in jax.tree.leaves(a))
