"""Which words and tags does a CoNLL-U file give, and where do they stand in its text?

Universal Dependencies and ClearNLP (the labels that spaCy's English models give) are two schemes.
One table renames labels; it does not turn one kind of tree into the other, see `read_conllu`.
"""

import os
import re
from collections.abc import Iterable
from io import StringIO
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from jaxfeat.data.tagged import Tagged
from jaxfeat.types import UserError

CLEARNLP_OF_UD: dict[str, str] = {
    "root": "ROOT",
    # arguments of a predicate
    "nsubj": "nsubj",
    "nsubj:outer": "nsubj",
    "nsubj:pass": "nsubjpass",
    "csubj": "csubj",
    "csubj:outer": "csubj",
    "csubj:pass": "csubjpass",
    "obj": "dobj",
    "iobj": "dative",
    "expl": "expl",
    "ccomp": "ccomp",
    "xcomp": "xcomp",
    # nouns that carry a preposition, and those that stand without one
    "case": "prep",
    "obl": "pobj",
    "obl:agent": "pobj",
    "nmod": "pobj",
    "obl:unmarked": "npadvmod",
    "obl:npmod": "npadvmod",
    "obl:tmod": "npadvmod",
    "nmod:unmarked": "npadvmod",
    "nmod:npmod": "npadvmod",
    "nmod:tmod": "npadvmod",
    # inside a noun phrase
    "det": "det",
    "det:predet": "predet",
    "nmod:poss": "poss",
    "nmod:desc": "compound",
    "amod": "amod",
    "nummod": "nummod",
    "appos": "appos",
    "compound": "compound",
    "flat": "compound",
    "flat:name": "compound",
    "flat:foreign": "compound",
    "acl": "acl",
    "acl:relcl": "relcl",
    # the rest of a clause
    "advmod": "advmod",
    "advcl": "advcl",
    "advcl:relcl": "relcl",
    "aux": "aux",
    "aux:pass": "auxpass",
    "mark": "mark",
    "compound:prt": "prt",
    "cc": "cc",
    "cc:preconj": "preconj",
    "conj": "conj",
    "discourse": "intj",
    "parataxis": "parataxis",
    "punct": "punct",
    "dep": "dep",
}
# One UD label, two of ClearNLP: the Penn tag decides. "'s" is no preposition, "to go" has an aux.
CLEARNLP_BY_TAG: dict[tuple[str, str], str] = {("case", "POS"): "case", ("mark", "TO"): "aux"}

COLUMNS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")


class _Sentence(NamedTuple):
    """A sentence's text and words, and whether a document or a paragraph begins with it."""

    text: str
    spans: list[tuple[int, int]]
    pos: list[str]
    dep: list[str]
    opens_document: bool
    opens_paragraph: bool


