"""Which ids stand for a text: how is a byte-level BPE trained, saved, loaded and told apart?

As GPT-2's: every byte has a token, so nothing is unknown. The library `tokenizers` is imported on
first use.
"""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from jaxfeat.io.atomic import replacing
from jaxfeat.types import UserError, check_whole

if TYPE_CHECKING:
    from tokenizers import Tokenizer

END = "<|endoftext|>"
ENDS = (END, "<|end_of_text|>", "</s>", "<eos>")  # what other families call it
LEAST = 257  # every byte and the end


class Encoded(NamedTuple):
    """A text as ids `[T]` int32; `special` `[T]` is true where an id stands for no text (BOS)."""

    ids: np.ndarray
    special: np.ndarray


def train_tokenizer(texts: Iterable[str], size: int) -> "Tokenizer":
    """A byte-level BPE of the texts with the special token `END`, id 0.

    The same texts and size give the same tokenizer.

    Args:
        texts: what the merges are counted on. size: tokens at most, 257 or more (256 bytes and
            the end); few texts give fewer.

    Raises:
        UserError: a size below 257, no text.

    >>> tok = train_tokenizer(["the cat and the hat"], 260)
    >>> tok.decode(tok.encode("née “平”").ids)
    'née “平”'
    """
    from tokenizers import models, trainers
    from tokenizers.pre_tokenizers import ByteLevel

    size = check_whole("tokenizer size", size, LEAST)
    texts = list(texts)
    if not any(texts):
        raise UserError("tokenizer: give at least one text to train on")
    tokenizer = _byte_level(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[END],
        initial_alphabet=sorted(ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def load_tokenizer(path: str | os.PathLike) -> "Tokenizer":
    """A tokenizer from disk that has an end token; arguments as in `read_tokenizer`.

    Raises:
        UserError: as `read_tokenizer`, or it has no end token.
    """
    tokenizer = read_tokenizer(path)
    try:
        end_id(tokenizer)
    except UserError as error:
        raise UserError(f"{error} ({Path(path).expanduser()})") from None
    return tokenizer


def read_tokenizer(path: str | os.PathLike) -> "Tokenizer":
    """A tokenizer from disk.

    Args:
        path: a `tokenizer.json`, or a folder that holds one, or GPT-2's `vocab.json` and
            `merges.txt`.

    Raises:
        UserError: nothing of that kind is there, or it cannot be read.
    """
    from tokenizers import Tokenizer, models

    path = Path(path).expanduser()
    file = path / "tokenizer.json" if path.is_dir() else path
    vocab, merges = path / "vocab.json", path / "merges.txt"
    parts = vocab.is_file() and merges.is_file()
    if not file.is_file() and not parts:
        wanted = "tokenizer.json, or vocab.json and merges.txt, in" if path.is_dir() else "file at"
        raise UserError(f"tokenizer: no {wanted} {path}")
    try:
        if file.is_file():
            tokenizer = Tokenizer.from_file(str(file))
        else:
            tokenizer = _byte_level(models.BPE.from_file(str(vocab), str(merges)))
            if tokenizer.token_to_id(END) is not None:
                tokenizer.add_special_tokens([END])  # so that it is never taken apart
    except Exception as error:  # the library raises nothing more specific
        raise UserError(f"tokenizer: {path} cannot be read ({str(error)[:120]})") from None
    return tokenizer


def encode_text(
    tokenizer: "Tokenizer",
    text: str,
    *,
    bos: bool | None = None,
    bos_id: int | None = None,
    needs_bos: bool = False,
) -> Encoded:
    """The ids of a text, with the token that begins a text (BOS) once in front or not at all.

    Args:
        bos: true: in front; false: not; None: as the tokenizer was published (which may also add
            other special tokens, such as BERT's), and in front if `needs_bos`.
        bos_id: the id of the BOS. needs_bos: the model reads no text without it.

    Returns:
        The ids and where they are special. A text that already begins with the BOS, written out,
        gets no second one.

    Raises:
        UserError: a BOS is asked for and there is none, or one is needed and forbidden.

    >>> tok = train_tokenizer(["aa"], 258)
    >>> encode_text(tok, END + "aa", bos=True, bos_id=0)
    Encoded(ids=array([  0, 257], dtype=int32), special=array([ True, False]))
    """
    if bos_id is None and (bos or needs_bos):
        raise UserError("bos: True given, the model has no token that begins a text")
    if needs_bos and bos is False:
        raise UserError("bos: False given, this model reads text only after its BOS; leave it out")
    ids = tokenizer.encode(text, add_special_tokens=bos is None).ids
    front = next((i for i, token in enumerate(ids) if token != bos_id), len(ids))
    kept = bos or needs_bos or (bos is None and front)
    ids = ([bos_id] if kept else []) + ids[front:]
    added = tokenizer.get_added_tokens_decoder()
    special = [token in added and added[token].special for token in ids]
    return Encoded(np.array(ids, np.int32), np.array(special, bool))


def save_tokenizer(path: str | os.PathLike, tokenizer: "Tokenizer") -> Path:
    """Write a `tokenizer.json`, whole or not at all, after reading it back.

    Raises:
        UserError: the file cannot be written there.
    """
    from tokenizers import Tokenizer

    path = Path(path).expanduser()
    try:
        with replacing(path) as temporary:
            temporary.write_text(tokenizer.to_str(), encoding="utf-8")
            if Tokenizer.from_file(str(temporary)).to_str() != tokenizer.to_str():
                raise OSError(f"{path.name}: the tokenizer was read back changed")
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}") from None
    return path


def tokenizer_digest(tokenizer: "Tokenizer") -> str:
    """SHA-256 of the serialised tokenizer, in hexadecimal."""
    return hashlib.sha256(tokenizer.to_str().encode()).hexdigest()


def end_id(tokenizer: "Tokenizer") -> int:
    """The id of the token that ends a text.

    Raises:
        UserError: the tokenizer has none.
    """
    for name in ENDS:
        if (found := tokenizer.token_to_id(name)) is not None:
            return found
    raise UserError(f"tokenizer: no end token, one of {', '.join(ENDS)} needed")


def check_vocab(tokenizer: "Tokenizer", vocab: int) -> None:
    """Refuse a tokenizer that is not the one a checkpoint was trained with, by their sizes.

    Args:
        vocab: rows of the checkpoint's embedding.

    Raises:
        UserError: the sizes differ.
    """
    if (found := tokenizer.get_vocab_size()) != vocab:
        raise UserError(
            f"tokenizer: it has {found} tokens, the checkpoint {vocab}; give the tokenizer that "
            "the checkpoint was trained with"
        )


def _byte_level(model) -> "Tokenizer":
    """A tokenizer of GPT-2's kind around a model: bytes, words with the space before them."""
    from tokenizers import Tokenizer, decoders, pre_tokenizers

    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer
