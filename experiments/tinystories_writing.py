"""What do the models write, and does it hold together?

Of generated stories names, bindings (who has what, who and what is where) and the order of parts
are checked exactly; of others, names by their capital letters. Repetition and variety are counted
in words of any text.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from experiments.tinystories_data import Data
from experiments.tinystories_numbers import Found
from jaxfeat.data.story_check import check_continuation
from jaxfeat.io.tokenizer import end_id

REPEATED = 4  # words of a stretch that counts as repeated


class Coherence(NamedTuple):
    """How a model's continuations hold together, by seed `[S]` each; NaN where there is nothing.

    names, bindings, orders: shares of the names known before, of statements that agree with the
    story, of parts in their order; bindings_said: statements a continuation. repeated: share of
    stretches of four words that stood in the same continuation before; distinct: share of different
    pairs of words among all that a model wrote.
    """

    names: np.ndarray
    bindings: np.ndarray
    orders: np.ndarray
    bindings_said: np.ndarray
    repeated: np.ndarray
    distinct: np.ndarray


def written(found: Found, name: str) -> list[list[str]]:
    """The continuations of a model, by seed; "truth" gives the stories' own, once."""
    data, prompts = found.setup.data, found.setup.exam.prompts
    if name == "truth":
        return [[_text(data, row) for row in prompts.truth]]
    if "written" not in found.arrays[name]:
        return [[] for _ in range(found.config.seeds)]
    return [[_text(data, row) for row in seed] for seed in found.arrays[name]["written"]]


def coherence(found: Found, name: str) -> Coherence:
    """Names, bindings, order, repetition and variety of a model's continuations."""
    rows = [_of_seed(found, texts) for texts in written(found, name)]
    return Coherence(*(np.array([row[n] for row in rows]) for n in range(6)))


def samples(found: Found, count: int) -> list[tuple[str, str, str, str]]:
    """Prompts with what follows in the story, and what both models of seed 0 write."""
    prompts, rows = found.setup.exam.prompts, []
    texts = [written(found, name)[0] for name in ("truth", "standard", "myopic")]
    for n in range(min(count, len(prompts.ids))):
        rows.append((_text(found.setup.data, prompts.ids[n]), *(t[n] for t in texts)))
    return rows


def _text(data: Data, ids: Sequence[int]) -> str:
    """The text up to the story's end; a marker at the beginning is left out."""
    marker = end_id(data.tokenizer)
    own = [int(i) for i in ids]
    own = own[1:] if own[:1] == [marker] else own
    return data.tokenizer.decode(own[: own.index(marker)] if marker in own else own)


def _of_seed(found: Found, texts: list[str]) -> tuple[float, ...]:
    """The six numbers of one seed's continuations."""
    prompts, data = found.setup.exam.prompts, found.setup.data
    counts = np.zeros(6)
    for text, s, upto in zip(texts, prompts.story.ravel(), prompts.upto.ravel()):
        if data.texts.generated is not None:
            counts += check_continuation(data.texts.generated[s], int(upto), text)
        else:
            before = data.texts.corpus.stories[s][: int(upto)]
            names = _names(text)
            known = set(re.findall(r"[A-Z][a-z]+", before))
            counts[:2] += sum(name in known for name in names), len(names)
    shares = [a / b if b else np.nan for a, b in counts.reshape(3, 2)]
    words = [re.findall(r"[\w']+|[.!?]", text.lower()) for text in texts]
    stretches = [_stretches(w, REPEATED) for w in words]
    again = sum(len(x) - len(set(x)) for x in stretches)
    pairs = [pair for w in words for pair in _stretches(w, 2)]
    over = lambda a, b: a / b if b else np.nan
    said = over(counts[3], len(texts)) if data.texts.generated is not None else np.nan
    repeated = over(again, sum(map(len, stretches)))
    return (*shares, said, repeated, over(len(set(pairs)), len(pairs)))


def _names(text: str) -> list[str]:
    """Words with a capital letter that begin no sentence."""
    return re.findall(r"(?<=[a-z,;] )[A-Z][a-z]+", text)


def _stretches(words: list[str], length: int) -> list[tuple[str, ...]]:
    """All stretches of so many words."""
    return list(zip(*(words[n:] for n in range(length))))
