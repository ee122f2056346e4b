"""Does the experiment on pre-caching scores run from text to report, and refuse what cannot be?"""

import dataclasses
import json
import shutil
import socket

import jax
import numpy as np
import pytest
from test_experiments import run

from experiments import precaching_scores
from experiments.planted_scores import measure_planted
from experiments.precaching_model import open_subject
from experiments.precaching_stages import _effects, _features
from jaxfeat.features.sae import SAE, ablation, encode
from jaxfeat.features.sae_files import load_sae, sae_notes, save_sae
from jaxfeat.features.stream import read_layer
from jaxfeat.io.arrays import load_arrays
from jaxfeat.io.parquet import read_table
from jaxfeat.nn.blocks import forward
from jaxfeat.nn.loss import kl_divergence
from jaxfeat.run.progress import progress
from jaxfeat.types import UserError, whole_batch

SMOKE = precaching_scores.PRESETS["smoke"]


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """The smoke preset's folder and what it returned, with connections refused."""
    out = tmp_path_factory.mktemp("runs") / "scores"

    def refuse(*_, **__):
        raise OSError("the default path uses no network")

    with pytest.MonkeyPatch.context() as patch:
        for name in ("connect", "connect_ex", "sendto"):
            patch.setattr(socket.socket, name, refuse)
        patch.setattr(socket, "getaddrinfo", refuse)
        return out, run(out, of=precaching_scores)


def test_smoke(done):
    """Figures in both forms, tables with units, a page that needs no network."""
    out, told = done
    for name in ("histogram", "look_ahead", "look_ahead_ranks", "by_distance", "estimate",
                 "estimate_everywhere", "steering", "planted"):  # fmt: skip
        for kind in ("png", "svg", "parquet"):
            assert (out / "figures" / f"{name}.{kind}").stat().st_size > 0
    page = (out / "report.html").read_text()
    assert "http://" not in page.replace("http://www.w3.org", "") and "GENERATED: maths" in page
    assert len(told["claims"]) == 4 and set(told["claims"].values()) == {"undecided"}
    provenance = json.loads((out / "provenance.json").read_text())
    assert provenance["data_hash"] and provenance["text_generated"] == ["maths"]
    table = read_table(out / "tables" / "scores.parquet")
    assert len(table["feature"]) == len(set(table["feature"])) == told["model"]["features_measured"]
    assert not (out / "activations").exists()


