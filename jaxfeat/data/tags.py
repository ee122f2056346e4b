"""Which of the twenty-two features does each token of a story have, and do its tags fit it?

A token's part of speech and dependency label are those of the word that holds its first character;
the other two features are the token's place in the story.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxfeat.data.tagged import DEPENDENCIES, POS_TAGS, Tagged
from jaxfeat.data.tokens import word_of
from jaxfeat.types import UserError

FEATURES: tuple[str, ...] = (
    *POS_TAGS,
    *(f"dep {label}" for label in DEPENDENCIES),
    "pos_int",
    "pos_prop",
)
GROUPS: dict[str, tuple[int, ...]] = {
    "part of speech": tuple(range(10)),
    "dependency": tuple(range(10, 20)),
    "place in story": (20, 21),
}
UNCOVERED = 0.01  # share of a story's characters that may lie outside of its words


class TokenTags(NamedTuple):
    """Tags of the tokens of one story, `[n]` int8 each.

    `pos` counts within `POS_TAGS`, `dep` within `DEPENDENCIES`; -1 is any other tag or no word.
    """

    pos: np.ndarray
    dep: np.ndarray


def token_features(tagged: Tagged, begin: Any, end: Any) -> TokenTags:
    """The tag and the label of the word that holds each token's first character.

    Args:
        tagged: the story's words.
        begin, end: `[n]` int32, the characters of the story that each token is made of, without
            the spaces around them, as in `jaxfeat.data.tokens.Tokens`.

    Returns:
        The `TokenTags`: -1 where the word's tag is none of the ten, where a token begins outside
        of all words (in white space) or has no character.

    Raises:
        UserError: begin and end are not one list of spans, words that overlap.

    >>> hello = Tagged("The dog", np.array([0, 4]), np.array([3, 7]), ("DT", "NN"), ("det", "ROOT"))
    >>> token_features(hello, [0, 2, 3, 4], [2, 3, 4, 7])
    TokenTags(pos=array([ 2,  2, -1,  0], dtype=int8), dep=array([ 2,  2, -1,  1], dtype=int8))
    """
    begin, end = np.asarray(begin), np.asarray(end)
    if begin.ndim != 1 or begin.shape != end.shape:
        raise UserError(f"tokens: begin {begin.shape} and end {end.shape} given, both [n] needed")
    word = word_of(begin, end, tagged.start, tagged.end)
    return TokenTags(_pick(tagged.pos, POS_TAGS, word), _pick(tagged.dep, DEPENDENCIES, word))


def check_cover(tagged: Tagged, text: str, story: int = 0) -> Tagged:
    """The tags, if they are those of this text and leave hardly any of it out.

    Args:
        tagged: the words and their tags. text: the story as the model reads it.
        story: its number, for the message.

    Raises:
        UserError: `tagged.text` is another text, the spans are no ascending spans within it, a tag
            is missing, or more than 1 % of the characters that are no white space lie outside of
            all words; it names the story and the first place where that is so.

    >>> hello = Tagged("The dog", np.array([0]), np.array([3]), ("DT",), ("det",))
    >>> check_cover(hello, "The dog", story=7)
    Traceback (most recent call last):
    ...
    jaxfeat.types.UserError: story 7: 3 of 6 characters lie in no tagged word, first 4..7: 'dog'
    """
    if tagged.text != text:
        pairs = zip(tagged.text, text)
        shared = min(len(tagged.text), len(text))
        at = next((n for n, (a, b) in enumerate(pairs) if a != b), shared)
        raise UserError(
            f"story {story}: the tags are those of another text, which differs from character "
            f"{at} on: {tagged.text[at : at + 20]!r} is tagged, the story has "
            f"{text[at : at + 20]!r}"
        )
    start, end = np.asarray(tagged.start), np.asarray(tagged.end)
    lengths = (len(start), len(end), len(tagged.pos), len(tagged.dep))
    if len(set(lengths)) > 1:
        told = ", ".join(f"{n} {name}" for n, name in zip(lengths, Tagged._fields[1:]))
        raise UserError(f"story {story}: one of each needed for a word: {told} given")
    before = np.concatenate([[0], end[:-1]])
    if (bad := (start < before) | (end < start) | (end > len(text))).any():
        n = int(np.argmax(bad))
        raise UserError(
            f"story {story}: word {n} lies at {start[n]}..{end[n]}, which overlaps the word "
            f"before or leaves the {len(text)} characters of the text"
        )
    solid = _solid(text)
    edges = np.zeros(len(text) + 1, np.int64)
    np.add.at(edges, start, 1)
    np.add.at(edges, end, -1)
    left = solid & (np.cumsum(edges)[:-1] == 0)
    if left.sum() > UNCOVERED * solid.sum():
        a = int(np.argmax(left))
        b = a + int(np.argmin(np.append(left[a:], False)))
        raise UserError(
            f"story {story}: {left.sum()} of {solid.sum()} characters lie in no tagged word, "
            f"first {a}..{b}: {text[a : min(b, a + 40)]!r}"
        )
    return tagged


def _solid(text: str) -> np.ndarray:
    """Which characters are no white space, `[len(text)]` booleans."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    kinds, place = np.unique(codes, return_inverse=True)  # some sixty a story: quicker than all
    return np.array([not chr(code).isspace() for code in kinds], bool)[place]


def _pick(tags: Sequence[str], known: Sequence[str], word: np.ndarray) -> np.ndarray:
    """The number within `known` of each token's tag, -1 for another tag and for no word."""
    number = {tag: n for n, tag in enumerate(known)}
    numbers = np.array([*(number.get(tag, -1) for tag in tags), -1], np.int8)
    return numbers[word]  # word -1 picks the last
