"""Do spans point at what tokens say, do words get their tokens, is no bad cache believed?"""

# ruff: noqa: RUF001 - quotes that look alike are what is tested
import subprocess
import sys

import numpy as np
import pytest

from jaxfeat.data import tokens as module
from jaxfeat.data.tokens import Tokens, encode, word_of
from jaxfeat.io.tokenizer import END, save_tokenizer, tokenizer_digest, train_tokenizer
from jaxfeat.types import UserError

PARTS = (
    ["cat", "Once", "upon", "don't", "née", "e\u0301", "“", "”", "’s", "—", "👩‍👩‍👧", "🙂", "漢字"]
    + ["\u0301", " ", "  ", "\n", "\r\n", "\n\n", "\t", "\xa0", "\u3000", "\u200b", "...", "!"]
    + ["7", "<|end", END, "ﬁ", "Ж"]
)


def random_stories(seed, count):
    """Stories out of all that makes alignment hard; some are empty."""
    rng = np.random.default_rng(seed)
    return ["".join(rng.choice(PARTS, rng.integers(0, 30))) for _ in range(count)]


@pytest.fixture(scope="module")
def tokenizers():
    """Bytes alone, a few merges, and many of them across the parts of a character."""
    texts = random_stories(9, 400)
    return [train_tokenizer(texts, size) for size in (257, 320, 900)]


def stories_of(tokens):
    """Each story's ids, begins and ends."""
    for low, high in zip(tokens.first[:-1], tokens.first[1:]):
        yield tokens.ids[low:high], tokens.begin[low:high], tokens.end[low:high]


@pytest.mark.parametrize("seed", range(4))
def test_spans_say_what_the_tokens_say(tokenizers, seed):
    stories = random_stories(seed, 100)
    for tokenizer in tokenizers:
        tokens = encode(stories, tokenizer)
        assert len(tokens.first) == len(stories) + 1 and tokens.first[-1] == len(tokens.ids)
        assert [x.dtype for x in tokens[:4]] == [np.int32] * 3 + [np.int64]
        assert tokens.vocab == tokenizer.get_vocab_size()
        assert tokens.tokenizer == tokenizer_digest(tokenizer)
        for text, (ids, begin, end) in zip(stories, stories_of(tokens)):
            assert ids[-1] == 0 and (ids[:-1] != 0).all()
            assert begin[-1] == end[-1] == len(text)
            assert tokenizer.decode(ids[:-1].tolist(), skip_special_tokens=False) == text
            assert (
                (begin <= end).all() and (np.diff(begin) >= 0).all() and (np.diff(end) >= 0).all()
            )
            covered = np.zeros(len(text), bool)
            for token, low, high in zip(ids[:-1].tolist(), begin, end):
                said, span = tokenizer.decode([token]), text[low:high]
                covered[low:high] = True
                assert span == span.strip()
                if "\ufffd" in said:  # parts of characters: their spans hold the whole ones
                    assert len(span) == 1 or said.strip().strip("\ufffd") in span
                else:
                    assert span == said.strip()
            assert all(covered[at] or text[at].isspace() for at in range(len(text)))


def test_the_parts_of_a_character_share_its_span(tokenizers):
    tokens = encode(["a 👩 é"], tokenizers[0])
    assert tokens.begin.tolist() == [0, 2, 2, 2, 2, 2, 4, 4, 4, 5]
    assert tokens.end.tolist() == [1, 2, 3, 3, 3, 3, 4, 5, 5, 5]


def test_the_callers_tokenizer_stays_and_its_settings_do_not_count(tokenizers):
    tokenizer = train_tokenizer(random_stories(9, 50), 300)
    wanted = encode(["cat “upon” Once " * 20, "cat"], tokenizer)
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=9)
    before = tokenizer.to_str()
    found = encode(["cat “upon” Once " * 20, "cat"], tokenizer)
    assert all(np.array_equal(a, b) for a, b in zip(found[:4], wanted[:4]))
    assert tokenizer.to_str() == before and not tokenizer.encode_special_tokens


def test_batches_change_nothing(tokenizers, monkeypatch):
    stories = random_stories(5, 60)
    whole = encode(stories, tokenizers[1])
    monkeypatch.setattr(module, "BATCH", 40)
    same(encode(stories, tokenizers[1]), whole)
    assert len(list(module._batches(stories))) > 10


def reference_words(begin, end, starts, stops):
    """The word of each token, by looking at every pair."""
    found = []
    for low, high in zip(begin, end):
        at = -1
        for w, (start, stop) in enumerate(zip(starts, stops)):
            if high > low and start <= low < stop:
                at = w
        found.append(at)
    return found


