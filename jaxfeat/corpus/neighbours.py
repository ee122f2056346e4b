"""Which tokens does a map put next to a token? For reading the statistics of a text.

The theory needs the joint maps; frequent tokens lead their rows. Conditional and PMI weighting of
the counts, before maps are composed, let rarer ones be seen.
"""

from typing import Any, NamedTuple

import numpy as np

from jaxfeat.corpus.statistics import Statistics, conditional, pmi, product
from jaxfeat.types import UserError, check_whole

MAPS = {
    "bigram": "B: what follows",
    "interchange": "S_B: what follows the same tokens",
    "context": "Phi: what stands before",
    "value": "Phi^T B^T: what precedes what it foretells",
    "attention": "Q: what it attends to",
}
WEIGHTINGS = ("joint", "conditional", "pmi")


class Neighbours(NamedTuple):
    """Tokens by falling value, and their values, each `[K]`."""

    ids: np.ndarray
    values: np.ndarray


def reading_map(statistics: Statistics, name: str, weighting: str = "joint") -> np.ndarray:
    """One of `MAPS` `[V, V]`, whose rows are to be read.

    Joint: the map of the theory. Conditional and pmi weight pairs (i, j) of B and (next, prefix) of
    Phi: P(j | i), or ln P(i, j) / (P(i) P(j)) in nats, 0 where a pair never occurs; S_B and
    Phi^T B^T are composed of these. Q, which has either sign, is divided by P(i), or by P(i) and by
    the share of key j among prefixes.

    Args:
        statistics: of the text. name: a key of `MAPS`. weighting: one of `WEIGHTINGS`.

    Raises:
        UserError: another name or weighting.

    >>> from jaxfeat.corpus.statistics import corpus_statistics
    >>> found = corpus_statistics([[0, 1, 0]], 2)
    >>> reading_map(found, "bigram", "conditional").tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    s = statistics
    for what, given, valid in (("name", name, MAPS), ("weighting", weighting, WEIGHTINGS)):
        if given not in valid:
            raise UserError(f"{what}: {given!r} given, valid are {', '.join(valid)}")
    if name == "attention":
        prefix = s.current.sum(axis=1)  # the share of each token among prefixes
        scale = np.ones(s.vocab) if weighting == "joint" else _inverse(s.unigram)
        return s.attention * scale[:, None] * (_inverse(prefix) if weighting == "pmi" else 1.0)
    follows = _weighted_bigram(s, weighting)
    if name == "bigram":
        return follows
    if name == "interchange":
        return product(follows.T, follows)
    before = _weighted_context(s, weighting)
    return before if name == "context" else product(before.T, follows.T)


def neighbours(matrix: Any, token: int, top: int = 10) -> Neighbours:
    """The tokens of the largest values in a row, equal ones by id.

    Args:
        matrix: `[V, V]`. token: the row. top: how many, at most V.

    >>> neighbours([[0.0, 2.0, 1.0]] * 3, 0, 2).ids.tolist()
    [1, 2]
    """
    matrix = np.asarray(matrix)
    row = matrix[check_whole("token", token, 0, len(matrix) - 1)]
    ids = np.argsort(-row, kind="stable")[: check_whole("top", top, 1)]
    return Neighbours(ids, row[ids])


def _weighted_bigram(s: Statistics, weighting: str) -> np.ndarray:
    """B, P(next | current) or the PMI of both."""
    if weighting == "joint":
        return s.bigram
    return conditional(s) if weighting == "conditional" else pmi(s)


def _weighted_context(s: Statistics, weighting: str) -> np.ndarray:
    """Phi, P(prefix | next) or the PMI of both, out of the mass Phi + (share of prefix) / V."""
    if weighting == "joint":
        return s.context
    prefix = s.current.sum(axis=1)
    mass = s.context + prefix / s.vocab
    seen = mass > 0.5 / (s.count * s.length)  # the least a pair can have is 1 / (N T T)
    mass = np.where(seen, mass, 0.0)
    if weighting == "conditional":
        return mass * _inverse(s.target)[:, None]
    alone = np.outer(s.target, prefix)
    return np.log(np.where(seen, mass, 1.0) / np.where(seen, alone, 1.0))


def _inverse(share: np.ndarray) -> np.ndarray:
    """1 / share, 0 where a token never occurs."""
    return np.where(share > 0, 1 / np.where(share > 0, share, 1.0), 0.0)
