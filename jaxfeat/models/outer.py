"""What stands outside of blocks: embedding, final norm and unembedding of one position."""

import flax.linen as nn
import jax.numpy as jnp

from jaxfeat.nn.modules import Table, normal_init
from jaxfeat.tree import widen
from jaxfeat.types import Array


class Outer(nn.Module):
    """A table of tokens and a readout, tied to it or with a table of its own.

    The embedding is `embed_norm(scale * row)`; logits are `softcap * tanh(y / softcap)` of
    `y = table transform(normed) + bias`. What is None is left out.
    """

    vocab: int
    width: int
    dtype: str
    final_norm: nn.Module
    tied: bool = True
    bias: bool = False  # of the logits
    scale: float = 1.0  # of the embedding, rounded to its type
    embed_norm: nn.Module | None = None
    transform: nn.Module | None = None  # between the final norm and the table
    softcap: float | None = None

    def setup(self):
        self.table = Table(self.vocab, self.width, normal_init(0.02), self.dtype)
        self.head = Head(self.vocab, self.bias)

    def embed(self, token: Array, position: Array) -> Array:
        row = self.table(token)
        row = row if self.scale == 1 else row * jnp.asarray(self.scale, row.dtype)
        return row if self.embed_norm is None else self.embed_norm(row)

    def norm(self, resid: Array) -> Array:
        return self.final_norm(resid)

    def unembed(self, normed: Array, ids: Array | None = None) -> Array:
        x = normed if self.transform is None else self.transform(normed)
        logits = self.head(x, self.table() if self.tied else None, ids)
        if self.softcap is None:
            return logits
        capped = self.softcap * jnp.tanh(widen(logits) / self.softcap)
        return capped.astype(logits.dtype)


class Head(nn.Module):
    """Logits `[V]`, or those of some ids, out of a table that is given or its own `[V, D]`."""

    vocab: int
    bias: bool

    @nn.compact
    def __call__(self, x: Array, table: Array | None, ids: Array | None) -> Array:
        if table is None:
            made = self.param("kernel", normal_init(0.02), (self.vocab, x.shape[-1]), x.dtype)
            table = jnp.asarray(made)
        logits = (table if ids is None else table[ids]) @ x
        if not self.bias:
            return logits
        bias = self.param("bias", nn.initializers.zeros, (self.vocab,), x.dtype)
        return logits + (bias if ids is None else bias[ids])
