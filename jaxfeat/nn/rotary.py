"""How does a head know where its query and key stand? By an angle that grows with the position.

Entries i and i + R/2 of a head are turned as a pair by `position * frequency[i]` (Su et al. 2021,
arXiv 2104.09864, in the half-split order of Hugging Face's checkpoints). Frequencies are no
parameters: they stand in a decoder's `consts`.
"""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxfeat.types import Array, UserError

KINDS = ("default", "linear", "llama3")


class Rope(NamedTuple):
    """Which angles: `theta` is the base, `kind` how frequencies are scaled for longer contexts."""

    theta: float = 10000.0
    kind: str = "default"
    factor: float = 1.0
    low: float = 1.0  # llama3: turns over `original` positions below which all is divided
    high: float = 4.0  # and above which nothing is
    original: int = 8192  # llama3: positions that the model was first trained with


PLAIN = Rope()


def rotary_frequencies(size: int, rope: Rope) -> np.ndarray:
    """`theta^(-2i / size)` for i below size / 2, scaled: `[size / 2]` float64, radians a position.

    `linear` divides all by the factor. `llama3` divides those that turn less than `low` times over
    `original` positions, keeps those that turn more than `high` times, and blends between them
    (Llama 3.1, arXiv 2407.21783).

    Args:
        size: R, the even number of entries of a head that are turned.

    Raises:
        UserError: an odd size, an unknown kind, a theta or factor that is no positive number.

    >>> rotary_frequencies(4, Rope(100.0, "linear", factor=2.0)).tolist()
    [0.5, 0.05]
    """
    if size < 2 or size % 2:
        raise UserError(f"rotary size: {size} given, an even number from 2 on needed")
    if rope.kind not in KINDS:
        raise UserError(f"rope kind {rope.kind!r} is unknown; valid: {', '.join(KINDS)}")
    for name in ("theta", "factor", "low", "high", "original"):
        value = getattr(rope, name)
        if not (math.isfinite(value) and value > 0):
            raise UserError(f"rope {name}: {value} given, a positive number needed")
    frequency = rope.theta ** (-np.arange(0, size, 2) / size)
    if rope.kind == "linear":
        return frequency / rope.factor
    if rope.kind == "llama3":
        if rope.high <= rope.low:
            raise UserError(f"rope high: {rope.high} given, more than low ({rope.low}) needed")
        turns = rope.original * frequency / (2 * np.pi)
        kept = np.clip((turns - rope.low) / (rope.high - rope.low), 0, 1)
        return frequency * (kept + (1 - kept) / rope.factor)
    return frequency


def rotate(x: Array, position: Array, frequency: Array) -> Array:
    """Heads turned to their position, in at least float32.

    `(a, b) -> (a cos - b sin, b cos + a sin)` for the pairs (a, b) = (x[i], x[i + R/2]).

    Args:
        x: `[H, K]`; entries from R on are left as they are (partial rotary).
        position: `[]`.
        frequency: `[R / 2]`, radians a position.

    Returns:
        `[H, K]`.

    >>> x = jnp.array([[1.0, 0.0, 5.0]])
    >>> [round(float(y), 4) for y in rotate(x, jnp.array(1), jnp.array([jnp.pi / 2]))[0]]
    [-0.0, 1.0, 5.0]
    """
    wide = jnp.promote_types(x.dtype, jnp.float32)
    angle = jnp.asarray(position, wide) * jnp.asarray(frequency, wide)
    cos, sin, half = jnp.cos(angle)[None], jnp.sin(angle)[None], frequency.shape[-1]
    a, b, rest = x[:, :half].astype(wide), x[:, half : 2 * half].astype(wide), x[:, 2 * half :]
    turned = jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
    return jnp.concatenate([turned.astype(x.dtype), rest], axis=-1)
