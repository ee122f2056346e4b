"""Which texts are code, mathematics or prose, and which windows of tokens do they give?

Without any path, code and prose come from the standard library of the Python that runs: its
sources without their docstrings, and the prose of its docstrings and reference topics, which is
technical prose. Mathematics has no such source: worked lines are generated then and named so.
"""

import hashlib
import importlib.util
import os
import platform
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxfeat.data.holdout import held_out
from jaxfeat.data.python_text import code_of, paragraphs_of, prose_of
from jaxfeat.data.worked_maths import PROBLEMS, worked_maths
from jaxfeat.types import UserError, check_tokens, check_whole

DOMAINS = ("code", "maths", "prose")
GROUPS = {"code": "formal", "maths": "formal", "prose": "prose"}
SUFFIXES = (".py", ".txt", ".md", ".tex")  # read in folders; a file named by itself always is
GENERATED = "generated:"  # how the source of a generated document begins
# Folders of the standard library that are not the library: what is installed, tests, copies.
LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idle_test", "_bundled"}

Paths = str | os.PathLike | Sequence[str | os.PathLike] | None
Piece = tuple[str, str]  # where a text comes from, and the text


class Document(NamedTuple):
    """A text, its domain out of `DOMAINS`, and where it comes from."""

    text: str
    domain: str
    source: str


class DomainCorpus(NamedTuple):
    """Documents in a fixed order, without copies.

    digest is the SHA-256 of their domains and texts; skipped counts the files that are no text (or
    no Python, though named so), repeated the documents left out as copies; generated names the
    domains that no person wrote.
    """

    documents: tuple[Document, ...]
    digest: str
    skipped: int
    repeated: int
    generated: tuple[str, ...]


class DomainWindows(NamedTuple):
    """Windows of T tokens: tokens `[n, T]` int32, each begun with the marker of a text's start.

    special `[n, T]`: true at tokens that are no text; domain `[n]` int32: number in `DOMAINS`;
    document `[n]` int32: number among the documents.
    """

    tokens: np.ndarray
    special: np.ndarray
    domain: np.ndarray
    document: np.ndarray


def read_domains(
    *,
    code: Paths = None,
    maths: Paths = None,
    prose: Paths = None,
    most: int = 400,
    chars: int = 20_000,
    least: int = 400,
    seed: int = 0,
) -> DomainCorpus:
    """Documents of the three domains.

    Files are taken in the order of a hash of their names, so that fewer documents are an even
    sample of more; a longer text is cut at line ends into several documents. Of a `.py` file,
    code and mathematics get the source without docstrings, prose gets the docstrings' prose.

    Args:
        code, maths, prose: a file or folder or several; None is the default named above.
        most: documents of a domain at most. chars: characters of a document at most. least: at
            least, shorter ones are left out (0 keeps every text).
        seed: of the generated mathematics.

    Raises:
        UserError: nothing there, or no text in it: a domain is never empty.
    """
    check_whole("most", most, 1)
    check_whole("least", least, 0)
    check_whole("chars", chars, max(least, 1))
    seen: set[bytes] = set()
    documents: list[Document] = []
    skipped, repeated = [0], 0
    for domain, paths in zip(DOMAINS, (code, maths, prose)):
        found: list[Document] = []
        for source, text in _pieces(domain, paths, skipped, seed, least):
            for part in _parts(text, chars):
                key = hashlib.sha256(part.encode("utf-8", "surrogatepass")).digest()
                repeated += key in seen
                if len(part) >= least and key not in seen:
                    found.append(Document(part, domain, source))
                seen.add(key)
            if len(found) >= most:
                break
        if not found:
            where = (
                paths if isinstance(paths, str | os.PathLike) else ", ".join(map(str, paths or ()))
            )
            told = f"no text of {least} characters at {where}" if paths else "no text"
            raise UserError(f"{domain}: {told}; give a file or folder of {', '.join(SUFFIXES)}")
        documents += found[:most]
    made = [
        d for d in DOMAINS if any(x.source.startswith(GENERATED) for x in documents if x[1] == d)
    ]
    return DomainCorpus(tuple(documents), _digest(documents), skipped[0], repeated, tuple(made))


def held_out_documents(documents: Sequence[Document], seed: int = 0) -> np.ndarray:
    """Which documents are kept from training, about one in eight: `[n]` booleans.

    A hash of the seed and the text decides, so that a document's side is the same in every corpus.
    """
    keys = (f"{seed}\n{x.text}".encode("utf-8", "surrogatepass") for x in documents)
    hashes = [int.from_bytes(hashlib.sha256(key).digest()[:4], "big") for key in keys]
    return np.asarray(held_out(np.array(hashes, np.uint32)), bool)


