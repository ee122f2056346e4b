"""Where in a corpus is each feature most active, in contexts that differ?

The top positions of all features are kept on the device while the corpus streams by; what is near
a copy of a better context is dropped afterwards on the host (rapidfuzz, imported on use).
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfeat.features.stream import Features, check_corpus, fold_batches
from jaxfeat.types import Array, UserError, check_whole

SPAN = 10  # columns i..i+9 of a context's position i


class Contexts(NamedTuple):
    """Top positions of M features, the most active first; unused places have valid false.

    sequence, position `[M, count]` int32 (0 where unused), activation `[M, count]`, valid
    `[M, count]`. Of all positions that are text: fired `[M]`, how often the feature was active;
    mean `[M]`, its mean where it was (NaN if never); maximum `[M]`; positions, their number.
    """

    sequence: np.ndarray
    position: np.ndarray
    activation: np.ndarray
    valid: np.ndarray
    fired: np.ndarray
    mean: np.ndarray
    maximum: np.ndarray
    positions: int


class Running(NamedTuple):
    """What the device keeps: activation, sequence, position `[M, K]`, and sums `[M]`."""

    activation: Array
    sequence: Array
    position: Array
    fired: Array
    total: Array
    maximum: Array


class Pieces(NamedTuple):
    """A context as text: (text, activation) in order, and the number of the highlighted piece."""

    pieces: list[tuple[str, float]]
    at: int


def top_contexts(
    features: Features,
    given: Any,
    tokens: Any,
    special: Any,
    *,
    count: int,
    batch: int = 8,
    keep: int | None = None,
    span: int = SPAN,
    distance: int = 10,
    window: tuple[int, int] = (32, SPAN - 1),
) -> Contexts:
    """The most active positions of every feature, one a sequence, in contexts that differ.

    A context is a position i whose columns i..i+span-1 all exist. Equal activations: the lower
    sequence, and within one the lower position, comes first. A feature is active where it is above
    0; the memory does not grow with the corpus. The greedy filter takes the best context and then
    each next one whose token edit distance (Levenshtein) to all taken is above `distance`.

    Args:
        features: (given, tokens `[B, T]`) -> activations `[B, T, M]`, traced once; given: what it
            is computed from, such as parameters, an argument of the compiled program.
        tokens: `[n, T]`; special `[n, T]`, true where a token is no text: never a context, and in
            no statistic.
        count: contexts of a feature at most. keep: candidates kept for the filter (4 count).
        batch: sequences at a time; changes nothing else but the rounding of sums.
        distance: of kept contexts, in tokens; 0 drops equal contexts only.
        window: tokens before and after the position that are compared.

    Raises:
        UserError: shapes that do not fit, a span above T, a window that cannot differ so much.
    """
    tokens, special = check_corpus(tokens, special)
    check_whole("count", count, 1)
    keep = check_whole("keep", 4 * count if keep is None else keep, count)
    check_whole("span", span, 1, tokens.shape[1])
    check_whole("distance", distance, 0)
    if len(window) != 2 or min(window) < 0 or sum(window) + 1 <= distance:
        raise UserError(
            f"window: {tuple(window)} given, tokens before and after that together with their "
            f"middle are more than the distance {distance}"
        )
    shape = jax.eval_shape(features, given, jnp.zeros((batch, tokens.shape[1]), jnp.int32))
    state = _empty(shape.shape[-1], keep, shape.dtype)
    step = _step(features, tokens.shape[1], span)
    numbers = np.arange(len(tokens), dtype=np.int32)
    found = fold_batches(step, state, given, (tokens, special, numbers), batch)
    found = jax.tree.map(np.asarray, found)
    taken = _distinct(found, tokens, count, distance, window)
    fired = found.fired
    mean = np.divide(found.total, fired, out=np.full(len(fired), np.nan), where=fired > 0)
    sequence, position, activation, valid = taken
    return Contexts(
        sequence, position, activation, valid, fired, mean, found.maximum, int((~special).sum())
    )


def context_text(
    tokens: Any,
    position: int,
    decode: Callable[[Sequence[int]], str],
    before: int = 24,
    after: int = SPAN - 1,
    activation: Any = None,
) -> Pieces:
    """The text around a position in pieces of one token, for a report.

    Tokens that hold parts of one character are one piece, with the highest of their activations.

    Args:
        tokens: `[T]` of one sequence. decode: ids -> text. before, after: tokens shown on either
            side of the position. activation: `[T]`; None gives 0.

    >>> context_text([72, 105, 33], 1, lambda ids: bytes(ids).decode(), 1, 1, [0, 2.5, 0])
    Pieces(pieces=[('H', 0.0), ('i', 2.5), ('!', 0.0)], at=1)
    """
    ids = [int(x) for x in tokens]
    check_whole("position", int(position), 0, len(ids) - 1)
    low = max(0, int(position) - check_whole("before", before, 0))
    high = min(len(ids), int(position) + check_whole("after", after, 0) + 1)
    values = np.zeros(len(ids)) if activation is None else np.asarray(activation, np.float64)
    pieces, at, told, start = [], 0, "", low
    for t in range(low, high):
        text = decode(ids[low : t + 1])
        if text.endswith("\ufffd") and t + 1 < high:  # a character that the next token goes on with
            continue
        if start <= position <= t:
            at = len(pieces)
        pieces.append((text[len(told) :], float(values[start : t + 1].max())))
        told, start = text, t + 1
    return Pieces(pieces, at)


def _empty(features: int, keep: int, dtype: Any) -> Running:
    """Nothing kept yet: unused places have activation 0 and the highest of all sequence numbers."""
    places, each = (features, keep), (features,)
    wide = jnp.promote_types(dtype, jnp.float32)
    return Running(
        jnp.zeros(places, dtype),
        jnp.full(places, np.iinfo(np.int32).max, jnp.int32),
        jnp.zeros(places, jnp.int32),
        jnp.zeros(each, jnp.int32),
        jnp.zeros(each, wide),
        jnp.zeros(each, dtype),
    )


def _step(features: Features, length: int, span: int) -> Callable[..., Running]:
    """What a batch changes in what is kept."""
    usable = jnp.arange(length) <= length - span

    def step(given: Any, state: Running, rows: tuple, real: Array) -> Running:
        tokens, special, number = rows
        text = real[:, None] & ~special
        f = jnp.where(text[..., None], features(given, tokens), 0)
        f = jnp.maximum(f, 0)
        here = jnp.where(usable[:, None], f, 0)
        best, place = here.max(axis=1), here.argmax(axis=1).astype(jnp.int32)
        whose = jnp.where(best > 0, number[:, None], np.iinfo(np.int32).max)
        new = (-best.T, whose.T, place.T)
        kept = (-state.activation, state.sequence, state.position)
        joined = [jnp.concatenate(pair, axis=1) for pair in zip(kept, new)]
        size = state.activation.shape[1]
        # sorted by activation and then by sequence: top_k promises no order of equals everywhere
        order = [x[:, :size] for x in jax.lax.sort(joined, dimension=1, num_keys=2)]
        return Running(
            -order[0],
            order[1],
            order[2],
            state.fired + (f > 0).sum(axis=(0, 1), dtype=jnp.int32),
            state.total + f.sum(axis=(0, 1), dtype=state.total.dtype),
            jnp.maximum(state.maximum, f.max(axis=(0, 1))),
        )

    return step


def _distinct(
    found: Running, tokens: np.ndarray, count: int, distance: int, window: tuple[int, int]
) -> tuple[np.ndarray, ...]:
    """Sequence, position, activation and valid `[M, count]` of contexts that differ enough."""
    from rapidfuzz.distance import Levenshtein

    shape = (len(found.activation), count)
    sequence, position = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
    activation, valid = np.zeros(shape, found.activation.dtype), np.zeros(shape, bool)
    before, after = window
    for m in range(shape[0]):
        taken: list[list[int]] = []
        for j in np.flatnonzero(found.activation[m] > 0):
            s, i = int(found.sequence[m, j]), int(found.position[m, j])
            ids = tokens[s, max(0, i - before) : i + after + 1].tolist()
            near = lambda other, ids=ids: Levenshtein.distance(ids, other, score_cutoff=distance)
            if all(near(other) > distance for other in taken):
                n = len(taken)
                sequence[m, n], position[m, n], valid[m, n] = s, i, True
                activation[m, n] = found.activation[m, j]
                taken.append(ids)
            if len(taken) == count:
                break
    return sequence, position, activation, valid
