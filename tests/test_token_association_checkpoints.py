"""Are checkpoints scored from their files to the report, gone on with, and refused otherwise?"""

import json

import numpy as np
import pytest
from pretrained_files import LLAMA, result_folder, weights, write_folder
from test_experiments import run

from experiments import token_association
from jaxfeat.corpus.pretrained_scores import make_theories, pretrained_scores
from jaxfeat.data.stories import make_stories
from jaxfeat.io.parquet import read_table
from jaxfeat.io.tokenizer import save_tokenizer, train_tokenizer
from jaxfeat.train.revisions import open_checkpoints

TEXTS = [story.tagged.text for story in make_stories(0, 60)]
OPTIONS = ("--data.stories", "60", "--data.length", "8", "--data.sequences", "50")


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS, 280)


def start(out, models, *more):
    """The smoke preset on checkpoints."""
    return run(out, *OPTIONS, "--models", *map(str, models), *more, of=token_association)


@pytest.fixture(scope="module")
def done(tmp_path_factory, tokenizer):
    """A ladder, the folder of its scores and what the run returned."""
    ladder = tmp_path_factory.mktemp("ladder")
    result_folder(ladder, tokenizer.get_vocab_size())
    save_tokenizer(ladder / "tokenizer.json", tokenizer)
    out = tmp_path_factory.mktemp("runs") / "scores"
    return ladder, out, start(out, [ladder], "--run", "1")


def test_scores(done, tokenizer):
    """What is reported are the library's scores of the text, cut by the checkpoint's tokenizer."""
    ladder, out, told = done
    ids = [tokenizer.encode(text).ids[:9] for text in TEXTS][:50]
    theories = {"text": make_theories(np.array(ids, np.int32), tokenizer.get_vocab_size())}
    expected = pretrained_scores(open_checkpoints([ladder], seed=1), theories)
    assert told["checkpoints"] == ("step 0", "step 1", "step 4")
    for form in ("cosine", "beyond"):
        truth = getattr(expected, form)["text"]["post"]
        found = told[form]["text"]["post"]
        np.testing.assert_allclose(found, truth.mean(axis=1), rtol=1e-4, atol=1e-6)
    table = read_table(out / "tables" / "scores.parquet")
    heads = (table["score"] == "heads") & (table["corpus"] == "text")
    truth = expected.beyond["text"]["heads"].ravel()
    np.testing.assert_allclose(table["beyond"][heads], truth, rtol=1e-4, atol=1e-6)
    assert set(table["corpus"]) == {"text", "shuffled text"} and set(table["step"]) == {0, 1, 4}
    for name in ("scores", "over_training", "scores_raw", "heads"):
        for kind in ("png", "svg", "parquet"):
            assert (out / "figures" / f"{name}.{kind}").stat().st_size > 0
    page = (out / "report.html").read_text()
    assert "http://" not in page.replace("http://www.w3.org", "") and "first 9 tokens" in page
    assert told["claims"]["Attention follows the text in every block but the first"] == "undecided"


def test_goes_on(done):
    """A checkpoint whose scores were lost is scored again, to the same bits."""
    ladder, out, told = done
    (out / "scores" / "0001.npz").unlink()
    again = start(out, [ladder], "--run", "1", "--resume")
    np.testing.assert_equal(again, told)


def test_other_weights_are_refused(done, tmp_path, tokenizer, capsys):
    """A run goes on with the checkpoints that it began with, by their weights."""
    models = [write_folder(tmp_path / "step1", raw_of(tokenizer), weights(raw_of(tokenizer)))]
    save_tokenizer(models[0] / "tokenizer.json", tokenizer)
    out = tmp_path / "out"
    told = start(out, models)
    assert told["steps"] == (1,) and "undecided" in told["claims"].values()
    write_folder(models[0], raw_of(tokenizer), weights(raw_of(tokenizer), 1))
    with pytest.raises(SystemExit) as stop:
        start(out, models, "--resume")
    assert stop.value.code == 2 and "--models: the run in" in capsys.readouterr().err


def raw_of(tokenizer, **other):
    """A tiny Llama's settings with the tokenizer's size."""
    return LLAMA | {"vocab_size": tokenizer.get_vocab_size()} | other


def test_bad_input(tmp_path, tokenizer, capsys):
    """One or two lines that name the option, exit code 2, nothing written."""
    raw = raw_of(tokenizer)
    one, two, copy = (
        write_folder(tmp_path / name, raw, weights(raw, seed))
        for name, seed in (("step1", 0), ("step2", 1), ("last", 0))
    )
    wide = raw_of(tokenizer, vocab_size=300)
    wider = write_folder(tmp_path / "wide", wide, weights(wide))
    small = write_folder(tmp_path / "small", LLAMA, weights(LLAMA))
    mute = write_folder(tmp_path / "mute", raw, weights(raw))
    other = write_folder(tmp_path / "other", raw, weights(raw, 2))
    for folder in (one, two, copy, small):
        save_tokenizer(folder / "tokenizer.json", tokenizer)
    save_tokenizer(other / "tokenizer.json", train_tokenizer(TEXTS[:3], 280))
    for models, more, words in (
        (
            [one, two, copy],
            (),
            "--models: checkpoints: revisions hold the same weights: ",
        ),
        ([one, two, one], (), "--models: checkpoints: revisions stand twice: step1 = step1"),
        ([one, wider], (), "--models: checkpoints: step1 has 280 tokens, wide 300"),
        ([one, other], (), "--models: checkpoints: step1 and other have different tokenizers"),
        ([mute], (), "--models: mute has no tokenizer.json"),
        ([small], (), "--models: the tokenizer of small gives the id"),
        ([tmp_path / "absent"], (), "--models: "),
        ([one], ("--data.length", "9999"), "--data.length: "),
        ([one], ("--dtype", "int8"), "--dtype: int8"),
        ([one], ("--run", "-1"), "--run: -1"),
        ([one], ("--data.path", "absent.txt"), "--data.path: "),
    ):
        with pytest.raises(SystemExit) as stop:
            start(tmp_path / "new", models, *more)
        error = capsys.readouterr().err.strip().splitlines()
        assert stop.value.code == 2 and len(error) <= 2 and words in error[0], (models, error)
        assert not (tmp_path / "new").exists()
    (small / "config.json").write_text(json.dumps(LLAMA | {"hidden_size": "x"}))
    with pytest.raises(SystemExit) as stop:
        start(tmp_path / "new", [small])
    assert stop.value.code == 2 and "--models: " in capsys.readouterr().err


def test_a_run_that_was_not_made(done, tmp_path, capsys):
    """The ladder has two runs."""
    with pytest.raises(SystemExit) as stop:
        start(tmp_path / "new", [done[0]], "--run", "2")
    assert stop.value.code == 2 and "--run: 2 given" in capsys.readouterr().err
