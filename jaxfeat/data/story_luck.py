"""How is a template filled with words by chance?"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from jaxfeat.data import story_sentences as sentences
from jaxfeat.data.story_notation import Item, Template
from jaxfeat.data.story_text import Line

Bound = dict[str, Template]


class Luck(NamedTuple):
    """The chances of one story: `roll` gives a number in [0, 1), `pick` a filling of a role."""

    roll: Callable[[], float]
    pick: Callable[[str], Template]


def make_luck(generator: np.random.Generator) -> Luck:
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

    return Luck(roll, pick)


def choose(options: tuple | list, luck: Luck):
    """One of the options, each as likely."""
    return options[int(luck.roll() * len(options))]


def two(options: tuple | list, luck: Luck) -> list:
    """Two different options in a random order."""
    i = int(luck.roll() * len(options))
    j = int(luck.roll() * (len(options) - 1))
    return [options[i], options[j + (j >= i)]]


def fresh(options: tuple[str, ...], taken: set[str], luck: Luck) -> str:
    """An option that the story has not used yet; from now on it has."""
    left = [option for option in options if option not in taken]
    choice = choose(left, luck)
    taken.add(choice)
    return choice


def _expand(items: Template, label: str, bound: Bound, luck: Luck, out: list[Item]) -> None:
    """Append the words of a template whose head gets the label."""
    for item in items:
        dep = label if item.dep == "*" else item.dep
        if item.slot:
            _expand(bound.get(item.text) or luck.pick(item.text), dep, bound, luck, out)
        else:
            out.append(item if dep is item.dep else Item(item.text, item.pos, dep))


def phrase(items: Template, bound: Bound, luck: Luck) -> Template:
    """The words of a template whose head waits for its label."""
    out: list[Item] = []
    _expand(items, "*", bound, luck, out)
    return tuple(out)


def say(
    template: tuple[Template, ...],
    bound: Bound,
    luck: Luck,
    facts: tuple[tuple[str, str, str], ...] = (),
    ask: tuple[str, str, tuple[str, ...]] | None = None,
) -> list[Line]:
    """The sentences of a template; the last one completes the facts and the question."""
    lines = []
    for sentence in template:
        out: list[Item] = []
        _expand(sentence, "ROOT", bound, luck, out)
        lines.append(Line(tuple(out)))
    lines[-1] = Line(lines[-1].words, facts, ask)
    return lines
