"""Does the stories experiment refuse what it cannot read, and read what it can?

Its smoke preset runs in tests/test_other_experiments.py.
"""

import dataclasses

import jax
import numpy as np
import pytest
from test_experiments import run

from experiments import tinystories
from experiments.tinystories_config import DataConfig
from experiments.tinystories_data import load_data, told_of
from experiments.tinystories_measures import make_exam
from experiments.tinystories_training import ladder_of
from experiments.tinystories_writing import _names
from jaxfeat.data.stories import make_stories
from jaxfeat.io.arrays import load_arrays
from jaxfeat.io.parquet import read_table
from jaxfeat.io.tokenizer import save_tokenizer, train_tokenizer
from jaxfeat.run import folder
from jaxfeat.train.checkpoint import saved_steps
from jaxfeat.types import UserError

SMOKE = tinystories.PRESETS["smoke"]
CONLLU = "# newdoc id = {n}\n# text = Dogs ran.\n" + "".join(
    f"{n}\t{form}\t_\t_\t{xpos}\t_\t0\t{rel}\t_\t{misc}\n"
    for n, form, xpos, rel, misc in (
        (1, "Dogs", "NNS", "nsubj", "_"), (2, "ran", "VBD", "root", "SpaceAfter=No"),
        (3, ".", ".", "punct", "_"),
    )
) + "\n"  # fmt: skip


def texts(count, seed=0):
    """Plain stories."""
    return [story.tagged.text for story in make_stories(seed, count)]


def test_bad_input(tmp_path, capsys):
    """One or two lines that name the option, exit code 2, nothing written."""
    good = tmp_path / "good.txt"
    good.write_text("<|endoftext|>\n".join(t + "\n" for t in texts(40)))
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "spaces.txt").write_text(" \n\n \n")
    (tmp_path / "binary.txt").write_bytes(bytes(range(256)) * 40)
    (tmp_path / "some").mkdir()
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "bad.conllu").write_text("1\tDogs\n\n")
    (tmp_path / "other.conllu").write_text("".join(CONLLU.format(n=n) for n in range(40)))
    (tmp_path / "one.conllu").write_text(CONLLU.format(n=0))
    (tmp_path / "two.jsonl").write_text('{"story": "a b"}\n')
    path = lambda name: str(tmp_path / name)
    for option, words in (
        (("--data.path", path("absent.txt")), "--data.path: no file at"),
        (("--data.path", path("empty.txt")), "--data.path: "),
        (("--data.path", path("spaces.txt")), "--data.path: "),
        (("--data.path", path("binary.txt")), "--data.path: "),
        (("--data.path", path("some")), "--data.path: "),
        (("--data.path", path("bad.conllu")), "--data.path: "),
        (("--data.path", path("two.jsonl")), "--data.column: "),
        (("--data.path", str(good), "--data.boundary", "page"), "--data.boundary: page"),
        (("--data.path", str(good), "--data.tokenizer", path("tokenizer.json")),
         "--data.tokenizer: "),
        (("--data.path", str(good), "--data.tokenizer", path("absent")), "--data.tokenizer: "),
        (("--data.path", str(good), "--data.vocab", "12"), "--data.vocab: "),
        (("--data.path", str(good), "--data.tags", "gold"), "--data.tags: gold"),
        (("--data.path", str(good), "--data.tags", "udpipe"), "--data.tags: udpipe"),
        (("--data.path", str(good), "--data.tags", path("one.conllu")), "has 1 documents"),
        (("--data.path", str(good), "--data.tags", path("other.conllu")),
         "--data.tags: story 0: the tags are those of another text"),
        (("--data.path", path("one.conllu")), "--data.path: "),
        (("--data.tags", "spacy"), "--data.tags: spacy"),
        (("--data.stories", "3"), "--data.stories: 3"),
        (("--data.stories", "16"), "--data.stories: 16 of them leave"),
        (("--length", "3"), "--length: 3"),
        (("--positions", "16"), "--positions: "),
        (("--positions", "5", "5"), "--positions: "),
        (("--prompt", "16"), "--prompt: 16"),
        (("--every", "1"), "--every: 1"),
        (("--steps", "7"), "--steps: 7"),
        (("--tracked", "untied"), "--tracked: "),
        (("--log", "mlflow"), "--log: mlflow"),
        (("--memory-gb", "1e-9"), "--memory-gb: tracking"),
        (("--held", "7"), "--held: 7"),
        (("--heads", "3"), "--heads: 3"),
    ):  # fmt: skip
        with pytest.raises(SystemExit) as stop:
            run(tmp_path / "new", *option, of=tinystories)
        error = capsys.readouterr().err.strip().splitlines()
        assert stop.value.code == 2 and len(error) <= 2 and words in error[0], (option, error)
        assert not (tmp_path / "new").exists(), option


