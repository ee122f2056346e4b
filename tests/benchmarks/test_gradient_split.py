"""Is the required work what an independent count gives, and does the benchmark end in its JSON?"""

import dataclasses
import json

import pytest

from benchmarks import gradient_split, harness
from benchmarks.gradient_split import PRESETS, required_flop
from jaxfeat.run import cli

KEYS = [
    "preset",
    "device",
    "precision",
    "matmul_peak_gflops",
    "plain_step_s",
    "tracking_step_s",
    "tracking_stride8_s",
    "features300_over_3",
    "tracking_over_plain",
    "plain_over_required",
    "tracking_over_required",
    "tracking_gflop",
    "required_gflop",
    "peak_memory_bytes",
    "compile_plain_s",
    "compile_tracking_s",
    "variants",
]


def test_required_work_of_majority():
    """Counted layer by layer here; the specification puts it at 12.6 and about 135 GFLOP."""
    width, heads, length, batch, vocab = 128, 4, 20, 256, 5
    weights = 12 * width**2
    column = lambda t: 2 * weights + 2 * 2 * width * (t + 1)  # scores and mixing of one query
    whole = 2 * sum(column(t) for t in range(length))  # two blocks, one example
    head = 2 * width * vocab * length
    plain = 3 * batch * (whole + head)
    work = batch * (3 * whole + 2 * head)  # forward, backward, myopic backward, for activations
    work += 3 * batch * whole  # E: forward and the JVP's two terms
    for i in range(2, length):
        top = 2 * weights + 4 * heads * width * (i + 1)
        below = sum(column(t) for t in range(i + 1))
        first, second = 2 * top, top + below  # two components at layer 1, one at layer 2
        work += batch * 2 * 2 * (first + second)  # VJP and JVP, two terms each
    need = required_flop(PRESETS["majority"])
    assert need["plain"] == pytest.approx(plain) and need["tracking"] == pytest.approx(work)
    assert need["plain"] / 1e9 == pytest.approx(12.6, rel=0.05)
    assert need["tracking"] / 1e9 == pytest.approx(135, rel=0.05)


def test_ratio_is_paired():
    """A machine that slows down slows both sides."""
    assert harness.ratio([1.0, 2.0, 30.0], [0.5, 1.0, 15.0]) == 2


@pytest.mark.slow
def test_smoke(capsys):
    gradient_split.cli.benchmark(
        gradient_split.Config, PRESETS, gradient_split.measure_all,
        name="gradient_split", doc=None, argv=["--preset", "smoke"],
    )  # fmt: skip
    last = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    assert set(KEYS) <= set(last) and all(last[k] is not None for k in KEYS)


@pytest.mark.slow
def test_smoke_of_othello(capsys):
    """The other task: nodes at every fourth move, 48 feature-type pairs in one run."""
    config = dataclasses.replace(
        PRESETS["othello"], width=8, heads=2, layers=1, batch=2, chunks=1, at_once=4
    )
    found = gradient_split.measure_all("tiny", config)
    assert found["nodes"] == 14 and found["tracking_over_plain"] > 1
    assert "tracking" in capsys.readouterr().out


def test_required_work_of_othello():
    """The specification puts a tracking step at about 42 plain ones."""
    need = required_flop(PRESETS["othello"])
    assert len(gradient_split.nodes_of(PRESETS["othello"])) == 84
    assert need["tracking"] / need["plain"] == pytest.approx(42, rel=0.05)


def test_required_work_of_stories():
    """Counted layer by layer; the vocabulary is read once for both backward passes, never on E."""
    config = PRESETS["tinystories"]
    assert gradient_split.nodes_of(config) == [(k, i) for k in (1, 2, 3, 4) for i in range(30, 35)]
    width, heads, length, batch = 128, 4, 64, 16
    weights, head = 12 * width**2, 2 * width * 50_257 * length
    column = lambda t: 2 * weights + 4 * width * (t + 1)
    below = lambda i: sum(column(t) for t in range(i + 1))
    blocks = 4 * below(length - 1)
    work = 3 * blocks + 2 * head + 3 * blocks
    for i in range(30, 35):
        top = 2 * weights + 4 * heads * width * (i + 1)
        # two components at layers 1, 2, 3, one at layer 4: 7 tops, 0, 1, 2 and 3 blocks below
        work += 2 * 2 * (7 * top + (2 * 0 + 2 * 1 + 2 * 2 + 3) * below(i))
    need = required_flop(config)
    assert need["plain"] == pytest.approx(3 * batch * (blocks + head))
    assert need["tracking"] == pytest.approx(batch * work)


@pytest.mark.slow
def test_smoke_of_stories():
    """The third task, with every embedding row and with those that occur."""
    config = dataclasses.replace(PRESETS["tinystories"], width=8, heads=2, layers=1, batch=2)
    found = gradient_split.measure_all("tiny", config)
    assert found["nodes"] == 5 and found["occurring_rows"] == 6_000
    assert found["tracking_over_plain"] > found["occurring_over_plain"] > 0


def test_bad_options(capsys):
    """Two lines at most, exit code 2."""
    for argv in (["--preset", "majorty"], ["--repeats", "2"], ["--out", "x"]):
        with pytest.raises(SystemExit) as stop:
            cli.benchmark(
                gradient_split.Config, PRESETS, gradient_split.measure_all,
                name="gradient_split", doc=None, argv=argv,
            )  # fmt: skip
        assert stop.value.code == 2
        assert 1 <= len(capsys.readouterr().err.strip().splitlines()) <= 2