def read_conllu(
    path: str | os.PathLike,
    *,
    by: Literal["document", "sentence"] = "document",
    labels: Literal["clearnlp", "ud"] = "clearnlp",
) -> list[Tagged]:
    """The words of a CoNLL-U file with their Penn tags (xpos) and dependency labels.

    A word is a line with a whole number as its id; empty nodes (8.1) are left out. The text of a
    sentence is its `# text` where that holds the forms in order with nothing but white space
    around them, otherwise the forms with a space between them but after `SpaceAfter=No`. The words
    of a multiword token (3-4) share out its characters: consecutive slices where their forms make
    up the token (do + n't), otherwise the first word has the whole of it and the others an empty
    span at its end (French du: de, le).

    The labels are renamed one by one by `CLEARNLP_OF_UD` (and `CLEARNLP_BY_TAG`); those that stand
    in neither keep their UD name. Renaming cannot change who heads whom: UD's root is the
    predicate, so in "she is a girl" the noun is ROOT and "is" keeps `cop`, where ClearNLP has the
    verb as ROOT and the noun as attr; content words head function words in UD, so a conjunct or a
    clause with a preposition or a copula may bear a label that ClearNLP gives another word;
    negations stay advmod (neg), a predicate complement stays xcomp (acomp, oprd), and names (flat)
    hang on their first word rather than the last.

    Args:
        path: a file in UTF-8, lines ending in LF or CRLF.
        by: one `Tagged` per "document" (from a `# newdoc` to the next; sentences are joined by one
            space, by an empty line before a `# newpar`) or per "sentence".
        labels: "clearnlp" renames the labels, "ud" leaves them as they stand.

    Returns:
        The documents or sentences, in order. A tag or label that is missing (`_`) is "".

    Raises:
        UserError: conllu is not installed, an unknown option, no such file, a file without a word,
            a binary file, a line that is not UTF-8 or has not ten columns, an id that is none or
            out of its order; it names the path and the line or sentence.
    """
    for name, value, valid in (
        ("by", by, ("document", "sentence")),
        ("labels", labels, ("clearnlp", "ud")),
    ):
        if value not in valid:
            raise UserError(f"{name}: {value!r} is none of {', '.join(valid)}")
    try:
        import conllu
        from conllu.exceptions import ParseException
    except ImportError:
        raise UserError("CoNLL-U files need conllu: pip install conllu") from None

    text = _read(path)
    sentences = []
    document = paragraph = False
    # columns that nobody reads here are not parsed: a fault in them is none of this file's
    unread = {name: lambda line, i: line[i] for name in ("feats", "head", "deps")}
    try:
        for tokens in conllu.parse_incr(StringIO(text), field_parsers=unread):
            kinds = {key.split()[0] for key in tokens.metadata}
            document |= "newdoc" in kinds
            paragraph |= "newpar" in kinds
            if any(isinstance(token["id"], int) for token in tokens):
                sentences.append(_sentence(tokens, labels, document, paragraph))
                document = paragraph = False
    except (ParseException, UserError) as error:
        raise UserError(f"{path}, sentence {len(sentences) + 1}: {error}") from None
    if not sentences:
        raise UserError(f"{path} holds no word: a CoNLL-U file has a line of ten columns for each")
    if by == "sentence":
        return [_join([sentence]) for sentence in sentences]
    begins = [0, *(n for n, s in enumerate(sentences) if n and s.opens_document)]
    ends = [*begins[1:], len(sentences)]
    return [_join(sentences[a:b]) for a, b in zip(begins, ends)]


