"""Which windows of which stories are read, with which tags and which questions?

Stories are generated, or read from a file or a data set; one in eight is held out by a hash of its
text. All that follows from the data settings is made once a process.
"""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from experiments.tinystories_config import DataConfig
from jaxfeat.data import spacy_tags
from jaxfeat.data.conllu import read_conllu
from jaxfeat.data.stories import make_stories
from jaxfeat.data.story_split import held_out_stories, overlap
from jaxfeat.data.story_text import Story
from jaxfeat.data.tagged import Tagged
from jaxfeat.data.tags import FEATURES, GROUPS, check_cover, token_features
from jaxfeat.data.text import Corpus, read_corpus, stories_digest
from jaxfeat.data.tokens import Tokens, encode
from jaxfeat.data.windows import Windows, make_windows
from jaxfeat.grads.occurring import occurring_ids
from jaxfeat.io.tokenizer import end_id, load_tokenizer, train_tokenizer
from jaxfeat.types import UserError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

GENERATED = "generated"


class Texts(NamedTuple):
    """Stories with their tags (None where there are none) and, of generated ones, all else."""

    corpus: Corpus
    tagged: list[Tagged] | None
    told: str  # where the tags come from
    generated: list[Story] | None


class Data(NamedTuple):
    """All that training and its measures read.

    `held` `[S]`: which stories are held out; train, held_out: windows of both sides, in the order
    of the stories; `features`: numbers within `FEATURES` that the tags give; `occurring`: token
    ids.
    """

    texts: Texts
    tokenizer: "Tokenizer"
    tokens: Tokens
    held: np.ndarray
    train: Windows
    held_out: Windows
    features: tuple[int, ...]
    occurring: np.ndarray

    @property
    def vocab(self) -> int:
        """V: ids that the model has rows for."""
        return self.tokens.vocab

    @property
    def groups(self) -> dict[str, list[int]]:
        """Groups of features, by their numbers within `features`."""
        at = {f: n for n, f in enumerate(self.features)}
        found = {name: [at[f] for f in group if f in at] for name, group in GROUPS.items()}
        return {name: group for name, group in found.items() if group}

    @property
    def names(self) -> list[str]:
        """The features' names."""
        return [FEATURES[f] for f in self.features]


@functools.lru_cache(maxsize=2)
def load_data(config: DataConfig, seed: int) -> Data:
    """Read or generate the stories, tokenize, tag and split them.

    Raises:
        UserError: stories that cannot be read, tags that do not cover them, a tokenizer that does
            not fit; the message names the option.
    """
    c = config
    texts = _texts(c, seed)
    stories = texts.corpus.stories
    source = "data.path" if c.path else "data.stories"
    held = _named(source, lambda: held_out_stories(stories))
    tokenizer = _tokenizer(c, [s for s, out in zip(stories, held) if not out])
    cache = Path(c.cache).expanduser() if c.cache else None
    tokens = _named("data.cache", lambda: encode(stories, tokenizer, cache, texts.corpus.digest))
    tags = None
    if texts.tagged is not None:
        spans = zip(tokens.first, tokens.first[1:])
        tags = [
            token_features(tagged, tokens.begin[a:b], tokens.end[a:b])
            for tagged, (a, b) in zip(texts.tagged, spans)
        ]
    marker = end_id(tokenizer)
    train, out = (make_windows(tokens, marker, np.flatnonzero(s), tags) for s in (~held, held))
    known = GROUPS["place in story"] if tags is None else tuple(range(len(FEATURES)))
    occurring = occurring_ids(tokens.ids, tokens.vocab)
    return Data(texts, tokenizer, tokens, held, train, out, known, occurring)


def told_of(data: Data) -> str:
    """One line about the stories."""
    corpus, tokens = data.texts.corpus, data.tokens
    shared = overlap(corpus.stories, data.held)
    return (
        f"stories: {len(corpus.stories)} from {corpus.source} ({corpus.repaired} with repaired "
        f"encoding, {corpus.dropped} dropped), {int(data.held.sum())} held out ({shared} of them "
        f"also among the others); {len(tokens.ids)} tokens, {len(data.occurring)} of {data.vocab} "
        f"occur; tags: {data.texts.told}"
    )


