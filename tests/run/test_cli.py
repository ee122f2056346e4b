"""Does the command line say in one or two lines what is wrong, and never lose anything?"""

import dataclasses
import json
import os
import subprocess
import sys
from typing import Literal

import jax
import pytest
import tyro  # noqa: F401  before any doctest runs: one leaves `builtins._`, which tyro's import reads

from jaxfeat.run import cli, folder, provenance
from jaxfeat.types import UserError


@dataclasses.dataclass(frozen=True)
class Optimiser:
    lr: float = 1e-3
    """Peak learning rate (per step)."""
    fused: bool = False


@dataclasses.dataclass(frozen=True)
class Config:
    steps: int = 10
    """Optimiser updates (steps)."""
    kind: Literal["tied", "untied"] = "tied"
    flat: bool = True
    sizes: tuple[int, ...] = (1, 2)
    opt: Optimiser = Optimiser()
    seed: int = 0

    def __post_init__(self):
        if self.steps < 1:
            raise UserError("--steps: needs at least 1 (steps)")


PRESETS = {"smoke": Config(steps=2), "quick": Config(), "paper": Config(steps=1000)}


def run_toy(config, workdir):
    if config.steps == 13:
        raise UserError("--steps: 13\nis unlucky\ntruly")
    folder.append_metrics(workdir, {"step": config.steps})
    if config.steps == 14:
        raise KeyboardInterrupt
    (workdir / "report.html").write_text("<p>")
    return {"steps": config.steps, "lr": config.opt.lr}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(provenance, "git_state", lambda: None)
    return tmp_path


def call(line, **options):
    return cli.main(
        Config, PRESETS, run_toy, name="toy", doc="Does it?", argv=line.split(), **options
    )


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("--prest quick", "unknown option --prest; did you mean --preset?"),
        ("--preset quik", "unknown preset 'quik'; did you mean quick?; presets are smoke, quick"),
        ("--preset=quik", "presets are smoke, quick, paper"),
        ("--preset", "--preset: a value is missing"),
        ("--steps abc", "--steps: 'abc' is not a whole number; it takes INT"),
        ("--steps 1.5", "--steps: '1.5' is not a whole number"),
        ("--steps", "--steps: a value is missing"),
        ("--steps --seed 1", "--steps: a value is missing"),
        ("--steps 0", "--steps: needs at least 1 (steps)"),
        ("--opt.lr fast", "--opt.lr: 'fast' is not a number"),
        ("--opt.lrr 1", "unknown option --opt.lrr; did you mean --opt.lr?"),
        ("--sizes 1 x", "--sizes: ['1', 'x'] cannot be read; it takes [INT"),
        ("--kind tide", "--kind: 'tide' is not a valid choice; choose from tied, untied"),
        ("--kind", "--kind: a value is missing"),
        ("--flat False", "a switch takes no value"),
        ("quick", "unexpected argument 'quick'"),
        ("--device gp", "choose from auto, cpu, gpu, tpu"),
        ("--steps 13", "--steps: 13\n  is unlucky truly"),
        ("--resume", "--resume: there is no run at"),
        ("--resume --overwrite", "exclude each other"),
        ("--out ~no-such-user/x", "Could not determine home"),
    ],
)
def test_bad_input_is_told_in_two_lines_and_writes_nothing(line, told, capsys, here):
    with pytest.raises(SystemExit) as stop:
        call(line)
    errors = capsys.readouterr().err
    assert stop.value.code == 2
    assert errors.startswith("error: ") and told in errors
    assert len(errors.splitlines()) <= 2
    assert list(here.iterdir()) == []


def test_a_run_prints_its_settings_and_leaves_a_folder(capsys, here):
    result = call("--preset smoke --opt.lr 0.5 --no-flat --sizes 3 4 5 --device cpu")
    assert result == {"steps": 2, "lr": 0.5}
    out = capsys.readouterr().out
    assert out.count("opt.lr = 0.5") == 1 and "steps = 2" in out
    assert "report: runs/toy-smoke/report.html" in out and "time: " in out
    run = here / "runs" / "toy-smoke"
    stored = folder.read_json(run / "config.json")
    assert stored["opt"] == {"fused": False, "lr": 0.5}
    assert stored["sizes"] == [3, 4, 5] and stored["flat"] is False
    assert folder.read_json(run / "provenance.json")["seconds"] >= 0