def _read(path: str | os.PathLike) -> str:
    """The text of the file with LF line ends, every line known to have ten columns."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror})") from None
    if b"\0" in data:
        raise UserError(f"{path} is a binary file, text in CoNLL-U needed")
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1  # object: without a byte order mark
        raise UserError(f"{path}, line {line}: no UTF-8 (a binary file?)") from None
    for number, line in enumerate(text.split("\n"), 1):
        line = line.strip()
        named = re.match(r"# *global\.columns *=(.*)", line)
        if named and named[1].lower().split() != list(COLUMNS):
            raise UserError(f"{path}, line {number}: columns of its own, those of CoNLL-U needed")
        if not line or line.startswith("#"):
            continue
        columns = len(re.split(r"\t| {2,}", line))  # as conllu splits it
        if columns != len(COLUMNS):
            raise UserError(f"{path}, line {number}: {columns} columns, CoNLL-U has {len(COLUMNS)}")
        if not re.match(r"\d+([-.]\d+)?\s", line):
            raise UserError(f"{path}, line {number}: {line[:20]!r} begins with no id (1, 1-2, 1.1)")
    return text


def _sentence(tokens: Any, labels: str, document: bool, paragraph: bool) -> _Sentence:
    """One parsed sentence with its words placed in its text."""
    words = [token for token in tokens if isinstance(token["id"], int)]
    whole, inside = [], {}  # surface tokens; id of a word -> the multiword token it is a part of
    for token in tokens:
        kind = token["id"]
        if isinstance(kind, tuple) and kind[1] == "-":
            inside.update(dict.fromkeys(range(kind[0], kind[2] + 1), token))
            whole.append(token)
        elif isinstance(kind, int) and kind not in inside:
            whole.append(token)
    text = tokens.metadata.get("text") or ""
    places = _find([token["form"] for token in whole], text)
    if places is None:
        text, places = _build(whole)
    spans = []
    for token, (begin, end) in zip(whole, places):
        if isinstance(token["id"], int):
            spans.append((begin, end))
        else:
            parts = [word["form"] for word in words if inside.get(word["id"]) is token]
            spans += _share(parts, token["form"], begin)
    if [word["id"] for word in words] != list(range(1, len(spans) + 1)):
        raise UserError("the ids of its words are not 1, 2, 3, ... with each 1-2 before its 1")
    pos = [_value(word["xpos"]) for word in words]
    dep = [_value(word["deprel"]) for word in words]
    if labels == "clearnlp":
        dep = [_renamed(label, tag) for label, tag in zip(dep, pos)]
    return _Sentence(text, spans, pos, dep, document, paragraph)


def _find(forms: Iterable[str], text: str) -> list[tuple[int, int]] | None:
    """Where the forms stand in the text, None if anything but white space is left over.

    >>> _find(["I", "'m"], "I 'm "), _find(["I"], "I'm")
    ([(0, 1), (2, 4)], None)
    """
    spans, at = [], 0
    for form in forms:
        while at < len(text) and text[at].isspace() and not text.startswith(form, at):
            at += 1
        if not text.startswith(form, at):
            return None
        spans.append((at, at + len(form)))
        at += len(form)
    return None if text[at:].strip() else spans


def _build(tokens: list) -> tuple[str, list[tuple[int, int]]]:
    """The text that surface tokens make, and where they stand in it."""
    text, spans = "", []
    for token in tokens:
        spans.append((len(text), len(text) + len(token["form"])))
        glued = (token["misc"] or {}).get("SpaceAfter") == "No"
        text += token["form"] + ("" if glued else " ")
    return text[: spans[-1][1]], spans


def _share(parts: list[str], surface: str, begin: int) -> list[tuple[int, int]]:
    """The spans of the words of a multiword token that begins at `begin`.

    >>> _share(["do", "n't"], "Don't", 10), _share(["de", "le"], "du", 0)
    ([(10, 12), (12, 15)], [(0, 2), (2, 2)])
    """
    if not parts:
        return []
    end = begin + len(surface)
    made_up = sum(map(len, parts)) == len(surface)
    if not made_up or "".join(parts).lower() != surface.lower():
        return [(begin, end), *((end, end) for _ in parts[1:])]
    spans = []
    for part in parts:
        spans.append((begin, begin + len(part)))
        begin += len(part)
    return spans


def _value(field: str | None) -> str:
    """A column's value, "" for one that is missing."""
    return "" if field in (None, "_") else str(field)


def _renamed(label: str, tag: str) -> str:
    """The ClearNLP label of a UD label on a word with this Penn tag."""
    return CLEARNLP_BY_TAG.get((label, tag)) or CLEARNLP_OF_UD.get(label, label)


def _join(sentences: list[_Sentence]) -> Tagged:
    """One text out of sentences, an empty line before each paragraph."""
    text, starts, ends = [], [], []
    at = 0
    for number, sentence in enumerate(sentences):
        gap = "" if not number else "\n\n" if sentence.opens_paragraph else " "
        at += len(gap)
        starts += [at + start for start, _ in sentence.spans]
        ends += [at + end for _, end in sentence.spans]
        text += [gap, sentence.text]
        at += len(sentence.text)
    return Tagged(
        "".join(text),
        np.array(starts, np.int32),
        np.array(ends, np.int32),
        tuple(tag for sentence in sentences for tag in sentence.pos),
        tuple(label for sentence in sentences for label in sentence.dep),
    )
