"""Where do Othello games come from: records of real games, or chance, on either side of a split?

Games are held out by their opening: the first moves up to the four symmetries that keep the start
position. No opening of a training game occurs, turned or mirrored, among the held-out ones.
"""

import os
import re
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfeat.data.holdout import held_out, mix
from jaxfeat.data.othello import (
    BOS,
    FIRST,
    PAD,
    PASS,
    Board,
    any_square,
    check_size,
    count_squares,
    legal_moves,
    moves_in,
    play,
    sample_games,
    square_set,
    start_board,
)
from jaxfeat.types import Array, UserError

OPENING = 8  # moves whose hash decides the side of a game
Split = Literal["train", "held_out", "all"]


class Records(NamedTuple):
    """Recorded games: ids `[G, T+1]`, bos first, with passes written; discs `[G, 2]` at the end.

    discs are black's and white's.
    """

    tokens: np.ndarray
    discs: np.ndarray


def symmetries(size: int) -> np.ndarray:
    """`[4, size * size]`: where each square goes under the symmetries that keep the start position.

    The identity, the half turn and the reflections in both diagonals.

    >>> symmetries(4)[:, 1].tolist()
    [1, 14, 4, 11]
    """
    r, c = np.divmod(np.arange(check_size(size) ** 2), size)
    end = size - 1
    maps = [(r, c), (end - r, end - c), (c, r), (end - c, end - r)]
    return np.stack([size * a + b for a, b in maps])


def opening_hash(tokens: Any, size: int, moves: int = OPENING) -> Any:
    """A hash of the first moves, the same for games that are symmetric to each other, uint32.

    Args:
        tokens: `[..., T+1]` ids, bos first (JAX or NumPy). moves: how many of them count.
    """
    xp = np if isinstance(tokens, np.ndarray) else jnp
    square = tokens[..., 1 : 1 + moves] - FIRST
    maps = symmetries(size)
    hashes = []
    for turned in maps:
        place = xp.where(square >= 0, xp.asarray(turned)[xp.maximum(square, 0)], size * size)
        h = xp.zeros(place.shape[:-1], np.uint32)
        for t in range(place.shape[-1]):
            h = mix(h * np.uint32(16777619) + place[..., t].astype(np.uint32) + np.uint32(1))
        hashes.append(h)
    least = hashes[0]
    for h in hashes[1:]:
        least = xp.minimum(least, h)
    return mix(least + np.uint32(0x9E3779B9))


def is_held_out(tokens: Any, size: int) -> Any:
    """Whether games belong to the held-out eighth, `[...]` booleans."""
    return held_out(opening_hash(tokens, size))


def draw_games(
    key: Array, count: int, size: int, *, split: Split = "train", length: int | None = None
) -> Array:
    """Random games of one side of the split, `[count, length + 1]` ids, bos first.

    Openings on the wrong side are drawn again until none is left.

    Args:
        split: "train", "held_out" or "all". length: as in `jaxfeat.data.othello.sample_games`;
            games cut below `OPENING` moves no longer show their side.

    Raises:
        UserError: an unknown split.
    """
    if split not in ("train", "held_out", "all"):
        raise UserError(f"split: {split!r} is none of train, held_out, all")
    opening, game = jax.random.split(key)
    if split == "all":
        return sample_games(game, count, size, length)
    wrong = lambda tokens: is_held_out(tokens, size) != (split == "held_out")

    def redraw(state: tuple[Array, Array]) -> tuple[Array, Array]:
        key, tokens = state
        key, use = jax.random.split(key)
        new = sample_games(use, count, size, OPENING)
        return key, jnp.where(wrong(tokens)[:, None], new, tokens)

    first = (opening, sample_games(game, count, size, OPENING))
    _, begun = jax.lax.while_loop(lambda s: wrong(s[1]).any(), redraw, first)
    return sample_games(game, count, size, length, begun=begun)


def overlap(train: np.ndarray, test: np.ndarray, size: int, moves: int = OPENING) -> int:
    """How many test games share their first moves with a training game, up to symmetry."""
    known = np.unique(opening_hash(np.asarray(train), size, moves))
    return int(np.isin(opening_hash(np.asarray(test), size, moves), known).sum())


