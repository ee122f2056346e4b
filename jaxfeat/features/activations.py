"""What stands in the residual stream of one layer, over a corpus larger than memory?

Only blocks up to the layer run, a few sequences at a time, in one compiled program. The residuals
stay in memory or go to a folder, from which they are read row by row. Special positions (a
beginning marker, padding) are left out by mask, wherever they stand.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxfeat.data.order import epoch_rows
from jaxfeat.features.stream import read_layer
from jaxfeat.io.atomic import replacing
from jaxfeat.io.tensors import numpy_type
from jaxfeat.nn.decoder import Decoder
from jaxfeat.types import Array, Tree, UserError, check_tokens, check_whole

FILE, KEPT, TOLD = "resid.bin", "kept.npy", "activations.json"
DTYPES = ("float32", "bfloat16", "float16")


class Activations(NamedTuple):
    """Residuals `[n, T, D]` of a layer, in memory or on disk, and which positions count."""

    resid: np.ndarray  # [n, T, D]; rows that do not count hold anything
    kept: np.ndarray  # [n, T] booleans
    layer: int  # public: after block `layer`


def stream_activations(
    decoder: Decoder,
    params: Tree,
    tokens: Any,
    layer: int,
    mask: Any = None,
    *,
    at_once: int = 8,
) -> Iterator[np.ndarray]:
    """The residual `[b, T, D]` at a layer, of b = `at_once` sequences after the other.

    Args:
        tokens: `[n, T]` ids. layer: 0..N, after block `layer`. mask: `[n, T]`, true where a token
            is real (all by default): others are neither read by attention nor looked at here.

    Raises:
        UserError: ids, shapes or a layer that do not fit the model.
    """
    tokens, mask = _checked(decoder, tokens, mask)
    run = jax.jit(read_layer(decoder, layer))
    size = min(check_whole("at_once", at_once, 1), len(tokens))
    for start in range(0, len(tokens), size):
        count = min(size, len(tokens) - start)
        rows = [np.zeros((size, tokens.shape[1]), x.dtype) for x in (tokens, mask)]
        rows[0][:count], rows[1][:count] = (
            tokens[start : start + count],
            mask[start : start + count],
        )
        yield np.asarray(run(params, *rows))[:count]


def layer_activations(
    decoder: Decoder,
    params: Tree,
    tokens: Any,
    layer: int,
    special: Any = None,
    *,
    mask: Any = None,
    at_once: int = 8,
    dtype: str = "float32",
    folder: str | os.PathLike | None = None,
) -> Activations:
    """Residuals of a corpus at one layer, in memory or, with a `folder`, on disk.

    Args:
        tokens, layer, mask, at_once: as in `stream_activations`.
        special: `[n, T]`, true where a token is real but does not count (a beginning marker).
        dtype: what is stored, one of float32, bfloat16, float16 (which ends at 65504: residuals of
            Gemma are larger).
        folder: where the residuals are written (it then holds `resid.bin`, `kept.npy` and, once
            all is there, `activations.json`): memory does not depend on n.

    Raises:
        UserError: ids, shapes, a layer or a type that do not fit; no position that counts; numbers
            that are not finite at one that does; a folder that cannot be written.
    """
    tokens, mask = _checked(decoder, tokens, mask)
    special = np.zeros(tokens.shape, bool) if special is None else np.asarray(special, bool)
    if special.shape != tokens.shape:
        raise UserError(f"special: shape {special.shape} given, {tokens.shape} needed")
    if dtype not in DTYPES:
        raise UserError(f"dtype: {dtype!r} given; valid: {', '.join(DTYPES)}")
    kept, shape = mask & ~special, (*tokens.shape, decoder.width)
    if not kept.any():
        raise UserError("special: no position is left that counts")
    out = np.empty(shape, numpy_type(dtype)) if folder is None else _made(folder, shape, dtype)
    start = 0
    for resid in stream_activations(decoder, params, tokens, layer, mask, at_once=at_once):
        rows = slice(start, start + len(resid))
        with np.errstate(over="ignore"):
            out[rows] = resid
        if not np.isfinite(np.asarray(out[rows][kept[rows]], np.float32)).all():
            raise UserError(f"the residual at layer {layer} is not finite as {dtype}")
        start = rows.stop
    found = Activations(out, kept, layer)
    return found if folder is None else _finished(folder, found, dtype)


def load_activations(folder: str | os.PathLike) -> Activations:
    """What `layer_activations` wrote to a folder; residuals stay there until rows are asked for.

    Raises:
        UserError: nothing there, or not whole.
    """
    folder = Path(folder).expanduser()
    try:
        told = json.loads((folder / TOLD).read_text(encoding="utf-8"))
        shape, dtype = tuple(told["shape"]), numpy_type(told["dtype"])
        resid = np.memmap(folder / FILE, dtype, "r", shape=shape)
        kept = np.load(folder / KEPT, allow_pickle=False)
        if kept.shape != shape[:2] or (folder / FILE).stat().st_size != resid.nbytes:
            raise ValueError("sizes differ")
        return Activations(resid, kept, int(told["layer"]))
    except FileNotFoundError as error:
        raise UserError(f"no whole activations in {folder}: {error.filename} is missing") from None
    except (ValueError, KeyError, TypeError, OSError, EOFError):
        raise UserError(f"the activations in {folder} are damaged") from None


def from_rows(rows: Any, layer: int) -> Activations:
    """Activations of single positions `[R, D]` that all count."""
    rows = np.asarray(rows)
    if rows.ndim != 2 or not rows.size:
        raise UserError(f"rows: shape {rows.shape} given, [R, D] needed")
    return Activations(rows[:, None], np.ones((len(rows), 1), bool), layer)


def split_activations(found: Activations, share: float) -> tuple[Activations, Activations]:
    """All but the last sequences, and the last `share` of them: whole sequences, one at least each.

    Raises:
        UserError: a share outside 0..1, or a side without a position that counts.
    """
    if not 0 < share < 1:
        raise UserError(f"held_out: {share!r} given, a share in 0..1 (both excluded) needed")
    count = len(found.resid)
    at = min(max(count - max(round(share * count), 1), 1), count)
    first = Activations(found.resid[:at], found.kept[:at], found.layer)
    last = Activations(found.resid[at:], found.kept[at:], found.layer)
    if not (first.kept.any() and last.kept.any()):
        raise UserError(f"held_out: {count} sequences are too few to hold a share of {share} out")
    return first, last


def kept_places(found: Activations) -> np.ndarray:
    """The numbers `n T + t` of the positions that count, ascending."""
    return np.flatnonzero(found.kept)


def take_rows(found: Activations, places: np.ndarray) -> np.ndarray:
    """Residuals `[..., D]` at places as `kept_places` numbers them, in the stored type."""
    return found.resid.reshape(-1, found.resid.shape[-1])[places]


def chunks_of(found: Activations, size: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Every row that counts once, in order: `[size, D]` and how many of them are real, `[size]`.

    The last chunk repeats a row, with false there, so that one compiled program serves all.
    """
    places = kept_places(found)
    size = min(check_whole("size", size, 1), len(places))
    for start in range(0, len(places), size):
        at = np.arange(start, start + size)
        yield take_rows(found, places[np.minimum(at, len(places) - 1)]), at < len(places)