def domain_windows(
    documents: Sequence[Document],
    encode_text: Callable[[str], Sequence[int]],
    length: int,
    bos: int,
    per_domain: int,
    *,
    special: Sequence[int] = (),
    each: int = 4,
) -> DomainWindows:
    """The same number of windows of every domain that the documents have.

    A window is `bos` and then `length - 1` consecutive tokens of one document, which are evenly
    spread over it. A `bos` that the tokenizer itself puts before a text is taken off first, so
    that none is doubled.

    Args:
        encode_text: text -> token ids. length: T, tokens of a window, at least 2.
        per_domain: windows of a domain. special: further ids that are no text, besides `bos`.
        each: windows of a document at most.

    Raises:
        UserError: a domain has too few windows: the message tells how many.

    >>> w = domain_windows([Document("abcd", "prose", "x")], lambda t: [*t.encode()], 3, 0, 2)
    >>> w.tokens.tolist(), w.special[0].tolist()
    ([[0, 97, 98], [0, 99, 100]], [True, False, False])
    """
    size = check_whole("length", length, 2) - 1
    check_whole("per_domain", per_domain, 1)
    check_whole("each", each, 1)
    check_whole("bos", bos, 0)
    if not documents:
        raise UserError("documents: none given, at least one needed")
    tokens, domains, numbers = [], [], []
    for d, domain in enumerate(DOMAINS):
        mine = [n for n, x in enumerate(documents) if x.domain == domain]
        found: list[tuple[int, np.ndarray]] = []
        for n in mine:
            ids = np.asarray(encode_text(documents[n].text), np.int64).reshape(-1)
            ids = ids[np.cumsum(ids != bos) > 0]  # without those before the text
            blocks = ids[: len(ids) // size * size].reshape(-1, size)
            chosen = (
                np.unique(np.linspace(0, len(blocks) - 1, each).astype(int)) if len(blocks) else []
            )
            found += [(n, blocks[b]) for b in chosen]
            if len(found) >= per_domain:
                break
        if mine and len(found) < per_domain:
            raise UserError(
                f"per_domain: {per_domain} windows of {length} tokens wanted, {domain} has "
                f"{len(found)} in {len(mine)} documents (at most {each} of each)"
            )
        for n, block in found[:per_domain]:
            tokens.append(np.concatenate([[bos], block]))
            domains.append(d)
            numbers.append(n)
    whole = check_tokens(np.array(tokens), 2**31, "tokens of the documents").astype(np.int32)
    marked = np.isin(whole, [bos, *special])
    return DomainWindows(whole, marked, np.array(domains, np.int32), np.array(numbers, np.int32))


def _pieces(
    domain: str, paths: Paths, skipped: list[int], seed: int, least: int
) -> Iterator[Piece]:
    """The texts of a domain with their sources; files that are no text are counted."""
    if paths is None and domain == "maths":
        problems = max(PROBLEMS, least // 10)  # each of more than ten characters
        for n in range(2**31):  # without an end: the caller stops
            text = worked_maths(seed, n, problems)
            yield f"{GENERATED} worked lines, seed {seed}, number {n}", text
    if paths is None and domain == "prose":
        yield from _topics()
    files = _library() if paths is None else _files(domain, paths)
    for name, path in files:
        text = _read(path, domain)
        skipped[0] += text is None
        if text:
            yield name, text


def _topics() -> Iterator[Piece]:
    """The prose of Python's reference topics, where they are installed."""
    if importlib.util.find_spec("pydoc_data.topics") is not None:
        from pydoc_data.topics import topics

        for name in sorted(topics):
            yield f"python {platform.python_version()}: topic {name}", paragraphs_of(topics[name])


def _library() -> list[tuple[str, Path]]:
    """The sources of the standard library by name; none where only compiled files are installed."""
    root = Path(sysconfig.get_path("stdlib"))
    inside = (path.relative_to(root) for path in root.rglob("*.py"))
    names = [path.as_posix() for path in inside if not LEFT_OUT & set(path.parts)]
    version = platform.python_version()
    return [(f"python {version}: {name}", root / name) for name in _mixed(names)]


def _files(domain: str, paths: Paths) -> list[tuple[str, Path]]:
    """The files of what a user named."""
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths or ())
    found: dict[str, Path] = {}
    for one in given:
        path = Path(one).expanduser()
        if path.is_dir():
            inside = [x for x in path.rglob("*") if x.suffix in SUFFIXES and x.is_file()]
            found |= {f"{path.name}/{x.relative_to(path).as_posix()}": x for x in inside}
        elif path.is_file():
            found[path.name] = path
        else:
            raise UserError(f"{domain}: no file or folder at {path}")
    return [(name, found[name]) for name in _mixed(found)]


def _mixed(names) -> list[str]:
    """Names in the order of their hashes."""
    return sorted(names, key=lambda name: hashlib.sha256(os.fsencode(name)).digest())


def _read(path: Path, domain: str) -> str | None:
    """What a file holds of a domain; None for what cannot be read, is no UTF-8 or no Python."""
    try:
        text = path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
        if "\0" in text:
            return None
        if path.suffix == ".py":
            return prose_of(text) if domain == "prose" else code_of(text)
    except (OSError, SyntaxError, ValueError, RecursionError):  # ValueError: a byte that is no text
        return None
    return text


def _parts(text: str, chars: int) -> Iterator[str]:
    """The text in parts of at most so many characters, cut at line ends where there are any."""
    text = text.strip()
    while len(text) > chars:
        cut = text.rfind("\n", 1, chars) if "\n" in text[1:chars] else chars
        yield text[:cut].rstrip()
        text = text[cut:].lstrip("\n")
    if text:
        yield text


def _digest(documents: Sequence[Document]) -> str:
    """SHA-256 of domains and texts."""
    digest = hashlib.sha256()
    for x in documents:
        part = f"{x.domain}\0{len(x.text)}\0{x.text}".encode("utf-8", "surrogatepass")
        digest.update(part)
    return digest.hexdigest()
