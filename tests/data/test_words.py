"""Words of stories as sequences: which tokens, which stories, in which order."""

from collections import Counter

import numpy as np
import pytest

from jaxfeat.data.stories import make_stories
from jaxfeat.data.text import read_corpus
from jaxfeat.data.words import UNKNOWN, split_words, word_sequences
from jaxfeat.types import UserError

TALES = [
    "The cat sat. The cat ran. The cat sat.",  # 12 tokens
    "A dog ran! The dog sat. A dog ran!",  # 12
    "The zebra sat.",  # 4
    "The cat.",  # 3
]


def test_tokens():
    """Letters run together, whatever else is not space stands alone."""
    assert split_words('"Été" x²y 12_a\tİ') == [
        '"', "été", '"', "x", "²", "y", "1", "2", "_", "a", "i", "\u0307",
    ]  # fmt: skip
    assert split_words("  \n") == []


def test_order_of_ids():
    """Frequency, then alphabet, by an independent count."""
    texts = [s.tagged.text for s in make_stories(0, 20)]
    found = word_sequences(texts, 100, 8, how="windows")
    counts = Counter(w for text in texts for w in split_words(text))
    names = sorted(counts, key=lambda w: (-counts[w], w))
    assert found.names == (*names[:99], UNKNOWN)
    stream = [w if w in found.names[:99] else UNKNOWN for t in texts for w in split_words(t)]
    assert [found.names[i] for i in found.ids.ravel()] == stream[: found.ids.size]
    assert found.ids.dtype == np.int32 and found.left == len(stream) - found.ids.size < 9
    assert found.unknown == pytest.approx(np.mean(np.array(stream[: found.ids.size]) == UNKNOWN))


def test_whole_stories():
    """Stories with a rare word are left out, each other one is cut from its own start."""
    found = word_sequences(TALES, 8, 3, how="stories")
    assert found.names == (".", "the", "cat", "sat", "dog", "ran", "!", "a")
    told = [" ".join(found.names[i] for i in row) for row in found.ids]
    assert told == ["the cat sat .", "the cat ran .", "the cat sat .", "a dog ran !",
                    "the dog sat .", "a dog ran !"]  # fmt: skip
    assert (found.rare, found.short, found.left, found.absent) == (1, 1, 3, 0)
    assert found.told == (
        "stories: 2 of 4 whole stories give 6 sequences of 4 tokens of the 8 most frequent tokens; "
        "1 with a rarer one and 1 short ones are left out"
    )
    longer = word_sequences(TALES, 8, 4, how="stories")
    assert len(longer.ids) == 4 and longer.left == 2 * 2 + 3


def test_auto():
    """Whole stories if they are enough, else windows; the line says which."""
    assert word_sequences(TALES, 8, 3, least=6).how == "stories"
    found = word_sequences(TALES, 8, 3, least=7)
    assert found.how == "windows" and found.told.endswith("whole stories: 6 sequences")
    assert found.ids.shape == (7, 4) and found.rare == 2  # "a" and "zebra"
    every = word_sequences(TALES, 9, 3)
    assert "every token has an id; whole stories: 7" in every.told
    assert every.unknown == 0 and UNKNOWN not in every.names and every.rare == 0


def test_words_that_never_occur():
    """Frequent words of stories that are left out are counted and told."""
    found = word_sequences(["a b a b", "c c c c d"], 3, 1, how="stories")
    assert found.absent == 1 and found.told.endswith("1 tokens never occur")


def test_corpus_file(tmp_path):
    """Stories of a file, twice the same."""
    (tmp_path / "two.txt").write_text("<|endoftext|>".join(TALES))
    stories = read_corpus(tmp_path / "two.txt").stories
    one, two = (word_sequences(stories, 6, 2) for _ in range(2))
    assert np.array_equal(one.ids, two.ids) and one[0] == two[0]


def test_refusals():
    """One line that names the argument."""
    for given, told in (
        ((TALES, 10, 3), "hold 9 distinct"), ((TALES, 8, 0), "length"), ((TALES, 1, 3), "vocab"),
        ((TALES, 8, 99), "all stories together 31"), (("a b", 2, 1), "list"),
        (([], 2, 1), "list"), (([" "], 2, 1), "no text"), (([3], 2, 1), "int given"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=told) as error:
            word_sequences(*given)
        assert len(str(error.value).splitlines()) == 1
    with pytest.raises(UserError, match=r"no story has T.1 = 13 tokens, the longest 12"):
        word_sequences(TALES, 8, 12, how="stories")
    with pytest.raises(UserError, match=r"how=.windows."):
        word_sequences(TALES, 3, 11, how="stories")
    with pytest.raises(UserError, match="none of auto"):
        word_sequences(TALES, 3, 2, how="lines")
