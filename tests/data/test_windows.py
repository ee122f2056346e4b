"""Is every story shown once an epoch, at its own place, with the features of its own tokens?"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxfeat.data.stories import make_stories
from jaxfeat.data.tags import FEATURES, TokenTags, token_features
from jaxfeat.data.tokens import Tokens, encode
from jaxfeat.data.windows import (
    cut_windows,
    epoch_windows,
    every_window,
    features_of,
    make_windows,
    to_batch,
)
from jaxfeat.io.tokenizer import end_id, train_tokenizer
from jaxfeat.types import UserError

LENGTH, MARKER = 6, 9
SIZES = (3, 12, 5, 7, 20)  # tokens of each story's text


@functools.lru_cache
def corpus():
    """Five stories whose ids tell story and place; the marker ends each."""
    texts = [np.arange(n) % 9 for n in SIZES]
    ids = np.concatenate([np.append(t, MARKER) for t in texts]).astype(np.int32)
    first = np.concatenate([[0], np.cumsum([n + 1 for n in SIZES])])
    tags = [
        TokenTags(*(np.append(np.arange(n) % 10, -1).astype(np.int8) for _ in (0, 1)))
        for n in SIZES
    ]
    return Tokens(ids, ids, ids, first, 10, ""), tags


@functools.lru_cache
def windows(chosen=(0, 1, 2, 3, 4)):
    tokens, tags = corpus()
    return make_windows(tokens, MARKER, np.array(chosen), tags)


def rows_of(cut):
    """Which story each window is of, by where it lies."""
    first = np.asarray(windows().first)
    return np.searchsorted(first, np.asarray(cut.index)[:, 0], side="right") - 1


def test_markers():
    """One before and one behind every story, never two; the text has its own places."""
    w = windows((1, 3))
    for first, size, n in zip(w.first, w.size, (12, 7)):
        own = slice(int(first), int(first + size))
        assert size == n + 2 and w.ids[own][0] == w.ids[own][-1] == MARKER
        np.testing.assert_array_equal(w.place[own][1:-1], np.arange(n))
        np.testing.assert_array_equal(w.text[own], [False, *[True] * n, False])
        assert (w.pos[own][jnp.array([0, -1])] == -1).all()
    tokens, _ = corpus()
    brings = tokens._replace(ids=np.where(np.arange(len(tokens.ids)) == 0, MARKER, tokens.ids))
    w = make_windows(brings, MARKER, np.array([0]))
    assert w.ids.tolist() == [MARKER, 1, 2, MARKER] and w.place.tolist()[1:3] == [0, 1]
    with pytest.raises(UserError, match="at least one"):
        make_windows(tokens, MARKER, np.array([], int))
    with pytest.raises(UserError, match="story 1 has 13 tokens, 4 are tagged"):
        make_windows(tokens, MARKER, np.array([1]), corpus()[1][:1] * 5)
    with pytest.raises(UserError, match="tags: of 2 stories given, 5 needed"):
        make_windows(tokens, MARKER, np.array([1]), corpus()[1][:2])
    for wrong in ([5], [-1]):
        with pytest.raises(UserError, match=r"valid are 0\.\.4"):
            make_windows(tokens, MARKER, np.array(wrong))
    with pytest.raises(UserError, match="marker: 10 given"):
        make_windows(tokens, 10, np.array([0]))
    chosen = make_windows(tokens, MARKER, np.array([False, True, False, True, False]), corpus()[1])
    np.testing.assert_array_equal(chosen.ids, windows((1, 3)).ids)
    with pytest.raises(UserError, match="stride: 0 given"):
        every_window(w, LENGTH, 0)


def test_once_an_epoch():
    """Five stories in batches of two: each once an epoch, at places that change with the epoch."""
    whole = windows()
    draw = jax.jit(lambda step: epoch_windows(whole, jax.random.key(3), step, 2, LENGTH))
    cuts = [draw(step) for step in range(20)]
    seen = np.concatenate([rows_of(cut) for cut in cuts])
    for epoch in range(8):
        assert sorted(seen[5 * epoch : 5 * epoch + 5]) == [0, 1, 2, 3, 4]
    assert len({tuple(seen[5 * e : 5 * e + 5]) for e in range(8)}) > 1
    starts = {}
    for cut in cuts:
        for row, at in zip(rows_of(cut), np.asarray(cut.index)[:, 0]):
            starts.setdefault(int(row), set()).add(int(at - windows().first[row]))
    assert starts[0] == {0} and starts[2] == {0}  # no longer than a window
    assert len(starts[4]) > 3 and max(starts[4]) <= SIZES[4] + 2 - (LENGTH + 1)
    # a run that goes on at update 7 sees what it would have seen; another key shows others
    again = epoch_windows(windows(), jax.random.key(3), jnp.int32(7), 2, LENGTH)
    for a, b in zip(again, cuts[7]):
        np.testing.assert_array_equal(a, b)
    other = epoch_windows(windows(), jax.random.key(4), jnp.int32(7), 2, LENGTH)
    assert any((np.asarray(a) != np.asarray(b)).any() for a, b in zip(other, cuts[7]))


def test_short_stories_are_padded():
    """A story shorter than the window: nothing beyond its end counts."""
    cut = cut_windows(windows(), jnp.array([0, 4]), jnp.array([0, 2]), LENGTH)
    batch = to_batch(cut)
    assert cut.mask.tolist() == [[True] * 5 + [False] * 2, [True] * 7]
    assert batch.weight.tolist() == [[True] * 4 + [False] * 2, [True] * 6]
    assert batch.token[0, :5].tolist() == [MARKER, 0, 1, 2, MARKER]
    np.testing.assert_array_equal(batch.target[1], batch.token[1] + 1)


def test_features():
    """One-hot tags, place and share of each input; markers and padding are masked."""
    cut = cut_windows(windows(), jnp.array([0, 4]), jnp.array([0, 3]), LENGTH)
    found, mask = features_of(windows(), cut)
    assert found.shape == (2, LENGTH, len(FEATURES))
    assert mask.tolist() == [[False, True, True, True, False, False], [True] * 6]
    for t in range(LENGTH):
        place = 2 + t  # of the story's text: the marker comes first
        expected = np.zeros(22)
        expected[[place % 10, 10 + place % 10]] = 1
        expected[20:] = place, place / (SIZES[4] - 1)
        np.testing.assert_allclose(found[1, t], expected, rtol=1e-6)


@pytest.mark.parametrize("stride", [3, 6])
def test_every_target_once(stride):
    """Windows half a window apart hold every target; the later half of each is new."""
    rows, offsets = every_window(windows(), LENGTH, stride)
    cut = cut_windows(windows(), jnp.asarray(rows), jnp.asarray(offsets), LENGTH)
    fresh = (offsets[:, None] == 0) | (np.arange(LENGTH) >= LENGTH - stride)
    seen = np.asarray(cut.index)[:, 1:][fresh & np.asarray(to_batch(cut).weight)]
    assert len(seen) == len(set(seen.tolist())) == sum(n + 1 for n in SIZES)


def test_words_of_generated_stories():
    """Each token's features are those of the word that it is a part of."""
    made = make_stories(0, 8)
    texts = [story.tagged.text for story in made]
    tokenizer = train_tokenizer(texts, 400)
    tokens = encode(texts, tokenizer)
    spans = zip(tokens.first, tokens.first[1:])
    tags = [
        token_features(s.tagged, tokens.begin[a:b], tokens.end[a:b])
        for s, (a, b) in zip(made, spans)
    ]
    w = make_windows(tokens, end_id(tokenizer), np.arange(8), tags)
    cut = cut_windows(w, jnp.array([5]), jnp.array([20]), 30)
    found, mask = features_of(w, cut)
    assert mask.all()
    story, a = made[5].tagged, tokens.first[5]
    for t in range(30):
        begin = tokens.begin[a + 19 + t]
        (word,) = [n for n in range(len(story.pos)) if story.start[n] <= begin < story.end[n]]
        told = {FEATURES[f] for f in np.flatnonzero(found[0, t, :20])}
        expected = {story.pos[word], f"dep {story.dep[word]}"} & set(FEATURES)
        assert told == expected
        assert found[0, t, 20] == 19 + t
