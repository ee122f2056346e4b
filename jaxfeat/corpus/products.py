"""What do the maps of a corpus give for a few vectors, where V x V numbers are too many?

A thin matrix `[V, k]` goes through the tokens themselves: rows are gathered at every position,
summed along the sequence, and added up where they belong, some sequences at a time. One product
costs N T k operations and the memory of its result. Notation as in arXiv 2601.19208: A0[t, j] = 1/t
for j <= t, R0 = Y - 1/V, and all maps in joint weighting.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from jaxfeat.corpus.sequences import check_sequences
from jaxfeat.types import UserError, check_whole

DTYPES = ("float32", "float64")
PAIRS = 2**21  # pairs (t, j) that are worked on at once
ALONE = 64  # columns below which one thread does it all


class Chunk(NamedTuple):
    """Some sequences, time first: ids `[T n]` and the sums of rows that have one id."""

    inputs: np.ndarray
    targets: np.ndarray
    to_inputs: Any  # CSR [ids, T n]
    input_ids: np.ndarray  # frequent ones first
    to_targets: Any
    target_ids: np.ndarray


class Corpus(NamedTuple):
    """A corpus prepared for products; `order` lists ids, the most frequent inputs first."""

    tokens: np.ndarray  # [N, T+1]
    vocab: int
    share: np.ndarray  # [V] P(i) of the inputs
    prefix: np.ndarray  # [V] (1/NT) sum over t of A0 X
    order: np.ndarray  # [V]
    rank: np.ndarray  # [V] where an id stands in `order`
    bigrams: Any  # CSR [V, V]: share of the pairs (input, target)
    bigrams_transposed: Any
    chunks: tuple[Chunk, ...]
    dtype: str

    @property
    def length(self) -> int:
        """T, the inputs of a sequence."""
        return self.tokens.shape[1] - 1

    @property
    def count(self) -> int:
        """N T."""
        return self.tokens.shape[0] * self.length


def make_corpus(
    tokens: np.ndarray, vocab: int, *, dtype: str = "float64", chunk: int = 32
) -> Corpus:
    """Count a corpus once, for the products below.

    Args:
        tokens: `[N, T+1]` integer ids; position t predicts token t + 1.
        vocab: V; what `0..V-1` names are the rows and columns of every map.
        dtype: of the products, float64 or float32.
        chunk: sequences that are worked on at once; only speed and memory depend on it.

    Raises:
        UserError: as `check_sequences`; another type.

    >>> corpus = make_corpus(np.array([[0, 1, 1]]), vocab=2)
    >>> times_bigram(corpus, np.eye(2)).tolist()
    [[-0.25, 0.25], [-0.25, 0.25]]
    """
    from scipy import sparse

    if dtype not in DTYPES:
        raise UserError(f"dtype: {dtype!r} given; valid: {', '.join(DTYPES)}")
    check_whole("chunk", chunk, 1)
    tokens = check_sequences(tokens, vocab)
    x, y = tokens[:, :-1], tokens[:, 1:]
    ones = np.full(x.size, 1 / x.size)
    share = np.bincount(x.ravel(), minlength=vocab) / x.size
    bigrams = sparse.csr_array((ones, (x.ravel(), y.ravel())), shape=(vocab, vocab)).astype(dtype)
    behind = np.cumsum((1 / np.arange(1, x.shape[1] + 1))[::-1])[::-1]  # sum of 1/t from j on
    weight = np.broadcast_to(behind / x.size, x.shape)
    order = np.argsort(-share, kind="stable")
    rank = np.empty(vocab, np.int64)
    rank[order] = np.arange(vocab)
    parts = range(0, len(tokens), chunk)
    return Corpus(
        tokens=tokens,
        vocab=vocab,
        share=share,
        prefix=np.bincount(x.ravel(), weights=weight.ravel(), minlength=vocab),
        order=order,
        rank=rank,
        bigrams=bigrams,
        bigrams_transposed=bigrams.T.tocsr(),
        chunks=tuple(_chunk(x[n : n + chunk], y[n : n + chunk], rank, dtype) for n in parts),
        dtype=dtype,
    )


def times_bigram(corpus: Corpus, m: np.ndarray) -> np.ndarray:
    """`B m`, B = (1/NT) sum X^T R0 (Eq 9): `[V, k]` of `[V, k]`."""
    return _columns(lambda m: _bigram(corpus, m), _thin(corpus, m))


def times_bigram_transposed(corpus: Corpus, m: np.ndarray) -> np.ndarray:
    """`B^T m`: `[V, k]` of `[V, k]`."""

    def product(m: np.ndarray) -> np.ndarray:
        out = corpus.bigrams_transposed @ m
        out -= (corpus.share @ m / corpus.vocab).astype(m.dtype)
        return out

    return _columns(product, _thin(corpus, m))


def times_context(corpus: Corpus, m: np.ndarray) -> np.ndarray:
    """`Phi m`, Phi = (1/NT) sum R0^T A0 X (row: next token, column: prefix token).

    At a position the rows of m are summed over the prefix; 1/t stands in the weights of what is
    added up by target.
    """

    def product(m: np.ndarray) -> np.ndarray:
        out, total = np.zeros_like(m), 1 / corpus.count
        for chunk in corpus.chunks:
            rows = _gather(corpus, m, chunk.inputs)
            for t in range(1, corpus.length):
                np.add(rows[t], rows[t - 1], out=rows[t])
            out[chunk.target_ids] += chunk.to_targets @ rows.reshape(-1, m.shape[1])
        out *= total
        out -= (corpus.prefix @ m / corpus.vocab).astype(m.dtype)
        return out

    return _columns(product, _thin(corpus, m))


def times_context_transposed(corpus: Corpus, m: np.ndarray, *, start: int = 0) -> np.ndarray:
    """`Phi^T m`; with `start` only the rows of ids that stand there or later in `order`, else 0."""

    def product(m: np.ndarray) -> np.ndarray:
        out, total = np.zeros_like(m), 1 / corpus.count
        for chunk in corpus.chunks:
            rows = _gather(corpus, m, chunk.targets)
            for t in range(corpus.length - 1, -1, -1):
                rows[t] *= 1 / (t + 1)
                if t + 1 < corpus.length:
                    np.add(rows[t], rows[t + 1], out=rows[t])
            ids, sums = chunk.input_ids, chunk.to_inputs
            if start:
                first = int(np.searchsorted(corpus.rank[ids], start))
                ids, sums = ids[first:], sums[first:]
            out[ids] += sums @ rows.reshape(-1, m.shape[1])
        out *= total
        few = corpus.order[start:]
        sums = (m.sum(axis=0, dtype=np.float64) / corpus.vocab)[None]
        out[few] -= (corpus.prefix[few, None] * sums).astype(m.dtype)
        return out

    return _columns(product, _thin(corpus, m))


def context_columns(corpus: Corpus, ids: np.ndarray) -> np.ndarray:
    """`Phi[:, ids]`, `[V, w]`: the product with unit vectors, out of the pairs that it counts."""
    out = np.zeros((corpus.vocab, len(ids)), corpus.dtype)
    y = corpus.tokens[:, 1:]
    for sequence, t, _, local in pairs_of(corpus, ids):
        where = y[sequence, t].astype(np.int64) * len(ids) + local
        np.add.at(out.reshape(-1), where, (1 / ((t + 1) * corpus.count)).astype(corpus.dtype))
    out -= (corpus.prefix[ids] / corpus.vocab).astype(corpus.dtype)
    return out


def pairs_of(
    corpus: Corpus, ids: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Every pair (t, j), j <= t, whose key x_j is one of these ids, some at a time.

    Yields:
        The sequence, t, j (from 0) and the key's place among `ids`.
    """
    place = np.full(corpus.vocab, -1)
    place[ids] = np.arange(len(ids))
    local = place[corpus.tokens[:, :-1]]
    sequence, j = np.nonzero(local >= 0)
    local, step = local[sequence, j], max(1, PAIRS // corpus.length)
    for n in range(0, len(j), step):
        part = slice(n, n + step)
        times = corpus.length - j[part]
        first = np.cumsum(times) - times
        t = np.arange(times.sum()) - np.repeat(first - j[part], times)
        far = lambda a, part=part, times=times: np.repeat(a[part], times)
        yield far(sequence), t, far(j), far(local)


def blocks_of(ids: np.ndarray, size: int) -> list[np.ndarray]:
    """The ids some at a time."""
    return [ids[n : n + size] for n in range(0, len(ids), size)]


def _bigram(corpus: Corpus, m: np.ndarray) -> np.ndarray:
    """`B m`."""
    out = corpus.bigrams @ m
    mean = m.sum(axis=0, dtype=np.float64) / corpus.vocab
    seen = np.flatnonzero(corpus.share)
    out[seen] -= (corpus.share[seen, None] * mean).astype(m.dtype)
    return out


def _chunk(x: np.ndarray, y: np.ndarray, rank: np.ndarray, dtype: str) -> Chunk:
    """The ids of some sequences and where their rows are added up."""
    early = (1 / np.arange(1, x.shape[1] + 1)).repeat(len(x)).astype(dtype)
    inputs, targets = x.T.ravel().astype(np.intp), y.T.ravel().astype(np.intp)
    to_inputs, input_ids = _sums(inputs, rank, np.ones(inputs.size, dtype))
    to_targets, target_ids = _sums(targets, rank, early)
    return Chunk(inputs, targets, to_inputs, input_ids, to_targets, target_ids)


def _sums(ids: np.ndarray, rank: np.ndarray, weight: np.ndarray) -> tuple[Any, np.ndarray]:
    """The weighted sums of rows that have one id, `[distinct, n]`, and those ids."""
    from scipy import sparse

    _, first, place = np.unique(rank[ids], return_index=True, return_inverse=True)
    sums = sparse.csr_array(
        (weight, (place, np.arange(len(ids)))), shape=(len(first), len(ids))
    )
    return sums, ids[first]


def _gather(corpus: Corpus, m: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Rows of m, `[T, n, k]`."""
    return np.take(m, ids, axis=0, mode="clip").reshape(corpus.length, -1, m.shape[1])


def _thin(corpus: Corpus, m: np.ndarray) -> np.ndarray:
    """The thin matrix in the type of the products."""
    m = np.asarray(m, corpus.dtype)
    if m.ndim != 2 or m.shape[0] != corpus.vocab:
        raise UserError(f"m: shape {m.shape} given, [{corpus.vocab} (V), k] needed")
    return m


def _columns(product: Callable[[np.ndarray], np.ndarray], m: np.ndarray) -> np.ndarray:
    """A product whose columns do not know each other, on several threads."""
    threads = min(os.cpu_count() or 1, m.shape[1] // ALONE)
    if threads < 2:
        return product(np.ascontiguousarray(m))
    parts = [np.ascontiguousarray(p) for p in np.array_split(m, threads, axis=1)]
    with ThreadPoolExecutor(threads) as pool:
        return np.concatenate(list(pool.map(product, parts)), axis=1)
