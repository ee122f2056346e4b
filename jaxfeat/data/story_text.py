"""How do sentences become the text of a story, with its spans, its facts and its questions?"""

from typing import NamedTuple

import numpy as np

from jaxfeat.data.story_notation import Item
from jaxfeat.data.tagged import Tagged

KINDS = ("recall", "two_hop")
VOWELS = frozenset("aeiou")
CONSONANT_SOUNDS = frozenset(("useful", "useless", "usual", "unique", "uniform", "one"))
NO_SPACE_BEFORE = frozenset((",", ".", "''", "POS"))


class Ask(NamedTuple):
    """A word of the text that follows from the episode so far.

    `kind` is one of `KINDS`; the answer begins at character `start` of the text; `options` are the
    words that could stand there, sorted: the two candidates of the episode (`two_hop`) or all words
    of the kind in the lexicon (`recall`).
    """

    kind: str
    start: int
    answer: str
    options: tuple[str, ...]


class Fact(NamedTuple):
    """A statement of the text, in characters `[start, end)` from its first name to its last.

    `relation`: "has" (a character, a thing), "at" (a character, a place) or "where" (a thing, a
    place; it follows from the other two). `episode`: the paragraph, 0 for the opening.
    """

    relation: str
    subject: str
    object: str
    episode: int
    start: int
    end: int


class Story(NamedTuple):
    """A text with its tags, its questions and its facts, each in the order of the text."""

    tagged: Tagged
    asks: tuple[Ask, ...]
    facts: tuple[Fact, ...]


class Line(NamedTuple):
    """One sentence, with the facts and the question that its last words complete."""

    words: tuple[Item, ...]
    facts: tuple[tuple[str, str, str], ...] = ()
    ask: tuple[str, str, tuple[str, ...]] | None = None


def render(paragraphs: list[list[Line]]) -> Story:
    """The text with its spans; places of facts and questions are looked up in their sentences."""
    pieces: list[str] = []
    start: list[int] = []
    end: list[int] = []
    words: list[Item] = []
    asks: list[Ask] = []
    facts: list[Fact] = []
    at = 0
    for episode, lines in enumerate(paragraphs):
        before = first = len(words)
        for line in lines:
            before, first = first, len(words)
            gap, capital = ("\n" if line is lines[0] else " ") if first else "", True
            for i, item in enumerate(line.words):
                text, pos, _, _ = item
                if text == "a" and pos == "DT":
                    following = line.words[i + 1].text
                    if following[0] in VOWELS and following not in CONSONANT_SOUNDS:
                        text = "an"
                elif pos == "``" or pos == "''":
                    text = '"'
                if pos == "``":
                    capital = True
                elif capital:
                    text, capital = text[0].upper() + text[1:], False
                if i and (pos in NO_SPACE_BEFORE or text == "n't" or text == "'s"):
                    gap = ""
                at += len(gap)
                start.append(at)
                at += len(text)
                end.append(at)
                pieces += (gap, text)
                gap = "" if pos == "``" else " "
            words += line.words
            for relation, subject, thing in line.facts:
                found = sorted(_last(words, name, before) for name in (subject, thing))
                spot = episode, start[found[0]], end[found[1]]
                facts.append(Fact(relation, subject, thing, *spot))
            if line.ask:
                kind, answer, options = line.ask
                asks.append(Ask(kind, start[_last(words, answer, before)], answer, options))
    spans = np.array(start, np.int32), np.array(end, np.int32)
    pos, dep = tuple(item.pos for item in words), tuple(item.dep for item in words)
    return Story(Tagged("".join(pieces), *spans, pos, dep), tuple(asks), tuple(facts))


def _last(words: list[Item], text: str, least: int) -> int:
    """Where a word stands last, not before `least`."""
    return next(i for i in range(len(words) - 1, least - 1, -1) if words[i].text == text)
