"""How is a corpus read batch by batch, in one compiled program and the memory of one batch?"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from jaxfeat.nn.blocks import residuals
from jaxfeat.nn.decoder import Decoder
from jaxfeat.types import Array, Tree, UserError, check_whole, whole_batch

Features = Callable[[Any, Array], Array]  # (what it is computed from, tokens [B, T]) -> [B, T, M]


def read_layer(decoder: Decoder, layer: int) -> Callable[..., Array]:
    """A function (params, tokens `[B, T]`, mask=None) -> the residual `[B, T, D]` at layer k, 0..N.

    `resid_post` of 0-based block b is layer b + 1. Without a mask every position is real.
    """
    check_whole("layer", layer, 0, decoder.layers)

    def read(params: Tree, tokens: Array, mask: Array | None = None) -> Array:
        return residuals(decoder, params, whole_batch(tokens, mask), hi=layer)[0][:, -1]

    return read


def fold_batches(
    step: Callable[..., Any], state: Tree, given: Any, arrays: Sequence[Any], batch: int
) -> Tree:
    """The state after `step` over all rows, `batch` at a time; the last batch is padded.

    Args:
        step: (given, state, rows, real) -> state, with rows a tuple of `[batch, ...]` and real
            `[batch]` false at padding, which is zeros. Compiled once.
        state: to begin with; its arrays are given up. given: what the step is computed from
            (parameters), an argument of the compiled program. arrays: `[n, ...]` each, on the host.

    Raises:
        UserError: no rows, or arrays of different lengths.
    """
    check_whole("batch", batch, 1)
    sizes = {len(x) for x in arrays}
    if len(sizes) != 1 or not min(sizes):
        raise UserError(f"arrays: {sorted(sizes)} rows given, one number above 0 needed")
    rows, run = min(sizes), jax.jit(step, donate_argnums=1)
    for start in range(0, rows, batch):
        part = [np.asarray(x[start : start + batch]) for x in arrays]
        short = batch - len(part[0])
        padded = tuple(np.pad(x, ((0, short), *((0, 0) for _ in x.shape[1:]))) for x in part)
        state = run(given, state, padded, np.arange(batch) < batch - short)
    return state


def check_corpus(tokens: Any, special: Any, **rows: Any) -> tuple[np.ndarray, ...]:
    """Tokens and mask `[n, T]`, and what is named by row `[n]`, on the host.

    Raises:
        UserError: shapes that do not fit.
    """
    tokens, special = np.asarray(tokens), np.asarray(special, bool)
    if tokens.ndim != 2 or not tokens.size or tokens.dtype.kind not in "iu":
        raise UserError(f"tokens: {tokens.dtype} {tokens.shape} given, integer ids [n, T] needed")
    if special.shape != tokens.shape:
        raise UserError(f"special: shape {special.shape} given, {tokens.shape} needed")
    more = []
    for name, values in rows.items():
        more.append(np.asarray(values))
        if more[-1].shape != tokens.shape[:1]:
            raise UserError(f"{name}: shape {more[-1].shape} given, {tokens.shape[:1]} needed")
    return tokens.astype(np.int32), special, *more
