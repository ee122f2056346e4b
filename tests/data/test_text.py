"""Are all stories read, faults repaired and counted, bad sources named, copies never split?"""

# ruff: noqa: RUF001 - quotes and letters that look alike are what is tested
import json
import os
import socket
import time
from pathlib import Path

import numpy as np
import pytest

from jaxfeat.data.story_split import held_out_stories, overlap
from jaxfeat.data.text import Corpus, read_corpus, stories_digest
from jaxfeat.io.parquet import write_table
from jaxfeat.types import UserError

STORIES = [
    "Once upon a time.\n\nThe cat sat.",
    "Once there was a dog.\n\nOne day, it slept.",
    "Once, there was “née” — the end.",
]
CACHES = Path(os.path.expanduser("~"), ".cache", "huggingface")


def write(folder, data, name="a b.txt"):
    """A file of bytes or text, written as it is."""
    path = folder / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def blocked(*args, **kwargs):
    """What every socket does in these tests."""
    raise OSError("sockets are blocked")


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    monkeypatch.setattr(socket, "socket", blocked)
    monkeypatch.setattr(socket, "create_connection", blocked)


@pytest.fixture
def no_hub(monkeypatch):
    """The hub's answer is an error at once, and what was asked is kept."""
    import huggingface_hub

    asked = []

    def info(self, name, **kwargs):
        asked.append(name)
        raise OSError("no network")

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", info)
    return asked


