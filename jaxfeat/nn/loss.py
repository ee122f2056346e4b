"""Next-token losses as sums and counts, so that chunks, batches and devices add up exactly.

`L = sum of the losses of real targets / their number`; `L_i` is the part of position i with the
same denominator. Sums accumulate in at least float32 whatever the compute type.

Of a large vocabulary the logits of a few positions are held at a time (`entries`): their losses'
gradients are taken in the same pass, so that no logit is computed twice.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp

from jaxfeat import tree
from jaxfeat.nn.copies import Copies, over_examples, over_positions
from jaxfeat.nn.decoder import Decoder
from jaxfeat.tree import widen
from jaxfeat.types import Array, Batch, Tree, check_whole

ENTRIES = 2**23  # logits that are held together unless told otherwise


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


def kl_divergence(logits: Array, other: Array) -> Array:
    """`KL(p || q) = sum_v p_v (log p_v - log q_v)` of two softmaxes, `[...]` nats of `[..., V]`.

    Summed as `p (d + e^-d - 1)` with `d = log p - log q`, equal because both sum to 1: no term is
    negative, so that a small divergence is no difference of large numbers.

    >>> p, q = jnp.log(jnp.array([0.5, 0.5])), jnp.log(jnp.array([0.25, 0.75]))
    >>> round(float(kl_divergence(p, q)), 4)
    0.1438
    """
    log_p, log_q = (jax.nn.log_softmax(widen(x), axis=-1) for x in (logits, other))
    p, d = jnp.exp(log_p), log_p - log_q
    near = jnp.abs(d) < 1e-2
    small = jnp.where(near, d, 0)
    series = jnp.square(small) * (1 / 2 - small * (1 / 6 - small * (1 / 24 - small / 120)))
    return jnp.sum(jnp.where(near, p * series, p * d + (jnp.exp(log_q) - p)), axis=-1)


def count_targets(batch: Batch) -> Array:
    """The number of real targets, at least 1 so that an empty batch has loss 0."""
    return jnp.maximum(jnp.sum(batch.weight, dtype=jnp.int32), 1)


def mean_loss(logits: Array, batch: Batch) -> Array:
    """`L`: nats per real target."""
    terms = loss_terms(logits, batch)
    return jnp.sum(terms) / count_targets(batch).astype(terms.dtype)


def batch_loss(
    decoder: Decoder,
    outer: Tree,
    resid: Array,
    batch: Batch,
    *,
    count: Array | None = None,
    copies: Copies = None,
    entries: int = ENTRIES,
) -> Array:
    """`L` out of the residual stream at layer N: nats per real target.

    Args:
        outer: the parameters outside of blocks. resid: `[B, T, D]`, before the final norm.
        count: the denominator; by default the number of real targets.
        copies: segment starts of untied parameters.
        entries: logits that are held together: memory follows it, the value does not. Above it
            only reverse-mode derivatives exist.
    """
    check_whole("entries", entries, 1)
    count = count_targets(batch) if count is None else count
    read = partial(_read, decoder, copies)
    if batch.token.size * decoder.vocab <= entries:
        total = jnp.sum(loss_terms(read(outer, resid), batch))
    else:
        groups = _in_groups(resid, batch, copies, entries // decoder.vocab)
        total = _summed(read)(outer, *groups)
    return total / count.astype(total.dtype)


def token_losses(
    decoder: Decoder,
    outer: Tree,
    resid: Array,
    batch: Batch,
    *,
    copies: Copies = None,
    entries: int = ENTRIES,
) -> Array:
    """`[B, T]` losses in nats, 0 where a target does not count; arguments as in `batch_loss`."""
    check_whole("entries", entries, 1)
    read = partial(_read, decoder, copies)
    groups = _in_groups(resid, batch, copies, entries // decoder.vocab)
    terms = jax.lax.map(lambda group: loss_terms(read(outer, group[0]), group[1]), groups)
    return terms.reshape(-1)[: batch.token.size].reshape(batch.token.shape)


def _read(decoder: Decoder, copies: Copies, outer: Tree, resid: Array) -> Array:
    """Logits `[B, T, V]` of the residual stream at layer N."""

    def one(resid: Array) -> Array:
        normed = over_positions(decoder.norm, outer, copies, resid)
        return over_positions(decoder.unembed, outer, copies, normed)

    return over_examples(one, copies, resid)


def _in_groups(resid: Array, batch: Batch, copies: Copies, rows: int) -> tuple[Array, Batch]:
    """Residuals and targets as `[groups, examples, T, ..]` of at most so many positions each.

    Of tied parameters every position is an example of length 1; the last group is padded.
    """
    if copies is None:
        resid, batch = jax.tree.map(lambda x: x.reshape(-1, 1, *x.shape[2:]), (resid, batch))
    count, length = batch.token.shape
    groups = -(-count // max(1, rows // length))
    size = -(-count // groups)

    def split(x: Array) -> Array:
        padded = jnp.pad(x, ((0, groups * size - count), *((0, 0) for _ in x.shape[1:])))
        return padded.reshape(groups, size, *x.shape[1:])

    return jax.tree.map(split, (resid, batch))


def _summed(read: Callable[[Tree, Array], Array]) -> Callable[[Tree, Array, Batch], Array]:
    """The sum of the losses of groups; the gradients of a group are taken while it is read."""

    def one(outer: Tree, resid: Array, batch: Batch) -> Array:
        return jnp.sum(loss_terms(read(outer, resid), batch))

    @jax.custom_vjp
    def summed(outer: Tree, resid: Array, batch: Batch) -> Array:
        return jnp.sum(jax.lax.map(lambda group: one(outer, *group), (resid, batch)))

    def forward(outer: Tree, resid: Array, batch: Batch):
        def step(sums: tuple, group: tuple[Array, Batch]) -> tuple[tuple, Array]:
            more, grads = jax.value_and_grad(one, (0, 1))(outer, *group)
            return tree.add(sums, (more, jax.tree.map(widen, grads[0]))), grads[1]

        wide = lambda x: jnp.zeros_like(widen(x))
        zero = wide(resid[0, 0, 0, 0]), jax.tree.map(wide, outer)
        (total, d_outer), d_resid = jax.lax.scan(step, zero, (resid, batch))
        narrow = jax.tree.map(lambda d, x: d.astype(x.dtype), d_outer, outer)
        return total, (narrow, d_resid)

    def backward(kept: tuple[Tree, Array], d_total: Array):
        d_outer, d_resid = kept
        return tree.scale(d_total, d_outer), d_total * d_resid, None

    summed.defvjp(forward, backward)
    return summed
