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

from experiments import majority
from jaxfeat.io.parquet import read_table, table_units
from jaxfeat.run import cli, folder

sys.path.insert(0, str(Path(__file__).parent / "report"))
from browser import CHROMIUM, inspect_page

SMOKE = ["--preset", "smoke"]


def run(out, *more, of=majority):
    """An experiment's smoke preset with further options."""
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
