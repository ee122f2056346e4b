"""Do tokenizers out of a GGUF give the ids of the published ones?"""

from itertools import pairwise

import numpy as np
import pretrained_files as files
import pytest

from jaxfeat.io.gguf import open_gguf
from jaxfeat.io.gguf_tokenizer import gguf_tokenizer
from jaxfeat.io.tokenizer import Encoded, encode_text
from jaxfeat.models.packaged import join_files, packaged_files
from jaxfeat.types import UserError

KEY = "tokenizer.ggml."
# Recorded from `AutoTokenizer.from_pretrained("google/gemma-3-270m-it")` (without its BOS, id 2) in
# the tests of public repositories: the 1st also in Keras Hub's Gemma 3 tokenizer test (its first
# four words); the 2nd in the test of a C++ runtime; the 3rd and 4th in that of an Odin library,
# which reads Gemma 3's tokenizer.json; the 5th (a dialogue) from llama.cpp's `llama-tokenize`.
GEMMA3 = {
    "The quick brown fox jumps over the lazy dog.":
        [818, 3823, 8864, 37423, 38167, 1024, 506, 31770, 4799, 236761],
    "  leading spaces": [138, 26016, 9952],
    "123 + 456 = 579":
        [236770, 236778, 236800, 900, 236743, 236812, 236810, 236825, 578, 236743, 236810, 236832,
         236819],
    "né 日本語のテキスト": [8504, 33375, 238582, 236945, 95830],
    "<start_of_turn>user\nGive me three tips for staying focused while working.<end_of_turn>\n":
        [105, 2364, 107, 46762, 786, 1806, 11221, 573, 19447, 10317, 1651, 2844, 236761, 106, 107],
    "Hello world": [9259, 1902],
    "emoji 🎉 here": [67906, 204906, 1590],
    "tab\tand\nnewline": [4823, 255968, 624, 107, 73481],
    "CamelCaseIdentifier_snake_case": [114919, 9818, 19535, 236779, 37942, 236779, 4925],
}  # fmt: skip
# Recorded from SmolLM2's tokenizer.json by the library `tokenizers` in tests of public
# repositories: a C# and an Odin library's (1st to 3rd), a Rust library's (4th), a record of GGUF
# tokenizers checked against transformers (5th).
SMOLLM2 = {
    "The capital of France is": [504, 3575, 282, 4649, 314],
    "in 2026, a - b (c)": [254, 216, 34, 32, 34, 38, 28, 253, 731, 278, 365, 83, 25],
    "prices rose 3.5% in 2024":
        [96, 12855, 8739, 216, 35, 30, 37, 21, 281, 216, 34, 32, 34, 36],
    "I don't think it's 42.": [57, 1326, 982, 1510, 357, 506, 216, 36, 34, 30],
    "Café — κόσμος 🚀": [51, 1939, 2756, 1841, 31953, 36180, 18751, 16674, 39346, 15107, 244, 218],
    "  leading   spaces": [216, 2899, 256, 5600],
    "<|endoftext|>": [0],
}  # fmt: skip


def metadata(**changes):
    """The tiny vocabulary with changed entries."""
    return files.metadata_of(files.GEMMA3) | {KEY + name: value for name, value in changes.items()}


def merge_by_score(text, tokens, types, scores):
    """SentencePiece's rule in a few lines: of all neighbours that make a piece, the best-scored and
    leftmost are merged, until none is left; characters without a piece become bytes.
    """
    ids = {t: i for i, t in enumerate(tokens) if types[i] == files.TYPES[4]}
    parts = list(text.replace(" ", "▁"))
    while True:
        pairs = [(-scores[ids[a + b]], i) for i, (a, b) in enumerate(pairwise(parts))
                 if a + b in ids]  # fmt: skip
        if not pairs:
            break
        at = min(pairs)[1]
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    byte = {t: i for i, t in enumerate(tokens) if types[i] == 6}
    spell = lambda part: [byte[f"<0x{b:02X}>"] for b in part.encode()]
    return [i for part in parts for i in ([ids[part]] if part in ids else spell(part))]


