"""Does learned attention rank the tokens of its context as the gradient at zero does?

For every query the rank correlation of the scores with q[t, j] (arXiv 2601.19208): the model
attends to what foretells the next token.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfeat.corpus.pair_sums import gradient_scores
from jaxfeat.corpus.sequences import check_sequences
from jaxfeat.models.onehot import attention_scores
from jaxfeat.types import Array, Tree

LEAST = 3  # keys below which a rank correlation says nothing
AT_ONCE = 16  # sequences that are ranked together


class Ranks(NamedTuple):
    """Spearman's correlation, mean over sequences.

    by_query: `[N, T]`, NaN for queries with fewer than 3 keys
    mean: `[N]`, over all queries; count: queries it is taken over, `[N]`
    """

    by_query: np.ndarray
    mean: np.ndarray
    count: np.ndarray


def attention_ranks(params: Tree, tokens: Any, score: Any) -> Ranks:
    """Rank correlations of a one-hot model's scores with q, for every block.

    Args:
        params: of `jaxfeat.models.onehot`. tokens: `[N, T+1]`.
        score: H `[V, V]`, `Statistics.score`.

    Queries whose scores or whose q are all equal have no correlation and are left out.
    """
    vocab = params["outer"]["output"].shape[0]
    tokens = check_sequences(tokens, vocab)
    with jax.enable_x64(True):
        score = jnp.asarray(score, jnp.float64)
        chunks = [tokens[at : at + AT_ONCE] for at in range(0, len(tokens), AT_ONCE)]
        found = [tuple(map(np.asarray, _sums(params, jnp.asarray(c), score))) for c in chunks]
    total, count = (np.sum(x, axis=0) for x in zip(*found, strict=True))
    mean = lambda a, b: np.where(b > 0, a / np.maximum(b, 1), np.nan)
    return Ranks(mean(total, count), mean(total.sum(1), count.sum(1)), count.sum(1))


@jax.jit
def _sums(params: Tree, tokens: Array, score: Array) -> tuple[Array, Array]:
    """Sums of correlations and their number, `[N, T]` each."""
    scores = jnp.stack(attention_scores(params, tokens[:, :-1])[0]).astype(jnp.float64)
    q = gradient_scores(tokens, score)
    found = jax.lax.map(lambda x: rank_correlation(x, q), scores)  # [N, B, T]
    good = jnp.isfinite(found)
    return jnp.sum(jnp.where(good, found, 0), axis=1), jnp.sum(good, axis=1)


def rank_correlation(a: Array, b: Array) -> Array:
    """Spearman's correlation of rows t over their first t + 1 entries, `[..., T, T] -> [..., T]`.

    NaN for rows of fewer than 3 entries and for rows whose entries are all equal.
    """
    length = a.shape[-1]
    seen = np.tril(np.ones((length, length), bool))
    a, b = (_centred_ranks(x, jnp.asarray(seen)) for x in (a, b))
    size = jnp.sqrt(jnp.sum(a * a, -1) * jnp.sum(b * b, -1))
    some = (size > 0) & (np.arange(length) + 1 >= LEAST)
    return jnp.where(some, jnp.sum(a * b, -1) / jnp.where(some, size, 1), jnp.nan)


def _centred_ranks(x: Array, seen: Array) -> Array:
    """Ranks among the seen entries of a row, equal ones sharing their mean, less the mean rank."""

    @functools.partial(jax.vmap, in_axes=-1, out_axes=-1)
    def above(entry: Array) -> Array:  # [..., T]: lower ones less higher ones
        sign = jnp.sign(entry[..., None] - x)
        return jnp.sum(jnp.where(seen, sign, 0), axis=-1) / 2

    return jnp.where(seen, above(x), 0)
