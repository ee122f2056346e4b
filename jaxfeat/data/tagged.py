"""What is a text whose words carry tags, and which tags does a probe look at first?"""

from typing import NamedTuple

import numpy as np

POS_TAGS = ("NN", "VBD", "DT", "PRP", "JJ", "NNP", "IN", "RB", "VB", "CC")
DEPENDENCIES = (
    "nsubj",
    "ROOT",
    "det",
    "dobj",
    "pobj",
    "advmod",
    "prep",
    "cc",
    "conj",
    "aux",
)


class Tagged(NamedTuple):
    """One text with its words, punctuation marks included, and their tags.

    Word i is `text[start[i]:end[i]]`; words stand in the order of the text and do not overlap, and
    only spaces and line breaks lie between them.

    `start`, `end`: `[n]` int32, characters. `pos`: n tags of the Penn Treebank, whose punctuation
    is ``. , : `` ''``. `dep`: n dependency labels to the word's head, ClearNLP's set as in spaCy.

    >>> spans = np.array([0, 4], np.int32), np.array([3, 5], np.int32)
    >>> hello = Tagged("Run !", *spans, ("VB", "."), ("ROOT", "punct"))
    >>> [hello.text[s:e] for s, e in zip(hello.start, hello.end)]
    ['Run', '!']
    """

    text: str
    start: np.ndarray
    end: np.ndarray
    pos: tuple[str, ...]
    dep: tuple[str, ...]