def test_pieces_merge_by_score():
    tokenizer = gguf_tokenizer(metadata())
    rng = np.random.default_rng(0)
    for _ in range(300):
        text = "".join(rng.choice(list("aabbccde  é"), rng.integers(1, 12)))
        wanted = merge_by_score(text, files.PIECES, files.TYPES, files.SCORES)
        assert tokenizer.encode(text, add_special_tokens=False).ids == wanted, text
        assert tokenizer.decode(wanted) == text
    # whole tokens are found before anything merges; "\n" has no piece and becomes a byte
    assert tokenizer.encode("a<b>\n\n\nb").ids == [2, 5, 18, 17, 14, 6]
    assert tokenizer.encode("").ids == [2]


def test_a_vocabulary_with_a_space_in_front():
    tokenizer = gguf_tokenizer(metadata(add_space_prefix=True, add_bos_token=False))
    assert tokenizer.encode("ab cd").ids == [files.PIECES.index("▁ab"), files.PIECES.index("▁cd")]
    assert tokenizer.decode(tokenizer.encode("ab cd").ids) == "ab cd"


def test_bos_is_explicit_and_never_doubled():
    """Statement: in front exactly once, however it is asked for and written; and in the mask."""
    tokenizer = gguf_tokenizer(metadata())
    gemma = {"bos_id": 2, "needs_bos": True}
    for text in ("ab", "<bos>ab", "<bos><bos>ab"):
        for bos in (None, True):
            found = encode_text(tokenizer, text, bos=bos, **gemma)
            assert found.ids.tolist() == [2, 9] and found.special.tolist() == [True, False]
    assert encode_text(tokenizer, "", **gemma).ids.tolist() == [2]
    with pytest.raises(UserError, match="bos: False given, this model reads text only after"):
        encode_text(tokenizer, "ab", bos=False, **gemma)
    bare = gguf_tokenizer(metadata(add_bos_token=False))
    assert encode_text(bare, "ab", **gemma).ids.tolist() == [2, 9]  # needed: added all the same
    assert encode_text(bare, "ab", bos_id=2).ids.tolist() == [9]
    assert encode_text(bare, "<bos>ab", bos_id=2).ids.tolist() == [2, 9]
    assert encode_text(bare, "<bos>ab", bos=False, bos_id=2).ids.tolist() == [9]
    found = encode_text(bare, "a<eos>b", bos=True, bos_id=2)
    assert isinstance(found, Encoded) and found.ids.dtype == np.int32
    assert found.special.tolist() == [True, False, True, False]
    with pytest.raises(UserError, match="bos: True given, the model has no token"):
        encode_text(bare, "ab", bos=True)


def test_what_is_not_known_is_named():
    for changes, told in (
        ({"tokens": None}, "hold no vocabulary"),
        ({"token_type": files.TYPES[:-1]}, "hold no vocabulary"),
        ({"model": "bert"}, "kind 'bert' is not known; known: llama, gpt2"),
        ({"scores": None}, "no scores of its pieces"),
        ({"model": "gpt2", "pre": "qwen2"}, "rule of words 'qwen2' is not known; known: smollm"),
    ):
        with pytest.raises(UserError, match=told):
            gguf_tokenizer(metadata(**changes))


def of_package(name, folder):
    """The metadata of a packaged model, or a skip that says what lacks."""
    try:
        parts = packaged_files(name)
    except UserError as error:
        pytest.skip(str(error))
    pytest.importorskip("gguf")
    whole = parts[0]
    if len(parts) > 1:
        whole = folder / "whole.gguf"
        join_files(parts, whole)
    return open_gguf(whole).metadata


def test_ids_of_smollm2_are_the_published_ones(tmp_path):
    tokenizer = gguf_tokenizer(of_package("smollm2-135m", tmp_path))
    for text, ids in SMOLLM2.items():
        assert tokenizer.encode(text).ids == ids, text
        assert tokenizer.decode(ids, skip_special_tokens=False) == text


@pytest.mark.slow
def test_ids_of_gemma3_are_the_published_ones(tmp_path):
    held = of_package("gemma3-270m", tmp_path)
    tokenizer = gguf_tokenizer(held)
    for text, ids in GEMMA3.items():
        assert tokenizer.encode(text).ids == [2, *ids], text
        assert tokenizer.decode(ids, skip_special_tokens=False) == text
    # a second opinion on text that nobody recorded
    names = [held[KEY + name] for name in ("tokens", "token_type", "scores")]
    for text in (
        "Why did it learn a feature, then?",
        "f'(x) ≈ 2·x + ∂y",
        "Привет, ça va? ẞ𒀀",
    ):
        assert tokenizer.encode(text).ids == [2, *merge_by_score(text, *names)], text
