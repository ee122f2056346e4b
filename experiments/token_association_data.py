"""Which sequences of words are descended on, and what are their statistics?"""

import functools
from typing import NamedTuple

import numpy as np

from experiments.token_association_config import Config, DataConfig
from jaxfeat.corpus.closed_form import Weights
from jaxfeat.corpus.sequences import check_sequences, shuffle_tokens
from jaxfeat.corpus.statistics import Statistics, corpus_statistics
from jaxfeat.corpus.unigram_null import null_terms
from jaxfeat.data.stories import make_stories
from jaxfeat.data.text import read_corpus
from jaxfeat.data.words import Words, word_sequences
from jaxfeat.types import UserError

GENERATED = "generated stories"


class Data(NamedTuple):
    """The text: sequences `[N, T+1]` in use, of which `evaluated` the first few."""

    words: Words
    tokens: np.ndarray
    source: str
    told: str


class Maps(NamedTuple):
    """Statistics of the text, of the same tokens in random order, and the unigram null."""

    text: Statistics
    shuffled: Statistics
    null: Weights


def read_stories(config: DataConfig, seed: int) -> tuple[list[str], str]:
    """The stories and where they are from.

    Raises:
        UserError: a text that cannot be read; the message names the option.
    """
    c = config
    if not c.path:
        return [story.tagged.text for story in make_stories(seed, c.stories)], GENERATED
    try:
        corpus = read_corpus(c.path, column=c.column, boundary=c.boundary, most=c.stories)
    except UserError as error:
        raise UserError(f"--data.path: {error}") from None
    return corpus.stories, corpus.source


@functools.lru_cache(maxsize=2)
def load_data(config: DataConfig, seed: int) -> Data:
    """The text as sequences of ids.

    Raises:
        UserError: more ids than words, sequences longer than the stories; the message names the
            option.
    """
    c = config
    stories, source = read_stories(c, seed)
    try:
        words = word_sequences(stories, c.vocab, c.length, how=c.how)
    except UserError as error:
        raise UserError(f"--data.{error}") from None
    tokens = words.ids[: c.sequences or None]
    told = f"{source}: {words.told}; {len(tokens):,} sequences are used"
    return Data(words, tokens, source, told)


def make_maps(config: Config, tokens: np.ndarray) -> Maps:
    """Statistics of the sequences that the theory is asked about."""
    check_sequences(tokens, config.data.vocab)
    text = corpus_statistics(tokens, config.data.vocab)
    control = corpus_statistics(shuffle_tokens(tokens, config.seed), config.data.vocab)
    return Maps(text, control, null_terms(text))
