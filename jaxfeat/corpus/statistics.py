"""Which corpus statistics do the first gradients write into the weights? (the basis functions)

Im, Oh, Fang, Li, arXiv 2601.19208, Eq 9-17. Two passes over the sequences: pairs weighted by their
places alone, then, with what these gave, pairs weighted by q. Both are sums: shards are merged by
adding them up.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfeat.corpus.pair_sums import attention_sums, chunk_of, prefix_sums
from jaxfeat.corpus.sequences import check_sequences
from jaxfeat.types import UserError, check_whole

DENSE_LIMIT = 16_384  # V above which no table [V, V] is held


class Statistics(NamedTuple):
    """Means over all N sequences and T positions, float64, in the joint weighting.

    A0[t, j] = 1/t for j <= t, R0 = Y - 1/V, H = S_B Phi:
        unigram, target `[V]`: shares of the inputs x_t and of the targets y_t
        bigram `[V, V]`: B = (1/NT) sum X^T R0; rows sum to 0
        interchange `[V, V]`: S_B = B^T B
        context `[V, V]`: Phi = (1/NT) sum R0^T A0 X; rows next token, columns prefix token
        attention `[V, V]`: Q; rows query, columns key; rows sum to 0
        offset `[T]`: Delta by t - j; sums to 0
        current `[V, V]`: Cur = (1/NT) sum (A0 X)^T X; rows prefix token, columns current token
        context2 `[V, V]`: Phi2 = (1/NT) sum R0^T A0^2 X
        count: N T; length: T
    """

    unigram: np.ndarray
    target: np.ndarray
    bigram: np.ndarray
    interchange: np.ndarray
    context: np.ndarray
    attention: np.ndarray
    offset: np.ndarray
    current: np.ndarray
    context2: np.ndarray
    count: int
    length: int

    @property
    def vocab(self) -> int:
        """V."""
        return len(self.unigram)

    @property
    def score(self) -> np.ndarray:
        """H = S_B Phi `[V, V]`: what a key adds to the logit of a next token, to leading order."""
        return product(self.interchange, self.context)


class FirstSums(NamedTuple):
    """Sums of the first pass: follows `[V, V]` counts of (x_t, y_t), pairs `[V, V]`, N T and T."""

    follows: np.ndarray
    context: np.ndarray
    context2: np.ndarray
    current: np.ndarray
    count: int
    length: int


class SecondSums(NamedTuple):
    """Sums of the second pass: q over (x_t, x_j) `[V, V]` and over offsets `[T]`."""

    attention: np.ndarray
    offset: np.ndarray


def corpus_statistics(
    tokens: Any, vocab: int, *, chunk: int | None = None, strict: bool = False
) -> Statistics:
    """All statistics of a text.

    Args:
        tokens: `[N, T+1]` ids, or a sequence of such shards of one T.
        vocab: V, at most `DENSE_LIMIT`; `jaxfeat.corpus.products` goes beyond it.
        chunk: sequences that are worked on together; only speed and memory depend on it.
        strict: refuse a vocabulary with ids that never occur.

    Returns:
        `Statistics`, exact to rounding in float64 for any chunk and any order of shards.

    Raises:
        UserError: tokens that cannot be counted, shards of different T, a V too large.

    >>> found = corpus_statistics([[0, 1, 0]], 2)
    >>> found.bigram.tolist()  # P(i, j) - P(i) / V
    [[-0.25, 0.25], [0.25, -0.25]]
    """
    shards = _shards(tokens, vocab, strict)
    first = None
    for shard in shards:
        some = first_sums(shard, vocab, chunk=chunk)
        first = some if first is None else merge_first(first, some)
    assert first is not None
    score = score_of(first)
    second = None
    for shard in shards:
        some = second_sums(shard, score, chunk=chunk)
        second = some if second is None else merge_second(second, some)
    assert second is not None
    return finish(first, second)


def first_sums(tokens: Any, vocab: int, *, chunk: int | None = None) -> FirstSums:
    """The first pass over one shard `[N, T+1]`."""
    _check_dense(vocab)
    tokens = check_sequences(tokens, vocab)
    length = tokens.shape[1] - 1
    pairs = tokens[:, :-1].astype(np.int64) * vocab + tokens[:, 1:]
    follows = np.bincount(pairs.ravel(), minlength=vocab * vocab).reshape(vocab, vocab)
    with jax.enable_x64(True):
        sums = prefix_sums(jnp.asarray(tokens), vocab, chunk_of(length, _checked(chunk)))
        context, context2, current = map(np.asarray, sums)
    return FirstSums(follows, context, context2, current, pairs.size, length)


def second_sums(tokens: Any, score: Any, *, chunk: int | None = None) -> SecondSums:
    """The second pass over one shard `[N, T+1]`, given H `[V, V]` of the whole corpus."""
    tokens = check_sequences(tokens, len(score))
    with jax.enable_x64(True):
        size = chunk_of(tokens.shape[1] - 1, _checked(chunk))
        table, offset = attention_sums(jnp.asarray(tokens), jnp.asarray(score, jnp.float64), size)
        return SecondSums(np.asarray(table), np.asarray(offset))


def merge_first(a: FirstSums, b: FirstSums) -> FirstSums:
    """The first pass over both shards."""
    if a.length != b.length or a.follows.shape != b.follows.shape:
        raise UserError(
            f"shards: T {a.length} and {b.length}, V {len(a.follows)} and {len(b.follows)} given, "
            "all shards need the same"
        )
    return FirstSums(
        follows=a.follows + b.follows,
        context=a.context + b.context,
        context2=a.context2 + b.context2,
        current=a.current + b.current,
        count=a.count + b.count,
        length=a.length,
    )


def merge_second(a: SecondSums, b: SecondSums) -> SecondSums:
    """The second pass over both shards."""
    if a.offset.shape != b.offset.shape or a.attention.shape != b.attention.shape:
        raise UserError("shards: sums of different T or V given, all shards need the same")
    return SecondSums(a.attention + b.attention, a.offset + b.offset)


def score_of(first: FirstSums) -> np.ndarray:
    """H = S_B Phi `[V, V]`, which the second pass needs."""
    bigram, context = _bigram(first), _centred(first.context, first.count)
    return product(bigram.T, product(bigram, context))


def finish(first: FirstSums, second: SecondSums) -> Statistics:
    """The statistics out of the sums of all shards."""
    bigram = _bigram(first)
    return Statistics(
        unigram=first.follows.sum(1) / first.count,
        target=first.follows.sum(0) / first.count,
        bigram=bigram,
        interchange=product(bigram.T, bigram),
        context=_centred(first.context, first.count),
        attention=second.attention / first.count,
        offset=second.offset / first.count,
        current=first.current.T / first.count,
        context2=_centred(first.context2, first.count),
        count=first.count,
        length=first.length,
    )


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """`a @ b` in float64 on the accelerator."""
    with jax.enable_x64(True):
        return np.asarray(jnp.matmul(a, b, precision="highest"))


def conditional(statistics: Statistics) -> np.ndarray:
    """P(j | i) `[V, V]` out of B; rows of tokens that never occur are 0."""
    s = statistics
    return _pairs(s) / np.where(s.unigram > 0, s.unigram, 1.0)[:, None]


def pmi(statistics: Statistics) -> np.ndarray:
    """ln P(i, j) / (P(i) P(j)) `[V, V]` in nats; 0 for pairs that never occur."""
    s = statistics
    joint, alone = _pairs(s), np.outer(s.unigram, s.target)
    seen = joint > 0.5 / s.count  # the least a pair can have is 1 / NT
    return np.log(np.where(seen, joint, 1.0) / np.where(seen, alone, 1.0))


def _pairs(statistics: Statistics) -> np.ndarray:
    """P(i, j) = B_ij + P(i) / V, rounding noise of pairs that never occur taken away."""
    joint = statistics.bigram + statistics.unigram[:, None] / statistics.vocab
    return np.where(joint > 0.5 / statistics.count, joint, 0.0)


def _bigram(first: FirstSums) -> np.ndarray:
    """B."""
    joint = first.follows / first.count
    return joint - joint.sum(1, keepdims=True) / len(joint)


def _centred(sums: np.ndarray, count: int) -> np.ndarray:
    """Means of R0^T Z out of sums of Y^T Z: each column less its sum / V."""
    return (sums - sums.sum(0) / len(sums)) / count


def _shards(tokens: Any, vocab: int, strict: bool) -> list[np.ndarray]:
    """The shards, each checked; all have one T."""
    _check_dense(vocab)
    several = isinstance(tokens, Sequence) and len(tokens) > 0 and np.ndim(tokens[0]) == 2
    shards = [check_sequences(x, vocab) for x in (tokens if several else [tokens])]
    if len(lengths := sorted({x.shape[1] - 1 for x in shards})) > 1:
        raise UserError(f"tokens: shards with T {lengths} given, all shards need the same T")
    if strict:
        check_sequences(np.concatenate(shards), vocab, strict=True)
    return shards


def _check_dense(vocab: int) -> None:
    """Refuse a vocabulary whose tables would not fit."""
    if check_whole("vocab", vocab, 1) > DENSE_LIMIT:
        raise UserError(
            f"vocab: {vocab} given, tables [V, V] are held up to {DENSE_LIMIT}; "
            "jaxfeat.corpus.products has their products with thin matrices"
        )


def _checked(chunk: int | None) -> int | None:
    """A chunk that can be worked on."""
    return None if chunk is None else check_whole("chunk", chunk, 1)
