"""Are code, mathematics and prose told apart, never empty, never doubled, the same again?"""

import ast
import math
import re

import numpy as np
import pytest

from jaxfeat.data import domains
from jaxfeat.data.domains import (
    DOMAINS,
    Document,
    domain_windows,
    held_out_documents,
    read_domains,
)
from jaxfeat.data.python_text import code_of, paragraphs_of, prose_of
from jaxfeat.data.worked_maths import worked_maths
from jaxfeat.types import UserError

SOURCE = '''"""A module that only says what it is here for and then nothing."""

import os  # kept


class Empty(Exception):
    """This is raised where a thing is missing that one needs to go on."""


def work(x):
    """Short.

    The second paragraph of it has words enough to be told for prose.

    >>> work(1) and many more words that would do for a paragraph
    """
    text = """not a docstring"""
    return text


def one(): "shares its line"
'''
WORDS = [f"line {n} has some words that are its own" for n in range(60)]


def bytes_of(text):
    """A tokenizer: ids 3.. are bytes, 1 is put before a text as some tokenizers do."""
    return [1, *(b + 3 for b in text.encode())]


def value_of(side):
    """A sum of products of whole numbers."""
    terms = side.replace("- ", "+ -").split("+")
    return sum(math.prod(int(x) for x in term.split("*")) for term in terms)


def test_code_and_docstrings_part():
    """What goes to prose is gone from code, which still compiles; comments and strings stay."""
    code, prose = code_of(SOURCE), prose_of(SOURCE)
    assert prose.split("\n\n") == [
        "A module that only says what it is here for and then nothing.",
        "This is raised where a thing is missing that one needs to go on.",
        "The second paragraph of it has words enough to be told for prose.",
    ]
    for line in (*prose.split("\n"), "Short.", ">>>"):
        assert line == "" or line not in code
    for kept in ("# kept", '"""not a docstring"""', 'def one(): "shares its line"', "    pass\n"):
        assert kept in code
    assert [type(n) for n in ast.parse(code).body] == [
        ast.Import, ast.ClassDef, ast.FunctionDef, ast.FunctionDef,
    ]  # fmt: skip
    assert paragraphs_of("x = 1; y = 2; z = 3; a = 4; b = 5; c = 6\n\nfew words only") == ""


def test_worked_lines_are_true():
    """Every equality of plain numbers holds, and no document is another's."""
    texts = [worked_maths(0, n) for n in range(30)]
    assert len(set(texts)) == 30
    told = 0
    for line in "\n".join(texts).split("\n"):
        sides = [side.strip() for side in line.split("=")]
        if len(sides) > 1 and not re.search(r"[a-z\\^]", line):
            told += 1
            assert len({value_of(side) for side in sides}) == 1, line
        if solved := re.fullmatch(r"\\\[ x\^2 (.*)x (.*) = \(x (.*)\)\(x (.*)\) \\\]", line):
            b, c, p, q = (int(part.replace(" ", "")) for part in solved.groups())
            assert (b, c) == (p + q, p * q)
    assert told > 100


def test_default_reads_the_library(monkeypatch):
    """Without paths: sources, docstrings and generated lines, labelled so; the same twice."""
    monkeypatch.setattr(domains.Path, "expanduser", None)  # no path of a user is looked at
    corpus = read_domains(most=6)
    assert read_domains(most=6) == corpus
    assert [d.domain for d in corpus.documents] == [d for d in DOMAINS for _ in range(6)]
    assert corpus.generated == ("maths",)
    for d in corpus.documents:
        assert 400 <= len(d.text) <= 20_000
        assert d.source.startswith("generated: " if d.domain == "maths" else "python 3.")
        assert "test/" not in d.source and "site-packages" not in d.source
    assert read_domains(most=6, seed=1).digest != corpus.digest
    longer = read_domains(most=1, least=9000).documents[1]
    assert longer.domain == "maths" and len(longer.text) >= 9000


def test_paths(tmp_path):
    """Folders and files by option: kinds by suffix, copies and binaries counted, long texts cut."""
    folder = tmp_path / "a b"
    (folder / "inner").mkdir(parents=True)
    (folder / "one.txt").write_text("\n".join(WORDS))
    (folder / "inner" / "copy.md").write_text("\r\n".join(WORDS))
    (folder / "binary.txt").write_bytes(b"\0\1")
    (folder / "latin.txt").write_bytes(b"caf\xe9")
    (folder / "broken.py").write_text("def (")
    (folder / "mod.py").write_text(SOURCE)
    (folder / "other.csv").write_text("not read")
    maths = tmp_path / "sheet.rtf"  # named by itself: read whatever its suffix
    maths.write_text("1 + 1 = 2")
    given = {"code": folder / "mod.py", "maths": [maths], "prose": str(folder), "least": 0}
    corpus = read_domains(**given, chars=500)
    code, sheet, *prose = corpus.documents
    assert code.text == code_of(SOURCE).strip() and code.source == "mod.py"
    assert sheet == Document("1 + 1 = 2", "maths", "sheet.rtf")
    assert corpus.skipped == 3 and corpus.generated == ()
    texts = [d.text for d in prose if d.source != "a b/mod.py"]
    assert "\n".join(texts) == "\n".join(WORDS) and len(texts) == corpus.repeated > 3
    assert max(map(len, texts)) <= 500
    assert [d.text for d in prose if d.source == "a b/mod.py"] == [prose_of(SOURCE)]
    assert read_domains(**given, chars=500) == corpus
    first = read_domains(**given, chars=500, most=2)
    assert first.documents == (code, sheet, *prose[:2])


