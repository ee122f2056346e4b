"""Which integer sequences can be counted? T+1 tokens each: position t predicts token t + 1."""

from typing import Any

import numpy as np

from jaxfeat.types import UserError, check_tokens, check_whole

SHOWN = 5  # ids that a message names


def check_sequences(tokens: Any, vocab: int, *, strict: bool = False) -> np.ndarray:
    """Whole sequences as integers, refused where they cannot be counted.

    Args:
        tokens: `[N, T+1]` integer ids, N and T at least 1.
        vocab: V; ids are 0..V-1.
        strict: also refuse a vocabulary with ids that never occur: their rows would be empty.

    Returns:
        `[N, T+1]` int32.

    Raises:
        UserError: another shape or type, an id outside the vocabulary, V above what occurs.

    >>> check_sequences([[0, 1, 1]], 2).shape
    (1, 3)
    """
    check_whole("vocab", vocab, 1)
    tokens = np.asarray(tokens)
    if tokens.ndim != 2 or tokens.shape[0] < 1 or tokens.shape[1] < 2:
        raise UserError(
            f"tokens: shape {tokens.shape} given, [N, T+1] with N >= 1 sequences and T >= 1 needed"
        )
    if tokens.dtype.kind not in "iu":
        raise UserError(f"tokens: type {tokens.dtype} given, integer ids needed")
    check_tokens(tokens, vocab, "tokens")
    if strict:
        seen = np.bincount(tokens.ravel().astype(np.int64), minlength=vocab) > 0
        if not seen.all():
            lacking = np.flatnonzero(~seen)
            more = ", .." if len(lacking) > SHOWN else ""
            raise UserError(
                f"vocab: {vocab} given, only {int(seen.sum())} of these ids occur; "
                f"{', '.join(map(str, lacking[:SHOWN]))}{more} never do"
            )
    return tokens.astype(np.int32)


def cut_sequences(ids: Any, length: int) -> np.ndarray:
    """`[N, T+1]`: one stream cut into consecutive sequences; what is left at its end is dropped.

    Raises:
        UserError: a stream shorter than T+1.

    >>> cut_sequences([1, 2, 3, 4, 5], 1).tolist()
    [[1, 2], [3, 4]]
    """
    check_whole("length", length, 1)
    ids = np.asarray(ids)
    if ids.ndim != 1 or len(ids) < length + 1:
        raise UserError(
            f"length: sequences of {length} + 1 tokens need a stream that long, shape {ids.shape} "
            "given"
        )
    count = len(ids) // (length + 1)
    return ids[: count * (length + 1)].reshape(count, length + 1)


def shuffle_tokens(tokens: Any, seed: int = 0) -> np.ndarray:
    """The same tokens in random order over the whole corpus: shares stay, all context goes.

    Args:
        tokens: any shape. seed: of NumPy's default generator.

    >>> sorted(shuffle_tokens([[0, 1], [2, 3]]).ravel().tolist())
    [0, 1, 2, 3]
    """
    tokens = np.asarray(tokens)
    order = np.random.default_rng(check_whole("seed", seed, 0)).permutation(tokens.size)
    return tokens.ravel()[order].reshape(tokens.shape)
