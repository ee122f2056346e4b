"""Where in its story does each token of a corpus stand, and to which word does it belong?

A corpus becomes one flat array of ids, so that windows are drawn on the device by an index alone.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxfeat.data.text import stories_digest
from jaxfeat.io.arrays import load_arrays, save_arrays
from jaxfeat.io.tokenizer import end_id, tokenizer_digest
from jaxfeat.types import UserError, check_tokens

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FORMAT = 1  # of the cache files: raise it with every change to what they hold
BATCH = 1 << 20  # characters that are encoded at once
_BLANK = np.array([chr(c).isspace() for c in range(0x3002)])  # no space lies beyond U+3000


class Tokens(NamedTuple):
    """A corpus as tokens: story s is `ids[first[s]:first[s + 1]]`, its last token the end.

    ids, begin, end are `[n]` int32; begin and end are the character offsets of a token within its
    story, without the spaces around it (a token of spaces, or the end, has an empty span). Tokens
    that hold a part of a character have that character's span. first is `[S + 1]` int64. vocab
    is the number of tokens that the tokenizer has, tokenizer its digest.
    """

    ids: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    first: np.ndarray
    vocab: int
    tokenizer: str


def encode(
    stories: list[str],
    tokenizer: "Tokenizer",
    cache: str | os.PathLike | None = None,
    digest: str = "",
) -> Tokens:
    """The tokens of the stories, each followed by one end token.

    The end token's text inside a story is encoded as plain characters: only a story's end is one.

    Args:
        stories: texts, at least one. tokenizer: one with an end token.
        cache: a folder that keeps the result for the next call with the same stories and
            tokenizer, in this process or another; None keeps nothing.
        digest: of the data that the stories come from. It joins the key of the cache; the
            stories themselves always do.

    Raises:
        UserError: no story, no end token, an id beyond the vocabulary, a folder that cannot be
            written.
    """
    if not stories or isinstance(stories, str):
        raise UserError("tokens: a list of at least one story needed")
    if cache is None:
        return _encode(stories, tokenizer)
    key = _cache_key(stories, tokenizer, digest)
    file = Path(cache).expanduser() / f"{key}.npz"
    tokens = _cached(file, key, len(stories))
    if tokens is None:
        tokens = _encode(stories, tokenizer)
        save_arrays(file, {**tokens._asdict(), "key": key})
    return tokens


def word_of(tokens_begin: Any, tokens_end: Any, start: Any, end: Any) -> np.ndarray:
    """The word that each token of a story belongs to: the one that holds its first character.

    Args:
        tokens_begin, tokens_end: `[n]` character offsets, as in `Tokens`.
        start, end: `[W]` character offsets of the words, ascending and without overlap.

    Returns:
        `[n]` int32, indices of words; -1 where a token is in none or has an empty span.

    Raises:
        UserError: words that overlap or do not ascend.

    >>> word_of([0, 3, 6, 7], [3, 5, 7, 7], [0, 6], [5, 7]).tolist()
    [0, 0, 1, -1]
    """
    begin, stop = np.asarray(tokens_begin), np.asarray(tokens_end)
    start, end = np.asarray(start, np.int64), np.asarray(end, np.int64)
    if begin.shape != stop.shape:
        raise UserError("tokens: as many begins as ends needed")
    if start.shape != end.shape or (start > end).any() or (end[:-1] > start[1:]).any():
        raise UserError("words: their spans must ascend and not overlap")
    if not len(start):
        return np.full(len(begin), -1, np.int32)
    word = np.searchsorted(start, begin, side="right") - 1
    inside = (word >= 0) & (begin < end[word]) & (stop > begin)
    return np.where(inside, word, -1).astype(np.int32)


def _cache_key(stories: list[str], tokenizer: "Tokenizer", digest: str) -> str:
    """SHA-256 of all that the tokens depend on."""
    import tokenizers

    settings = {
        "format": FORMAT,
        "library": tokenizers.__version__,
        "end": end_id(tokenizer),
        "tokenizer": tokenizer_digest(tokenizer),
        "data": digest,
        "stories": stories_digest(stories),
    }
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def _cached(file: Path, key: str, stories: int) -> Tokens | None:
    """The tokens of a whole cache file of this key, else None."""
    try:
        arrays = load_arrays(file)
        if str(arrays.pop("key")) != key:
            return None
        vocab, name = int(arrays.pop("vocab")), str(arrays.pop("tokenizer"))
        tokens = Tokens(**arrays, vocab=vocab, tokenizer=name)
        check_tokens(tokens.ids, vocab)
    except Exception:  # absent, cut short, damaged: whatever it is, the file is made anew
        return None
    n, kinds = len(tokens.ids), [x.dtype for x in tokens[:4]]
    same = [len(tokens.begin), len(tokens.end), int(tokens.first[-1])] == [n] * 3
    whole = same and len(tokens.first) == stories + 1
    return tokens if whole and kinds == [np.int32] * 3 + [np.int64] else None


def _encode(stories: list[str], tokenizer: "Tokenizer") -> Tokens:
    """The tokens of the stories, batch by batch on all cores."""
    from tokenizers import Tokenizer

    finish, vocab = end_id(tokenizer), tokenizer.get_vocab_size()
    plain = Tokenizer.from_str(tokenizer.to_str())  # a copy: the caller's settings stay
    plain.no_truncation()
    plain.no_padding()
    plain.encode_special_tokens = True
    flat, lengths = [], []
    for batch in _batches(stories):
        found = plain.encode_batch(batch, add_special_tokens=False)
        count = np.array([len(one) for one in found], np.int64)
        size = np.array([len(text) for text in batch], np.int64)
        last = np.cumsum(count + 1) - 1  # where the ends stand
        total = int(last[-1]) + 1
        inner = np.ones(total, bool)
        inner[last] = False
        ids = np.full(total, finish, np.int32)
        ids[inner] = np.fromiter(chain.from_iterable(one.ids for one in found), np.int32)
        pairs = chain.from_iterable(chain.from_iterable(one.offsets for one in found))
        spans = np.repeat(size, count + 1)[:, None].repeat(2, axis=1)  # the end's: text's end
        spans[inner] = np.fromiter(pairs, np.int64, 2 * (total - len(batch))).reshape(-1, 2)
        shift = np.repeat(np.cumsum(size) - size, count + 1)  # of the story within the batch
        begin, end = _without_spaces("".join(batch), *(spans + shift[:, None]).T)
        flat.append((ids, (begin - shift).astype(np.int32), (end - shift).astype(np.int32)))
        lengths.append(count + 1)
    first = np.concatenate([[0], np.cumsum(np.concatenate(lengths))]).astype(np.int64)
    ids, begin, end = (np.concatenate(parts) for parts in zip(*flat))
    check_tokens(ids, vocab, "tokens of the stories")
    return Tokens(ids, begin, end, first, vocab, tokenizer_digest(tokenizer))


def _batches(stories: list[str]) -> Iterator[list[str]]:
    """Consecutive stories of about `BATCH` characters together."""
    batch, size = [], 0
    for story in stories:
        batch.append(story)
        size += len(story)
        if size >= BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _without_spaces(text: str, begin: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Spans `[n]` without the spaces at their sides; those of spaces only are empty, at their end.

    >>> _without_spaces("a  b ", np.array([0, 1, 2]), np.array([1, 3, 5]))
    (array([0, 3, 3]), array([1, 3, 4]))
    """
    code = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    blank = _BLANK[np.minimum(code, len(_BLANK) - 1)]
    at = np.arange(len(code) + 1)
    ahead = np.where(np.append(blank, False), len(code), at)  # the next character that is no space
    ahead = np.minimum.accumulate(ahead[::-1])[::-1]
    behind = np.maximum.accumulate(np.where(np.insert(blank, 0, True), 0, at))  # and the one before
    begin = np.minimum(ahead[begin], end)
    return begin, np.maximum(behind[end], begin)
