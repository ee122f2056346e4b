"""Is the estimate of memory right in order, and does it fail early with the flag to change?"""

import jax
import pytest

from jaxfeat.grads.budget import estimate_bytes, fit_plan
from jaxfeat.grads.plan import make_plan
from jaxfeat.models.gpt2 import GPT2Config, make_gpt2
from jaxfeat.types import UserError

SIZES = {"batch": 256, "held": 256, "length": 20, "width": 128, "hidden": 512}


def setting(at_once):
    decoder = make_gpt2(GPT2Config(5, 20))
    params = jax.eval_shape(decoder.init, jax.random.key(0))
    nodes = [(k, i) for k in (1, 2) for i in range(2, 20)]
    return params, make_plan(nodes, layers=2, length=20, at_once=at_once)


def test_estimate_of_the_benchmark():
    """`benchmarks.gradient_split` measures 0.85 GB there (one row at a time)."""
    params, plan = setting(1)
    assert 0.43e9 < estimate_bytes(params, plan, **SIZES) < 1.7e9


def test_estimate_of_othello():
    """Preset othello of the benchmark measures 4.17 GB (32 sequences worked on together)."""
    decoder = make_gpt2(GPT2Config(67, 61, 256, 4, 6))
    params = jax.eval_shape(decoder.init, jax.random.key(0))
    nodes = [(k, i) for k in range(1, 7) for i in range(4, 57, 4)]
    plan = make_plan(nodes, layers=6, length=61, chunks=4, examples=32)
    sizes = {"batch": 64, "held": 64, "length": 61, "width": 256, "hidden": 1024}
    assert 3.5e9 < estimate_bytes(params, plan, **sizes) < 4.9e9


def test_fewer_rows_and_sequences_at_once_where_memory_is_short():
    params, plan = setting(64)
    need = estimate_bytes(params, plan, **SIZES)
    assert fit_plan(plan, params, need, **SIZES) == (plan, need)
    assert 1 <= fit_plan(plan, params, need / 2, **SIZES)[0].at_once < 64
    short, _ = fit_plan(plan, params, 0.45e9, **SIZES)
    assert short.at_once == 1 and 16 <= short.examples < 256
    with pytest.raises(UserError, match="--memory-gb"):
        fit_plan(plan, params, 1e8, **SIZES)
