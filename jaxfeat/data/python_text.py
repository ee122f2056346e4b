"""Which part of a Python source is code, and which is prose?

Docstrings are prose that stands in code: they are taken out of the one and make up the other.
Comments stay in the code, as part of how it is written.
"""

import ast
import re
import warnings

WORDS = 8  # of a paragraph of prose, at least
SHARE = 0.9  # of its characters that are letters or spaces, at least

_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def code_of(source: str) -> str:
    """The source without its docstrings; `pass` stands where a body held nothing else.

    A docstring that shares a line with other code is left in.

    Raises:
        SyntaxError: it is no Python of this version.

    >>> code_of('def f():' + chr(10) + '    "What."' + chr(10) + '    return 1  # one')
    'def f():\\n    return 1  # one'
    """
    lines: list[str | None] = list(source.split("\n"))
    for node, alone in _docstrings(source):
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        before = (lines[first] or "").encode()[: node.col_offset]
        after = (lines[last] or "").encode()[node.end_col_offset :].strip()
        if before.strip() or (after and not after.startswith(b"#")):
            continue
        lines[first : last + 1] = [None] * (last + 1 - first)
        lines[first] = before.decode() + "pass" if alone else None
    return "\n".join(line for line in lines if line is not None)


def prose_of(source: str) -> str:
    """The paragraphs of prose in a source's docstrings, each on one line, blank lines between.

    Raises:
        SyntaxError: it is no Python of this version.

    >>> prose_of('"Opens a file and returns the number of lines that it holds."')
    'Opens a file and returns the number of lines that it holds.'
    """
    found = [paragraphs_of(ast.literal_eval(node.value)) for node, _ in _docstrings(source)]
    return "\n\n".join(text for text in found if text)


def paragraphs_of(text: str) -> str:
    """The paragraphs of a text that are prose, each on one line, blank lines between.

    Prose has at least `WORDS` words, a share of `SHARE` letters and spaces, and no prompt `>>>`:
    tables, signatures and examples of code are left out.

    >>> paragraphs_of("f(x, y=1) -> [z]" + chr(10) * 2 + "A line that one reads from left to right")
    'A line that one reads from left to right'
    """
    lines = (" ".join(part.split()) for part in re.split(r"\n\s*\n", text))
    return "\n\n".join(line for line in lines if _is_prose(line))


def _is_prose(line: str) -> bool:
    """Whether a paragraph is made of words."""
    plain = sum(c.isalpha() or c == " " for c in line)
    return len(line.split()) >= WORDS and plain >= SHARE * len(line) and ">>>" not in line


def _docstrings(source: str) -> list[tuple[ast.Expr, bool]]:
    """Docstrings in the order of the source, and whether a body holds nothing else."""
    with warnings.catch_warnings():  # of old escapes in the source
        warnings.simplefilter("ignore")
        nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, _Documented)]
    found = []
    for node in nodes:
        first = node.body[0] if node.body else None
        if (
            isinstance(first, ast.Expr)
            and isinstance(first.value, ast.Constant)
            and isinstance(first.value.value, str)
        ):
            found.append((first, len(node.body) == 1 and not isinstance(node, ast.Module)))
    return sorted(found, key=lambda pair: pair[0].lineno)
