"""Which little stories does a small model learn from, and what is true in them?

A story introduces two to four characters, announces its number of parts, tells one episode for each
(a paragraph that opens with its ordinal) and ends after the last. Most episodes hold a question
whose answer stands in the same episode, within a window of some fifty words: in a `two_hop` one it
follows from two facts (who has a thing, where who is), in a `recall` one from the only word of its
kind. Every word carries its exact tags, because it comes out of a template that does.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from jaxfeat.data import story_sentences as sentences
from jaxfeat.data import story_words as lexicon
from jaxfeat.data.story_notation import Item, Template, word
from jaxfeat.data.tagged import Tagged
from jaxfeat.types import check_whole

KINDS = ("recall", "two_hop")
MOST_WORDS = 50  # of an episode that gets one more sentence, punctuation included
VOWELS = frozenset("aeiou")
CONSONANT_SOUNDS = frozenset(("useful", "useless", "usual", "unique", "uniform", "one"))
NO_SPACE_BEFORE = frozenset((",", ".", "''", "POS"))

Bound = dict[str, Template]


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


class _Line(NamedTuple):
    """One sentence, with the facts and the question that its last words complete."""

    words: tuple[Item, ...]
    facts: tuple[tuple[str, str, str], ...] = ()
    ask: tuple[str, str, tuple[str, ...]] | None = None


class _Luck(NamedTuple):
    """The chances of one story: `roll` gives a number in [0, 1), `pick` a filling of a role."""

    roll: Callable[[], float]
    pick: Callable[[str], Template]


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
    luck = _make_luck(np.random.default_rng((seed, number)))
    cast = _cast(luck)
    parts = 2 + int(luck.roll() * 5)
    plan = _Plan(cast, parts, _choose(lexicon.UNITS, luck), set())
    middle = [_episode(plan, part, luck) for part in range(1, parts + 1)]
    return _render([_opening(plan, luck), *middle, _ending(plan, luck)])


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


def _make_luck(generator: np.random.Generator) -> _Luck:
    """Rolls drawn in blocks, which is ten times as fast as one by one; picks seldom repeat."""
    stock: list[float] = []
    used: set[int] = set()

    def roll() -> float:
        if not stock:
            stock.extend(generator.random(512).tolist())
        return stock.pop()

    def pick(role: str) -> Template:
        options = sentences.ROLES[role]
        choice = options[int(roll() * len(options))]
        for _ in range(2):
            if id(choice) not in used:
                break
            choice = options[int(roll() * len(options))]
        used.add(id(choice))
        return choice

    return _Luck(roll, pick)


def _choose(options: tuple | list, luck: _Luck):
    """One of the options, each as likely."""
    return options[int(luck.roll() * len(options))]


def _two(options: tuple | list, luck: _Luck) -> list:
    """Two different options in a random order."""
    i = int(luck.roll() * len(options))
    j = int(luck.roll() * (len(options) - 1))
    return [options[i], options[j + (j >= i)]]


def _fresh(options: tuple[str, ...], taken: set[str], luck: _Luck) -> str:
    """An option that the story has not used yet; from now on it has."""
    left = [option for option in options if option not in taken]
    choice = _choose(left, luck)
    taken.add(choice)
    return choice


def _expand(items: Template, label: str, bound: Bound, luck: _Luck, out: list[Item]) -> None:
    """Append the words of a template whose head gets the label."""
    for item in items:
        dep = label if item.dep == "*" else item.dep
        if item.slot:
            _expand(bound.get(item.text) or luck.pick(item.text), dep, bound, luck, out)
        else:
            out.append(item if dep is item.dep else Item(item.text, item.pos, dep))


def _phrase(items: Template, bound: Bound, luck: _Luck) -> Template:
    """The words of a template whose head waits for its label."""
    out: list[Item] = []
    _expand(items, "*", bound, luck, out)
    return tuple(out)


def _say(
    template: tuple[Template, ...],
    bound: Bound,
    luck: _Luck,
    facts: tuple[tuple[str, str, str], ...] = (),
    ask: tuple[str, str, tuple[str, ...]] | None = None,
) -> list[_Line]:
    """The sentences of a template; the last one completes the facts and the question."""
    lines = []
    for sentence in template:
        out: list[Item] = []
        _expand(sentence, "ROOT", bound, luck, out)
        lines.append(_Line(tuple(out)))
    lines[-1] = _Line(lines[-1].words, facts, ask)
    return lines


def _cast(luck: _Luck) -> list[tuple[str, str]]:
    """Two to four characters with different names."""
    cast: dict[str, str] = {}
    count = 2 + int(luck.roll() * 3)
    while len(cast) < count:
        he = "he" if luck.roll() < 0.5 else "she"
        cast[_choose(lexicon.HE_NAMES if he == "he" else lexicon.SHE_NAMES, luck)] = he
    return list(cast.items())


def _bind(plan: _Plan, luck: _Luck) -> Bound:
    """Two acting characters `a` and `b`, who asks, and the words for the parts of the story."""
    (a, he), (b, _) = acting = _two(plan.cast, luck)
    others = [name for name, _ in plan.cast if (name, _) not in acting]
    asker = word(_choose(others, luck), "NNP") if others else word("they", "PRP")
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


def _opening(plan: _Plan, luck: _Luck) -> list[_Line]:
    """Who the story is about, and how many parts it has."""
    bound = _bind(plan, luck)
    for i, (name, he) in enumerate(plan.cast):
        own = lexicon.HE_KINDS if he == "he" else lexicon.SHE_KINDS
        kind = _choose(own if luck.roll() < 0.4 else lexicon.EITHER_KINDS, luck)
        about = {"name": word(name, "NNP"), "kind": word(kind, "NN")}
        bound[f"p{i + 1}"] = _phrase(_choose(sentences.INTRODUCTIONS, luck), about, luck)
    bound["people"] = sentences.PEOPLE[len(plan.cast)]
    lines = _say(_choose(sentences.OPENINGS, luck), bound, luck)
    if luck.roll() < 0.6:
        lines += _say(_choose(sentences.FRIENDS, luck), bound, luck)
    return lines + _say(_choose(sentences.ANNOUNCEMENTS, luck), bound, luck)


def _ending(plan: _Plan, luck: _Luck) -> list[_Line]:
    """The parts are over; a moral; farewell."""
    bound = _bind(plan, luck)
    lines = _say(_choose(sentences.ENDINGS, luck), bound, luck)
    if luck.roll() < 0.8:
        lines += _say(_choose(sentences.MORALS, luck), bound, luck)
    return lines + _say(_choose(sentences.FAREWELLS, luck), bound, luck)


def _episode(plan: _Plan, part: int, luck: _Luck) -> list[_Line]:
    """One part: its ordinal, its facts and its question, filled up with other sentences."""
    bound = _bind(plan, luck)
    bound["ord"] = word(lexicon.ORDINALS[part - 1], "JJ")
    last = part == plan.parts and luck.roll() < 0.5
    openers = sentences.LAST_OPENERS if last else sentences.OPENERS
    kind = luck.roll()
    if kind < 0.55:
        blocks = _two_hop(plan, bound, luck)
    else:
        topic = _choose(tuple(sentences.RECALL), luck) if kind < 0.9 else ""
        blocks = _recall(topic, plan, bound, luck) if topic else []
        place = int(luck.roll() * (len(blocks) + 1))
        if luck.roll() < 0.6:
            blocks.insert(place, _aside(topic, plan, bound, luck))
    size = sum(map(_size, blocks))
    opener = _say(_choose(openers, luck), bound, luck)
    while size + _size(opener) > MOST_WORDS + 5 and _size(opener) > 9:
        opener = _say(_choose(openers, luck), bound, luck)
    closing: list[_Line] = []
    left = plan.parts - part
    if left and luck.roll() < 0.4 and size + _size(opener) < MOST_WORDS - 4:
        bound["left"] = word(lexicon.COUNTS[left - 1], "CD")
        bound["unit_left"] = bound["unit"] if left == 1 else bound["units"]
        closing = _say(_choose(sentences.REMAINING, luck), bound, luck)
    blocks = [opener, *blocks, closing]
    size = sum(map(_size, blocks))
    while True:
        more = _say(_choose(sentences.SENTENCES, luck), bound, luck)
        size += _size(more)
        if size > MOST_WORDS:
            break
        blocks.insert(1 + int(luck.roll() * (len(blocks) - 1)), more)
    return [line for block in blocks for line in block]


def _size(lines: list[_Line]) -> int:
    """Words of some sentences, punctuation included."""
    return sum(len(line.words) for line in lines)


def _two_hop(plan: _Plan, bound: Bound, luck: _Luck) -> list[list[_Line]]:
    """Two characters with a thing and a place each, told in any order; then a question."""
    names = [bound["a"][0].text, bound["b"][0].text]
    things = [_fresh(lexicon.THINGS, plan.taken, luck) for _ in names]
    preposition, places = _places(plan, luck)
    blocks = []
    groups = [("has", things), ("at", places)]
    for relation, objects in groups if luck.roll() < 0.5 else groups[::-1]:
        clauses = []
        for i in _two((0, 1), luck):
            clauses.append(_fact(relation, names[i], objects[i], preposition, luck))
        blocks.append(_pair(clauses, bound, luck))
    asked = int(luck.roll() * 2)
    thing, place = things[asked], places[asked]
    where = luck.roll() < 0.6
    template = _choose(sentences.WHERE if where else sentences.WHAT, luck)
    about = {
        **bound,
        "thing": word(thing, "NN"),
        "place": word(place, "NN"),
        "loc": word(preposition, "IN"),
    }
    answer, options = (place, places) if where else (thing, things)
    ask = ("two_hop", answer, tuple(sorted(options)))
    blocks.append(_say(template, about, luck, (("where", thing, place),), ask))
    return blocks


def _places(plan: _Plan, luck: _Luck) -> tuple[str, list[str]]:
    """Two places that take the same preposition, so that it does not tell them apart."""
    every = [(prep, place) for prep, places in lexicon.PLACES.items() for place in places]
    preposition = _choose(every, luck)[0]
    options = lexicon.PLACES[preposition]
    return preposition, [_fresh(options, plan.taken, luck) for _ in range(2)]


def _fact(
    relation: str, name: str, thing: str, preposition: str, luck: _Luck
) -> tuple[Template, tuple[str, str, str]]:
    """A clause that states a fact, and the fact."""
    about = {
        "who": word(name, "NNP"),
        "thing": word(thing, "NN"),
        "place": word(thing, "NN"),
        "loc": word(preposition, "IN"),
    }
    template = _choose(sentences.HAS if relation == "has" else sentences.AT, luck)
    return _phrase(template, about, luck), (relation, name, thing)


def _pair(
    clauses: list[tuple[Template, tuple[str, str, str]]], bound: Bound, luck: _Luck
) -> list[_Line]:
    """Two clauses in one or two sentences, each with the facts that it states."""
    about = {**bound, "c1": clauses[0][0], "c2": clauses[1][0]}
    lines = _say(_choose(sentences.PAIRS, luck), about, luck)
    facts = [fact for _, fact in clauses]
    if len(lines) == 1:
        return [_Line(lines[0].words, tuple(facts))]
    return [_Line(line.words, (fact,)) for line, fact in zip(lines, facts)]


def _aside(topic: str, plan: _Plan, bound: Bound, luck: _Luck) -> list[_Line]:
    """A fact that nobody asks for."""
    name = bound["a"][0].text
    if topic != "find" and luck.roll() < 0.5:
        clause = _fact("has", name, _fresh(lexicon.THINGS, plan.taken, luck), "", luck)
    else:
        preposition, (place, _) = _places(plan, luck)
        clause = _fact("at", name, place, preposition, luck)
    return _say(sentences.ALONE, {**bound, "c1": clause[0]}, luck, (clause[1],))


def _recall(topic: str, plan: _Plan, bound: Bound, luck: _Luck) -> list[list[_Line]]:
    """A word of a kind that the episode has only once, and a sentence that needs it again."""
    options, pos = TOPICS[topic]
    answer = _fresh(options, plan.taken, luck) if topic == "find" else _choose(options, luck)
    bound[topic] = word(answer, "NNS" if answer in PLURAL_FOODS else pos)
    if topic in ("colour", "number"):
        name, nouns, pos = COMPANIONS[topic]
        bound[name] = word(_choose(nouns, luck), pos)
    first, again = (_choose(templates, luck) for templates in sentences.RECALL[topic])
    said = _say(first, bound, luck)
    return [said, _say(again, bound, luck, ask=("recall", answer, options))]


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


def _render(paragraphs: list[list[_Line]]) -> Story:
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
