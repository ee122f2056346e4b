"""Next-token losses as sums and counts, so that chunks, batches and devices add up exactly.

`L = sum of the losses of real targets / their number`; `L_i` is the part of position i with the
same denominator. Sums accumulate in at least float32 whatever the compute type.
"""

import jax
import jax.numpy as jnp

from jaxfeat.nn.copies import Copies, over_positions
from jaxfeat.nn.decoder import Decoder
from jaxfeat.tree import widen
from jaxfeat.types import Array, Batch, Tree


def token_nll(logits: Array, target: Array) -> Array:
    """`-log softmax(logits)[target]` in nats, `[...]` from `[..., V]`.

    >>> round(float(token_nll(jnp.zeros(4), jnp.array(2))), 4)
    1.3863
    """
    logits = widen(logits)
    picked = jnp.take_along_axis(logits, target[..., None], axis=-1)[..., 0]
    return jax.nn.logsumexp(logits, axis=-1) - picked


def loss_terms(logits: Array, batch: Batch) -> Array:
    """`[B, T]` losses in nats, exactly 0 where the target does not count."""
    weight = batch.weight
    target = jnp.where(weight, batch.target, 0)
    logits = jnp.where(weight[..., None], logits, 0)  # else a NaN there would reach the gradient
    return jnp.where(weight, token_nll(logits, target), 0)


def count_targets(batch: Batch) -> Array:
    """The number of real targets, at least 1 so that an empty batch has loss 0."""
    return jnp.maximum(jnp.sum(batch.weight, dtype=jnp.int32), 1)


def mean_loss(logits: Array, batch: Batch) -> Array:
    """`L`: nats per real target."""
    terms = loss_terms(logits, batch)
    return jnp.sum(terms) / count_targets(batch).astype(terms.dtype)


def chunked_nll(
    decoder: Decoder,
    outer: Tree,
    resid: Array,
    target: Array,
    *,
    chunk: int,
    copies: Copies = None,
) -> Array:
    """`token_nll` of one example without ever holding `[T, V]` logits.

    The vocabulary is read in chunks of `chunk` ids through `unembed(outer, normed, ids)`; the
    backward pass recomputes each chunk.

    Args:
        resid: `[T, D]` at layer N, before the final norm.
        target: `[T]`.
        chunk: ids at a time; memory is O(T chunk).

    Returns:
        `[T]` in nats.
    """
    normed = over_positions(decoder.norm, outer, copies, resid)
    starts = jnp.arange(0, decoder.vocab, chunk)

    def logits_of(ids):
        return over_positions(lambda o, x, i: decoder.unembed(o, x, i), outer, copies, normed, ids)

    @jax.checkpoint
    def step(carry, start):
        top, total = carry
        ids = start + jnp.arange(chunk)
        real = ids < decoder.vocab
        rows = jnp.broadcast_to(jnp.where(real, ids, 0), (resid.shape[0], chunk))
        part = jnp.where(real, widen(logits_of(rows)), -jnp.inf)
        new = jnp.maximum(top, jax.lax.stop_gradient(part.max(axis=-1)))
        total = total * jnp.exp(top - new) + jnp.exp(part - new[:, None]).sum(axis=-1)
        return (new, total), None

    picked = widen(logits_of(target[:, None]))[:, 0]
    low = jnp.full(resid.shape[0], jnp.finfo(picked.dtype).min, picked.dtype)
    (top, total), _ = jax.lax.scan(step, (low, jnp.zeros_like(low)), starts)
    return top + jnp.log(total) - picked