def held_numbers(data: Data) -> np.ndarray:
    """The numbers of the held-out stories, in the order of `held_out`'s rows."""
    return np.flatnonzero(data.held)


def _texts(config: DataConfig, seed: int) -> Texts:
    """The stories and their tags."""
    c = config
    if not c.path:
        if c.tags not in ("auto", "gold", "none"):
            raise UserError(f"--data.tags: {c.tags} given, generated stories have gold tags")
        made = make_stories(seed, c.stories)
        stories = [story.tagged.text for story in made]
        corpus = Corpus(stories, GENERATED, stories_digest(stories), 0, 0)
        if c.tags == "none":
            return Texts(corpus, None, "none", made)
        return Texts(corpus, [story.tagged for story in made], "exact, by the generator", made)
    if c.path.lower().endswith(".conllu"):
        tagged = _named("data.path", lambda: read_conllu(c.path))[: c.stories or None]
        stories = [t.text for t in tagged]
        corpus = Corpus(stories, c.path, stories_digest(stories), 0, 0)
        if c.tags in ("auto", "gold"):
            return Texts(corpus, tagged, "gold, UD labels renamed", None)
    else:
        ask = {"column": c.column, "boundary": c.boundary, "most": c.stories}
        corpus = _named("data.path", lambda: read_corpus(c.path, **ask))
    tagged, told = _tags(c, corpus)
    return Texts(corpus, tagged, told, None)


def _tags(config: DataConfig, corpus: Corpus) -> tuple[list[Tagged] | None, str]:
    """Tags of stories that came without, and where they are from."""
    wanted, model = config.tags, spacy_tags.model_name()
    if wanted == "gold":
        raise UserError(f"--data.tags: gold given, {config.path} has none; spacy or none needed")
    if wanted.lower().endswith(".conllu"):
        tagged = _named("data.tags", lambda: read_conllu(wanted))[: config.stories or None]
        if len(tagged) != len(corpus.stories):
            raise UserError(
                f"--data.tags: {wanted} has {len(tagged)} documents, {len(corpus.stories)} stories "
                "were read"
            )
        return _covering(tagged, corpus), "gold, UD labels renamed"
    if wanted == "none" or (wanted == "auto" and model is None):
        more = "" if wanted == "none" else ' (python -m pip install -e ".[tags]" for spaCy\'s)'
        return None, f"none{more}"
    cache = Path(config.cache).expanduser() if config.cache else None
    tagged = _named("data.tags", lambda: spacy_tags.tag_texts(corpus.stories, cache=cache))
    return _covering(tagged, corpus), f"spaCy, {model}"


def _covering(tagged: Sequence[Tagged], corpus: Corpus) -> list[Tagged]:
    """The tags, if they cover the stories."""
    pairs = list(zip(tagged, corpus.stories))
    check = lambda: [check_cover(t, text, story=n) for n, (t, text) in enumerate(pairs)]
    return _named("data.tags", check)


def _tokenizer(config: DataConfig, stories: list[str]) -> "Tokenizer":
    """The given tokenizer, or one trained on the stories."""
    if config.tokenizer:
        return _named("data.tokenizer", lambda: load_tokenizer(config.tokenizer))
    return _named("data.vocab", lambda: train_tokenizer(stories, config.vocab))


def _named(option: str, make):
    """What `make` gives; a refusal names the option instead of the argument."""
    try:
        return make()
    except UserError as error:
        argument, _, told = str(error).partition(": ")
        if argument in ("boundary", "column"):
            option = f"data.{argument}"
        elif argument not in ("stories", "tokenizer", "tokenizer size"):
            told = str(error)
        raise UserError(f"--{option}: {told}") from None
