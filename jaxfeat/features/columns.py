"""What does an edit at one position change from there on, and what need not be computed again?

Layers up to the edited one and all positions before it keep what they are: their keys and values
are read from one run over the whole sequence. Only the columns i .. i + span - 1 of the blocks
above are computed again, those of many edits side by side.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxfeat.nn.blocks import Cache, residuals, run_blocks
from jaxfeat.nn.decoder import Decoder
from jaxfeat.types import Array, Batch, Tree, UserError

UNROLLED = 16  # most blocks that are compiled one by one: a scan copies what it reads and keeps
LOGITS = 2**17  # logits that are worked on together unless told otherwise: what caches hold


class Base(NamedTuple):
    """The unedited run over sequences `[B]` (over one, without that axis, in `rerun`)."""

    resid: Array  # [B, T, D] at the edited layer
    top: Array  # [B, T, D] at layer N
    k: Array  # [B, N - layer, G, T, K] of the blocks above, laid out as attention multiplies them
    v: Array  # [B, N - layer, G, T, E]
    mask: Array  # [B, T] real positions
    position: Array  # [B, T]


def check_layer(decoder: Decoder, layer: int) -> int:
    """A layer 0..N of a causal model.

    Raises:
        UserError: a bidirectional model (an edit changes every column there), a layer out of range.
    """
    if not decoder.causal:
        raise UserError("a bidirectional model has no later columns: every position sees an edit")
    if not 0 <= layer <= decoder.layers:
        raise UserError(f"layer {layer} is out of range: valid layers are 0..{decoder.layers}")
    return layer


def over(fn: Callable, axes: int) -> Callable:
    """A map of one vector over the leading axes of an array."""
    for _ in range(axes):
        fn = jax.vmap(fn)
    return fn


def divisor(count: int, most: int) -> int:
    """The largest divisor of a count up to `most`, at least 1: slices without a shorter last one.

    >>> divisor(16, 6)
    4
    """
    return max(n for n in range(1, max(1, min(count, most)) + 1) if count % n == 0)


def run_base(decoder: Decoder, params: Tree, batch: Batch, layer: int) -> Base:
    """Run whole sequences once and keep what edits at `layer` (0..N) need."""
    check_layer(decoder, layer)
    resid = residuals(decoder, params, batch, hi=layer)[0][:, -1]

    def above(resid: Array, mask: Array, position: Array):
        stack, acts = run_blocks(
            decoder, params, resid, position, lo=layer, mask=mask, want=("k", "v")
        )
        return stack[-1], acts

    top, acts = jax.vmap(above)(resid, batch.mask, batch.position)
    if layer == decoder.layers:  # nothing above reads anything
        empty = jnp.zeros((*resid.shape[:1], 0, resid.shape[1], 1, 1), resid.dtype)
        acts = {"k": empty, "v": empty}
    k, v = (acts[name].swapaxes(2, 3) for name in ("k", "v"))
    return Base(resid, top, k, v, batch.mask, batch.position)


def of_columns(base: Base, i: Array, span: int) -> tuple[Array, Array]:
    """Indices `[P, span]` of the columns from each i on, held inside, and whether they count."""
    index = i[:, None] + jnp.arange(span)
    length = base.mask.shape[0]
    held = jnp.minimum(index, length - 1)
    return held, (index < length) & base.mask[held]


def rerun(decoder: Decoder, params: Tree, base: Base, i: Array, delta: Array, span: int) -> Array:
    """The columns of one sequence after adding `delta` to the residual at each place.

    Equal to the columns i .. i + span - 1 of a whole forward pass with that edit.

    Args:
        base: of one sequence; it tells the layer.
        i: `[P]` positions, which may be traced. delta: `[P, J, D]`, J edits at each place.
        span: columns that are computed, the edited one included.

    Returns:
        `[P, J, span, D]` at layer N; what lies beyond the sequence (`of_columns`) means nothing.
    """
    places, edits, width = delta.shape
    held, counted = of_columns(base, i, span)
    resid = jnp.broadcast_to(base.resid[held][:, None], (places, edits, span, width))
    resid = resid.at[:, :, 0].add(delta)
    spread = lambda x: jnp.broadcast_to(x[:, None], (places, edits, span)).reshape(-1)
    job = jnp.repeat(jnp.arange(places * edits), span)
    before = (jnp.arange(base.mask.shape[0]) < i[job // edits][:, None]) & base.mask
    sees = jnp.concatenate([before, job[:, None] == job], axis=1)
    stack, _ = run_blocks(
        decoder, params, resid.reshape(-1, width), spread(base.position[held]),
        lo=decoder.layers - base.k.shape[0], mask=spread(counted),
        cache=Cache(base.k.swapaxes(1, 2), base.v.swapaxes(1, 2), base.position, sees),
        scan=base.k.shape[0] > UNROLLED,
    )  # fmt: skip
    return stack[-1].reshape(places, edits, span, width)