def test_nothing_there_is_named(tmp_path):
    """Absent, empty and binary-only paths raise: a domain is never empty."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "bin.txt").write_bytes(b"\0" * 900)
    (tmp_path / "short.txt").write_text("short")
    for options, words in (
        ({"code": tmp_path / "absent"}, "code: no file or folder at .*absent"),
        ({"maths": tmp_path / "empty"}, "maths: no text of 400 characters at .*empty"),
        ({"prose": [tmp_path / "bin.txt"]}, "prose: no text"),
        ({"prose": tmp_path / "short.txt"}, "prose: no text"),
        ({"most": 0}, "most: 0"),
        ({"chars": 100}, "chars: 100 given, a whole number, 400 or more"),
    ):
        with pytest.raises(UserError, match=words):
            read_domains(**{"most": 1, **options})


def test_no_sources_installed(monkeypatch, tmp_path):
    """A Python without its sources says what to give."""
    monkeypatch.setattr(domains.sysconfig, "get_path", lambda name: str(tmp_path))
    with pytest.raises(UserError, match=r"code: no text; give a file or folder of \.py"):
        read_domains(most=1)


def test_split():
    """About an eighth is held out, by the text and the seed alone."""
    documents = [Document(f"text {n}", "prose", "x") for n in range(2000)]
    held = held_out_documents(documents)
    assert abs(held.mean() - 1 / 8) < 4 * np.sqrt(7 / 64 / 2000)
    np.testing.assert_array_equal(held_out_documents(documents[::-1]), held[::-1])
    assert (held_out_documents(documents, seed=1) != held).any()


def test_windows():
    """BOS once, consecutive tokens of one document, balanced, special tokens marked."""
    texts = ["abcdefghijklmnopqrstuvwxyz", "0123456789", "ABCDEFGHIJKLMNOP\x02QRS", "uvwxyz", "ab"]
    kinds = ["code", "maths", "prose", "code", "prose"]
    documents = [Document(t, k, "x") for t, k in zip(texts, kinds)]
    windows = domain_windows(documents, bytes_of, 5, 1, 2, special=[5], each=3)
    assert windows.tokens.dtype == np.int32 and windows.tokens.shape == (6, 5)
    np.testing.assert_array_equal(windows.domain, [0, 0, 1, 1, 2, 2])
    np.testing.assert_array_equal(windows.document, [0, 0, 1, 1, 2, 2])
    assert (windows.tokens[:, 0] == 1).all() and (windows.tokens[:, 1:] != 1).all()
    for row, special, n in zip(windows.tokens, windows.special, windows.document):
        assert bytes(int(b) - 3 for b in row[1:]).decode() in texts[n]
        np.testing.assert_array_equal(special, (row == 1) | (row == 5))
    plain = domain_windows(documents, lambda t: bytes_of(t)[1:], 5, 1, 2, special=[5], each=3)
    np.testing.assert_array_equal(plain.tokens, windows.tokens)  # brought or not, BOS stands once
    starts = [texts[0].index(chr(r[1] - 3)) for r in windows.tokens[:2]]
    assert starts == [0, 8]  # of 0, 8, 20: spread over the document

    inside = domain_windows(documents[:1], lambda t: [1, 1, 7, 1, 8, 9], 3, 1, 2)
    np.testing.assert_array_equal(inside.tokens, [[1, 7, 1], [1, 8, 9]])
    np.testing.assert_array_equal(inside.special, [[True, False, True], [True, False, False]])


def test_too_few_windows():
    """What is missing is counted."""
    documents = [Document("abcdefgh", "code", "x"), Document("ab", "prose", "y")]
    for options, words in (
        ((documents, bytes_of, 5, 1, 1), "prose has 0 in 1 documents"),
        ((documents[:1], bytes_of, 5, 1, 3), "3 windows of 5 tokens wanted, code has 2"),
        (([], bytes_of, 5, 1, 1), "documents: none"),
        ((documents, bytes_of, 1, 1, 1), "length: 1"),
        ((documents[:1], lambda t: [-4, 2], 3, 1, 1), "tokens of the documents: ids -4"),
    ):
        with pytest.raises(UserError, match=words):
            domain_windows(*options)
