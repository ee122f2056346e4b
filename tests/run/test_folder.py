"""Is a result folder complete, never lost by mistake, and does it continue where it stopped?"""

import json
import os

import jax.numpy as jnp
import numpy as np
import pytest

from jaxfeat.run import folder as folders
from jaxfeat.run import provenance
from jaxfeat.types import UserError

CONFIG = {"steps": 10, "opt": {"lr": 0.001}, "seed": 3}


@pytest.fixture(autouse=True)
def quick_git(monkeypatch):
    monkeypatch.setattr(provenance, "git_state", lambda: None)


def listing(path):
    """Every file below a path with its bytes."""
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}


def test_a_new_folder_explains_itself(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "ho me"))
    for given, wanted in (("runs/a b", "runs/a b"), ("~/x", "ho me/x"), ("./c/../d", "d")):
        made = folders.open_folder(given, config=CONFIG)
        assert made == tmp_path / wanted
        assert sorted(listing(made)) == ["config.json", "provenance.json"]
        assert folders.read_json(made / "config.json") == CONFIG
    record = folders.read_json(made / "provenance.json")
    assert record["seed"] == 3 and record["versions"]["jax"] and record["device"]["count"] >= 1
    assert record["matmul_precision"] and record["float_width"] in (32, 64)
    folders.add_provenance(made, data_hash="abc")
    assert folders.read_json(made / "provenance.json")["data_hash"] == "abc"
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_an_empty_folder_may_be_used(tmp_path):
    (tmp_path / "a").mkdir()
    assert folders.is_run(folders.open_folder(tmp_path / "a", config=CONFIG))


def test_taken_places_are_refused_and_kept(tmp_path):
    run = folders.open_folder(tmp_path / "runs" / "a", config=CONFIG)
    (run / "result.txt").write_text("precious")
    (run / "checkpoints").mkdir()
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").write_text("all")
    before = listing(tmp_path)
    for path, flags, told in (
        (run, {}, "already holds a run: --resume continues it, --overwrite replaces it"),
        (run, {"resume": True, "overwrite": True}, "exclude each other"),
        (run / "checkpoints", {}, "lies inside the run"),
        (run / "checkpoints", {"resume": True}, "lies inside the run"),
        (run / "result.txt", {}, "lies inside the run"),
        (tmp_path / "runs", {}, "holds the runs a; name one"),
        (tmp_path / "runs", {"overwrite": True}, "holds the runs a; name one"),
        (tmp_path / "runs", {"resume": True}, "is no run but holds a"),
        (tmp_path / "runs" / "aa", {"resume": True}, "no run at .*; did you mean a?"),
        (other, {}, "no result folder"),
        (other, {"overwrite": True}, "no result folder"),
        (other, {"resume": True}, "there is no run at"),
        (other / "thesis.tex" / "x", {}, "thesis.tex is in the way"),
        ("/", {"overwrite": True}, "choose a folder below it"),
        ("/proc/none/x", {}, "cannot be written"),
        (tmp_path / ("x" * 300), {}, "cannot be written"),
    ):
        with pytest.raises(UserError, match=told) as error:
            folders.open_folder(path, config=CONFIG, **flags)
        assert len(str(error.value).splitlines()) == 1
        assert listing(tmp_path) == before


def test_a_read_only_parent_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(
        os, "access", lambda path, mode: path != tmp_path
    )  # root may write anywhere
    with pytest.raises(UserError, match="is read-only; choose another --out"):
        folders.open_folder(tmp_path / "a" / "b", config=CONFIG)
    assert list(tmp_path.iterdir()) == []


def test_overwrite_replaces_and_can_be_taken_back(tmp_path):
    run = folders.open_folder(tmp_path / "a", config=CONFIG)
    (run / "old.txt").write_text("old")
    before = listing(run)
    folders.open_folder(run, config={"steps": 1}, overwrite=True, keep_old=True)
    assert "old.txt" not in listing(run)
    assert folders.undo_open(run) and listing(run) == before
    folders.open_folder(run, config={"steps": 1}, overwrite=True, keep_old=True)
    os.rename(run, tmp_path / "gone")  # as if killed between the two moves
    with pytest.raises(UserError, match="already holds a run"):
        folders.open_folder(run, config=CONFIG)
    assert listing(run) == before
    folders.open_folder(run, config={"steps": 1}, overwrite=True, keep_old=True)
    folders.append_metrics(run, {"step": 1})
    assert not folders.undo_open(run)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "gone"]


def test_resume_names_what_differs(tmp_path):
    run = folders.open_folder(tmp_path / "a", config=CONFIG)
    assert folders.open_folder(run, config=CONFIG, resume=True) == run
    assert len(folders.read_json(run / "provenance.json")["resumed"]) == 1
    now = {"steps": 20, "opt": {"lr": 0.01}, "tied": True, "seed": 3}
    wanted = r"opt.lr: 0.001 -> 0.01, steps: 10 -> 20, tied: absent -> True"
    with pytest.raises(UserError, match=wanted):
        folders.open_folder(run, config=now, resume=True)
    assert folders.read_json(run / "config.json") == CONFIG


def test_metrics_are_strict_json_and_go_on_after_a_crash(tmp_path):
    for step in range(4):
        values = {"step": step, "loss": jnp.float32(0.5), "grad": np.array([1.0, np.inf, np.nan])}
        folders.append_metrics(tmp_path, values | ({"note": "é"} if step == 0 else {}))
    path = tmp_path / "metrics.jsonl"
    first = json.loads(path.read_text().splitlines()[0], parse_constant=pytest.fail)
    assert first == {"step": 0, "loss": 0.5, "grad": [1.0, None, None], "nonfinite": 2, "note": "é"}
    with open(path, "a") as handle:
        handle.write('{"step": 4, "lo')
    assert len(folders.read_metrics(tmp_path)) == 4
    assert folders.truncate_metrics(tmp_path, step=2) == 1
    folders.append_metrics(tmp_path, {"step": 3})
    assert [r["step"] for r in folders.read_metrics(tmp_path)] == [0, 1, 2, 3]
    path.write_text("{}\nbroken\n{}\n")
    with pytest.raises(UserError, match="line 2 is not JSON"):
        folders.truncate_metrics(tmp_path, step=2)
    assert folders.truncate_metrics(tmp_path / "none", step=2) == 0


def test_json_refuses_what_it_cannot_hold(tmp_path):
    with pytest.raises(TypeError, match="object cannot be stored"):
        folders.write_json(tmp_path / "a.json", {"a": object()})
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "b.json").write_text("{")
    with pytest.raises(UserError, match="is not JSON"):
        folders.read_json(tmp_path / "b.json")


def test_provenance_hides_the_home_folder(monkeypatch):
    monkeypatch.setenv("HOME", "/srv/ada")
    assert provenance.hide_home("/srv/ada/x /srv/adaline /home/bo/y") == "~/x /srv/adaline ~/y"
    monkeypatch.setattr("sys.orig_argv", ["/srv/ada/bin/python3", "-m", "x", "--data=/srv/ada/a b"])
    record = provenance.collect({"a": 1}, seed=1, data_hash="h")
    assert record["command"] == "python -m x '--data=~/a b'"
    assert "ada" not in json.dumps(record)
    assert record["config_hash"] == provenance.collect({"a": 1})["config_hash"]
