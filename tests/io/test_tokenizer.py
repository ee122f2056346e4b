"""Is a tokenizer the same each time, whole after a round trip, and a wrong one refused?"""

import json
import socket

import pytest

from jaxfeat.io.tokenizer import (
    END,
    check_vocab,
    end_id,
    load_tokenizer,
    save_tokenizer,
    tokenizer_digest,
    train_tokenizer,
)
from jaxfeat.types import UserError

TEXTS = ["Once upon a time there was a cat.", "The cat said, “née”.", "Once the cat sat."] * 3
STRANGE = "née e\u0301 “q”\r\n  👩‍👩‍👧\t漢字 \x00\x7f"


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def blocked(*args, **kwargs):
        raise OSError("sockets are blocked")

    monkeypatch.setattr(socket, "socket", blocked)


def test_training_twice_gives_the_same_tokenizer():
    one, two = train_tokenizer(TEXTS, 280), train_tokenizer(iter(TEXTS), 280)
    assert one.to_str() == two.to_str()
    assert one.get_vocab_size() == 280 and end_id(one) == one.token_to_id(END) == 0
    assert tokenizer_digest(one) == tokenizer_digest(two)
    assert tokenizer_digest(one) != tokenizer_digest(train_tokenizer(TEXTS, 279))


def test_nothing_is_unknown_and_everything_comes_back():
    for size in (257, 280, 4096):
        tokenizer = train_tokenizer(TEXTS, size)
        assert tokenizer.decode(tokenizer.encode(STRANGE).ids) == STRANGE
    assert tokenizer.encode(f"a{END}").ids[-1] == 0
    assert tokenizer.get_vocab_size() < 4096  # nothing is left to merge


def test_a_saved_tokenizer_is_the_same(tmp_path):
    tokenizer = train_tokenizer(TEXTS, 280)
    path = save_tokenizer(tmp_path / "a b" / "tokenizer.json", tokenizer)
    for place in (path, path.parent):
        again = load_tokenizer(place)
        assert tokenizer_digest(again) == tokenizer_digest(tokenizer)
        assert again.encode(STRANGE).ids == tokenizer.encode(STRANGE).ids
    assert [file.name for file in path.parent.iterdir()] == ["tokenizer.json"]
    with pytest.raises(UserError, match="cannot be written"):
        save_tokenizer(path / "below a file", tokenizer)


def test_the_two_files_of_gpt2(tmp_path):
    tokenizer = train_tokenizer(TEXTS, 280)
    tokenizer.model.save(str(tmp_path))
    again = load_tokenizer(tmp_path)
    assert again.encode(f"{STRANGE}{END}").ids == tokenizer.encode(f"{STRANGE}{END}").ids
    assert again.decode(again.encode(STRANGE).ids) == STRANGE
    (tmp_path / "merges.txt").unlink()
    with pytest.raises(UserError, match=r"no tokenizer.json, or vocab.json and merges.txt, in"):
        load_tokenizer(tmp_path)


def test_what_is_no_tokenizer_is_named(tmp_path):
    with pytest.raises(UserError, match=r"no file at .*absent"):
        load_tokenizer(tmp_path / "absent")
    for name, data in (("empty", b""), ("bad", b"{}"), ("binary", b"\0\xff")):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(UserError, match=f"{name} cannot be read"):
            load_tokenizer(tmp_path / name)


def test_an_end_token_is_needed_under_any_usual_name(tmp_path):
    parts = json.loads(train_tokenizer(TEXTS, 280).to_str())
    for name, found in (("</s>", True), ("<stop>", False)):
        text = json.dumps(parts).replace(END, name)
        (tmp_path / "tokenizer.json").write_text(text)
        if found:
            assert end_id(load_tokenizer(tmp_path)) == 0
        else:
            with pytest.raises(UserError, match=r"no end token, one of <\|endoftext\|>, .* needed"):
                load_tokenizer(tmp_path)


def test_wrong_sizes_are_refused():
    tokenizer = train_tokenizer(TEXTS, 280)
    check_vocab(tokenizer, 280)
    with pytest.raises(UserError, match="it has 280 tokens, the checkpoint 50257"):
        check_vocab(tokenizer, 50257)
    for size in (256, 0, -1, 300.5, True):
        with pytest.raises(UserError, match=r"tokenizer size: .* 257 or more"):
            train_tokenizer(TEXTS, size)
    for texts in ([], [""]):
        with pytest.raises(UserError, match="at least one text"):
            train_tokenizer(texts, 300)
