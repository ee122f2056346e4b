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
    """`benchmarks.gradient_split` measures 0.96 GB there (one row at a time)."""
    params, plan = setting(1)
    assert 0.5e9 < estimate_bytes(params, plan, **SIZES) < 1.9e9


def test_fewer_rows_at_once_where_memory_is_short():
    params, plan = setting(64)
    need = estimate_bytes(params, plan, **SIZES)
    assert fit_plan(plan, params, need, **SIZES) == plan
    assert 1 <= fit_plan(plan, params, need / 2, **SIZES).at_once < 64
    with pytest.raises(UserError, match="--memory-gb"):
        fit_plan(plan, params, 1e8, **SIZES)
