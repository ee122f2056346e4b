"""Which path of the model earns its loss: the residual one, attention, or both?

To leading order (arXiv 2601.19208, Eq 12-13) the logits are a sum of two paths,

    X W_O  +  sum_l S(Mask(X W_l X^T + DM(P_l))) X V_l W_O,

with the closed form in place X (s eta B) and the paths through Phi^T B^T B = Phi^T S_B.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxfeat.corpus.closed_form import Weights
from jaxfeat.corpus.sequences import check_sequences
from jaxfeat.nn.attention import masked_softmax
from jaxfeat.types import Array

PARTS = ("none", "residual", "attention", "both")
ENTRIES = 1 << 24  # logits that are held together


def part_losses(weights: Weights, tokens: Any) -> dict[str, float]:
    """The loss by parts, of learned weights or of the closed form, in nats a token.

    Args:
        weights: `leading_terms` or what was learned. tokens: `[N, T+1]`.

    Returns:
        The mean cross-entropy with no path (ln V), with each alone and with both.
    """
    w = Weights(*(np.asarray(x) for x in weights))
    vocab = len(w.output)
    tokens = check_sequences(tokens, vocab)
    length = tokens.shape[1] - 1
    size = max(1, min(len(tokens), ENTRIES // (vocab * length)))
    chunks = [tokens[at : at + size] for at in range(0, len(tokens), size)]
    with jax.enable_x64(True):
        held = Weights(*(jnp.asarray(x, jnp.float32) for x in w))
        through = jnp.einsum("nvw,wy->nvy", held.value, held.output, precision="highest")
        sums = sum(np.asarray(_losses(held, through, jnp.asarray(c))) for c in chunks)
    means = sums / (tokens.shape[0] * length)
    return dict(zip(PARTS, [float(np.log(vocab)), *map(float, means)]))


@jax.jit
def _losses(weights: Weights, through: Array, tokens: Array) -> Array:
    """Sums of losses `[3]` in float64: residual, attention, both."""
    length = tokens.shape[1] - 1
    offset = np.arange(length)[:, None] - np.arange(length)

    def one(row: Array) -> Array:
        x, y = row[:-1], row[1:]
        residual = weights.output[x]
        attention = jnp.zeros_like(residual)
        for w, p, m in zip(weights.attention, weights.position, through):
            scores = w[x[:, None], x] + p[np.maximum(offset, 0)]
            pattern = masked_softmax(scores, jnp.asarray(offset >= 0))
            attention += jnp.matmul(pattern, m[x], precision="highest")
        logits = jnp.stack([residual, attention, residual + attention])
        own = jnp.take_along_axis(logits, y[None, :, None], axis=-1)[..., 0]
        return jnp.sum(jax.nn.logsumexp(logits, axis=-1) - own, axis=-1, dtype=jnp.float64)

    return jnp.sum(jax.lax.map(one, tokens), axis=0)