def test_positions_that_no_story_reaches(tmp_path):
    """Known before anything is trained."""
    path = tmp_path / "short.txt"
    path.write_text("\n\n".join(f"Hi {n}." for n in range(60)))
    config = dataclasses.replace(SMOKE, data=DataConfig(path=str(path), stories=0, vocab=300))
    with pytest.raises(UserError, match="--probed, --positions: 9 given, no training story"):
        tinystories.check(config)


def exam_of(tmp_path, text, name="stories.txt", **data):
    """What is read of a file: the data and what models are asked on."""
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    config = dataclasses.replace(
        SMOKE, data=DataConfig(path=str(path), stories=0, vocab=300, tags="none", **data),
        probed=(5,),
    )  # fmt: skip
    tinystories.check(config)
    loaded = load_data(config.data, 0)
    return loaded, make_exam(config, loaded, jax.random.key(0), jax.random.key(1))


def test_stories_shorter_than_the_window(tmp_path):
    """They are padded: every target counts once, and no prompt is taken from them."""
    short = [f"The {n} dog ran to it." for n in range(60)]
    data, exam = exam_of(tmp_path, "\n\n".join(short))
    assert len(data.texts.corpus.stories) == 60 and data.groups.keys() == {"place in story"}
    assert int(np.asarray(data.train.size).max()) < SMOKE.length
    assert exam.counted.sum() == np.asarray(data.held_out.size - 1)[: SMOKE.evaluated].sum()
    assert len(exam.prompts.ids) == 0 and len(exam.asks.t) == 0


def test_line_ends_and_encodings(tmp_path):
    """CRLF gives the stories of LF; invalid UTF-8 is repaired and counted."""
    plain = "\n\n".join(texts(60)).encode()
    first, _ = exam_of(tmp_path, plain, boundary="blank")
    second, _ = exam_of(tmp_path, plain.replace(b"\n", b"\r\n"), "crlf.txt", boundary="blank")
    assert first.texts.corpus.stories == second.texts.corpus.stories
    np.testing.assert_array_equal(first.tokens.ids, second.tokens.ids)
    broken, _ = exam_of(tmp_path, plain + b"\n\nShe said caf\xe9.", "bad.txt", boundary="blank")
    assert broken.texts.corpus.repaired == 1 and "1 with repaired" in told_of(broken)
    assert broken.texts.corpus.stories[-1] == "She said café."


def test_treebank(tmp_path):
    """A treebank's documents are stories with gold tags."""
    path = tmp_path / "bank.conllu"
    words = ("Dogs", "Cats", "Cows", "Hens", "Pigs", "Rats", "Owls", "Emus", "Apes", "Bees")
    names = [f"{a}{b}".capitalize() for a in words for b in words]
    path.write_text("".join(CONLLU.replace("Dogs", name).format(n=name) for name in names))
    config = dataclasses.replace(SMOKE, data=DataConfig(path=str(path), stories=0, vocab=300))
    data = load_data(config.data, 0)
    assert data.texts.told.startswith("gold") and len(data.names) == 22
    tagged = np.asarray(data.train.pos)
    assert (tagged == 1).sum() >= len(data.train.size)  # VBD: "ran" in each


def test_questions_and_prompts():
    """The answer is the predicted token; a prompt begins a paragraph and ends where it says."""
    config = dataclasses.replace(SMOKE, evaluated=40, prompts=12, length=64, prompt=16)
    config = dataclasses.replace(config, data=DataConfig(stories=400, vocab=2000))
    data = load_data(config.data, 0)
    exam = make_exam(config, data, jax.random.key(0), jax.random.key(1))
    asks, ids = exam.asks, np.asarray(exam.cut.ids)
    assert len(asks.t) > 50 and set(asks.kind) == {0, 1}
    np.testing.assert_array_equal(ids[asks.window, asks.t + 1], asks.options[:, 0])
    assert exam.counted[asks.window, asks.t].all()
    for options in asks.options:
        real = options[options >= 0]
        assert len(set(real.tolist())) == len(real) >= 2
    assert len(exam.prompts.ids) == 12
    for row, s, upto, truth in zip(*exam.prompts):
        story = data.texts.corpus.stories[int(s)]
        text = data.tokenizer.decode(row.tolist())
        assert story[: int(upto)].endswith(text)
        before = story[: int(upto)].removesuffix(text)
        assert before == "" or before.endswith("\n")
        after = data.tokenizer.decode([i for i in truth.tolist() if i != truth[-1]] or [0])
        assert story[int(upto) :].startswith(after[:10])
    assert _names("Then Tom saw Ann. It ran to Bo") == ["Tom", "Ann", "Bo"]