def test_nothing_is_lost_by_a_failed_overwrite(capsys, here):
    call("--preset smoke")
    files = {p: p.read_bytes() for p in (here / "runs").rglob("*") if p.is_file()}

    def refuse(config):
        raise UserError("--seed: does not suit")

    for line, options in (
        ("--preset smoke", {}),
        ("--preset smoke --overwrite --steps 13", {}),
        ("--preset smoke --overwrite", {"check": refuse}),
        ("--preset smoke --resume --steps 3", {}),
    ):
        with pytest.raises(SystemExit):
            call(line, **options)
        assert {p: p.read_bytes() for p in (here / "runs").rglob("*") if p.is_file()} == files
    assert "stored -> now): steps: 2 -> 3" in capsys.readouterr().err
    call("--preset smoke --overwrite --steps 3")
    assert folder.read_json(here / "runs/toy-smoke/config.json")["steps"] == 3
    assert [p.name for p in (here / "runs").iterdir()] == ["toy-smoke"]


def test_an_interruption_says_how_to_go_on(capsys, here):
    with pytest.raises(SystemExit) as stop:
        call("--steps 14 --out my-run")
    assert stop.value.code == 130
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("interrupted: continue with: ")
    assert last.endswith("--steps 14 --out my-run --resume")
    with pytest.raises(SystemExit):
        call("--steps 14 --out my-run --resume")
    assert len(folder.read_metrics(here / "my-run")) == 2


def test_a_bug_keeps_its_traceback(here):
    with pytest.raises(ZeroDivisionError):
        cli.main(Config, PRESETS, lambda c, w: 1 / 0, name="toy", doc="", argv=[])  # type: ignore
    assert list(here.iterdir()) == []


def test_help_names_units_and_defaults(capsys):
    with pytest.raises(SystemExit) as stop:
        call("--help --preset paper")
    text = " ".join(capsys.readouterr().out.split())
    assert stop.value.code == 0
    for word in (
        "Does it?",
        "{smoke,quick,paper}",
        "Optimiser updates (steps).",
        "1000",
        "--opt.lr",
    ):
        assert word in text


def test_a_device_that_is_not_there(monkeypatch, here):
    if jax.default_backend() != "gpu":
        with pytest.raises(UserError, match="JAX sees no GPU here, only "):
            cli.use_device("gpu")
    monkeypatch.setenv("XLA_FLAGS", "--xla_a=1")
    cli.use_device("auto", deterministic=True)
    cli.use_device("auto", deterministic=True)
    assert os.environ["XLA_FLAGS"] == "--xla_a=1 --xla_gpu_deterministic_ops=true"


def test_as_a_process(here):
    """Warnings are errors; nothing but the two lines reaches standard error."""
    source = (
        "import dataclasses\nfrom jaxfeat.run import cli\n"
        "import sys; assert not {'matplotlib', 'pyarrow', 'tyro', 'tqdm'} & set(sys.modules)\n"
        "@dataclasses.dataclass(frozen=True)\nclass Config:\n    steps: int = 1\n"
        "    '''Updates (steps).'''\n"
        "if __name__ == '__main__':\n"
        "    cli.main(Config, {'quick': Config()}, lambda c, w: {}, name='toy', doc='Toy.')\n"
    )
    (here / "toy.py").write_text(source)
    command = [sys.executable, "-W", "error", "toy.py", "--deterministic", "--out", "a b"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=here)
    assert (done.returncode, done.stderr) == (0, "")
    record = json.loads((here / "a b" / "provenance.json").read_text())
    assert record["xla_flags"].endswith("--xla_gpu_deterministic_ops=true")
    assert record["command"].endswith("toy.py --deterministic --out 'a b'")


def test_a_compiler_that_sums_wrongly_is_refused(monkeypatch):
    """jaxlib 0.10.2 on a CPU, unless what makes it wrong is switched off."""
    monkeypatch.setattr(cli, "version", lambda name: cli.WRONG_SUMS)
    with pytest.raises(UserError, match="sums wrongly on CPUs"):
        cli.use_device("auto")
    monkeypatch.setenv("XLA_FLAGS", cli.NO_YNN)
    assert "cpu" in cli.use_device("auto")
