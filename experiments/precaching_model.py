"""Which model is scored, on which windows of text, and with which features?"""

from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from experiments.precaching_config import RANDOM, ModelConfig
from jaxfeat.data.domains import (
    DomainCorpus,
    DomainWindows,
    domain_windows,
    held_out_documents,
    read_domains,
)
from jaxfeat.features.sae import SAE, check_sae
from jaxfeat.features.sae_files import load_sae
from jaxfeat.io.tokenizer import end_id, train_tokenizer
from jaxfeat.models.gemma2 import Gemma2Config, make_gemma2
from jaxfeat.models.pretrained import Pretrained, encode_text, load
from jaxfeat.types import UserError

WORDS = 512  # tokens of the tokenizer of a random model
SCOPE = (
    'hf download google/gemma-scope-2b-pt-res --include "layer_15/width_16k/average_l0_78/*" '
    "--local-dir ."
)


class Subject(NamedTuple):
    """The model and the text that its features are looked at on."""

    model: Pretrained
    corpus: DomainCorpus
    windows: DomainWindows  # what features are looked for in
    held: DomainWindows  # of other documents
    sae: SAE | None  # None: it is to be trained


@lru_cache(maxsize=1)
def open_subject(config: ModelConfig, seed: int) -> Subject:
    """Read the model, the text and, if one is given, the SAE; once for a check and its run.

    Raises:
        UserError: what cannot be read or does not fit together, by option.
    """
    c, sae = config, None
    if c.sae:
        if not Path(c.sae).expanduser().exists():
            raise UserError(f"--model.sae: nothing at {c.sae}; Gemma Scope's comes by:\n{SCOPE}")
        sae = _named("sae", lambda: load_sae(c.sae, c.layer))
    try:
        corpus = read_domains(
            code=c.code or None, maths=c.maths or None, prose=c.prose or None, most=c.documents,
            seed=seed,
        )  # fmt: skip
    except UserError as error:
        raise UserError(f"--model.{error}") from None
    chosen = lambda: random_gemma(corpus, seed) if c.name == RANDOM else load(c.name, c.dtype)
    model = _named("name", chosen)
    decoder = model.decoder
    if not decoder.causal:
        raise UserError(f"--model.name: {model.name} is bidirectional: it has no later predictions")
    if c.layer > decoder.layers:
        raise UserError(f"--model.layer: {c.layer} given, valid are 0..{decoder.layers}")
    if decoder.length is not None and c.length > decoder.length:
        raise UserError(
            f"--model.length: {c.length} given, the model has {decoder.length} positions"
        )
    if sae is not None:
        _named("sae", lambda: check_sae(sae, decoder, c.layer))
    held = held_out_documents(corpus.documents, seed)
    pick = lambda side: [d for d, out in zip(corpus.documents, held) if out == side]
    return Subject(
        model, corpus, _windows(c, model, pick(False), "windows"),
        _windows(c, model, pick(True), "held"), sae,
    )  # fmt: skip


def told_of(subject: Subject) -> str:
    """The model and the text in a line."""
    model, corpus = subject.model, subject.corpus
    made = f"; GENERATED: {', '.join(corpus.generated)}" if corpus.generated else ""
    size = sum(x.size for x in jax.tree.leaves(model.params))
    return (
        f"{model.name}: {model.family}, {size:,} parameters, {model.decoder.layers} blocks; "
        f"{len(corpus.documents)} documents{made}; {len(subject.windows.tokens)} windows and "
        f"{len(subject.held.tokens)} held-out ones of {subject.windows.tokens.shape[1]} tokens"
    )


def random_gemma(corpus: DomainCorpus, seed: int) -> Pretrained:
    """A tiny Gemma 2 with random weights, and a byte-level tokenizer of the corpus."""
    tokenizer = train_tokenizer([d.text for d in corpus.documents[:60]], WORDS)
    config = Gemma2Config(
        vocab=tokenizer.get_vocab_size(), width=32, heads=4, groups=2, head_size=8, layers=4,
        mlp=64, slides=(True, False, True, False), window=8, query_scalar=8.0,
    )  # fmt: skip
    decoder = make_gemma2(config)
    params = decoder.init(jax.random.key(seed))
    # as drawn for training nothing would act on anything
    spread = lambda x: x * 6 if x.ndim > 2 else x
    params["blocks"] = jax.tree.map(spread, params["blocks"])
    params["outer"] = jax.tree.map(lambda x: x * 6 if x.ndim > 1 else x, params["outer"])
    return Pretrained(
        decoder, params, tokenizer, "gemma2", config, "float32", RANDOM, "random weights", "",
        bos=end_id(tokenizer), needs_bos=True,
    )  # fmt: skip


def _named(option: str, make):
    """What `make` gives; its complaint with the option that is to blame."""
    try:
        return make()
    except UserError as error:
        raise UserError(f"--model.{option}: {error}") from None


def _windows(config: ModelConfig, model: Pretrained, documents: list, side: str) -> DomainWindows:
    """Windows of some documents in a random order, each begun with the marker."""
    if model.tokenizer is None:
        raise UserError(f"--model.name: {model.name} has no tokenizer.json, text cannot be read")
    if model.bos is None:
        raise UserError(f"--model.name: {model.name} has no token that begins a text")
    ids = lambda text: encode_text(model, text).ids.tolist()
    try:
        made = domain_windows(documents, ids, config.length, model.bos, getattr(config, side))
        order = np.random.default_rng(0).permutation(len(made.tokens))
        return DomainWindows(*(x[order] for x in made))
    except UserError as error:
        told = str(error).replace("per_domain", f"--model.{side}", 1)
        raise UserError(f"{told}; --model.documents gives more") from None
