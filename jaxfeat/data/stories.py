"""Which little stories does a small model learn from, and what is true in them?

A story introduces two to four characters, announces its number of parts, tells one episode for each
(a paragraph that opens with its ordinal) and ends after the last. Most episodes hold a question
whose answer stands in the same episode, within a window of some fifty words: in a `two_hop` one it
follows from two facts (who has a thing, where who is), in a `recall` one from the only word of its
kind. Every word carries its exact tags, because it comes out of a template that does.
"""

from typing import NamedTuple

import numpy as np

from jaxfeat.data import story_questions as questions
from jaxfeat.data import story_sentences as sentences
from jaxfeat.data import story_words as lexicon
from jaxfeat.data.story_luck import Bound, Luck, choose, fresh, make_luck, phrase, say, two
from jaxfeat.data.story_notation import Template, word
from jaxfeat.data.story_text import Line, Story, render
from jaxfeat.types import check_whole

MOST_WORDS = 50  # of an episode that gets one more sentence, punctuation included


class _Plan(NamedTuple):
    """What holds for all of a story; `taken` are the things and places that it has used up."""

    cast: list[tuple[str, str]]  # name, he or she
    parts: int
    unit: tuple[str, ...]
    taken: set[str]


def make_story(seed: int, number: int) -> Story:
    """Story `number` of a corpus; it depends on (seed, number) alone.

    Args:
        seed: of the corpus, 0 or more.
        number: of the story, 0 or more.

    Returns:
        The text (100 to 400 words, 250 on average, punctuation included) with its tags, questions
        and facts.

    Raises:
        UserError: a negative or broken number.

    >>> story = make_story(0, 0)
    >>> story.tagged.text == make_stories(0, 3)[0].tagged.text, len(story.tagged.pos) > 80
    (True, True)
    """
    check_whole("seed", seed, 0)
    check_whole("number", number, 0)
    luck = make_luck(np.random.default_rng((seed, number)))
    cast = _cast(luck)
    parts = 2 + int(luck.roll() * 5)
    plan = _Plan(cast, parts, choose(lexicon.UNITS, luck), set())
    middle = [_episode(plan, part, luck) for part in range(1, parts + 1)]
    return render([_opening(plan, luck), *middle, _ending(plan, luck)])


def make_stories(seed: int, count: int, first: int = 0) -> list[Story]:
    """Stories `first` to `first + count - 1` of a corpus.

    Args:
        seed: of the corpus.
        count: how many, 0 or more.
        first: number of the first.

    Returns:
        As `make_story` gives them one by one.

    Raises:
        UserError: a negative or broken number.

    >>> [len(make_stories(0, count)) for count in (0, 2)]
    [0, 2]
    """
    check_whole("count", count, 0)
    check_whole("first", first, 0)
    return [make_story(seed, number) for number in range(first, first + count)]


def _cast(luck: Luck) -> list[tuple[str, str]]:
    """Two to four characters with different names."""
    cast: dict[str, str] = {}
    count = 2 + int(luck.roll() * 3)
    while len(cast) < count:
        he = "he" if luck.roll() < 0.5 else "she"
        cast[choose(lexicon.HE_NAMES if he == "he" else lexicon.SHE_NAMES, luck)] = he
    return list(cast.items())


def _bind(plan: _Plan, luck: Luck) -> Bound:
    """Two acting characters `a` and `b`, who asks, and the words for the parts of the story."""
    (a, he), (b, _) = acting = two(plan.cast, luck)
    others = [name for name, _ in plan.cast if (name, _) not in acting]
    asker = word(choose(others, luck), "NNP") if others else word("they", "PRP")
    his, him = ("his", "him") if he == "he" else ("her", "her")
    singular, plural, preposition = plan.unit
    return {
        "a": word(a, "NNP"),
        "b": word(b, "NNP"),
        "asker": asker,
        "he": word(he, "PRP"),
        "his": word(his, "PRP$"),
        "him": word(him, "PRP"),
        "unit": word(singular, "NN"),
        "units": word(plural, "NNS"),
        "uprep": word(preposition, "IN"),
        "count": word(lexicon.COUNTS[plan.parts - 1], "CD"),
    }


def _opening(plan: _Plan, luck: Luck) -> list[Line]:
    """Who the story is about, and how many parts it has."""
    bound = _bind(plan, luck)
    for i, (name, he) in enumerate(plan.cast):
        own = lexicon.HE_KINDS if he == "he" else lexicon.SHE_KINDS
        kind = choose(own if luck.roll() < 0.4 else lexicon.EITHER_KINDS, luck)
        about = {"name": word(name, "NNP"), "kind": word(kind, "NN")}
        bound[f"p{i + 1}"] = phrase(choose(sentences.INTRODUCTIONS, luck), about, luck)
    bound["people"] = sentences.PEOPLE[len(plan.cast)]
    lines = say(choose(sentences.OPENINGS, luck), bound, luck)
    if luck.roll() < 0.6:
        lines += say(choose(sentences.FRIENDS, luck), bound, luck)
    return lines + say(choose(sentences.ANNOUNCEMENTS, luck), bound, luck)


def _ending(plan: _Plan, luck: Luck) -> list[Line]:
    """The parts are over; a moral; farewell."""
    bound = _bind(plan, luck)
    lines = say(choose(sentences.ENDINGS, luck), bound, luck)
    if luck.roll() < 0.8:
        lines += say(choose(sentences.MORALS, luck), bound, luck)
    return lines + say(choose(sentences.FAREWELLS, luck), bound, luck)


def _episode(plan: _Plan, part: int, luck: Luck) -> list[Line]:
    """One part: its ordinal, its facts and its question, filled up with other sentences."""
    bound = _bind(plan, luck)
    bound["ord"] = word(lexicon.ORDINALS[part - 1], "JJ")
    last = part == plan.parts and luck.roll() < 0.5
    openers = sentences.LAST_OPENERS if last else sentences.OPENERS
    kind = luck.roll()
    if kind < 0.55:
        blocks = _two_hop(plan, bound, luck)
    else:
        topic = choose(tuple(questions.RECALL), luck) if kind < 0.9 else ""
        blocks = _recall(topic, plan, bound, luck) if topic else []
        place = int(luck.roll() * (len(blocks) + 1))
        if luck.roll() < 0.6:
            blocks.insert(place, _aside(topic, plan, bound, luck))
    size = sum(map(_size, blocks))
    opener = say(choose(openers, luck), bound, luck)
    while size + _size(opener) > MOST_WORDS + 5 and _size(opener) > 9:
        opener = say(choose(openers, luck), bound, luck)
    closing: list[Line] = []
    left = plan.parts - part
    if left and luck.roll() < 0.4 and size + _size(opener) < MOST_WORDS - 4:
        bound["left"] = word(lexicon.COUNTS[left - 1], "CD")
        bound["unit_left"] = bound["unit"] if left == 1 else bound["units"]
        closing = say(choose(sentences.REMAINING, luck), bound, luck)
    blocks = [opener, *blocks, closing]
    size = sum(map(_size, blocks))
    while True:
        more = say(choose(sentences.SENTENCES, luck), bound, luck)
        size += _size(more)
        if size > MOST_WORDS:
            break
        blocks.insert(1 + int(luck.roll() * (len(blocks) - 1)), more)
    return [line for block in blocks for line in block]


def _size(lines: list[Line]) -> int:
    """Words of some sentences, punctuation included."""
    return sum(len(line.words) for line in lines)


def _two_hop(plan: _Plan, bound: Bound, luck: Luck) -> list[list[Line]]:
    """Two characters with a thing and a place each, told in any order; then a question."""
    names = [bound["a"][0].text, bound["b"][0].text]
    things = [fresh(lexicon.THINGS, plan.taken, luck) for _ in names]
    preposition, places = _places(plan, luck)
    blocks = []
    groups = [("has", things), ("at", places)]
    for relation, objects in groups if luck.roll() < 0.5 else groups[::-1]:
        clauses = []
        for i in two((0, 1), luck):
            clauses.append(_fact(relation, names[i], objects[i], preposition, luck))
        blocks.append(_pair(clauses, bound, luck))
    asked = int(luck.roll() * 2)
    thing, place = things[asked], places[asked]
    where = luck.roll() < 0.6
    template = choose(questions.WHERE if where else questions.WHAT, luck)
    about = {
        **bound,
        "thing": word(thing, "NN"),
        "place": word(place, "NN"),
        "loc": word(preposition, "IN"),
    }
    answer, options = (place, places) if where else (thing, things)
    ask = ("two_hop", answer, tuple(sorted(options)))
    blocks.append(say(template, about, luck, (("where", thing, place),), ask))
    return blocks


def _places(plan: _Plan, luck: Luck) -> tuple[str, list[str]]:
    """Two places that take the same preposition, so that it does not tell them apart."""
    every = [(prep, place) for prep, places in lexicon.PLACES.items() for place in places]
    preposition = choose(every, luck)[0]
    options = lexicon.PLACES[preposition]
    return preposition, [fresh(options, plan.taken, luck) for _ in range(2)]


def _fact(
    relation: str, name: str, thing: str, preposition: str, luck: Luck
) -> tuple[Template, tuple[str, str, str]]:
    """A clause that states a fact, and the fact."""
    about = {
        "who": word(name, "NNP"),
        "thing": word(thing, "NN"),
        "place": word(thing, "NN"),
        "loc": word(preposition, "IN"),
    }
    template = choose(questions.HAS if relation == "has" else questions.AT, luck)
    return phrase(template, about, luck), (relation, name, thing)


def _pair(
    clauses: list[tuple[Template, tuple[str, str, str]]], bound: Bound, luck: Luck
) -> list[Line]:
    """Two clauses in one or two sentences, each with the facts that it states."""
    about = {**bound, "c1": clauses[0][0], "c2": clauses[1][0]}
    lines = say(choose(questions.PAIRS, luck), about, luck)
    facts = [fact for _, fact in clauses]
    if len(lines) == 1:
        return [Line(lines[0].words, tuple(facts))]
    return [Line(line.words, (fact,)) for line, fact in zip(lines, facts)]


def _aside(topic: str, plan: _Plan, bound: Bound, luck: Luck) -> list[Line]:
    """A fact that nobody asks for."""
    name = bound["a"][0].text
    if topic != "find" and luck.roll() < 0.5:
        clause = _fact("has", name, fresh(lexicon.THINGS, plan.taken, luck), "", luck)
    else:
        preposition, (place, _) = _places(plan, luck)
        clause = _fact("at", name, place, preposition, luck)
    return say(questions.ALONE, {**bound, "c1": clause[0]}, luck, (clause[1],))


def _recall(topic: str, plan: _Plan, bound: Bound, luck: Luck) -> list[list[Line]]:
    """A word of a kind that the episode has only once, and a sentence that needs it again."""
    options, pos = TOPICS[topic]
    answer = fresh(options, plan.taken, luck) if topic == "find" else choose(options, luck)
    bound[topic] = word(answer, "NNS" if answer in PLURAL_FOODS else pos)
    if topic in ("colour", "number"):
        name, nouns, pos = COMPANIONS[topic]
        bound[name] = word(choose(nouns, luck), pos)
    first, again = (choose(templates, luck) for templates in questions.RECALL[topic])
    said = say(first, bound, luck)
    return [said, say(again, bound, luck, ask=("recall", answer, options))]


TOPICS = {
    "weather": (tuple(sorted(lexicon.WEATHERS)), "JJ"),
    "colour": (tuple(sorted(lexicon.COLOURS)), "JJ"),
    "food": (tuple(sorted(lexicon.FOODS + lexicon.FOODS_PLURAL)), "NN"),
    "animal": (tuple(sorted(lexicon.ANIMALS)), "NN"),
    "feeling": (tuple(sorted(lexicon.FEELINGS)), "JJ"),
    "number": (tuple(sorted(lexicon.NUMBERS)), "CD"),
    "find": (tuple(sorted(lexicon.THINGS)), "NN"),
}
COMPANIONS = {
    "colour": ("coloured", lexicon.COLOURED, "NN"),
    "number": ("counted", lexicon.COUNTED, "NNS"),
}
PLURAL_FOODS = frozenset(lexicon.FOODS_PLURAL)
