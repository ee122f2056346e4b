"""How well does a model do on held-out sequences?"""

import jax.numpy as jnp

from jaxfeat.nn.blocks import forward
from jaxfeat.nn.copies import Copies
from jaxfeat.nn.decoder import Decoder
from jaxfeat.nn.loss import loss_terms, mean_loss
from jaxfeat.types import Array, Batch, Tree


def position_losses(logits: Array, batch: Batch) -> Array:
    """Mean loss of each position over its real targets, `[T]` in nats; NaN where it has none."""
    count = jnp.sum(batch.weight, axis=0)
    total = jnp.sum(loss_terms(logits, batch), axis=0)
    return jnp.where(count > 0, total / jnp.maximum(count, 1), jnp.nan)


def legal_accuracy(logits: Array, legal: Array, weight: Array) -> Array:
    """Share of examples whose most likely next token is legal, by position `[T]`.

    Args:
        logits, legal: `[B, T, V]`. weight: `[B, T]` booleans, which positions count.
    """
    best = jnp.argmax(logits, axis=-1)
    right = jnp.take_along_axis(legal, best[..., None], axis=-1)[..., 0]
    count = jnp.sum(weight, axis=0)
    return jnp.where(count > 0, jnp.sum(right & weight, axis=0) / jnp.maximum(count, 1), jnp.nan)


def evaluate(
    decoder: Decoder, params: Tree, batch: Batch, legal: Array | None = None, copies: Copies = None
) -> dict[str, Array]:
    """Loss, loss by position and, where the legal tokens are given, top-1 legality by position."""
    logits = forward(decoder, params, batch, copies=copies).logits
    found = {"loss": mean_loss(logits, batch), "loss_by_position": position_losses(logits, batch)}
    if legal is not None:
        found["legal_by_position"] = legal_accuracy(logits, legal, batch.weight)
    return found
