"""What do all pairs of a token and an earlier one add up to? Scatter sums, no array of T^3.

Sequences are taken a few at a time, so that memory follows V^2 and not the size of the corpus.
"""

import functools

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

    def add(tables: tuple, some: Array) -> tuple[tuple, None]:
        at = _flat(some[:, s], some[:, j], vocab)
        added = (jnp.broadcast_to(w[s, j], at.shape) for w in weights)
        return tuple(x.at[at].add(w, mode="drop") for x, w in zip(tables, added)), None

    zero = tuple(jnp.zeros(vocab * vocab, jnp.float64) for _ in range(3))
    sums, _ = jax.lax.scan(add, zero, _in_chunks(tokens, chunk))
    return tuple(x.reshape(vocab, vocab) for x in sums)  # type: ignore[return-value]


@functools.partial(jax.jit, static_argnames=("chunk",))
def attention_sums(tokens: Array, score: Array, chunk: int) -> tuple[Array, Array]:
    """Sums of q[t, j] over pairs (x_t, x_j) `[V, V]` and over offsets t - j `[T]`, in float64.

    Args:
        tokens: `[N, T+1]`.
        score: H `[V, V]`; q[t, j] = (1/t) (g[t, j] - mean_{m <= t} g[t, m]), g[t, j] = H[y_t, x_j].
    """
    length, vocab = tokens.shape[1] - 1, len(score)
    t, j = np.tril_indices(length)
    offset = t - j

    def add(sums: tuple, some: Array) -> tuple[tuple, None]:
        table, delta = sums
        q = jnp.where(some[:, :1] < 0, 0.0, gradient_scores(some, score)[:, t, j])
        at = _flat(some[:, t], some[:, j], vocab)
        return (
            table.at[at].add(q, mode="drop"),
            delta.at[offset].add(jnp.sum(q, axis=0), mode="promise_in_bounds"),
        ), None

    zero = jnp.zeros(vocab * vocab, jnp.float64), jnp.zeros(length, jnp.float64)
    (table, delta), _ = jax.lax.scan(add, zero, _in_chunks(tokens, chunk))
    return table.reshape(vocab, vocab), delta


def gradient_scores(tokens: Array, score: Array) -> Array:
    """q `[N, T, T]` of sequences `[N, T+1]`: 0 for j > t (see `attention_sums`)."""
    length = tokens.shape[1] - 1
    t, j = np.tril_indices(length)
    seen = np.tril(np.ones((length, length), bool))
    size = np.arange(1, length + 1)[:, None]
    read = score[tokens[:, t + 1], tokens[:, j]]  # the lower triangle alone: reading is dear
    row = np.arange(length)[:, None]
    g = jnp.where(seen, read[:, row * (row + 1) // 2 + np.minimum(np.arange(length), row)], 0.0)
    mean = jnp.sum(g, axis=-1, keepdims=True) / size
    return jnp.where(seen, (g - mean) / size, 0.0)


def _flat(row: Array, column: Array, vocab: int) -> Array:
    """Places in a flat table; beyond its end where there is no token."""
    return jnp.where(row < 0, vocab * vocab, row * vocab + column)
