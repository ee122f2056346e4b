"""Are games read with their faults named, and do the sides of the split share no opening?"""

import jax
import numpy as np
import pytest

from jaxfeat.data.othello import BOS, FIRST, PAD, PASS, sample_games
from jaxfeat.data.othello_games import (
    OPENING,
    draw_games,
    is_held_out,
    opening_hash,
    overlap,
    read_records,
    symmetries,
)
from jaxfeat.types import UserError

KEY = jax.random.key(0)


def turned(tokens, turn):
    """The games seen in a symmetry."""
    tokens = np.asarray(tokens)
    return np.where(tokens >= FIRST, FIRST + turn[np.maximum(tokens - FIRST, 0)], tokens)


@pytest.mark.parametrize("size", [4, 6])
def test_symmetries(size):
    """They form a group, keep the start position, and turned games stay legal and on their side."""
    maps = symmetries(size)
    assert {tuple(a[b]) for a in maps for b in maps} == {tuple(m) for m in maps}
    games = np.asarray(sample_games(KEY, 40, size))
    for turn in maps:
        np.testing.assert_array_equal(
            opening_hash(turned(games, turn), size), opening_hash(games, size)
        )
    np.testing.assert_array_equal(opening_hash(jax.numpy.asarray(games), size),
                                  opening_hash(games, size))  # fmt: skip


@pytest.mark.slow
def test_split():
    """About an eighth is held out; no opening of one side occurs on the other, up to symmetry."""
    train = np.asarray(draw_games(KEY, 300, 6, split="train"))
    held = np.asarray(draw_games(jax.random.key(1), 200, 6, split="held_out"))
    everything = np.asarray(draw_games(KEY, 2000, 6, split="all"))
    assert not is_held_out(train, 6).any() and is_held_out(held, 6).all()
    assert 0.09 < is_held_out(everything, 6).mean() < 0.16
    assert overlap(train, held, 6) == 0
    mirrored = turned(held, symmetries(6)[2])
    assert overlap(train, mirrored, 6) == 0 and overlap(mirrored, held, 6) == 200
    plain = {tuple(row[1 : 1 + OPENING]) for row in train.tolist()}
    for turn in symmetries(6):
        assert not plain & {tuple(row[1 : 1 + OPENING]) for row in turned(held, turn).tolist()}
    with pytest.raises(UserError, match="split: 'tset' is none of train, held_out, all"):
        draw_games(KEY, 2, 6, split="tset")


def test_begun_games_go_on():
    begun = np.asarray(sample_games(KEY, 8, 6, 5))
    games = np.asarray(sample_games(jax.random.key(7), 8, 6, begun=begun))
    np.testing.assert_array_equal(games[:, :6], begun)


def test_records(tmp_path):
    """Moves by letter and digit, passes written in; a game cut off stays as it is."""
    path = tmp_path / "games.tsv"
    path.write_text("# year\tresult\tmoves\n2024\tF5d6c5\n\nf5f6e6f4\n")
    found = read_records(path)
    at = lambda name: FIRST + 8 * (int(name[1]) - 1) + "abcdefgh".index(name[0])
    assert found.tokens[0].tolist() == [BOS, at("f5"), at("d6"), at("c5"), PAD]
    assert found.tokens[1].tolist() == [BOS, *map(at, ("f5", "f6", "e6", "f4"))]
    assert found.discs.sum(axis=1).tolist() == [7, 8]


def name(token, size):
    square = token - FIRST
    return f"{'abcdefgh'[square % size]}{square // size + 1}"


def test_passes_are_implied(tmp_path):
    """Random games with passes, written without them, come back with them."""
    games = np.asarray(sample_games(jax.random.key(3), 30, 4, 16))
    assert (games == PASS).any()
    lines = ["".join(name(t, 4) for t in row if t >= FIRST) for row in games.tolist()]
    path = tmp_path / "games.txt"
    path.write_text("\n".join(lines))
    found = read_records(path, 4).tokens
    for row, given in zip(found.tolist(), games.tolist(), strict=True):
        strip = lambda ids: [t for t in ids if t != PAD]
        mine, theirs = strip(row), strip(given)
        # a pass after the last move is not implied by the record
        assert mine == theirs[: len(mine)] and set(theirs[len(mine) :]) <= {PASS}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "holds no game"),
        ("# only words\n", "holds no game"),
        ("f5d6c5\nf5f5\n", r"game 2 \(line 2\), move 2: f5 is illegal"),
        ("a1\n", r"game 1 \(line 1\), move 1: a1 is illegal"),
        ("f5d\n", "line 1: 'f5d' is no record of moves"),
        ("f5z9\n", "line 1: 'f5z9' is no record of moves"),
        ("2024\t30-34\tf5d6c5\n", r"game 1 \(line 1\): ends 5-2, the record says 30-34"),
        ("f5" * 61, "61 moves, at most 60 fit"),
    ],
)
def test_bad_records(tmp_path, content, words):
    path = tmp_path / "games.tsv"
    path.write_text(content)
    with pytest.raises(UserError, match=words):
        read_records(path)


def test_no_file(tmp_path):
    """No such file, a folder, no text, a size that cannot be played: one clear line each."""
    (tmp_path / "binary.tsv").write_bytes(b"\xff\xfe\x00f5")
    for name, words in (
        ("absent.tsv", r"absent.tsv cannot be read \(No such file or directory\)$"),
        (".", r"cannot be read \(Is a directory\)$"),
        ("binary.tsv", "binary.tsv is no text in UTF-8"),
    ):
        with pytest.raises(UserError, match=words):
            read_records(tmp_path / name)
    with pytest.raises(UserError, match="size: 5 given"):
        read_records(tmp_path / "binary.tsv", 5)


def test_marks_of_a_text_file(tmp_path):
    """A byte-order mark, blank lines and indented comments hold no move."""
    path = tmp_path / "games.tsv"
    path.write_bytes(b"\xef\xbb\xbff5d6c5\n\n  # two games\nF5F6\r\n")
    assert len(read_records(path).tokens) == 2
