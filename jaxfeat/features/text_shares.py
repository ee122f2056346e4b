"""How much of some texts looks like code, and how much is punctuation?"""

import re
import unicodedata
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxfeat.stats import Interval, bootstrap_interval
from jaxfeat.types import UserError

# Names and numbers, or single signs: the texts' own tokens, whatever tokenizer a model has.
_TOKEN = re.compile(r"\w+|[^\w\s]")
# Words that code has and English hardly has.
KEYWORDS = frozenset((
    "def", "elif", "lambda", "nonlocal", "async", "await", "self", "str", "len", "int", "const",
    "char", "struct", "enum", "printf", "println", "func", "fn",
))  # fmt: skip
SIGNS = frozenset("{}[]<>=+*/\\|&^~@#$%_`")  # of code and formulas
_NAME = re.compile(r"[A-Za-z_]*[A-Za-z]_\w+|_+[A-Za-z]\w*|[a-z]+[A-Z]\w*|[A-Za-z]+\d\w*")


class Shares(NamedTuple):
    """Of each of n texts: shares of code-like tokens and of punctuation, 0..1, and tokens."""

    code: np.ndarray
    punctuation: np.ndarray
    tokens: np.ndarray


def text_shares(texts: Sequence[str]) -> Shares:
    """Shares of code-like tokens and of punctuation tokens in texts.

    A token is a run of letters, digits and underscores, or one other sign that is no space.
    Code-like: a word of code that is hardly one of English (`KEYWORDS`), a name with an underscore,
    an inner capital or digits after letters (`max_len`, `camelCase`, `x1`), a sign of `SIGNS`.
    Punctuation: any other sign of Unicode's class P, so that no token is both. No token: shares 0.

    >>> s = text_shares(["x_1 = [y]", "Well, yes."])
    >>> s.code.tolist(), s.punctuation.tolist()
    ([0.8, 0.0], [0.0, 0.5])
    """
    if isinstance(texts, str):
        raise UserError("texts: a list of texts needed, one text given")
    counts = np.zeros((len(texts), 3), np.int64)
    for n, text in enumerate(texts):
        for token in _TOKEN.findall(text):
            code = token in SIGNS or token in KEYWORDS or bool(_NAME.fullmatch(token))
            sign = not code and unicodedata.category(token[0]).startswith("P")
            counts[n] += (code, sign, 1)
    code, sign = counts[:, :2].T / np.maximum(counts[:, 2], 1)
    return Shares(code, sign, counts[:, 2])


def compare_shares(
    steered: Any, unsteered: Any, *, level: float = 0.95, draws: int = 2000, seed: int = 0
) -> Interval:
    """By how much a share is higher in steered texts, with a bootstrap interval over prompts.

    Prompts are drawn with both texts, so that what differs between prompts drops out; the
    directions are taken as they are.

    Args:
        steered: `[F, B]` shares by direction and prompt, or `[B]`. unsteered: `[B]`.

    Raises:
        UserError: other shapes.

    >>> compare_shares([[0.5, 0.25], [0.5, 0.75]], [0.0, 0.25]).mean
    0.375
    """
    steered, unsteered = np.asarray(steered, np.float64), np.asarray(unsteered, np.float64)
    steered = steered[None] if steered.ndim == 1 else steered
    if steered.ndim != 2 or not len(steered) or unsteered.shape != steered.shape[1:]:
        raise UserError(
            f"steered {steered.shape} and unsteered {unsteered.shape}: [F, B] and [B] needed"
        )
    return bootstrap_interval(steered.mean(axis=0) - unsteered, level=level, draws=draws, seed=seed)
