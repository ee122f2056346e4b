"""Does a continuation of a little story keep to its characters, its facts and its order?

The recogniser is made of the very templates that the stories are: on a generated text it finds
exactly the facts that the generator put there. Facts hold for one episode, that is one paragraph.
"""

import functools
import re
from typing import NamedTuple

from jaxfeat.data import story_questions as questions
from jaxfeat.data import story_sentences as sentences
from jaxfeat.data import story_words as lexicon
from jaxfeat.data.story_notation import Template
from jaxfeat.data.story_text import NO_SPACE_BEFORE, Fact, Story
from jaxfeat.types import check_whole


class Coherence(NamedTuple):
    """Counts over one continuation: how many of each kind it has, and how many are right.

    `names`: character names, each occurrence; known if introduced before. `bindings`: statements
    who has what, who is where, or where a thing is. `orders`: ordinals of episodes.
    """

    known_names: int
    names: int
    right_bindings: int
    bindings: int
    right_order: int
    orders: int


def check_continuation(story: Story, upto: int, text: str) -> Coherence:
    """Count what a continuation says and how much of it agrees with the story so far.

    A statement belongs to the continuation if it is completed there. The first thing and the first
    place that an episode gives to a character are new facts and right; another thing or place for
    the same character, or a second owner of a thing, is wrong. Where a thing is must follow from
    its owner's place in the episode, else it is wrong. An ordinal is right if it follows the last
    one by one ("first", if there is none).

    Args:
        story: the story that the prompt comes from.
        upto: the prompt is the first `upto` characters of its text.
        text: what the model wrote after the prompt.

    Returns:
        The six counts.

    Raises:
        UserError: `upto` is not within the text.

    >>> from jaxfeat.data.stories import make_story
    >>> story = make_story(0, 0)
    >>> check_continuation(story, len(story.tagged.text), " On the first day, Tom sang.")
    Coherence(known_names=0, names=1, right_bindings=0, bindings=0, right_order=0, orders=1)
    """
    check_whole("upto", upto, 0, len(story.tagged.text))
    whole = story.tagged.text[:upto] + text
    known_names, names = _count_names(whole, upto)
    right_bindings, bindings = _count_bindings(read_facts(whole), upto)
    right_order, orders = _count_orders(whole, upto)
    return Coherence(known_names, names, right_bindings, bindings, right_order, orders)


def read_facts(text: str) -> tuple[Fact, ...]:
    """The facts that a text states, in its order.

    Args:
        text: a story or the beginning of one; paragraph 0 is its opening.

    Returns:
        On a generated text exactly `Story.facts`.

    >>> [fact[:3] for fact in read_facts("Mia took the old kite while in the barn sat Ben.")]
    [('has', 'Mia', 'kite'), ('at', 'Ben', 'barn')]
    """
    facts = []
    offset = 0
    for episode, paragraph in enumerate(text.split("\n")):
        for match in _patterns().statement.finditer(paragraph):
            relation, roles = _patterns().meanings[match.lastgroup or ""]
            spans = [match.span(f"{match.lastgroup}_{role}") for role in roles]
            subject, thing = (paragraph[i:j] for i, j in spans)
            start, end = min(spans)[0] + offset, max(spans)[1] + offset
            if subject in NAMES or relation == "where":
                facts.append(Fact(relation, subject, thing, episode, start, end))
        offset += len(paragraph) + 1
    return tuple(facts)


def _count_names(text: str, upto: int) -> tuple[int, int]:
    """How many names after `upto` were introduced, and how many there are."""
    introduced: dict[str, int] = {}
    for match in _patterns().introduction.finditer(text):
        introduced.setdefault(match.group(1), match.start(1))
    said = [match for match in _patterns().name.finditer(text) if match.end() > upto]
    known = [match for match in said if introduced.get(match.group(), len(text)) <= match.start()]
    return len(known), len(said)


def _count_bindings(facts: tuple[Fact, ...], upto: int) -> tuple[int, int]:
    """How many facts that end after `upto` agree with those before, and how many there are."""
    right = count = 0
    episode = -1
    thing_of: dict[str, str] = {}
    owner_of: dict[str, str] = {}
    place_of: dict[str, str] = {}
    for fact in facts:
        if fact.episode != episode:
            episode = fact.episode
            thing_of, owner_of, place_of = {}, {}, {}
        subject, thing = fact.subject, fact.object
        if fact.relation == "has":
            agrees = thing_of.get(subject, thing) == thing
            agrees = agrees and owner_of.get(thing, subject) == subject
            if agrees:
                thing_of[subject], owner_of[thing] = thing, subject
        elif fact.relation == "at":
            agrees = place_of.setdefault(subject, thing) == thing
        else:
            agrees = place_of.get(owner_of.get(subject, "")) == thing
        if fact.end > upto:
            count += 1
            right += agrees
    return right, count