def read_records(path: str | os.PathLike, size: int = 8) -> Records:
    """Recorded games from a text file, every move checked.

    A line is a game: its last tab-separated field holds the moves, `f5d6c5...`, passes implied; a
    field before it may tell the result as `black-white` discs (empty squares may be counted for the
    winner, as in tournaments). Lines that begin with # are left
    out.

    Raises:
        UserError: no such file, no game in it, a record that cannot be read, an illegal move (with
            the game, the move's number and the move), a result that is not the board's.
    """
    check_size(size)
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise UserError(f"games: {path} cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise UserError(f"games: {path} is no text in UTF-8") from None
    rows = [(n, line) for n, line in enumerate(lines, 1) if line.strip()[:1] not in ("", "#")]
    if not rows:
        raise UserError(f"games: {path} holds no game")
    named = [(n, *_fields(n, line, size)) for n, line in rows]
    moves = np.full((len(named), moves_in(size)), -1, np.int32)
    for g, (_, squares, _) in enumerate(named):
        moves[g, : len(squares)] = squares
    tokens, legal, discs = jax.tree.map(np.asarray, _replay(jnp.asarray(moves), size))
    bad = ~legal & (moves >= 0)
    if bad.any():
        g, t = np.argwhere(bad)[0]
        where = f"game {g + 1} (line {named[g][0]}), move {t + 1}"
        raise UserError(f"games: {where}: {_name(int(moves[g, t]), size)} is illegal")
    for g, (n, _, result) in enumerate(named):
        if result is not None and result not in _counts(discs[g], size):
            told = f"{discs[g][0]}-{discs[g][1]}"
            raise UserError(
                f"games: game {g + 1} (line {n}): ends {told}, the record says "
                f"{result[0]}-{result[1]}"
            )
    return Records(_with_passes(tokens), discs)


def _fields(number: int, line: str, size: int) -> tuple[list[int], tuple[int, int] | None]:
    """The squares of a record and its result, if it tells one."""
    *before, text = line.rstrip("\n").split("\t")
    text = text.strip().lower()
    letters = "abcdefgh"[:size]
    if not re.fullmatch(f"([{letters}][1-{size}])+", text):
        raise UserError(f"games: line {number}: {text[:40]!r} is no record of moves like f5d6c5")
    squares = [
        size * (int(text[i + 1]) - 1) + letters.index(text[i]) for i in range(0, len(text), 2)
    ]
    if len(squares) > moves_in(size):
        raise UserError(f"games: line {number}: {len(squares)} moves, at most {moves_in(size)} fit")
    found = [re.fullmatch(r"(\d+)-(\d+)", field.strip()) for field in before]
    results = [(int(m[1]), int(m[2])) for m in found if m]
    return squares, results[-1] if results else None


def _counts(discs: np.ndarray, size: int) -> tuple[tuple[int, int], ...]:
    """Results that a final board may be told as: its discs, or with the empty squares shared out.

    The winner gets them, in a draw both get half.

    >>> _counts(np.array([21, 42]), 8)
    ((21, 42), (21, 43))
    """
    black, white = int(discs[0]), int(discs[1])
    empty = size * size - black - white
    to_black = empty // 2 if black == white else empty * (black > white)
    return (black, white), (black + to_black, white + empty - to_black)


def _name(square: int, size: int) -> str:
    """A square as a letter and a digit."""
    return f"{'abcdefgh'[square % size]}{square // size + 1}"


def _replay(moves: Array, size: int) -> tuple[Array, Array, Array]:
    """Tokens `[G, T, 2]` (a pass or pad, then the move), legality `[G, T]`, discs `[G, 2]`."""
    count = moves.shape[0]
    board = jax.tree.map(lambda x: jnp.broadcast_to(x, (count,)), start_board(size))
    black = jnp.ones(count, bool)

    def step(state: tuple[Board, Array], square: Array):
        board, black = state
        here = square >= 0
        must_pass = here & ~any_square(legal_moves(board, size))
        turned = Board(board.theirs, board.mine)
        board = jax.tree.map(lambda a, b: jnp.where(must_pass, a, b), turned, board)
        black = black ^ must_pass
        move = square_set(square, size)
        legal = any_square(legal_moves(board, size) & move)
        after = play(board, move, size)
        board = jax.tree.map(lambda a, b: jnp.where(here, a, b), after, board)
        tokens = jnp.stack([jnp.where(must_pass, PASS, PAD), jnp.where(here, FIRST + square, PAD)])
        return (board, black ^ here), (tokens, legal)

    (board, black), (tokens, legal) = jax.lax.scan(step, (board, black), moves.T)
    mine, theirs = count_squares(board.mine), count_squares(board.theirs)
    discs = jnp.stack([jnp.where(black, mine, theirs), jnp.where(black, theirs, mine)], axis=1)
    return jnp.moveaxis(tokens, 2, 0), legal.T, discs


def _with_passes(tokens: np.ndarray) -> np.ndarray:
    """`[G, T, 2]` with gaps to `[G, longest + 1]`: bos, then tokens without gaps, then padding."""
    flat = tokens.reshape(len(tokens), -1)
    order = np.argsort(flat == PAD, axis=1, kind="stable")
    packed = np.take_along_axis(flat, order, axis=1)
    longest = int((packed != PAD).sum(axis=1).max())
    first = np.full((len(packed), 1), BOS, np.int32)
    return np.concatenate([first, packed[:, :longest].astype(np.int32)], axis=1)
