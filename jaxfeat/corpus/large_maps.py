"""What must be known of `Phi^T B^T` and of Q so that covariances can be compared with theirs?

Of each map: the rows that there are, the length of each, and norm and sum of the covariance of the
rows at unit length. Everything is exact and runs over blocks of rows or over nonzero entries; the
covariance itself, V x V, is never held. (arXiv 2601.19208, Eq 9-17.)
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from jaxfeat.corpus.covariance import Side, rounding_of
from jaxfeat.corpus.products import (
    Corpus,
    blocks_of,
    context_columns,
    pairs_of,
    times_bigram,
    times_bigram_transposed,
    times_context,
    times_context_transposed,
)
from jaxfeat.types import UserError

WIDTH = 512  # rows of a map that are dense at once
PAIRS = 2**25  # nonzero entries that are sorted at once


class LargeMap(NamedTuple):
    """A map K `[V, V]` of which rows are kept, scaled to unit norm and centred: `Kc [n, V]`."""

    rows: np.ndarray  # [n] the ids that are kept
    unseen: int  # ids that are no input of the corpus
    empty: int  # inputs whose row is zero
    side: Side  # of Kc Kc^T
    transposed: Callable[[np.ndarray], np.ndarray]  # Kc^T m: [V, k] of [n, k]


def value_map(corpus: Corpus, width: int = WIDTH) -> LargeMap:
    """`K = Phi^T B^T`, which the value matrices learn first (Eq 14).

    With the rows of the frequent tokens first, blocks of rows are taken from the last to the first:
    `|Kc Kc^T|^2 = sum over blocks I of |Kc_I Kc_I^T|^2 + 2 |Kc_J Kc_I^T|^2` with J all rows behind
    I. A block's rows are `(B Phi[:, I])^T`, sums over the pairs of the corpus that occur; the other
    factor is the product `Phi^T B^T` with them, of which only the rows behind are added up.

    Args:
        width: rows of a block; only speed and memory depend on it.

    Raises:
        UserError: no row is left.
    """
    seen = corpus.order[: np.count_nonzero(corpus.share)]
    norm = np.zeros(corpus.vocab)
    scale, squares = np.zeros(corpus.vocab), 0.0
    for n, ids in reversed(list(enumerate(blocks_of(seen, width)))):
        rows = times_bigram(corpus, context_columns(corpus, ids))  # [V, w]: K_I^T
        norm[ids] = np.sqrt(np.einsum("VI,VI->I", rows, rows, dtype=np.float64))
        scale[ids] = np.divide(1, norm[ids], out=np.zeros(len(ids)), where=norm[ids] > 0)
        rows *= scale[ids].astype(rows.dtype)
        rows -= rows.mean(axis=0, dtype=np.float64).astype(rows.dtype)
        half = times_bigram_transposed(corpus, rows)
        found = times_context_transposed(corpus, half, start=n * width)
        weight = np.where(corpus.rank >= n * width + len(ids), 2.0, 1.0) * scale**2
        squares += float(weight @ np.einsum("VI,VI->V", found, found, dtype=np.float64))

    kept = np.sort(seen[norm[seen] > 0])

    def transposed(m: np.ndarray) -> np.ndarray:
        full = _spread(corpus, kept, scale[kept], m)
        out = times_bigram(corpus, times_context(corpus, full))
        out -= out.mean(axis=0, dtype=np.float64).astype(out.dtype)
        return out

    return _large_map(corpus, kept, squares, transposed)


def attention_map(corpus: Corpus, width: int = WIDTH) -> LargeMap:
    """`K = Q` (row query, column key), which the attention matrices learn first (Eq 16).

    Q has no more entries than the corpus has pairs (t, j): its covariance's norm comes from
    `gram_norm` of a sparse matrix, its products from the tokens and q[t, j].

    Args, Raises: as `value_map`.
    """
    weights = attention_weights(corpus, width)
    entries = _entries(corpus, weights)
    norm = np.sqrt(np.asarray(entries.multiply(entries).sum(axis=1), np.float64))
    scale = np.divide(1, norm, out=np.zeros_like(norm), where=norm > 0)
    kept = np.flatnonzero(norm)
    entries.data *= np.repeat(scale, np.diff(entries.indptr)).astype(entries.dtype)
    squares = gram_norm(entries, corpus.order) ** 2  # rows of Q sum to zero: they are centred
    del entries

    def transposed(m: np.ndarray) -> np.ndarray:
        full = _spread(corpus, kept, scale[kept], m)
        out = times_attention_transposed(corpus, weights, full)
        out -= out.mean(axis=0, dtype=np.float64).astype(out.dtype)
        return out

    return _large_map(corpus, kept, squares, transposed)


def attention_weights(corpus: Corpus, width: int = WIDTH) -> np.ndarray:
    """`q[t, j] / NT` for j <= t, rows of the lower triangle one after another: `[N, T (T+1) / 2]`.

    g[t, j] = H[y_t, x_j] is read out of `H = B^T (B Phi)`, some columns at a time;
    q[t, j] = (1/t) (g[t, j] - mean over m <= t of g[t, m]).
    """
    length, y = corpus.length, corpus.tokens[:, 1:]
    out = np.empty((len(y), length * (length + 1) // 2), corpus.dtype)
    for ids in blocks_of(corpus.order[: np.count_nonzero(corpus.share)], width):
        h = times_bigram_transposed(corpus, times_bigram(corpus, context_columns(corpus, ids)))
        for sequence, t, j, local in pairs_of(corpus, ids):
            out[sequence, t * (t + 1) // 2 + j] = h[y[sequence, t], local]
    for t in range(length):
        g = out[:, t * (t + 1) // 2 : (t + 1) * (t + 2) // 2]
        g -= g[:, :1].copy()  # so that equal scores give exact zeros
        g -= g.mean(axis=1, keepdims=True)
        g /= (t + 1) * corpus.count
    return out


def times_attention(corpus: Corpus, weights: np.ndarray, m: np.ndarray) -> np.ndarray:
    """`Q m`, `[V, k]` of `[V, k]`, with the `attention_weights`."""
    return _attend(corpus, weights, m, transpose=False)


def times_attention_transposed(corpus: Corpus, weights: np.ndarray, m: np.ndarray) -> np.ndarray:
    """`Q^T m`, `[V, k]` of `[V, k]`."""
    return _attend(corpus, weights, m, transpose=True)


def gram_norm(s: Any, order: np.ndarray, heavy: int | None = None) -> float:
    """`|S S^T|` of a sparse matrix, exactly.

    In columns (C) and, of the others, rows (R) and the rest (E) with the first `heavy` ids of
    `order` apart, `|S S^T|^2 = |C^T C|^2 + 2 |C^T [R; E]|^2 + |R R^T|^2 + 2 |E R^T|^2 + |E^T E|^2`:
    C and R have few columns and rows, and E has few entries a column.

    Args:
        s: CSR `[V, V]`.
        order: `[V]` ids, those whose rows and columns have most entries first.
        heavy: by default what makes the estimated work least.
    """
    norm2 = lambda x: float(np.einsum("ij,ij->", x, x, dtype=np.float64))
    heavy = _heavy_ids(s, order) if heavy is None else heavy
    first, others = order[:heavy], order[heavy:]
    columns = s[:, first].toarray()
    total = norm2(columns.T @ columns)
    s = s[:, others]
    for part in blocks_of(np.arange(heavy), WIDTH):
        total += 2 * norm2(s.T @ np.ascontiguousarray(columns[:, part]))
    del columns
    rows, s = s[first].toarray(), s[others]
    total += norm2(rows @ rows.T)
    for part in blocks_of(np.arange(heavy), WIDTH):
        total += 2 * norm2(s @ np.ascontiguousarray(rows[part].T))
    del rows
    turned = s.T.tocsr()
    for part in blocks_of(np.arange(turned.shape[0]), 4 * WIDTH):
        data = (turned[part] @ s).data
        total += float(np.dot(data, data)) if data.dtype == np.float64 else norm2(data[:, None])
    return float(np.sqrt(total))


def _heavy_ids(s: Any, order: np.ndarray) -> int:
    """How many ids to keep apart in `gram_norm`: the least estimated work of a few sizes."""
    size = s.shape[0]
    entries = s.tocoo()
    rank = np.empty(size, np.int64)
    rank[order] = np.arange(size)
    row, column = rank[entries.row], rank[entries.col]
    both = np.minimum(row, column)
    best = (np.inf, 0)
    for heavy in (0, *(size // 2**n for n in range(9, 0, -1))):
        rest = both >= heavy
        counts = np.bincount(column[rest], minlength=size).astype(np.float64)
        outer = int(np.count_nonzero(column >= heavy)) + int(rest.sum())
        # seconds by operation: dense products, sparse times dense, sparse times sparse
        work = 2e-11 * 2.0 * heavy**2 * size + 5e-10 * outer * heavy + 1e-8 * counts @ counts
        best = min(best, (float(work), heavy))
    return best[1]


def _entries(corpus: Corpus, weights: np.ndarray) -> Any:
    """Q as a sparse matrix: the weights of all pairs, added up by query and key."""
    from scipy import sparse

    length, dtype = corpus.length, weights.dtype
    j = np.tril_indices(length)[1]
    ends = np.concatenate([[0], np.cumsum(np.arange(1, length + 1))])
    step = max(1, PAIRS // len(j))
    out = sparse.csr_array((corpus.vocab, corpus.vocab), dtype=dtype)
    for n in range(0, len(weights), step):
        x = corpus.tokens[n : n + step, :-1]
        starts = (ends[None, :-1] + len(j) * np.arange(len(x))[:, None]).ravel()
        starts = np.append(starts, len(x) * len(j))
        values = weights[n : n + step].ravel()
        by_key = sparse.csr_array((values, x[:, j].ravel(), starts), (x.size, corpus.vocab))
        ones = np.ones(x.size, dtype)
        query = sparse.csr_array((ones, (x.ravel(), np.arange(x.size))), (corpus.vocab, x.size))
        out = out + query @ by_key
    return out.tocsr()


def _attend(corpus: Corpus, weights: np.ndarray, m: np.ndarray, *, transpose: bool) -> np.ndarray:
    """Rows gathered at one end of every pair, weighted, and added up at the other."""
    length, out, n = corpus.length, np.zeros_like(m), 0
    lower = np.tril_indices(length)
    for chunk in corpus.chunks:
        size = len(chunk.inputs) // length
        q = np.zeros((size, length, length), m.dtype)
        q[:, lower[0], lower[1]] = weights[n : n + size]
        rows = m[corpus.tokens[n : n + size, :-1]]  # [n, T, k]
        mixed = (q.transpose(0, 2, 1) if transpose else q) @ rows
        by_time = np.ascontiguousarray(mixed.transpose(1, 0, 2)).reshape(-1, m.shape[1])
        out[chunk.input_ids] += chunk.to_inputs @ by_time
        n += size
    return out


def _spread(corpus: Corpus, ids: np.ndarray, scale: np.ndarray, m: np.ndarray) -> np.ndarray:
    """Scaled rows at their ids, zeros elsewhere: `[V, k]` of `[n, k]`."""
    if m.shape[0] != len(ids):
        raise UserError(f"m: {m.shape[0]} rows given, {len(ids)} (those of the map) needed")
    out = np.zeros((corpus.vocab, m.shape[1]), corpus.dtype)
    out[ids] = m * scale[:, None]
    return out


def _large_map(
    corpus: Corpus, kept: np.ndarray, squares: float, transposed: Callable
) -> LargeMap:
    """The map with counts of what is left out and the sum of its covariance."""
    seen = int(np.count_nonzero(corpus.share))
    if not len(kept):
        raise UserError("tokens: no row of the map is left; more or longer sequences needed")
    sums = transposed(np.ones((len(kept), 1))).astype(np.float64)
    side = Side(float(np.sqrt(squares)), float(np.sum(sums**2)), rounding_of(corpus.dtype))
    return LargeMap(kept, corpus.vocab - seen, seen - len(kept), side, transposed)
