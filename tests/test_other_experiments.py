"""Do the other experiments' smoke presets run from data to report, and refuse bad settings?"""

import dataclasses
import json
import socket
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from test_experiments import run

from experiments import component_control, conditioned_majority, majority, othello, tinystories
from experiments.othello_training import draw, make_sample, read_sides, report_overlap
from jaxfeat.data.othello import FIRST, sample_games
from jaxfeat.data.othello_games import is_held_out
from jaxfeat.io.arrays import load_arrays
from jaxfeat.io.parquet import read_table
from jaxfeat.run import folder
from jaxfeat.train.checkpoint import saved_steps
from jaxfeat.types import UserError

sys.path.insert(0, str(Path(__file__).parent / "report"))
from browser import CHROMIUM, inspect_page

OTHERS = {
    conditioned_majority: ("circuit", "influence_on_the_circuit", "probes", "influence"),
    component_control: ("by_position", "cost", "outcome"),
    othello: ("parts", "influence", "gap", "boards", "legal"),
    tinystories: ("loss", "probes", "influence", "gap", "gap_by_tag", "probe_maps"),
}


SMOKES = [
    pytest.param(of, id=of.__name__.split(".")[-1],
                 marks=[pytest.mark.slow] if of is component_control else [])
    for of in OTHERS
]  # its three variants take longest to compile  # fmt: skip


@pytest.fixture(scope="module", params=SMOKES)
def other(request, tmp_path_factory):
    """One run of another experiment's smoke preset, with sockets blocked."""
    out = tmp_path_factory.mktemp("runs") / "other"

    def refuse(*_, **__):
        raise OSError("the default path uses no network")

    with pytest.MonkeyPatch.context() as patch:
        for name in ("connect", "connect_ex", "sendto"):  # event loops make pairs of their own
            patch.setattr(socket.socket, name, refuse)
        patch.setattr(socket, "getaddrinfo", refuse)
        return request.param, out, run(out, of=request.param)


def test_other_experiments(other):
    """Figures in both forms, tables, a page that needs no network; nothing learned, no verdict."""
    of, out, told = other
    for name in OTHERS[of]:
        for kind in ("png", "svg", "parquet"):
            assert (out / "figures" / f"{name}.{kind}").stat().st_size > 0
    page = (out / "report.html").read_text()
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert told["claims"] and set(told["claims"].values()) == {"undecided"}
    assert json.loads((out / "results.json").read_text())["claims"] == told["claims"]
    provenance = json.loads((out / "provenance.json").read_text())
    assert provenance["data_hash"] and provenance["seconds"] > 0
    for path in (out / "tables").iterdir():
        table = read_table(path)
        assert len({len(column) for column in table.values()}) == 1 and len(table["seed"]) > 0
    if of is conditioned_majority:
        lines = [m for m in folder.read_metrics(out) if m["variant"] == "standard"]
        seen = np.array([m["attention_previous"] for m in lines])
        assert seen.shape == (3, 2, 3, 2) and (seen >= 0).all() and (seen <= 1).all()
        # attention of an untrained model is nearly uniform over what it sees
        uniform = np.broadcast_to(np.array([1 / 3, 1 / 4, 1 / 5])[:, None], (2, 3, 2))
        np.testing.assert_allclose(seen[0], uniform, atol=0.02)
    if of is component_control:
        table = read_table(out / "tables" / "conditioned_majority_effects.parquet")
        assert set(table["layer"]) == {1} and set(table["position"]) == {2, 3}
        assert {"precached share", "shared by tying", "removed by untied"} <= set(table)
    if of is othello:
        table = read_table(out / "tables" / "influence.parquet")
        parts = sum(table[k] for k in ("direct", "precached", "shared", "remainder"))
        np.testing.assert_allclose(parts, table["fall"], atol=1e-9 * np.abs(parts).max())
        assert set(table["type"]) == {"empty", "useless", "useful"}
        # every game counts once at a node and square, in one type, while it is on
        games = table["games"].reshape(1, 4, 16, 3).sum(-1)
        assert (games == games[..., :1]).all() and games.max() == 32
        table = read_table(out / "tables" / "decoding.parquet")
        games = table["games"].reshape(3, 12, 16, 5).sum(-1)
        assert (games == games[:1, :, :1]).all() and games.max() == 64
        for name in ("trained right", "untrained right", "majority right"):
            assert (table[name] <= table["games"]).all() and table[name].sum() > 0
    if of is tinystories:
        table = read_table(out / "tables" / "influence_standard.parquet")
        parts = sum(table[k] for k in ("direct", "precached", "shared", "remainder"))
        np.testing.assert_allclose(parts, table["fall"], atol=1e-6 * np.abs(parts).max())
        assert len(set(table["feature"])) == 22 and set(table["layer"]) == {1, 2}
        lines = [m for m in folder.read_metrics(out) if m["variant"] == "myopic"]
        assert [m["step"] for m in lines] == [0, 1, 2, 4, 8] == saved_steps(out / "ladder/myopic")
        # before training both variants are one model; their seeds are paired
        first = [m["held_out_loss"] for m in folder.read_metrics(out) if m["step"] == 0]
        assert first[0] == first[1] and len(set(first[0])) == 2
        assert "GENERATED" in page and told["split_residual"] < 1e-4


def test_bad_settings_of_others(tmp_path, capsys):
    """One or two lines that name the option, exit code 2, nothing written."""
    for of, option, words in (
        (component_control, ("--betas", "1"), "--betas: "),
        (component_control, ("--betas", "-1"), "--betas: "),
        (component_control, ("--betas", "nan"), "--betas: "),
        (component_control, ("--betas", "2"), "one below 1"),
        (component_control, ("--tasks", "chess"), "--tasks: chess"),
        (component_control, ("--seed", "-1"), "--seed: -1"),
        (component_control, ("--heads", "3"), "--conditioned-majority.heads"),
        (component_control, ("--conditioned-majority.seed", "7"), "--conditioned-majority.seed"),
        (component_control, ("--betas", "0.5", "0.5"), "--betas: "),
        (component_control, ("--conditioned-majority.heads", "3"), "--conditioned-majority.heads"),
        (component_control, ("--conditioned-majority.held", "16"), "twice the width"),
        (conditioned_majority, ("--first", "1"), "--first: 1"),
        (conditioned_majority, ("--last", "9"), "--last: 9"),
        (conditioned_majority, ("--task.kind", "majority"), "--task.kind"),
        (othello, ("--size", "5"), "--size: 5 given, 4, 6 or 8 needed"),
        (othello, ("--positions", "99"), "--positions: "),
        (othello, ("--tracked", "21"), "--tracked: 21"),
        (othello, ("--positions", "3", "3"), "--positions: "),
        (othello, ("--memory-gb", "1e-6"), "--memory-gb: tracking 4 nodes needs"),
        (othello, ("--memory-gb", "nan"), "--memory-gb: nan"),
        (othello, ("--games", "absent.tsv"), "--games"),
        (othello, ("--games", "absent.tsv", "--size", "8", "--positions", "3"), "absent.tsv"),
        (othello, ("--preset", "wthor", "--games", "absent.tsv"), "absent.tsv"),
    ):
        with pytest.raises(SystemExit) as stop:
            run(tmp_path / "new", *option, of=of)
        error = capsys.readouterr().err.strip().splitlines()
        assert stop.value.code == 2 and len(error) <= 2 and words in error[0], (option, error)
        assert not (tmp_path / "new").exists(), option


@pytest.mark.slow
def test_othello_goes_on(tmp_path):
    """A run stopped within its second seed keeps the first and ends with the same numbers."""
    out = tmp_path / "run"
    told = run(out, "--seeds", "2", of=othello)
    arrays = {s: load_arrays(out / "seeds" / f"{s}.npz") for s in (0, 1)}
    kept = (out / "seeds" / "0.npz").read_bytes()
    lines = folder.read_metrics(out)
    (out / "seeds" / "1.npz").unlink()
    folder.append_metrics(out, {"seed": 1, "step": 8, "loss": 0.0})
    again = run(out, "--seeds", "2", "--resume", of=othello)
    assert again["statistics"] == told["statistics"]
    assert folder.read_metrics(out) == lines and (out / "seeds" / "0.npz").read_bytes() == kept
    for name, value in load_arrays(out / "seeds" / "1.npz").items():
        np.testing.assert_array_equal(value, arrays[1][name], err_msg=name)


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
def test_other_reports_in_a_browser(other):
    """No console error, no outside request, every figure loaded."""
    seen = inspect_page(other[1] / "report.html")
    assert not seen["errors"] and not seen["requests"] and not seen["resources"]
    assert len(seen["images"]) >= 3 and all(image["width"] > 0 for image in seen["images"])


def test_every_preset_can_work():
    """Settings, plan and memory of each are accepted before anything runs."""
    for of in (majority, *OTHERS):
        for name, config in of.PRESETS.items():
            if of is tinystories:  # its stories come from a file, a network or a long generation
                tinystories.check_settings(config)
                continue
            if name == "wthor":  # needs a file
                config = dataclasses.replace(config, games="")
            of.check(config)


@pytest.mark.slow
def test_recorded_games(tmp_path):
    """Real games on both sides of the split; records of one side alone are refused."""
    games = np.asarray(sample_games(jax.random.key(0), 40, 8))
    name = lambda t: f"{'abcdefgh'[(t - FIRST) % 8]}{(t - FIRST) // 8 + 1}"
    lines = ["".join(name(t) for t in row if t >= FIRST) for row in games.tolist()]
    path = tmp_path / "games.txt"
    path.write_text("\n".join(lines))
    config = dataclasses.replace(
        othello.PRESETS["smoke"],
        size=8,
        games=str(path),
        probe_fit=30,
        probe_test=2,
        held=2,
        batch=7,
    )  # fmt: skip
    othello.check(config)
    sides = read_sides(config)
    assert len(sides.train) + len(sides.held_out) == 40 and len(sides.held_out) > 0
    assert report_overlap(config, sides) == 0
    count = len(sides.held_out)
    drawn = np.asarray(draw(config, sides, jax.random.key(1), count, "held_out"))
    assert is_held_out(drawn, 8).all() and len(np.unique(drawn, axis=0)) == count
    # training sees every game once an epoch, in another order each time
    sample, size = make_sample(config, sides), len(sides.train)
    batches = [sample(jax.random.key(2), step).token for step in range(2 * size)]
    seen = np.concatenate(batches)[: 2 * size]
    first, second = seen[:size], seen[size:]
    assert not (first == second).all()
    for epoch in (first, second):
        assert (np.unique(epoch, axis=0) == np.unique(sides.train[:, :-1], axis=0)).all()
    side = [line for line, held in zip(lines, is_held_out(games, 8)) if not held]
    path.write_text("\n".join(side))
    with pytest.raises(
        UserError, match=r"--held: .* given, at most 0 possible: .* no more held-out"
    ):
        othello.check(config)