def test_words_get_their_tokens(tokenizers):
    rng = np.random.default_rng(1)
    for text in random_stories(2, 150):
        cuts = np.sort(rng.choice(len(text) + 1, 2 * (min(len(text), 12) // 2), replace=False))
        for starts, stops in ((cuts[::2], cuts[1::2]), (cuts[:-1], cuts[1:])):
            tokens = encode([text], tokenizers[2])
            found = word_of(tokens.begin, tokens.end, starts, stops)
            assert found.dtype == np.int32
            assert found.tolist() == reference_words(tokens.begin, tokens.end, starts, stops)
    assert word_of([], [], [0], [1]).tolist() == []
    for starts, stops in (([0, 2], [3, 4]), ([2, 0], [3, 1]), ([2], [1]), ([1], [2, 3])):
        with pytest.raises(UserError, match="ascend and not overlap"):
            word_of([0], [1], starts, stops)


def same(found, wanted):
    """Equal to the last byte."""
    for a, b in zip(found, wanted):
        assert type(a) is type(b)
        assert a.tobytes() == b.tobytes() if isinstance(a, np.ndarray) else a == b
        assert not isinstance(a, np.ndarray) or (a.dtype == b.dtype and a.shape == b.shape)


def test_a_cache_is_hit_by_the_same_and_missed_by_others(tokenizers, tmp_path, monkeypatch):
    stories, cache = random_stories(3, 40), tmp_path / "a b" / "cache"
    wanted = encode(stories, tokenizers[1])
    same(encode(stories, tokenizers[1], cache, "d"), wanted)
    (file,) = cache.iterdir()
    with monkeypatch.context() as patch:
        patch.setattr(module, "_encode", None)  # a hit encodes nothing
        same(encode(list(stories), tokenizers[1], str(cache), "d"), wanted)
    others = [
        lambda: encode(stories, tokenizers[2], cache, "d"),
        lambda: encode(stories, tokenizers[1], cache, "e"),
        lambda: encode(stories[:-1], tokenizers[1], cache, "d"),
        lambda: monkeypatch.setattr(module, "FORMAT", 99) or encode(stories, tokenizers[1], cache),
    ]
    for n, other in enumerate(others):
        other()
        assert len(list(cache.iterdir())) == n + 2
    assert file.suffix == ".npz" and len(file.stem) == 64


def test_a_damaged_cache_is_made_anew(tokenizers, tmp_path):
    stories = random_stories(4, 10)
    wanted = encode(stories, tokenizers[0], tmp_path)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    encode(stories[1:], tokenizers[0], tmp_path)
    other = next(path for path in tmp_path.iterdir() if path != file).read_bytes()
    rng = np.random.default_rng(0)
    damaged = [b"", b"no file of arrays", whole[:-1], whole[: len(whole) // 2], other]
    for at in rng.integers(0, len(whole), 60):
        changed = bytearray(whole)
        changed[at] ^= 255
        damaged.append(bytes(changed))
    for data in damaged:
        file.write_bytes(data)
        same(encode(stories, tokenizers[0], tmp_path), wanted)
    file.write_bytes(damaged[3])
    encode(stories, tokenizers[0], tmp_path)
    assert file.read_bytes() == whole
    np.savez(file, ids=wanted.ids, key=file.stem)  # some arrays are missing
    same(encode(stories, tokenizers[0], tmp_path), wanted)
    short = wanted._replace(end=wanted.end[:-1])._asdict()
    np.savez(file, **short, key=file.stem)
    same(encode(stories, tokenizers[0], tmp_path), wanted)


def test_a_second_process_hits_the_cache(tokenizers, tmp_path):
    stories = ["cat “upon” 🙂", "née"]
    wanted = encode(stories, tokenizers[1], tmp_path / "cache")
    save_tokenizer(tmp_path / "tokenizer.json", tokenizers[1])
    program = (
        "from jaxfeat.data import tokens\n"
        "from jaxfeat.io.tokenizer import load_tokenizer\n"
        "import socket; socket.socket = None\n"
        "tokens._encode = None\n"
        f"found = tokens.encode({stories!r}, load_tokenizer('tokenizer.json'), 'cache')\n"
        "print(found.ids.tolist(), found.end.tolist(), found.tokenizer)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    told = f"{wanted.ids.tolist()} {wanted.end.tolist()} {wanted.tokenizer}\n"
    assert done.stdout == told


def test_what_cannot_be_encoded_is_named(tokenizers, tmp_path):
    with pytest.raises(UserError, match="at least one story"):
        encode([], tokenizers[0])
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        encode(["a"], tokenizers[0], tmp_path / "file")
    assert isinstance(encode([""], tokenizers[0]), Tokens)
