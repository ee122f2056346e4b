"""Does the experiment on token associations run from text to report, go on, and refuse?"""

import json

import numpy as np
import pytest
from test_experiments import run

from experiments import token_association
from experiments.token_association_data import load_data, make_maps
from experiments.token_association_training import load_weights
from jaxfeat.corpus.closed_form import leading_terms, params_of, remove_projection
from jaxfeat.io.parquet import read_table
from jaxfeat.models.onehot import mean_loss
from jaxfeat.run import folder

SMOKE = token_association.PRESETS["smoke"]


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """The smoke preset's folder and what it returned."""
    out = tmp_path_factory.mktemp("runs") / "association"
    return out, run(out, of=token_association)


def test_smoke(done):
    """Figures in both forms, tables, a page that says what the text is; theory holds early."""
    out, told = done
    for name in ("cosines", "departures", "scatter", "losses", "removed", "attention_ranks",
                 "attention_ranks_by_query", "errors"):  # fmt: skip
        for kind in ("png", "svg", "parquet"):
            assert (out / "figures" / f"{name}.{kind}").stat().st_size > 0
    page = (out / "report.html").read_text()
    assert "http://" not in page.replace("http://www.w3.org", "") and "generated stories" in page
    assert list(told["claims"].values()) == ["holds"] * 3
    assert json.loads((out / "provenance.json").read_text())["data_hash"]
    table = read_table(out / "tables" / "cosines.parquet")
    own = table["kind"] == "leading terms"
    assert own.sum() == 3 * 7 and np.isnan(table["error"][table["kind"] == "wrong map"]).all()
    near = read_table(out / "tables" / "neighbours.parquet")
    assert set(near["weighting"]) == {"joint", "conditional", "pmi"} and max(near["rank"]) == 3


def test_losses_are_the_models(done):
    """The whole model's loss at a rung, and by how much it grows without a leading term."""
    out, told = done
    weights = load_weights(out, 6)
    tokens = load_data(SMOKE.data, SMOKE.seed).tokens[: SMOKE.evaluated]
    loss = float(mean_loss(params_of(weights), tokens))
    assert told["loss"]["learned"][-1] == pytest.approx(loss, rel=1e-6)
    assert told["removed"]["nothing"] == pytest.approx(loss, rel=1e-6)
    term = leading_terms(make_maps(SMOKE, load_data(SMOKE.data, SMOKE.seed).tokens).text,
                         6, SMOKE.rate, SMOKE.layers).output  # fmt: skip
    without = params_of(weights._replace(output=remove_projection(weights.output, term)))
    expected = float(mean_loss(without, tokens))
    assert told["removed"]["W_O"] == pytest.approx(expected, rel=1e-6) and expected > loss


@pytest.mark.parametrize("lost", [6, 4])
def test_goes_on(done, lost):
    """A run that lost a rung, the last or one before, ends with the same numbers."""
    out, told = done
    kept = (out / "weights" / "000006.npz").read_bytes()
    lines = folder.read_metrics(out)
    (out / "weights" / f"{lost:06d}.npz").unlink()
    folder.append_metrics(out, {"step": 5, "loss": 0.0})
    again = run(out, "--resume", of=token_association)
    np.testing.assert_equal(again, told)  # NaN where weights are still 0
    assert folder.read_metrics(out) == lines
    assert (out / "weights" / "000006.npz").read_bytes() == kept


def test_batches(tmp_path):
    """Batches in parts are batches as a whole; their statistics may be the first one's."""
    options = ("--batch", "8", "--statistics", "first", "--ladder", "4")
    whole = run(tmp_path / "a", *options, of=token_association)
    parts = run(tmp_path / "b", *options, "--at-once", "4", of=token_association)
    # float32 sums in another order
    for a, b in zip(load_weights(tmp_path / "a", 4), load_weights(tmp_path / "b", 4), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5 * np.abs(a).max())
    assert parts["removed"]["nothing"] == pytest.approx(whole["removed"]["nothing"], rel=1e-6)


@pytest.mark.parametrize("options", [("--ladder", "1", "2"), ("--rate", "1", "--ladder", "2", "3"),
                                     ("--scale", "0.1", "--ladder", "3")])  # fmt: skip
def test_what_theory_does_not_tell(tmp_path, options):
    """Weights that are still 0 or rungs beyond s eta = 1: undecided. A Gaussian start: W is noise
    until s eta of about 2.5, and the claim does not hold."""
    told = run(tmp_path / "new", *options, of=token_association)
    scale = options[0] == "--scale"
    assert told["claims"]["Early weights follow their closed form"] == (
        "does not hold" if scale else "undecided"
    )
    assert ("Gaussian weights" if scale else "zero weights") in (
        tmp_path / "new" / "report.html"
    ).read_text()


def test_bad_input(tmp_path, capsys):
    """One or two lines that name the option, exit code 2, nothing written."""
    short = tmp_path / "short.txt"
    short.write_text("One cat. Two cats.")
    for options, words in (
        (("--data.vocab", "9999"), "--data.vocab: 9999"),
        (("--data.path", str(short), "--data.vocab", "3", "--data.length", "50"), "--data.length"),
        (("--data.path", "absent.txt"), "--data.path: "),
        (("--data.how", "lines"), "--data.how: lines"),
        (("--ladder", "5", "5"), "--ladder: "),
        (("--rate", "nan"), "--rate: nan"),
        (("--batch", "999"), "--batch: 999"),
        (("--at-once", "7"), "--at-once: 7"),
        (("--statistics", "first"), "--statistics: first"),
        (("--scale", "-1"), "--scale: -1"),
    ):
        with pytest.raises(SystemExit) as stop:
            run(tmp_path / "new", *options, of=token_association)
        error = capsys.readouterr().err.strip().splitlines()
        assert stop.value.code == 2 and len(error) <= 2 and words in error[0], (options, error)
        assert not (tmp_path / "new").exists(), options


def test_a_rate_too_large(tmp_path, capsys):
    """A loss that is not finite is told, with the option."""
    with pytest.raises(SystemExit) as stop:
        run(tmp_path / "new", "--rate", "1e30", of=token_association)
    assert stop.value.code == 2 and "--rate: " in capsys.readouterr().err