@jax.jit(static_argnums=(2, 3))
def shuffled_places(key: Array, steps: Array, batch: int, count: int) -> Array:
    """Which of `count` rows updates see, `[S, batch]`: each row once an epoch."""
    return jax.vmap(lambda step: epoch_rows(key, step, batch, count))(steps)


def _checked(decoder: Decoder, tokens: Any, mask: Any) -> tuple[np.ndarray, np.ndarray]:
    """Token ids `[n, T]` of this model, padding as 0, and what is real."""
    tokens = np.asarray(tokens)
    if tokens.ndim != 2 or not tokens.size or tokens.dtype.kind not in "iu":
        told = f"{tokens.dtype} of shape {tokens.shape}"
        raise UserError(f"tokens: {told} given, whole numbers [n, T] needed")
    mask = np.ones(tokens.shape, bool) if mask is None else np.asarray(mask, bool)
    if mask.shape != tokens.shape:
        raise UserError(f"mask: shape {mask.shape} given, {tokens.shape} needed, that of tokens")
    tokens = np.where(mask, tokens, 0)
    return check_tokens(tokens, decoder.vocab).astype(np.int32), mask


def _made(folder: str | os.PathLike, shape: tuple[int, ...], dtype: str) -> np.memmap:
    """An empty file of residuals; what stood there before no longer counts."""
    folder = Path(folder).expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / TOLD).unlink(missing_ok=True)
        return np.memmap(folder / FILE, numpy_type(dtype), "w+", shape=shape)
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {error.strerror}") from None


def _finished(folder: str | os.PathLike, found: Activations, dtype: str) -> Activations:
    """Write the mask and what makes the folder count; the residuals are then read from it."""
    folder = Path(folder).expanduser()
    found.resid.flush()  # pyright: ignore[reportAttributeAccessIssue]
    with replacing(folder / KEPT) as temporary, open(temporary, "wb") as handle:
        np.save(handle, found.kept, allow_pickle=False)
    told = {"shape": list(found.resid.shape), "dtype": dtype, "layer": found.layer}
    with replacing(folder / TOLD) as temporary:
        temporary.write_text(json.dumps(told, allow_nan=False), encoding="utf-8")
    return load_activations(folder)
