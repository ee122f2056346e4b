"""How is Othello played on the device, and which squares matter for the next move?

A board of even size n (4, 6, 8) lies in the top left corner of an 8 x 8 grid; a set of squares is
two uint32 words, bit `8 row + column` of 64. `mine` and `theirs` are seen from the player to move.
All rules are pure functions of these words: they run under jit, vmap and scan, on any number of
games at once.

Ids: 0 pad, 1 bos, 2 pass, 3 + (n row + column) a move. A sequence is bos and the moves; a forced
pass is a token; after the end of the game the rest is padding.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfeat.types import Array, UserError, check_whole

PAD, BOS, PASS, FIRST = 0, 1, 2, 3
SIZES = (4, 6, 8)
EMPTY, USELESS, USEFUL = 0, 1, 2  # feature types


class Squares(NamedTuple):
    """A set of squares: rows 0-3 and rows 4-7 of the 8 x 8 grid, uint32 of any common shape."""

    low: Array
    high: Array

    def __and__(self, other: "Squares") -> "Squares":
        return Squares(self.low & other.low, self.high & other.high)

    def __or__(self, other: "Squares") -> "Squares":
        return Squares(self.low | other.low, self.high | other.high)

    def __xor__(self, other: "Squares") -> "Squares":
        return Squares(self.low ^ other.low, self.high ^ other.high)

    def __invert__(self) -> "Squares":
        return Squares(~self.low, ~self.high)


class Board(NamedTuple):
    """Discs of the player to move and of the other one."""

    mine: Squares
    theirs: Squares


def check_size(size: int) -> int:
    """The size, if a board of it can be played.

    >>> check_size(6)
    6
    """
    if not isinstance(size, int | np.integer) or size not in SIZES:
        raise UserError(f"size: {size!r} given; valid board sizes are 4, 6, 8")
    return int(size)


def vocab_size(size: int) -> int:
    """Ids in use: pad, bos, pass and the squares.

    >>> vocab_size(8)
    67
    """
    return FIRST + check_size(size) ** 2


def moves_in(size: int) -> int:
    """Moves of a full game without passes: every square but the first four.

    >>> moves_in(8)
    60
    """
    return check_size(size) ** 2 - 4


def start_board(size: int) -> Board:
    """The start position: black moves first and holds the rising diagonal."""
    middle = check_size(size) // 2
    at = lambda r, c: 1 << (8 * r + c)
    mine = at(middle - 1, middle) | at(middle, middle - 1)
    theirs = at(middle - 1, middle - 1) | at(middle, middle)
    return Board(_constant(mine), _constant(theirs))


def legal_moves(board: Board, size: int) -> Squares:
    """The squares on which the player to move may put a disc."""
    empty = ~(board.mine | board.theirs) & _valid(size)
    found = _none(board)
    for step in STEPS:
        reach = _reach(board.mine, board.theirs, step, size)
        found = found | (_shift(reach, step) & empty)
    return found


def play(board: Board, move: Squares, size: int) -> Board:
    """The board after a legal move, from the other player's view; an empty move is a pass."""
    flipped = _none(board)
    for step in STEPS:
        run = _reach(move, board.theirs, step, size)
        ends = any_square(_shift(run, step) & board.mine)
        flipped = flipped | _where(ends, run, _none(board))
    mine = board.mine | move | flipped
    return Board(board.theirs & ~flipped, mine)


def any_square(squares: Squares) -> Array:
    """Whether a set holds any square."""
    return (squares.low | squares.high) != 0


def count_squares(squares: Squares) -> Array:
    """How many squares a set holds, int32."""
    count = jax.lax.population_count
    return (count(squares.low) + count(squares.high)).astype(jnp.int32)


