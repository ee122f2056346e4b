"""Which sequences of words does a corpus of stories give, when only the frequent words have an id?

A word is a run of letters, lower-cased; every other character but space is a token of its own (the
tokens of arXiv 2601.19208). Ids go by frequency, then by alphabet.
"""

import re
from array import array
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from jaxfeat.types import UserError, check_whole

UNKNOWN = "<unk>"  # no text gives this token: its three parts would be read one by one
HOW = ("auto", "stories", "windows")
LEAST = 1000  # sequences of whole stories below which "auto" takes windows
_RUNS = re.compile(r"[^\W\d_]+|\S")


class Words(NamedTuple):
    """Sequences of words.

    names: of the ids, `V`, the most frequent first, `UNKNOWN` last where there is one
    ids: `[N, T+1]` int32
    how: "stories" or "windows"; told: what was kept and left out, one line
    rare: stories with a word that has no id; short: other stories with fewer than T+1 tokens
    left: tokens at the ends of stories or of the stream that are in no sequence
    unknown: share of `UNKNOWN` among the ids; absent: names that never occur in the ids
    """

    names: tuple[str, ...]
    ids: np.ndarray
    how: str
    told: str
    rare: int
    short: int
    left: int
    unknown: float
    absent: int


class _Counted(NamedTuple):
    """A corpus whose ids go by frequency: story s is `ids[first[s]:first[s + 1]]`."""

    names: list[str]
    ids: np.ndarray
    first: np.ndarray


def split_words(text: str) -> list[str]:
    """The tokens of a text.

    >>> split_words("Tom's 2 dogs ran!")
    ['tom', "'", 's', '2', 'dogs', 'ran', '!']
    """
    return list(_tokens(text))


def word_sequences(
    stories: Sequence[str], vocab: int, length: int, *, how: str = "auto", least: int = LEAST
) -> Words:
    """Sequences of T+1 tokens out of stories, with at most V different ids.

    "stories": a story with a token outside the V most frequent is left out whole, as in the paper;
    each other one is cut from its start into as many whole sequences as it holds, and its end is
    left over. "windows": all but the V-1 most frequent tokens become `UNKNOWN` (none where V is all
    there are), and the stories in a row, without marks between them, are cut into sequences.

    Args:
        stories: texts. vocab: V, with `UNKNOWN`. length: T.
        how: "stories", "windows", or "auto": "stories" if it gives enough, else "windows".
        least: sequences that are enough.

    Raises:
        UserError: V above the number of distinct tokens, no story (for windows: not all together)
            as long as T+1, no such story without a rare word, an unknown `how`.

    >>> found = word_sequences(["The cat sat. The cat ran.", "A dog!"], 4, 2, how="windows")
    >>> found.names, found.ids.tolist()
    (('.', 'cat', 'the', '<unk>'), [[2, 1, 3], [0, 2, 1], [3, 0, 3]])
    """
    if how not in HOW:
        raise UserError(f"how: {how!r} is none of {', '.join(HOW)}")
    vocab, length = check_whole("vocab", vocab, 2), check_whole("length", length, 1)
    least = check_whole("least", least, 1)
    counted = _count(stories)
    if vocab > len(counted.names):
        there = len(counted.names)
        raise UserError(f"vocab: {vocab} given, the stories hold {there} distinct tokens")
    if how == "windows":
        return _windows(counted, vocab, length, "")
    found = _whole_stories(counted, vocab, length)
    if how == "auto" and len(found.ids) < least:
        return _windows(counted, vocab, length, f"; whole stories: {len(found.ids):,} sequences")
    if not len(found.ids):
        _refuse(counted, length, found)
    return found


def _tokens(text: str) -> Iterator[str]:
    """The tokens of a text, one by one."""
    for run in _RUNS.findall(text.lower()):
        if len(run) == 1 or run.isalpha():
            yield run
        else:  # signs such as ² count as word characters of the expression, but are no letters
            for letters, part in groupby(run, str.isalpha):
                signs = "".join(part)
                yield from [signs] if letters else signs