@pytest.mark.parametrize(
    ("boundary", "between"),
    [
        ("endoftext", "\n<|endoftext|>\n"),
        ("auto", "<|endoftext|>"),
        ("line", "\n"),
        ("auto", "\n"),
        ("opening", "\n\n"),
    ],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_stories_of_a_text_file(tmp_path, boundary, between, newline):
    text = between.join(STORIES) + between
    path = write(tmp_path, text.replace("\n", newline))
    corpus = read_corpus(path, boundary=boundary)
    assert corpus.stories == STORIES
    assert corpus[1:] == (str(path), stories_digest(corpus.stories), 0, 0)


def test_auto_takes_a_few_single_newlines_for_line_breaks(tmp_path):
    path = write(tmp_path, "\n\n".join(["A cat.\nIt sat."] + ["A dog."] * 30))
    assert read_corpus(path).stories == ["A cat.\nIt sat."] + ["A dog."] * 30
    assert len(read_corpus(path, boundary="line").stories) == 2


def test_a_line_of_spaces_is_a_blank_line(tmp_path):
    path = write(tmp_path, "\n\nA cat.\n \t\nIt sat.\nA dog.  \nA cow.\n \n")
    assert read_corpus(path, boundary="line").stories == ["A cat.\n\nIt sat.", "A dog.", "A cow."]


def test_an_opening_begins_a_story(tmp_path):
    paragraphs = ["left over", "Once upon a time.", "One day, he ran.", "The end.", "A cow sat.",
                  "The sun was hot, and a girl named Lily ran.", "Tom and Mia are twins. Fine.",
                  "Once she ran.", "There were so many toys."]  # fmt: skip
    found = read_corpus(write(tmp_path, "\n\n".join(paragraphs)), boundary="opening").stories
    starts = [paragraphs.index(story.split("\n\n")[0]) for story in found]
    assert starts == [0, 1, 4, 5, 6]
    assert "\n\n".join(found) == "\n\n".join(paragraphs)


def test_faults_of_encoding_are_repaired_and_counted(tmp_path):
    wrong = ["â€œHi,â€ he said. Itâ€™s fun", "cafÃ©", "“Ben’s” fine — née", "plain"]
    right = ["“Hi,” he said. It’s fun", "café", "“Ben’s” fine — née", "plain"]
    corpus = read_corpus(write(tmp_path, "\n".join(wrong)))
    assert (corpus.stories, corpus.repaired) == (right, 2)
    mixed = read_corpus(write(tmp_path, 'He said, “It’s me.â€ "And you?â€\n\n'))
    assert mixed.stories == ['He said, “It’s me.” "And you?”']


def test_bytes_that_are_not_utf8_are_read_as_windows_1252(tmp_path):
    data = (
        b"\xef\xbb\xbfna\xefve \x93ok\x94 and \xc3\xa9\nfine \xe2\x80\x9d\nodd \x81 byte\n\x81\x8d"
    )
    corpus = read_corpus(write(tmp_path, data))
    assert corpus.stories == ["naïve “ok” and é", "fine ”", "odd \ufffd byte"]
    assert (corpus.repaired, corpus.dropped) == (2, 1)


def test_bytes_of_a_column_that_are_not_utf8(tmp_path):
    path = write(tmp_path, b'{"text": "caf\xe9"}\n{"text": "na\xc3\xafve"}\n', "latin.jsonl")
    corpus = read_corpus(path)
    assert (corpus.stories, corpus.repaired) == (["café", "naïve"], 1)


def test_nothing_else_of_a_text_changes(tmp_path):
    text = "e\u0301 ﬁne &amp; “q” ‘s’ … ＦＵＬＬ 👩‍👩‍👧 漢字 à la\xa0carte"
    assert read_corpus(write(tmp_path, text)).stories == [text]


@pytest.mark.parametrize("kind", ["jsonl", "json", "parquet", "saved", "parts"])
def test_stories_of_a_data_set(tmp_path, kind, monkeypatch):
    import datasets

    monkeypatch.chdir(tmp_path)
    rows = [*STORIES, None, "  ", "cafÃ©\r\nnoir "]
    path = tmp_path / f"my stories.{kind}"
    if kind in ("jsonl", "json"):
        path.write_text("".join(json.dumps({"n": 1, "story": row}) + "\n" for row in rows))
    else:
        datasets.disable_progress_bars()
        data = datasets.Dataset.from_dict({"n": [1] * len(rows), "story": rows})
        if kind == "parquet":
            data.to_parquet(str(path))
        elif kind == "saved":
            data.save_to_disk(str(path))
        else:
            other = datasets.Dataset.from_dict({"story": ["of another part"]})
            datasets.DatasetDict({"train": other, "valid": data}).save_to_disk(str(path))
            with pytest.raises(UserError, match="has no 'test'; it has train, valid"):
                read_corpus(path, column="story", split="test")
        datasets.enable_progress_bars()
    before = sorted(CACHES.rglob("*")) if CACHES.exists() else None
    for source in (path, path.name):
        corpus = read_corpus(source, column="story", split="valid")
        assert corpus.stories == [*STORIES, "café\nnoir"]
        assert (corpus.repaired, corpus.dropped) == (1, 2)
    assert (sorted(CACHES.rglob("*")) if CACHES.exists() else None) == before
    assert not datasets.are_progress_bars_disabled()
    with pytest.raises(UserError, match=r"has no 'text'; it has (n, )?story"):
        read_corpus(path, split="valid")
    if kind != "parts":
        with pytest.raises(UserError, match=r"'n' of .* holds int64, not text"):
            read_corpus(path, column="n")


@pytest.mark.parametrize(
    ("name", "data", "told"),
    [
        ("empty.txt", b"", "holds no story"),
        ("blank.txt", b" \n\n \n", "holds no story"),
        ("nul.txt", b"Once upon\0 a time", "binary file"),
        ("late.txt", b"x " * 50_000 + b"\0", "binary file"),
        ("noise.txt", bytes(range(1, 32)) + b"some", "binary file"),
        ("latin.txt", "Жил-был кот".encode("cp1251"), "binary file"),
        ("lone", b"\x81\x8d \xe9", "binary file"),
        ("table.csv", b"text\na", "must end in .txt, .jsonl, .json, .parquet"),
        ("empty.jsonl", b"\n", "is empty"),
        ("bad.jsonl", b"Once upon a time", "cannot be read as a .jsonl file"),
        ("cut.jsonl", b'{"text": "a"}\n{"text": "b', "cannot be read as a .jsonl file"),
        ("empty.parquet", b"", "is empty"),
        ("bad.parquet", b"Once upon a time", "cannot be read as a .parquet file"),
        ("none.jsonl", b'{"text": null}\n', "holds no story"),
    ],
)
def test_a_bad_file_is_named(tmp_path, name, data, told):
    with pytest.raises(UserError, match=told) as caught:
        read_corpus(write(tmp_path, data, name))
    assert name in str(caught.value) and len(str(caught.value).splitlines()) < 3


def test_what_is_no_source_is_named(tmp_path, monkeypatch, no_hub):
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError, match="cannot be read as a data set saved by save_to_disk"):
        read_corpus(tmp_path / "folder")
    for absent in ("", " ", "no such.txt", "stories.txt", "~/x/y/z", "a/b/c", "x" * 5000, "a\0b"):
        with pytest.raises(UserError, match="no file at"):
            read_corpus(absent)
    with pytest.raises(UserError, match="none of auto, endoftext, line, blank, opening"):
        read_corpus(tmp_path / "folder", boundary="lines")
    with pytest.raises(UserError, match="most: -1"):
        read_corpus(tmp_path / "folder", most=-1)
    path = write(tmp_path, "Once.")
    error = PermissionError(13, "Permission denied")
    monkeypatch.setattr(Path, "read_bytes", lambda self: (_ for _ in ()).throw(error))
    with pytest.raises(UserError, match="cannot be read \\(Permission denied\\)"):
        read_corpus(path)
    assert no_hub == []


