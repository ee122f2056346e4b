"""What does a model make of each token of its vocabulary by itself?

Every token is read alone, as an input of one position: its residual before a block, after the
block's attention, and after the block (arXiv 2601.19208, section 5), and its query and key there.
"""

from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfeat.nn.decoder import Decoder, layer_of
from jaxfeat.types import Array, Tree, check_whole

BATCH = 2048  # tokens at once


class TokenMaps(NamedTuple):
    """One 0-based block's view of all tokens, each read alone; on the host."""

    block: int
    pre: np.ndarray  # [V, D] residual before the block (resid_pre)
    attn: np.ndarray  # [V, D] residual plus attention, without the MLP
    post: np.ndarray  # [V, D] residual after the block (resid_post)
    query: np.ndarray  # [V, H, K]
    key: np.ndarray  # [V, H, K], a group's keys once for every head that reads them


def token_maps(decoder: Decoder, params: Tree, *, batch: int = BATCH) -> Iterator[TokenMaps]:
    """The maps of every block, from the first to the last, one at a time.

    A token alone attends to itself with weight 1. The paper's `A_tok = E W_Q W_K^T E^T` is
    `query key^T` here, of one head or as the mean over heads: what the model itself computes from
    the residual, with its norm before the projection, its biases and its scale (a number, which no
    cosine knows); both tokens stand at position 0, where rotary angles are zero. Rows are those of
    `decoder.vocab`: padding of the table is none.

    Args:
        batch: tokens at once; only speed and memory depend on it.

    >>> from jaxfeat.models.gpt2 import GPT2Config, make_gpt2
    >>> decoder = make_gpt2(GPT2Config(vocab=5, length=4, width=8, heads=2, layers=1))
    >>> [m.query.shape for m in token_maps(decoder, decoder.init(jax.random.key(0)))]
    [(5, 2, 4)]
    """
    batch = min(check_whole("batch", batch, 1), decoder.vocab)
    ids = np.arange(-(-decoder.vocab // batch) * batch, dtype=np.int32) % decoder.vocab
    parts = range(0, len(ids), batch)

    @jax.jit
    def embed(outer: Tree, token: Array) -> Array:
        return jax.vmap(lambda one: decoder.embed(outer, one, jnp.int32(0)))(token)

    @jax.jit
    def step(block: Tree, const: Tree, resid: Array) -> tuple[Array, ...]:
        return jax.vmap(lambda one: _alone(decoder, block, const, one))(resid)

    join = lambda found: np.concatenate([np.asarray(x) for x in found])[: decoder.vocab]
    resid = [embed(params["outer"], ids[n : n + batch]) for n in parts]
    for b in range(decoder.layers):
        block, const = layer_of(params["blocks"], b), layer_of(decoder.consts, b)
        found = [step(block, const, x) for x in resid]
        pre, resid = join(resid), [x[1] for x in found]
        attn, post, query, key = (join(x) for x in zip(*found, strict=True))
        del found
        yield TokenMaps(b, pre, attn, post, query, key)


def _alone(decoder: Decoder, block: Tree, const: Tree, resid: Array) -> tuple[Array, ...]:
    """A block of one position: residual after attention, after the block, query and key."""
    position = jnp.zeros(1, jnp.int32)
    q = decoder.query(block, const, resid, position[0])
    k, v = decoder.memory(block, const, resid, position[0])
    visible = decoder.visible(const, position, position)
    mixed = decoder.mix(q[None], k[None], v[None], visible, None)[0]
    attn = decoder.attn_out(block, const, mixed)
    post = resid + attn + decoder.mlp_out(block, const, resid, attn)
    return resid + attn, post, q, jnp.repeat(k, q.shape[0] // k.shape[0], axis=0)