def square_set(index: Array, size: int) -> Squares:
    """The set of one square given as `size row + column`; of none for an index below 0."""
    bit = 8 * (index // size) + index % size
    one = jnp.where(index >= 0, jnp.uint32(1), jnp.uint32(0))
    shift = lambda at: jnp.where((at >= 0) & (at < 32), one << jnp.clip(at, 0, 31).astype(
        jnp.uint32), jnp.uint32(0))  # fmt: skip
    return Squares(shift(bit), shift(bit - 32))


def to_cells(squares: Squares, size: int) -> Array:
    """`[..., size * size]` booleans, row by row."""
    bits = np.array([8 * r + c for r in range(size) for c in range(size)])
    word = jnp.where(bits < 32, squares.low[..., None], squares.high[..., None])
    return ((word >> jnp.asarray(bits % 32, jnp.uint32)) & 1).astype(bool)


def pick_square(squares: Squares, luck: Array, size: int) -> Array:
    """A square of the set, uniform for `luck` uniform in [0, 1); -1 if there is none. int32."""
    count = count_squares(squares)
    rank = jnp.minimum((luck * count).astype(jnp.int32), count - 1)
    in_low = jax.lax.population_count(squares.low).astype(jnp.int32)
    high = rank >= in_low
    word = jnp.where(high, squares.high, squares.low)
    rank = jnp.where(high, rank - in_low, rank)
    at = jnp.zeros_like(rank)
    for width in (16, 8, 4, 2, 1):  # the place of the rank-th bit, by halves
        part = (word >> at.astype(jnp.uint32)) & jnp.uint32((1 << width) - 1)
        below = jax.lax.population_count(part).astype(jnp.int32)
        skip = rank >= below
        at, rank = jnp.where(skip, at + width, at), jnp.where(skip, rank - below, rank)
    bit = at + 32 * high
    return jnp.where(count > 0, size * (bit // 8) + bit % 8, -1)


def sample_games(
    key: Array, count: int, size: int, length: int | None = None, *, begun: Array | None = None
) -> Array:
    """Games of uniformly random legal moves, `[count, length + 1]` int32 ids, bos first.

    Args:
        length: tokens after bos; by default `moves_in(size)` (games with passes are cut there).
        begun: `[count, m + 1]` ids of begun games, which are gone on with.
    """
    check_whole("count", count, 1)
    length = moves_in(size) if length is None else check_whole("length", length, 1)
    forced = jnp.full((length, count), -1, jnp.int32)
    if begun is not None:
        given = min(begun.shape[1] - 1, length)
        forced = forced.at[:given].set(begun[:, 1 : 1 + given].T - FIRST)
    luck = jax.random.uniform(key, (length, count))
    board = _over(start_board(size), (count,))

    def step(state: tuple[Board, Array], xs: tuple[Array, Array]):
        (board, passed), (luck, given) = state, xs
        legal = legal_moves(board, size)
        can = any_square(legal)
        other = Board(board.theirs, board.mine)
        over = ~can & (passed | ~any_square(legal_moves(other, size)))
        square = jnp.where(given >= 0, given, pick_square(legal, luck, size))
        token = jnp.where(can, FIRST + square, jnp.where(over, PAD, PASS))
        new = play(board, square_set(square, size), size)
        return (new, ~can), token

    _, tokens = jax.lax.scan(step, (board, jnp.zeros(count, bool)), (luck, forced))
    first = jnp.full((count, 1), BOS, jnp.int32)
    return jnp.concatenate([first, tokens.T.astype(jnp.int32)], axis=1)


def boards_of(tokens: Array, size: int) -> Board:
    """The board after every token of games `[..., T+1]`, from the next player's view: `[..., T+1]`.

    Row 0 is the start position; passes turn the view, padding leaves it.
    """
    moves = jnp.moveaxis(tokens[..., 1:], -1, 0)
    start = _over(start_board(size), tokens.shape[:-1])

    def step(board: Board, token: Array) -> tuple[Board, Board]:
        new = play(board, square_set(token - FIRST, size), size)
        new = jax.tree.map(lambda a, b: jnp.where(token == PAD, a, b), board, new)
        return new, new

    _, after = jax.lax.scan(step, start, moves)
    join = lambda first, rest: jnp.moveaxis(jnp.concatenate([first[None], rest]), 0, -1)
    return jax.tree.map(join, start, after)


def legal_ids(board: Board, size: int) -> Array:
    """`[..., vocab]` booleans: the ids that may come next; pass alone where nothing is legal.

    A finished game allows pad alone.
    """
    legal = legal_moves(board, size)
    can = any_square(legal)
    over = ~can & ~any_square(legal_moves(Board(board.theirs, board.mine), size))
    special = jnp.stack([over, jnp.zeros_like(can), ~can & ~over], axis=-1)
    return jnp.concatenate([special, to_cells(legal, size)], axis=-1)


def board_features(board: Board, size: int) -> Array:
    """`[..., size * size]` int8: 1 mine, -1 theirs, 0 empty."""
    cells = lambda squares: to_cells(squares, size).astype(jnp.int8)
    return cells(board.mine) - cells(board.theirs)


def feature_types(board: Board, size: int) -> Array:
    """`[..., size * size]` uint8: 0 empty, 1 useless, 2 useful for the next move.

    A disc is useless if turning its colour leaves the set of legal moves as it is.
    """
    legal = legal_moves(board, size)
    held = to_cells(board.mine | board.theirs, size)

    def changed(index: Array) -> Array:
        one = square_set(index, size)
        turned = Board(board.mine ^ one, board.theirs ^ one)
        new = legal_moves(turned, size)
        return (new.low != legal.low) | (new.high != legal.high)

    useful = jnp.moveaxis(jax.lax.map(changed, jnp.arange(size * size)), 0, -1)
    return jnp.where(held, jnp.where(useful, USEFUL, USELESS), EMPTY).astype(jnp.uint8)


# A step moves every square of a set by (rows, columns); those that leave the grid vanish.
STEPS = tuple((r, c) for r in (-1, 0, 1) for c in (-1, 0, 1) if (r, c) != (0, 0))


def _shift(squares: Squares, step: tuple[int, int]) -> Squares:
    """Every square of a set one step on; columns do not wrap."""
    rows, columns = step
    by = 8 * rows + columns
    low, high = squares
    if columns:  # the column that would wrap is dropped before
        keep = jnp.uint32(0x7F7F7F7F if columns > 0 else 0xFEFEFEFE)
        low, high = low & keep, high & keep
    if by > 0:
        return Squares(low << by, (high << by) | (low >> (32 - by)))
    return Squares((low >> -by) | (high << (32 + by)), high >> -by)


def _reach(start: Squares, over: Squares, step: tuple[int, int], size: int) -> Squares:
    """The squares of `over` that lie in an unbroken run from `start` along a step."""
    run = _shift(start, step) & over
    for _ in range(size - 3):
        run = run | (_shift(run, step) & over)
    return run


def _valid(size: int) -> Squares:
    """All squares of the board."""
    check_size(size)
    return _constant(sum(1 << (8 * r + c) for r in range(size) for c in range(size)))


def _constant(bits: int) -> Squares:
    """A set out of a 64-bit number."""
    return Squares(jnp.uint32(bits & 0xFFFFFFFF), jnp.uint32(bits >> 32))


def _none(board: Board) -> Squares:
    """The empty set, of the board's shape."""
    return Squares(jnp.zeros_like(board.mine.low), jnp.zeros_like(board.mine.low))


def _over(board: Board, shape: tuple[int, ...]) -> Board:
    """The same board for a number of games."""
    return jax.tree.map(lambda x: jnp.broadcast_to(x, shape), board)


def _where(condition: Array, yes: Squares, no: Squares) -> Squares:
    """Choose between sets."""
    return Squares(jnp.where(condition, yes.low, no.low), jnp.where(condition, yes.high, no.high))