def _count(stories: Sequence[str]) -> _Counted:
    """Every token of the stories with an id by frequency, then alphabet."""
    if isinstance(stories, str) or not len(stories):
        raise UserError("stories: a list of at least one text needed")
    met: defaultdict[str, int] = defaultdict()
    met.default_factory = met.__len__  # a new token gets the next id
    flat, first = array("i"), [0]
    for story in stories:
        if not isinstance(story, str):
            raise UserError(f"stories: texts needed, {type(story).__name__} given")
        flat.extend(map(met.__getitem__, _tokens(story)))
        first.append(len(flat))
    if not flat:
        raise UserError("stories: no text holds a token")
    names, ids = list(met), np.array(flat, np.int32)
    counts = np.bincount(ids)
    order = sorted(range(len(names)), key=lambda i: (-counts[i], names[i]))
    rank = np.empty(len(names), np.int32)
    rank[order] = np.arange(len(names))
    return _Counted([names[i] for i in order], rank[ids], np.array(first, np.int64))


def _whole_stories(counted: _Counted, vocab: int, length: int) -> Words:
    """Sequences of the stories that hold no rare word; there may be none."""
    ids, first = counted.ids, counted.first
    before = np.concatenate([[0], np.cumsum(ids >= vocab)])
    pure = before[first[1:]] == before[first[:-1]]
    size = np.diff(first)
    count = np.where(pure, size // (length + 1), 0)
    place = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    start = np.repeat(first[:-1], count) + place * (length + 1)
    cut = ids[start[:, None] + np.arange(length + 1)]
    rare, short = int((~pure).sum()), int((pure & (count == 0)).sum())
    told = (
        f"{int((count > 0).sum()):,} of {len(size):,} whole stories give {_sized(cut, length)} of "
        f"the {vocab:,} most frequent tokens; {rare:,} with a rarer one and {short:,} short ones "
        "are left out"
    )
    left = int(size[pure].sum()) - cut.size
    return _words(tuple(counted.names[:vocab]), cut, "stories", told, rare, short, left)


def _windows(counted: _Counted, vocab: int, length: int, more: str) -> Words:
    """Sequences of all stories in a row, with `UNKNOWN`."""
    known = vocab if vocab == len(counted.names) else vocab - 1
    names = counted.names[:known] + [UNKNOWN] * (vocab - known)
    count = len(counted.ids) // (length + 1)
    if not count:
        raise UserError(
            f"length: {length} given, sequences have T+1 = {length + 1} tokens, all stories "
            f"together {len(counted.ids)}"
        )
    stream = np.minimum(counted.ids, vocab - 1)
    cut = stream[: count * (length + 1)].reshape(count, length + 1)
    unknown = float((cut >= known).mean())
    before = np.concatenate([[0], np.cumsum(counted.ids >= known)])
    rare = int((before[counted.first[1:]] > before[counted.first[:-1]]).sum())
    told = f"{len(counted.first) - 1:,} stories in a row are cut into {_sized(cut, length)}; "
    told += (
        "every token has an id"
        if known == vocab
        else f"all but the {known:,} most frequent tokens are {UNKNOWN}, {unknown:.1%} of all, in "
        f"{rare:,} stories"
    )
    left = len(counted.ids) - cut.size
    return _words(tuple(names), cut, "windows", told + more, rare, 0, left, unknown)


def _words(
    names: tuple[str, ...], cut: np.ndarray, how: str, told: str, rare: int, short: int, left: int,
    unknown: float = 0.0,
) -> Words:  # fmt: skip
    """The result, with what never occurs counted and told."""
    absent = len(names) - len(np.unique(cut))
    told = f"{how}: {told}" + (f"; {absent:,} tokens never occur" if absent else "")
    return Words(names, cut, how, told, rare, short, left, unknown, absent)


def _sized(cut: np.ndarray, length: int) -> str:
    """How many sequences of which length, in words."""
    return f"{len(cut):,} sequences of {length + 1:,} tokens"


def _refuse(counted: _Counted, length: int, found: Words) -> None:
    """Why whole stories give nothing."""
    longest = int(np.diff(counted.first).max())
    if longest < length + 1:
        raise UserError(
            f"length: {length} given, no story has T+1 = {length + 1} tokens, the longest {longest}"
        )
    raise UserError(
        f"vocab: {len(found.names)} given, no story of at least {length + 1} tokens is made of so "
        'few; how="windows" keeps them all'
    )
