"""Does every token get the tag of the word that holds its first character, whatever the text?"""

import numpy as np
import pytest

from jaxfeat.data.tagged import DEPENDENCIES, POS_TAGS, Tagged
from jaxfeat.data.tags import FEATURES, GROUPS, check_cover, token_features
from jaxfeat.types import UserError

PARTS = (  # what statement 30 names, and letters that change length under lower()
    *("dog", "don't", "naïve", "e\u0301te\u0301", "a\u0308\u0323", "\u0130x", "ﬁ", "Ωmega", "日本"),
    *(
        "🙂",
        "👩‍👩‍👧",
        "👍🏽",
        "🇫🇷",
        "\u201c",
        "\u201d",
        "\u2018",
        "\u2019",
        ".",
        ",",
        "!",
        "—",
        "…",
    ),
)
GAPS = ("", "", " ", " ", "  ", "\n", "\r\n", "\r\n\r\n", "\t", "\u00a0", "\u2003 ")


def random_tagged(seed):
    """A text of odd characters with its words as they were put together."""
    draw = np.random.default_rng(seed)
    text, spans = "", []
    for _ in range(draw.integers(0, 30)):
        text += str(draw.choice(GAPS))
        word = str(draw.choice(PARTS))
        spans.append((len(text), len(text) + len(word)))
        text += word
    text += str(draw.choice(GAPS))
    start, end = np.array(spans, np.int32).reshape(-1, 2).T
    tags = lambda known: tuple(str(t) for t in draw.choice([*known, "XX", ""], len(spans)))
    return Tagged(text, start, end, tags(POS_TAGS), tags(DEPENDENCIES))


def random_tokens(seed, length):
    """Spans that cut `length` characters anywhere, also inside of words, a few of them empty."""
    cuts = np.sort(np.random.default_rng(seed).integers(0, length + 1, 20)).astype(np.int32)
    edges = np.concatenate([[0], cuts, [length]]).astype(np.int32)
    return edges[:-1], edges[1:]


@pytest.mark.parametrize("seed", range(40))
def test_tokens_take_the_tags_of_the_word_of_their_first_character(seed):
    tagged = random_tagged(seed)
    assert check_cover(tagged, tagged.text) is tagged
    begin, end = random_tokens(seed, len(tagged.text))
    found = token_features(tagged, begin, end)
    assert found.pos.dtype == found.dep.dtype == np.int8
    owner = [-1] * (len(tagged.text) + 1)  # by another way: the word of each character
    for n, (a, b) in enumerate(zip(tagged.start, tagged.end)):
        owner[a:b] = [n] * (b - a)
    for a, b, pos, dep in zip(begin, end, found.pos, found.dep):
        word = owner[a] if b > a else -1
        tag = tagged.pos[word] if word >= 0 else ""
        label = tagged.dep[word] if word >= 0 else ""
        assert pos == (POS_TAGS.index(tag) if tag in POS_TAGS else -1)
        assert dep == (DEPENDENCIES.index(label) if label in DEPENDENCIES else -1)


def test_empty_words_hold_no_token():
    spans = np.array([0, 5, 5, 5], np.int32), np.array([5, 5, 5, 8], np.int32)
    tagged = Tagged("gonnago?", *spans, ("VB", "IN", "IN", "NN"), ("ROOT", "aux", "aux", "dobj"))
    found = token_features(check_cover(tagged, "gonnago?"), [0, 3, 5, 8], [3, 5, 8, 8])
    assert found.pos.tolist() == [8, 8, 0, -1]
    assert found.dep.tolist() == [1, 1, 3, -1]


def test_a_story_without_words_has_no_tags():
    none = Tagged(" \n", np.zeros(0, np.int32), np.zeros(0, np.int32), (), ())
    assert token_features(check_cover(none, " \n"), [0, 1], [1, 2]).pos.tolist() == [-1, -1]
    assert token_features(none, [], []).dep.shape == (0,)
    with pytest.raises(UserError, match=r"begin \(2,\) and end \(1,\)"):
        token_features(none, [0, 1], [1])


def test_the_features_are_named_once_and_grouped():
    assert len(FEATURES) == len(set(FEATURES)) == 22
    assert [n for group in GROUPS.values() for n in group] == list(range(22))
    assert [FEATURES[n] for n in GROUPS["part of speech"]] == list(POS_TAGS)
    assert [FEATURES[n] for n in GROUPS["dependency"]] == [f"dep {d}" for d in DEPENDENCIES]
    assert [FEATURES[n] for n in GROUPS["place in story"]] == ["pos_int", "pos_prop"]


def spanned(text, spans):
    """Words at these places, all with the same tags."""
    start, end = np.array(spans, np.int32).reshape(-1, 2).T
    return Tagged(text, start, end, ("NN",) * len(spans), ("dep",) * len(spans))


@pytest.mark.parametrize(
    ("tagged", "text", "told"),
    [
        (spanned("a cat", [(0, 1)]), "a cut", "differs from character 3 on: 'at' is .* has 'ut'"),
        (spanned("a", [(0, 1)]), "a b", "differs from character 1 on: '' is tagged, .* has ' b'"),
        (spanned("a cat", [(0, 1), (2, 6)]), "a cat", r"word 1 lies at 2\.\.6, .* the 5 char"),
        (spanned("a cat", [(-1, 1), (2, 5)]), "a cat", r"word 0 lies at -1\.\.1"),
        (spanned("a cat", [(0, 3), (2, 5)]), "a cat", r"word 1 lies at 2\.\.5, which overlaps"),
        (spanned("a cat", [(2, 5), (0, 1)]), "a cat", r"word 1 lies at 0\.\.1, which overlaps"),
        (spanned("a cat", [(3, 1)]), "a cat", r"word 0 lies at 3\.\.1"),
        (spanned("a  cat", [(0, 1)]), "a  cat", r"3 of 4 characters .* first 3\.\.6: 'cat'"),
        (spanned("a cat", []), "a cat", r"4 of 4 characters .* first 0\.\.1: 'a'"),
        (spanned("a cat", [(0, 5)])._replace(dep=()), "a cat", "1 start, 1 end, 1 pos, 0 dep"),
    ],
)
def test_tags_that_do_not_cover_the_story_are_refused(tagged, text, told):
    with pytest.raises(UserError, match=f"^story 12: .*{told}"):
        check_cover(tagged, text, story=12)


def test_one_character_in_a_hundred_may_be_left_out():
    text = "x" * 99 + " 👍" + "  " * 500
    assert check_cover(spanned(text, [(0, 99)]), text)
    with pytest.raises(UserError, match=r"2 of 100 .* first 98\.\.99"):
        check_cover(spanned(text, [(0, 98)]), text)
