"""What do all pairs of a token and an earlier one add up to? Scatter sums, no array of T^3.

Sequences are taken a few at a time, so that memory follows V^2 and not the size of the corpus.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfeat.types import Array

PAIRS = 1 << 16  # pairs that are worked on together


def chunk_of(length: int, chunk: int | None) -> int:
    """Sequences that are worked on together."""
    return chunk or max(1, PAIRS // length**2)


def prefix_weights(length: int) -> np.ndarray:
    """`[2, T, T]`: A0 and A0^2, rows t: 1/t, and (1/t) sum_{m=j..t} 1/m, for j <= t from 1.

    >>> prefix_weights(2).tolist()
    [[[1.0, 0.0], [0.5, 0.5]], [[1.0, 0.0], [0.75, 0.25]]]
    """
    first = np.tril(np.ones((length, length)) / np.arange(1, length + 1)[:, None])
    return np.stack([first, first @ first])


def _in_chunks(tokens: Array, chunk: int) -> Array:
    """`[chunks, chunk, T+1]`; what is padded is -1, whose pairs are dropped."""
    count = -(-len(tokens) // chunk)
    padded = jnp.pad(tokens, ((0, count * chunk - len(tokens)), (0, 0)), constant_values=-1)
    return padded.reshape(count, chunk, tokens.shape[1])


@functools.partial(jax.jit, static_argnames=("vocab", "chunk"))
def prefix_sums(tokens: Array, vocab: int, chunk: int) -> tuple[Array, Array, Array]:
    """Sums over pairs that depend on places alone, each `[V, V]` in float64.

    Pairs (y_t, x_j) weighted by A0[t, j] and by A0^2[t, j], and pairs (x_t, x_j) by A0[t, j]. With
    y_t = x_{t+1} all three run over pairs of places (s, j) of the T+1 tokens.
    """
    length = tokens.shape[1] - 1
    s, j = np.tril_indices(length + 1)
    weights = np.zeros((3, length + 1, length + 1))
    weights[:2, 1:, :length] = prefix_weights(length)
    weights[2, :length, :length] = weights[0, 1:, :length]

    by_pair = jnp.asarray(weights[:, s, j].T)  # one place of three numbers a pair: memory is slow

    def add(table: Array, some: Array) -> tuple[Array, None]:
        at = _flat(some[:, s], some[:, j], vocab)
        added = jnp.broadcast_to(by_pair, (*at.shape, len(weights)))
        return table.at[at].add(added, mode="drop"), None

    zero = jnp.zeros((vocab * vocab, len(weights)), jnp.float64)
    sums, _ = jax.lax.scan(add, zero, _in_chunks(tokens, chunk))
    context, context2, current = sums.T.reshape(-1, vocab, vocab)
    return context, context2, current


@functools.partial(jax.jit, static_argnames=("chunk",))
def attention_sums(tokens: Array, score: Array, chunk: int) -> tuple[Array, Array]:
    """Sums of q[t, j] over pairs (x_t, x_j) `[V, V]` and over offsets t - j `[T]`, in float64.

    Args:
        tokens: `[N, T+1]`.
        score: H `[V, V]`; q[t, j] = (1/t) (g[t, j] - mean_{m <= t} g[t, m]), g[t, j] = H[y_t, x_j].
    """
    vocab, pairs = len(score), fold_pairs(tokens.shape[1] - 1)

    def add(sums: tuple, some: Array) -> tuple[tuple, None]:
        table, by_place = sums
        q = jnp.where(some[:, :1, None] < 0, 0.0, _folded_scores(some, score, pairs))
        at = _flat(some[:, pairs.t], some[:, pairs.j], vocab)
        return (table.at[at].add(q, mode="drop"), by_place + jnp.sum(q, axis=0)), None

    zero = jnp.zeros(vocab * vocab, jnp.float64), jnp.zeros(pairs.t.shape, jnp.float64)
    (table, by_place), _ = jax.lax.scan(add, zero, _in_chunks(tokens, chunk))
    delta = jnp.zeros(tokens.shape[1] - 1, jnp.float64).at[pairs.t - pairs.j].add(by_place)
    return table.reshape(vocab, vocab), delta


def gradient_scores(tokens: Array, score: Array) -> Array:
    """q `[N, T, T]` of sequences `[N, T+1]`: 0 for j > t (see `attention_sums`)."""
    length = tokens.shape[1] - 1
    pairs = fold_pairs(length)
    q = _folded_scores(tokens, score, pairs)
    return jnp.zeros((len(tokens), length, length), q.dtype).at[:, pairs.t, pairs.j].add(q)


class Pairs(NamedTuple):
    """Pairs j <= t < T as a rectangle `[(T + 1) // 2, T + 1]` without waste: row t goes on with row
    T - 1 - t. The middle row of an odd T stands twice; `once` is False at its second time."""

    t: np.ndarray
    j: np.ndarray
    first: np.ndarray  # where a row's first part is
    once: np.ndarray


def fold_pairs(length: int) -> Pairs:
    """The pairs of T places.

    >>> pairs = fold_pairs(3)
    >>> list(zip(pairs.t[pairs.once].tolist(), pairs.j[pairs.once].tolist()))
    [(0, 0), (2, 0), (2, 1), (2, 2), (1, 0), (1, 1)]
    """
    row, column = np.arange((length + 1) // 2)[:, None], np.arange(length + 1)
    first = column <= row
    other = length - 1 - row
    return Pairs(
        t=np.where(first, row, other),
        j=np.where(first, column, column - row - 1),
        first=first,
        once=first | (other != row),
    )


def _folded_scores(tokens: Array, score: Array, pairs: Pairs) -> Array:
    """q `[N, R, T+1]` at the folded pairs; 0 at what stands twice."""
    at = tokens[:, pairs.t + 1] * len(score) + tokens[:, pairs.j]
    g = jnp.ravel(score).at[at].get(mode="clip")
    total = lambda part: jnp.sum(jnp.where(part, g, 0.0), axis=-1, keepdims=True)
    size = pairs.t + 1
    mean = jnp.where(pairs.first, total(pairs.first), total(~pairs.first)) / size
    return jnp.where(pairs.once, (g - mean) / size, 0.0)


def _flat(row: Array, column: Array, vocab: int) -> Array:
    """Places in a flat table; beyond its end where there is no token."""
    return jnp.where(row < 0, vocab * vocab, row * vocab + column)
