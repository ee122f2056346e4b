"""Is the required work what independent counts give, and does the benchmark end in its JSON?"""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import precaching_scores
from benchmarks.precaching_scores import PRESETS, jobs_of, required_flop
from jaxfeat.run import cli

KEYS = ["speedup", "speedup_batch8", "max_abs_difference", "features_per_s",
        "features_per_s_gradient", "matmul_peak_gflops", "required_mflop", "over_required",
        "peak_memory_bytes"]  # fmt: skip


def run(*options):
    return cli.benchmark(
        precaching_scores.Config, PRESETS, precaching_scores.measure_all,
        name="precaching_scores", doc=precaching_scores.__doc__,
        argv=["--preset", "smoke", *options],
    )  # fmt: skip


def test_required_work():
    """Counted column by column, over every place that a job may have."""
    width, layers, length, vocab, span, jobs = 256, 12, 128, 1024, 10, 256
    column = lambda t: 2 * 12 * width**2 + 2 * 2 * width * (t + 1)  # scores and mixing
    head = 2 * width * vocab
    sequence = sum(layers * column(t) + head for t in range(length))
    places = range(length - span + 1)
    above = [sum(6 * column(i + j) + head for j in range(span)) for i in places]
    need = required_flop(PRESETS["scores"])
    assert need["ordinary"] == pytest.approx(2 * sequence)
    assert need["columns"] == pytest.approx(np.mean(above))
    assert need["ablation"] == pytest.approx(np.mean(above) + sequence / jobs)
    few = required_flop(PRESETS["scores"], 64)
    assert few["ablation"] == pytest.approx(np.mean(above) + sequence / 64)


def test_required_work_as_xla_counts_it():
    """One block's column that sees `length` sources, and the vocabulary."""
    width, heads, length, vocab = 64, 4, 32, 96

    def program(x, k, v, square, up, down, table):
        q, new_k, new_v = (x @ w for w in square[:3])
        k, v = (jnp.concatenate([a, b[None]]) for a, b in ((k, new_k), (v, new_v)))
        q, k, v = (a.reshape(-1, heads, width // heads) for a in (q, k, v))
        mixed = jnp.einsum("ths,shk->thk", jnp.einsum("thk,shk->ths", q, k), v)
        return (mixed.reshape(width) @ square[3] @ up) @ down @ table

    shapes = [(width,), (length - 1, width), (length - 1, width), (4, width, width)]
    shapes += [(width, 4 * width), (4 * width, width), (width, vocab)]
    given = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    counted = jax.jit(program).lower(*given).cost_analysis()["flops"]
    config = dataclasses.replace(
        PRESETS["smoke"], width=width, layers=1, layer=0, length=length, vocab=vocab, span=length
    )
    # all columns see (length + 1) / 2 sources on average, the last one `length`
    mean = required_flop(config)["columns"] / length
    assert counted == pytest.approx(mean + 4 * width * (length - 1) / 2, rel=0.01)


def test_jobs():
    """All predictions exist; jobs at one place of a sequence stand at one."""
    config = PRESETS["scores"]
    jobs, one = jobs_of(config, 64), jobs_of(config, 64, places=1)
    assert jobs.position.max() == 118 and len(jobs.sequence) == 16 * 64
    assert (one.position.reshape(16, 64) == one.position[::64, None]).all()


def test_smoke(capsys):
    found = run()
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert set(KEYS) <= set(last) and all(last[k] == found[k] for k in KEYS)
    assert found["max_abs_difference"] < 1e-5 < found["largest_kl"] and found["speedup"] > 0


def test_bad_options(capsys):
    for argv, words in (
        (["--ordinary", "9"], "multiple of 8"), (["--layer", "4"], "0..2"),
        (["--active", "99"], "--active"), (["--repeats", "2"], "at least 5"),
    ):  # fmt: skip
        with pytest.raises(SystemExit) as stop:
            run(*argv)
        assert stop.value.code == 2 and words in capsys.readouterr().err