def test_without_a_network_a_data_set_is_an_error_at_once(no_hub):
    from datasets import config

    began, offline = time.perf_counter(), config.HF_HUB_OFFLINE
    with pytest.raises(UserError, match=r"no file at some/stories, .*no network") as caught:
        read_corpus("some/stories")
    assert "hf download some/stories --repo-type dataset" in str(caught.value)
    assert time.perf_counter() - began < 10 and offline == config.HF_HUB_OFFLINE
    assert no_hub == ["some/stories"]


def test_a_data_set_of_the_hub(monkeypatch):
    import datasets
    import huggingface_hub

    def load(name, split):
        if split != "validation":
            raise ValueError(f"Unknown split {split!r}. Should be one of ['validation'].")
        return datasets.Dataset.from_dict({"text": [name, " "]})

    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda *a, **k: None)
    monkeypatch.setattr(datasets, "load_dataset", load)
    corpus = read_corpus("some/stories", split="validation")
    assert (corpus.stories, corpus.source, corpus.dropped) == (["some/stories"], corpus.source, 1)
    with pytest.raises(UserError, match="cannot be loaded: Unknown split 'train'"):
        read_corpus("some/stories")


def test_home_and_relative_paths(tmp_path, monkeypatch):
    write(tmp_path, "A cat.\nA dog.\nA cow.")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for source in ("~/a b.txt", "a b.txt", "./a b.txt"):
        assert read_corpus(source, most=2) == Corpus(
            ["A cat.", "A dog."], source, stories_digest(["A cat.", "A dog."]), 0, 0
        )


PLAIN = "They run and jump all day long. " * 24
LINES = [f"{PLAIN}It’s fun, â€œokâ€", PLAIN.strip(), "漢字" * 20 + "â€™"]


@pytest.mark.parametrize("size", [2_000_000, pytest.param(50_000_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("words", LINES, ids=["quotes", "plain", "no spaces"])
def test_one_long_line_is_one_story(tmp_path, size, words):
    part = words if "漢" in words else words + " "  # no space to cut at
    count = size // len(part.encode())
    path = write(tmp_path, part * count)
    began = time.perf_counter()
    corpus = read_corpus(path)
    assert time.perf_counter() - began < 20
    assert len(corpus.stories) == 1 and corpus.repaired == (not words.isascii())
    right = part.replace("â€œ", "“").replace("â€™", "’").replace("â€", "”")
    wrong = sum(a != b for a, b in zip(corpus.stories[0].split(), (right * count).split()))
    assert "漢" in words or wrong == 0
    # Where there is no space a cut may fall inside a fault: it stays as it was.
    assert corpus.stories[0].count("â") <= size // 100_000


def test_about_an_eighth_is_held_out_and_copies_stay_together():
    rng = np.random.default_rng(0)
    stories = [f"Story {n} of a {'cat' if n % 2 else 'dog'}." for n in range(4000)]
    copies = [f" {s.upper()}".replace(" ", "\n  ") for s in stories]
    held = held_out_stories(stories)
    assert held.dtype == bool and abs(held.mean() - 1 / 8) < 4 * np.sqrt(7 / 64 / 4000)
    order = rng.permutation(8000)
    both = [(stories + copies)[n] for n in order]
    side = held_out_stories(both)
    np.testing.assert_array_equal(side, np.concatenate([held, held])[order])
    assert overlap(both, side) == 0
    assert overlap(["A cat", "a  CAT", "x"], np.array([True, False, True])) == 1


def test_an_empty_side_is_an_error():
    for stories in ([], ["one"], ["one"] * 50):
        with pytest.raises(UserError, match="side empty; more are needed"):
            held_out_stories(stories)


def test_folder_of_shards(tmp_path):
    """A downloaded folder of Parquet files: the named split's, or all where none is named so."""
    folder = tmp_path / "set" / "data"
    folder.mkdir(parents=True)
    write = lambda name, *texts: write_table(folder / name, {"text": list(texts)})
    write("train-00000-of-00002.parquet", "One.", "Two.")
    write("train-00001-of-00002.parquet", "Three.")
    write("validation-00000-of-00001.parquet", "Four.")
    assert read_corpus(tmp_path / "set").stories == ["One.", "Two.", "Three."]
    assert read_corpus(tmp_path / "set", split="validation").stories == ["Four."]
    assert len(read_corpus(tmp_path / "set", split="other").stories) == 4
