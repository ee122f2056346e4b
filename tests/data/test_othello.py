"""Is Othello played by its rules, and does the device agree with plain Python?"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import othello_rules as rules
from jaxfeat.data import othello
from jaxfeat.data.othello import (
    BOS,
    FIRST,
    PAD,
    PASS,
    Board,
    Squares,
    board_features,
    boards_of,
    feature_types,
    legal_ids,
    legal_moves,
    play,
    sample_games,
    square_set,
    start_board,
    to_cells,
)
from jaxfeat.types import UserError


def board_from(rows):
    """A board out of rows of `x` (mine), `o` (theirs) and `.`."""
    bits = {"x": 0, "o": 0}
    for r, row in enumerate(rows):
        for c, v in enumerate(row):
            if v in bits:
                bits[v] |= 1 << (8 * r + c)
    word = lambda b: Squares(jnp.uint32(b & 0xFFFFFFFF), jnp.uint32(b >> 32))
    return Board(word(bits["x"]), word(bits["o"]))


def test_perft():
    """Numbers of lines of play from the start on 8 x 8, depth 1 to 8."""
    expand = jax.jit(lambda b: to_cells(legal_moves(b, 8), 8))
    move = jax.jit(jax.vmap(lambda b, i: play(b, square_set(i, 8), 8)))
    boards, counts = jax.tree.map(lambda x: np.asarray(x)[None], start_board(8)), []
    for depth in range(8):
        cells = np.asarray(expand(boards))
        counts.append(int(cells.sum()))
        assert cells.any(axis=1).all()  # no pass yet
        if depth < 7:
            which, square = np.nonzero(cells)
            picked = jax.tree.map(lambda x, w=which: np.asarray(x)[w], boards)
            boards = jax.tree.map(np.asarray, move(picked, square.astype(np.int32)))
    assert counts == [4, 12, 56, 244, 1396, 8200, 55092, 390216]


@pytest.mark.parametrize(("size", "games"), [(4, 12), (6, 6), (8, 3)])
def test_rules(size, games):
    """Legal moves, boards, features, types and the end, token by token, as in plain Python."""
    length = othello.moves_in(size) + 4
    tokens = np.asarray(sample_games(jax.random.key(size), games, size, length))
    boards = boards_of(jnp.asarray(tokens), size)
    allowed, cells, kinds = (
        np.asarray(fn(boards, size)) for fn in (legal_ids, board_features, feature_types)
    )
    passes = ends = 0
    for g, row in enumerate(tokens):
        assert row[0] == BOS
        board = rules.start(size)
        for t in range(length + 1):
            assert cells[g, t].tolist() == [v for line in board for v in line]
            assert kinds[g, t].tolist() == rules.types(board)
            now = rules.legal(board)
            other = rules.legal([[-v for v in line] for line in board])
            ids = {FIRST + size * r + c for r, c in now} or ({PASS} if other else {PAD})
            assert set(np.flatnonzero(allowed[g, t])) == ids
            if t == length:
                break
            token = int(row[t + 1])
            assert token in ids
            if token == PAD:
                ends += 1
                assert (row[t + 1 :] == PAD).all()
                break
            passes += token == PASS
            board = rules.play(board, None if token == PASS else divmod(token - FIRST, size))
    assert ends == games or size == 8
    assert passes > 0 or size != 4


def test_wiped_out():
    """Where one player has no disc left the game is over: neither can move; pad alone."""
    board = board_from(["xo..", "....", "....", "...."])
    after = play(board, square_set(jnp.int32(2), 4), 4)
    assert not to_cells(after.mine, 4).any() and to_cells(after.theirs, 4).sum() == 3
    assert np.flatnonzero(legal_ids(after, 4)).tolist() == [PAD]


def test_one_pass_and_two():
    """A forced pass is the only id; when neither can move the game is over, not passed for ever."""
    stuck = board_from(["xxo.", "xxxx", "xxxx", "xxxx"])  # o to the right edge: mine can move
    assert FIRST + 3 in np.flatnonzero(legal_ids(stuck, 4))
    turned = Board(stuck.theirs, stuck.mine)
    assert np.flatnonzero(legal_ids(turned, 4)).tolist() == [PASS]
    over = board_from(["xx..", "....", "....", "..oo"])
    assert np.flatnonzero(legal_ids(over, 4)).tolist() == [PAD]


def test_random_moves_are_uniform():
    """Every legal square of a set is picked equally often; an empty set gives -1."""
    cells = start_board(8)
    legal = legal_moves(cells, 8)
    luck = (jnp.arange(4000) + 0.5) / 4000
    picked = np.asarray(jax.vmap(lambda u: othello.pick_square(legal, u, 8))(luck))
    squares, counts = np.unique(picked, return_counts=True)
    assert squares.tolist() == np.flatnonzero(to_cells(legal, 8)).tolist()
    assert (counts == 1000).all()
    none = Squares(jnp.uint32(0), jnp.uint32(0))
    assert int(othello.pick_square(none, jnp.float32(0.3), 8)) == -1
    full = Squares(jnp.uint32(0xFFFFFFFF), jnp.uint32(0xFFFFFFFF))
    every = jax.vmap(lambda u: othello.pick_square(full, u, 8))((jnp.arange(64) + 0.5) / 64)
    assert every.tolist() == list(range(64))


def test_under_transformations():
    """jit, vmap and a batch give the same games and boards."""
    key = jax.random.key(1)
    alone = sample_games(key, 5, 6)
    np.testing.assert_array_equal(jax.jit(lambda k: sample_games(k, 5, 6))(key), alone)
    whole = boards_of(alone, 6)
    each = jax.vmap(lambda t: boards_of(t, 6))(alone)
    for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(each), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("size", [2, 5, 10, 0, -8, 6.0])
def test_sizes(size):
    """Every function of a size refuses one that cannot be played."""
    board = start_board(8)
    for of in (start_board, lambda size: legal_moves(board, size)):
        with pytest.raises(UserError, match=f"size: {size} given; valid board sizes are 4, 6, 8"):
            of(size)


def test_counts():
    for count, length in ((0, None), (-1, None), (2.5, None), (3, 0)):
        with pytest.raises(UserError, match=r"count: |length: "):
            sample_games(jax.random.key(0), count, 4, length)
