"""Does the benchmark end in its JSON, and is its einsum form the definition?"""

import json

import jax
import numpy as np
import pytest
from corpus.dense_reference import dense_statistics

from benchmarks import corpus_statistics
from benchmarks.corpus_statistics import PRESETS, dense_form
from jaxfeat.run import cli

KEYS = ("seconds_per_million_tokens", "speedup", "peak_memory_bytes")


def run(*options):
    return cli.benchmark(
        corpus_statistics.Config, PRESETS, corpus_statistics.measure_all,
        name="corpus_statistics", doc=corpus_statistics.__doc__,
        argv=["--preset", "smoke", *options],
    )  # fmt: skip


def test_smoke(capsys):
    """The three figures are positive numbers in the last line."""
    found = run()
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert all(last[k] == found[k] > 0 for k in KEYS)


def test_einsum_form():
    """The compiled baseline gives the reference's statistics."""
    tokens = np.random.default_rng(0).integers(6, size=(4, 5))
    expected = dense_statistics(tokens, 6)
    names = ("bigram", "interchange", "context", "attention", "offset", "current", "context2")
    with jax.enable_x64(True):
        found = jax.jit(dense_form, static_argnums=1)(tokens, 6)
    for name, value in zip(names, found, strict=True):
        np.testing.assert_allclose(value, expected[name], atol=1e-14, err_msg=name)


def test_bad_options(capsys):
    """A size below 1 is named."""
    for option in ("--vocab", "--einsum-sequences"):
        with pytest.raises(SystemExit) as stop:
            run(option, "0")
        assert stop.value.code == 2 and option in capsys.readouterr().err
