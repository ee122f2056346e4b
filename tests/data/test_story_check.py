"""Does the check of a continuation find every fact, and every kind of mistake?"""

import re

import numpy as np
import pytest

from jaxfeat.data import stories
from jaxfeat.data import story_words as lexicon
from jaxfeat.data.story_check import check_continuation, read_facts
from jaxfeat.types import UserError

SAMPLE = stories.make_stories(23, 300)


def test_facts():
    """Read from the text are exactly the facts that the generator put there."""
    seen = set()
    for story in SAMPLE:
        assert read_facts(story.tagged.text) == story.facts
        seen |= {fact.relation for fact in story.facts}
        for fact in story.facts:
            said = story.tagged.text[fact.start : fact.end]
            assert fact.subject in said and fact.object in said and "\n" not in said
    assert seen == {"has", "at", "where"}


def test_true_continuation():
    """A story's own continuation is right throughout, wherever the prompt ends."""
    generator = np.random.default_rng(0)
    total = np.zeros(6, int)
    for story in SAMPLE:
        text = story.tagged.text
        for upto in (0, len(text), int(generator.integers(len(text)))):
            counts = check_continuation(story, upto, text[upto:])
            assert counts[0::2] == counts[1::2]
            total += counts
            if upto == 0:
                assert counts.bindings == len(story.facts)
                assert counts.orders == text.count("\n") - 1
    assert (total > 500).all()


def two_hop_asks():
    """Pairs of a story and a question of two hops."""
    return [(s, ask) for s in SAMPLE for ask in s.asks if ask.kind == "two_hop"]


def test_wrong_answer():
    """The other candidate as the answer is one wrong binding."""
    for story, ask in two_hop_asks():
        other = next(option for option in ask.options if option != ask.answer)
        right = check_continuation(story, ask.start, ask.answer)
        wrong = check_continuation(story, ask.start, other)
        assert (right.right_bindings, right.bindings) == (1, 1)
        assert (wrong.right_bindings, wrong.bindings) == (0, 1)


def test_wrong_facts():
    """A second thing, a second place, a second owner and an unfounded place are wrong."""
    story, ask = two_hop_asks()[0]
    episode = story.tagged.text.count("\n", 0, ask.start)
    facts = [f for f in story.facts if f.episode == episode]
    (name, thing), (other, _) = ((f.subject, f.object) for f in facts if f.relation == "has")
    place = next(f.object for f in facts if f.relation == "at" and f.subject == name)
    end = story.tagged.text.find("\n", ask.start)
    free = next(t for t in lexicon.THINGS if t not in story.tagged.text)
    elsewhere = next(p for p in lexicon.PLACES["in"] if p not in story.tagged.text)
    for text, right in (
        (f" {name} carried the {thing}.", 1),
        (f" {name} carried the {free}.", 0),
        (f" {other} carried the {thing}.", 0),
        (f" {name} went to the {place}.", 1),
        (f" {name} went to the {elsewhere}.", 0),
        (f" Where was the {thing} now? It was in the {place}.", 1),
        (f" Where was the {thing} now? It was in the {elsewhere}.", 0),
        (f" Where was the {free} now? It was in the {place}.", 0),
        (f"\nOn the next day, {name} took the {free} and {name} ran to the {elsewhere}.", 2),
    ):
        counts = check_continuation(story, end, text)
        assert counts.right_bindings == right and counts.bindings == max(1, right), text


def test_unknown_name():
    """A name that nobody introduced is not known, until a sentence introduces it."""
    story = SAMPLE[0]
    name = next(n for n in lexicon.SHE_NAMES if n not in story.tagged.text)
    known = re.search(r"(?:named|called|name was) (\w+)", story.tagged.text)[1]
    text = f" {name} laughed. {known} met a tiny fox named {name}. {name} laughed."
    counts = check_continuation(story, len(story.tagged.text), text)
    assert (counts.known_names, counts.names) == (3, 4)
    counts = check_continuation(story, 0, f"{known} laughed.")
    assert (counts.known_names, counts.names) == (0, 1)


def test_skipped_ordinal():
    """A skipped, a repeated or an unexpected first ordinal is wrong, once."""
    for story in SAMPLE:
        text = story.tagged.text
        upto = text.index("first")
        for ordinals, right in (
            ("first second third", 3),
            ("first third fourth", 2),
            ("first first second", 2),
            ("second third fourth", 2),
        ):
            words = "\nOn the ".join(f"{word} day, they slept." for word in ordinals.split())
            counts = check_continuation(story, upto, words)
            assert (counts.right_order, counts.orders) == (right, 3)


def test_refusal():
    """The prompt must lie within the story."""
    with pytest.raises(UserError, match="upto"):
        check_continuation(SAMPLE[0], len(SAMPLE[0].tagged.text) + 1, "")
