"""How does the vocabulary inside a GGUF file become a tokenizer?

Two kinds are known. `llama` is SentencePiece's: pieces with scores, "▁" for a space, and bytes for
characters without a piece; the best-scored pair of neighbours is merged first. `gpt2` is byte-level
BPE with its list of merges and a rule that cuts text into words. The library `tokenizers` is
imported on first use.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jaxfeat.types import UserError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6  # GGUF's types of tokens
SPACE = "▁"
KINDS = ("llama", "gpt2")
CUTS = ("smollm", "gpt-2")  # rules of word cutting of gpt2 vocabularies that are known


def gguf_tokenizer(metadata: Mapping[str, Any]) -> "Tokenizer":
    """The tokenizer that a file's metadata describes.

    `encode` puts the BOS in front where the metadata say so, unless it is told
    `add_special_tokens=False`.

    Args:
        metadata: of `jaxfeat.io.gguf.open_gguf`.

    Raises:
        UserError: no vocabulary, or one of a kind or with a rule of word cutting that is not known.
    """
    from tokenizers import AddedToken, processors

    kind, tokens = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.tokens")
    types = metadata.get("tokenizer.ggml.token_type")
    if not tokens or not types or len(tokens) != len(types):
        raise UserError("tokenizer: the file's metadata hold no vocabulary")
    if kind not in KINDS:
        raise UserError(f"tokenizer: kind {kind!r} is not known; known: {', '.join(KINDS)}")
    if kind == "llama":
        tokenizer = _sentencepiece(metadata, tokens, types)
    else:
        tokenizer = _byte_level(metadata, tokens)
    # Matched in the raw text before anything else, so that none is taken apart.
    whole = {CONTROL: True, USER: False}
    tokenizer.add_tokens([
        AddedToken(text, special=whole[t], normalized=False)
        for text, t in zip(tokens, types, strict=True)
        if t in whole
    ])  # fmt: skip
    bos = metadata.get("tokenizer.ggml.bos_token_id")
    if metadata.get("tokenizer.ggml.add_bos_token", kind == "llama") and bos is not None:
        name = tokens[bos]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{name} $A", pair=f"{name} $A {name} $B", special_tokens=[(name, bos)]
        )
    return tokenizer


def _sentencepiece(metadata: Mapping[str, Any], tokens: list[str], types: list[int]) -> "Tokenizer":
    """A vocabulary with scores: merges in the order of the scores of what they make."""
    from tokenizers import Tokenizer, decoders, models, normalizers

    scores = metadata.get("tokenizer.ggml.scores")
    if not scores or len(scores) != len(tokens):
        raise UserError("tokenizer: the file's metadata hold no scores of its pieces")
    unknown = metadata.get("tokenizer.ggml.unknown_token_id", 0)
    vocab = {text: i for i, text in enumerate(tokens)}
    merges = _merges(tokens, types, scores)
    tokenizer = Tokenizer(
        models.BPE(vocab, merges, unk_token=tokens[unknown], fuse_unk=True, byte_fallback=True)
    )
    prefix = bool(metadata.get("tokenizer.ggml.add_space_prefix", True))
    spaces = normalizers.Replace(" ", SPACE)
    before = [normalizers.Prepend(SPACE)] if prefix else []
    tokenizer.normalizer = normalizers.Sequence([*before, spaces]) if prefix else spaces
    after = [decoders.Strip(" ", 1, 0)] if prefix else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *after]
    )
    return tokenizer


def _merges(tokens: list[str], types: list[int], scores: list[float]) -> list[tuple[str, str]]:
    """Every pair of pieces that makes a piece, the best-scored piece first.

    Pairs that make the same piece stand in the order of their ids, as in published conversions.
    """
    pieces = {text: i for i, (text, t) in enumerate(zip(tokens, types, strict=True)) if t == NORMAL}
    found = []
    for text, i in pieces.items():
        for cut in range(1, len(text)):
            left, right = pieces.get(text[:cut]), pieces.get(text[cut:])
            if left is not None and right is not None:
                found.append((-scores[i], left, right))
    found.sort()
    return [(tokens[left], tokens[right]) for _, left, right in found]


def _byte_level(metadata: Mapping[str, Any], tokens: list[str]) -> "Tokenizer":
    """A byte-level BPE with its merges; SmolLM's cuts digits one by one before GPT-2's rule."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    cut = metadata.get("tokenizer.ggml.pre")
    if cut not in CUTS:
        known = ", ".join(CUTS)
        raise UserError(f"tokenizer: the rule of words {cut!r} is not known; known: {known}")
    merges = [tuple(pair.split(" ")) for pair in metadata.get("tokenizer.ggml.merges", ())]
    tokenizer = Tokenizer(models.BPE({text: i for i, text in enumerate(tokens)}, merges))
    words = pre_tokenizers.ByteLevel(add_prefix_space=False)
    digits = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, words]) if cut == "smollm" else words
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer
