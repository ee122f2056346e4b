"""Does every experiment's smoke preset run from data to report, and go on after a kill?"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from experiments import component_control, conditioned_majority, majority, othello
from jaxfeat.io.parquet import read_table, table_units
from jaxfeat.run import cli, folder

sys.path.insert(0, str(Path(__file__).parent / "report"))
from browser import CHROMIUM, inspect_page

SMOKE = ["--preset", "smoke"]


def run(out, *more, of=majority):
    return cli.main(
        of.Config, of.PRESETS, of.main, name=of.__name__.split(".")[-1], doc=of.__doc__,
        check=of.check, argv=[*SMOKE, "--out", str(out), *more],
    )  # fmt: skip


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    """One run of the smoke preset."""
    out = tmp_path_factory.mktemp("runs") / "one"
    return out, run(out)


def test_result_folder(result):
    """Config, provenance, metrics, tables with units, figures in both forms, claims, page."""
    out, told = result
    assert json.loads((out / "config.json").read_text())["width"] == 8
    provenance = json.loads((out / "provenance.json").read_text())
    assert {"device", "versions", "seed"} <= set(provenance)
    lines = folder.read_metrics(out)
    assert [m["step"] for m in lines if m["variant"] == "both"] == [0, 4, 8]
    for name in ("probes", "influence", "influence_over_time", "training"):
        for kind in ("png", "svg", "parquet"):
            assert (out / "figures" / f"{name}.{kind}").stat().st_size > 0
    table = read_table(out / "tables" / "influence.parquet")
    parts = sum(table[k] for k in ("direct", "precached", "shared", "remainder"))
    fall = table["risk_start"] - table["risk_stop"]
    np.testing.assert_allclose(parts, fall, atol=1e-9 * np.abs(fall).max())
    assert table_units(out / "tables" / "influence.parquet")["step_to"] == "steps"
    page = (out / "report.html").read_text()
    assert "undecided" in page and "http://" not in page.replace("http://www.w3.org", "")
    assert set(told["claims"].values()) <= {"holds", "does not hold", "undecided"}
    assert told["split_residual"] < 1e-5


OTHERS = {
    conditioned_majority: ("circuit", "influence_on_the_circuit", "probes", "influence"),
    component_control: ("by_position", "cost", "outcome"),
    othello: ("influence", "gap", "boards", "legal"),
}


@pytest.fixture(scope="module", params=OTHERS, ids=lambda of: of.__name__.split(".")[-1])
def other(request, tmp_path_factory):
    """One run of another experiment's smoke preset."""
    out = tmp_path_factory.mktemp("runs") / "other"
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
        (othello, ("--games", "absent.tsv"), "--games"),
        (othello, ("--games", "absent.tsv", "--size", "8", "--positions", "3"), "absent.tsv"),
    ):
        with pytest.raises(SystemExit) as stop:
            run(tmp_path / "new", *option, of=of)
        error = capsys.readouterr().err.strip().splitlines()
        assert stop.value.code == 2 and len(error) <= 2 and words in error[0], (option, error)
        assert not (tmp_path / "new").exists(), option


def test_bad_input(result, tmp_path, capsys):
    """One or two lines, exit code 2, nothing written."""
    out = result[0]
    before = sorted(p.name for p in out.iterdir())
    cases = [
        ("--prest", "smoke"), ("--preset", "quik"), ("--heads", "3"), ("--layers", "0"),
        ("--first", "77"), ("--held", "7"), ("--log-every", "5"), ("--variants", "standrd"),
        ("--untie-at", "50"), ("--ends", "left"), ("--learning-rate", "nan"), ("--batch", "0"),
        ("--probe-fit", "1"), ("--memory-gb", "0.000001"), ("--variants", "standard", "beta=1,2,3"),
        ("--variants", "standard", "beta=x"), ("--task.kind", "conditioned_majority"),
        ("--task.kind", "other"), ("--seed", "99999999999999999999"),
    ]  # fmt: skip
    for option in cases:
        with pytest.raises(SystemExit) as stop:
            run(tmp_path / "new", *option)
        error = capsys.readouterr().err.strip().splitlines()
        assert stop.value.code == 2 and 1 <= len(error) <= 2, option
        assert not (tmp_path / "new").exists(), option
    for more in ((), ("--resume", "--width", "16")):
        with pytest.raises(SystemExit) as stop:
            run(out, *more)
        assert stop.value.code == 2 and len(capsys.readouterr().err.splitlines()) <= 2
    assert sorted(p.name for p in out.iterdir()) == before


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
def test_report_in_a_browser(result):
    """No console error, no outside request, every figure loaded."""
    seen = inspect_page(result[0] / "report.html")
    assert not seen["errors"] and not seen["requests"] and not seen["resources"]
    assert len(seen["images"]) == 5 and all(image["width"] > 0 for image in seen["images"])


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
def test_other_reports_in_a_browser(other):
    """As above."""
    seen = inspect_page(other[1] / "report.html")
    assert not seen["errors"] and not seen["requests"] and not seen["resources"]
    assert len(seen["images"]) >= 3 and all(image["width"] > 0 for image in seen["images"])


@pytest.mark.slow
@pytest.mark.parametrize("attempt", range(3))
def test_killed_and_resumed(result, tmp_path, attempt):
    """SIGKILL at a random moment, then --resume: parameters, ledgers and tables bit for bit."""
    out = tmp_path / "killed"
    command = [sys.executable, "-m", "experiments.majority", *SMOKE, "--out", str(out)]
    env = os.environ | {"JAX_COMPILATION_CACHE_DIR": jax.config.jax_compilation_cache_dir}
    first = subprocess.Popen(command, env=env, stdout=-3, stderr=-3, start_new_session=True)
    wait = time.monotonic() + 300
    while not (out / "metrics.jsonl").exists() and time.monotonic() < wait:
        time.sleep(0.05)
    time.sleep(random.uniform(0, 6))
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    subprocess.run([*command, "--resume"], env=env, check=True, capture_output=True)
    whole = result[0]
    same = [*(whole / "tables").iterdir(), whole / "metrics.jsonl", whole / "results.json"]
    for path in same:
        assert path.read_bytes() == (out / path.relative_to(whole)).read_bytes(), path.name
    for path in [*(whole / "ledger").iterdir(), *(whole / "variants").iterdir()]:
        with np.load(path) as a, np.load(out / path.relative_to(whole)) as b:
            for name in a.files:
                assert a[name].tobytes() == b[name].tobytes(), (path.name, name)