def test_effects_are_those_of_whole_passes(done):
    """KL of the kept effects against two whole passes with the SAE's feature taken out."""
    out, _ = done
    c = SMOKE.model
    subject, sae = open_subject(c, SMOKE.seed), load_sae(out / "sae")
    effects = load_arrays(out / "effects.npz")
    decoder, params = subject.model.decoder, subject.model.params
    for n in (0, len(effects["kl"]) // 2, len(effects["kl"]) - 1):
        s, i, f = (int(effects[name][n]) for name in ("sequence", "position", "feature"))
        batch = whole_batch(subject.windows.tokens[s : s + 1])
        resid = read_layer(decoder, c.layer)(params, batch.token)[0, i]
        active = float(encode(sae, resid)[f])
        assert active == pytest.approx(float(effects["activation"][n]), rel=1e-4) and active > 0
        base = forward(decoder, params, batch).logits[0]
        for name, error_term in (("kl", True), ("kl_exchanged", False)):
            delta = ablation(sae, f, resid, error_term=error_term)
            edit = lambda x, delta=delta, i=i: x.at[i].add(delta)
            other = forward(decoder, params, batch, edits={c.layer: edit}).logits[0]
            expected = kl_divergence(base, other)[i : i + c.span]
            np.testing.assert_allclose(effects[name][n], expected, rtol=2e-3, atol=1e-6)
    # contexts lie inside windows, and no marker is among them
    special = subject.windows.special[effects["sequence"], effects["position"]]
    assert not special.any() and effects["position"].max() <= c.length - c.span


def test_a_kept_stage_is_not_made_again(done, tmp_path, monkeypatch):
    """What is done is read back: the same results without training or ablating again."""
    out, told = done
    copy = tmp_path / "copy"
    shutil.copytree(out, copy)
    (copy / "steered.json").unlink()
    for name in ("train_sae", "make_effects", "make_sampler", "fit_mappers", "top_contexts"):
        monkeypatch.setattr(f"experiments.precaching_stages.{name}", None)
    assert run(copy, "--resume", of=precaching_scores) == told


def test_an_autoencoder_that_is_given(done, tmp_path):
    """It is read, not trained; the facts told of it are those that training told."""
    out, _ = done
    given = dataclasses.replace(SMOKE.model, sae=str(out / "sae"))
    subject = open_subject(given, SMOKE.seed)
    with progress(1, "read", every=1) as shown:
        sae, notes = _features(given, jax.random.key(0), subject, tmp_path, shown)
    trained = load_sae(out / "sae")
    np.testing.assert_array_equal(sae.w_dec, trained.w_dec)
    assert notes == sae_notes(out / "sae") | {"trained": False}
    assert not (tmp_path / "sae_history.npz").exists()


def test_planted_scores_are_found():
    """Measured Q is the known one, and the estimate follows it over five decades."""
    known, measured, estimated = measure_planted(0, 4, draws=256)
    np.testing.assert_allclose(measured[2:-1], known[2:-1], rtol=1e-3)
    assert measured[0] < 0.05 and measured[-1] > 20
    np.testing.assert_allclose(np.log(estimated[3:-1]), np.log(known[3:-1]), atol=1)


def test_bad_input(tmp_path, capsys):
    """One or two lines that name the option, exit code 2, nothing written."""
    wide = SAE(
        np.ones((5, 3)), np.zeros(3), np.ones((3, 5)), np.zeros(5), np.zeros(3), "relu", 0, 2
    )
    fit = dataclasses.replace(wide, w_enc=np.ones((32, 3)), w_dec=np.ones((3, 32)),
                              b_dec=np.zeros(32), layer=1)  # fmt: skip
    save_sae(tmp_path / "wide", wide)
    save_sae(tmp_path / "lower", fit)
    (tmp_path / "empty").mkdir()
    (tmp_path / "cut.gguf").write_bytes(b"GGUF\x03\x00")
    path = lambda name: str(tmp_path / name)
    for option, words in (
        (("--model.name", path("absent")), "--model.name: no model at"),
        (("--model.name", path("empty")), "--model.name: "),
        (("--model.name", path("cut.gguf")), "--model.name: "),
        (("--model.sae", path("wide")), "--model.sae: sae: of width 5"),
        (("--model.sae", path("lower")), "--model.sae: "),
        (("--model.sae", path("absent")), "--model.sae: nothing at"),
        (("--model.layer", "5"), "--model.layer: 5 given, valid are 0..4"),
        (("--model.code", path("absent")), "code: "),
        (("--model.windows", "1000"), "--model.windows: 1000 windows of 24 tokens wanted"),
        (("--model.span", "1"), "--model.span: 1"),
        (("--model.k", "0"), "--model.k: 0"),
        (("--model.kind", "words"), "--model.kind: words"),
        (("--model.least", "9"), "--model.least: 9"),
        (("--model.prompts", "99"), "--model.prompts: 99"),
        (("--model.cutoff", "nan"), "--model.cutoff: nan"),
        (("--model.cutof", "1"), "did you mean --model.cutoff"),
        (("--model.name", "", "--planted", "0"), "--model.name: "),
        (("--validate", "--models", path("empty")), "--models: "),
        (("--models", path("empty")), "--models: "),
        (("--validate", "--validation.sequences", "3"), "--validation.sequences: 3"),
        (("--validate", "--validation.othello.heads", "3"), "--validation.othello.heads: 3"),
    ):
        with pytest.raises(SystemExit) as stop:
            run(tmp_path / "out", *option, of=precaching_scores)
        told = capsys.readouterr().err.strip()
        assert stop.value.code == 2 and words in told and len(told.splitlines()) <= 2, told
    assert not (tmp_path / "out").exists()
    with pytest.raises(UserError, match="no feature has"):
        run_stage_without_contexts(tmp_path)


def run_stage_without_contexts(place):
    """Contexts that are asked to differ by more than they can."""
    none = {"valid": np.zeros((4, 3), bool)}
    return _effects(SMOKE.model, 0, None, None, none)