def _count_orders(text: str, upto: int) -> tuple[int, int]:
    """How many ordinals after `upto` follow the last one by one, and how many there are."""
    right = count = 0
    last = -1
    for match in _patterns().ordinal.finditer(text):
        place = lexicon.ORDINALS.index(match.group())
        if match.end() > upto:
            count += 1
            right += place == last + 1
        last = place
    return right, count


def _any_of(words: tuple[str, ...]) -> str:
    """A pattern for one of the words, whole."""
    return f"(?:{'|'.join(words)})(?![A-Za-z])"


PLACE_WORDS = tuple(place for places in lexicon.PLACES.values() for place in places)
NAMES = frozenset(lexicon.HE_NAMES + lexicon.SHE_NAMES)
SLOTS = {
    "thing": _any_of(lexicon.THINGS),
    "place": _any_of(PLACE_WORDS),
    "loc": _any_of(tuple(lexicon.PLACES)),
    # Names by their capital, looked up afterwards: three times as fast as a list of all.
    "who": "[A-Z][a-z]+",
    "a": "[A-Z][a-z]+",
    "b": "[A-Z][a-z]+",
    "asker": "(?:[A-Z][a-z]+|they)",
}


def _pattern(template: tuple[Template, ...], prefix: str, roles: tuple[str, str]) -> str:
    """The regular expression of a template up to its last role; groups are named prefix_role."""
    pattern = upto_role = ""
    for sentence in template:
        begins = True
        gap = " " if pattern else ""
        for item in sentence:
            if not item.slot:
                words = re.escape('"' if item.pos in ("``", "''") else item.text)
            elif item.text in SLOTS:
                words = SLOTS[item.text]
            else:
                words = _any_of(tuple(filling[0].text for filling in sentences.ROLES[item.text]))
            if begins and item.pos != "``":
                begins = False
                if item.text == "asker" or item.text == "loc" or not item.slot:
                    words = _either_case(words)
            if item.slot and item.text in roles:
                words = f"(?P<{prefix}_{item.text}>{words})"
            pattern += ("" if item.pos in NO_SPACE_BEFORE or item.text == "n't" else gap) + words
            gap = "" if item.pos == "``" else " "
            if item.slot and item.text in roles:
                upto_role = pattern
    return f"(?P<{prefix}>{upto_role})"


def _either_case(words: str) -> str:
    """A pattern whose words may begin with a capital."""
    return re.sub(r"(?<![A-Za-z\[\-?!])[a-z](?=[a-z])", lambda m: f"[{m[0].upper()}{m[0]}]", words)


def _statements() -> tuple[re.Pattern[str], dict[str, tuple[str, tuple[str, str]]]]:
    """One pattern for all statements, and the relation and roles that each of its groups has."""
    patterns, meanings = [], {}
    kinds = [
        ("where", ("thing", "place"), questions.WHERE + questions.WHAT),
        ("has", ("who", "thing"), tuple((clause,) for clause in questions.HAS)),
        ("at", ("who", "place"), tuple((clause,) for clause in questions.AT)),
    ]
    for relation, roles, templates in kinds:
        for template in templates:
            prefix = f"s{len(patterns)}"
            patterns.append(_pattern(template, prefix, roles))
            meanings[prefix] = relation, roles
    return re.compile(r"(?<![A-Za-z])(?:" + "|".join(patterns) + ")"), meanings


class _Patterns(NamedTuple):
    """What a text is searched for, and what the groups of a statement mean."""

    statement: re.Pattern[str]
    meanings: dict[str, tuple[str, tuple[str, str]]]
    ordinal: re.Pattern[str]
    name: re.Pattern[str]
    introduction: re.Pattern[str]


@functools.cache
def _patterns() -> _Patterns:
    """All patterns, compiled on first use: that takes a sixth of a second."""
    names = _any_of(tuple(sorted(NAMES)))
    return _Patterns(
        *_statements(),
        ordinal=re.compile(rf"\b{_any_of(lexicon.ORDINALS)}"),
        name=re.compile(rf"\b{names}"),
        introduction=re.compile(rf"\b(?:named|called|whose name was) ({names})"),
    )