def test_another_tokenizer_is_refused(tmp_path):
    """A run goes on with the tokenizer and the stories it began with."""
    data = load_data(SMOKE.data, 0)
    tinystories._keep_tokenizer(data, tmp_path)
    folder.write_json(tmp_path / "provenance.json", {"data_hash": data.texts.corpus.digest})
    tinystories._keep_tokenizer(data, tmp_path)
    folder.write_json(tmp_path / "provenance.json", {"data_hash": "other"})
    with pytest.raises(UserError, match="read other stories"):
        tinystories._keep_tokenizer(data, tmp_path)
    for size in (300, 512):  # another size, and the same size trained on other stories
        tokenizer = train_tokenizer(texts(64, seed=5), size)
        save_tokenizer(tmp_path / "tokenizer.json", tokenizer)
        with pytest.raises(UserError, match="tokenizer"):
            tinystories._keep_tokenizer(data, tmp_path)


def test_ladder():
    """Powers of two, every log and the end."""
    assert ladder_of(SMOKE) == (0, 1, 2, 4, 8)
    quick = ladder_of(tinystories.PRESETS["quick"])
    assert {0, 1, 2, 4, 8, 16, 32, 64, 128, 192, 256, 384, 448} <= set(quick)


@pytest.mark.slow
def test_interrupted_five_times(tmp_path, monkeypatch):
    """Equal, bit for bit, to a run of the same seed that was not interrupted.

    Both variants are tracked, plain gradient steps too.
    """
    options = ("--tracked", "standard", "myopic", "--also-sgd")
    run(tmp_path / "whole", *options, of=tinystories)
    write, left = folder.append_metrics, [0]

    def stopping(place, values):
        write(place, values)
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt

    out = tmp_path / "cut"
    monkeypatch.setattr(folder, "append_metrics", stopping)
    for attempt, lines in enumerate((2, 4, 3, 3, 4)):
        left[0] = lines
        with pytest.raises(SystemExit) as stop:
            run(out, *options, *(["--resume"] if attempt else []), of=tinystories)
        assert stop.value.code == 130
    monkeypatch.setattr(folder, "append_metrics", write)
    run(out, *options, "--resume", of=tinystories)
    whole = tmp_path / "whole"
    assert folder.read_metrics(out) == folder.read_metrics(whole)
    for path in [*(whole / "variants").iterdir(), *(whole / "ledger").iterdir()]:
        a, b = load_arrays(path), load_arrays(out / path.relative_to(whole))
        assert a.keys() == b.keys()
        for name in a:
            assert a[name].tobytes() == b[name].tobytes(), (path.name, name)
    for name in ("standard", "myopic"):
        assert saved_steps(out / "ladder" / name) == [0, 1, 2, 4, 8]
    for path in (whole / "tables").iterdir():
        assert path.read_bytes() == (out / path.relative_to(whole)).read_bytes()
    page = (out / "report.html").read_text()
    assert "myopic training, plain gradient steps" in page
    # nothing is precached where later positions send nothing back
    table = read_table(out / "tables" / "influence_myopic.parquet")
    assert not table["precached"].any() and table["shared"].any()


@pytest.mark.slow
def test_plain_text(tmp_path):
    """A file of few stories, one seed, no tags, nothing tracked: what is not known is not told."""
    path = tmp_path / "few.txt"
    path.write_text("\n\n".join(t.replace("\n", " ") for t in texts(60)))
    data = ("--data.path", str(path), "--data.stories", "0", "--data.tags", "none")
    told = run(
        tmp_path / "out", *data, "--data.boundary", "blank", "--seeds", "1", "--tracked",
        of=tinystories,
    )  # fmt: skip
    assert set(told["claims"].values()) == {"undecided"} and len(told["claims"]) == 2
    page = (tmp_path / "out" / "report.html").read_text()
    for words in (
        "stories are held out: no interval", "Without tags only the place",
        "One seed gives no interval", "names known before",
    ):  # fmt: skip
        assert words in page, words
    for words in ("GENERATED", "bindings said each", "Influence over", "part of speech"):
        assert words not in page, words
