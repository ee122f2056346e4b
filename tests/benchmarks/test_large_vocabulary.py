"""Does the benchmark end in its JSON, and is its corpus what it says?"""

import dataclasses
import json
import math

import numpy as np
import pytest

from benchmarks import large_vocabulary
from benchmarks.large_vocabulary import PRESETS, dense_multiplications, zipf_tokens
from jaxfeat.run import cli

KEYS = ["rows", "seconds_maps", "seconds_model", "peak_memory_bytes", "dense_multiply_adds"]


def run(*options):
    return cli.benchmark(
        large_vocabulary.Config, PRESETS, large_vocabulary.measure_all,
        name="large_vocabulary", doc=large_vocabulary.__doc__,
        argv=["--preset", "smoke", *options],
    )  # fmt: skip


def test_smoke(capsys):
    """Every figure of the last line is a number."""
    found = run()
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert set(KEYS) <= set(last) and all(last[k] == found[k] for k in KEYS)
    tokens = zipf_tokens(PRESETS["smoke"])
    assert found["rows"] == len(np.unique(tokens[:, :-1])) and found["tokens"] == 2000
    assert found["peak_memory_bytes"] > 0 and found["seconds_maps"] > 0
    assert all(math.isfinite(v) for k, v in found.items() if k.startswith("mean_"))


def test_zipf():
    """The first id is twice as frequent as the second; no id is outside."""
    config = dataclasses.replace(PRESETS["smoke"], tokens=200_000)
    counts = np.bincount(zipf_tokens(config).ravel(), minlength=config.vocab)
    assert len(counts) == config.vocab
    assert counts[0] / counts[1] == pytest.approx(2, rel=0.05)
    assert dense_multiplications(config, 10) == 10 * 10 * 200 / 2


def test_bad_options(capsys):
    for argv in (["--vocab", "0"], ["--heads", "3"], ["--layers", "0"]):
        with pytest.raises(SystemExit) as stop:
            run(*argv)
        assert stop.value.code == 2 and argv[0][2:] in capsys.readouterr().err
