"""Is a block at one query position the row of the whole block, in value and derivatives?"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from tiny import LENGTH, QUICK, ROUTES, close, to64, traced

from jaxfeat.nn.blocks import run_block, run_column
from jaxfeat.nn.decoder import layer_of
from jaxfeat.nn.route import rows_of

GPT2, SMALL = tiny.gpt2(2, 2), tiny.windowed(2)


@partial(jax.jit, static_argnames=("form", "kind"), compiler_options=QUICK)
def columns(params, batch, resid, dparams, dresid, cotangent, i, route, form, kind=None):
    """Row i of a block and its column: value, jvp and vjp of both."""
    decoder, copies, _ = FORMS[form]
    block, const = layer_of(params["blocks"], 1), layer_of(decoder.consts, 1)
    dblock = layer_of(dparams["blocks"], 1)
    position, mask = batch.position[2], batch.mask[2]
    whole = kind if kind else route

    def row(block, x):
        return run_block(decoder, block, const, x, position, mask, whole, copies)[0][i]

    def column(block, x):
        here = rows_of(whole, i, LENGTH)
        return run_column(decoder, block, const, x, i, position, mask, here, copies)

    def ask(fn):
        value, moved = jax.jvp(fn, (block, resid), (dblock, dresid))
        return value, moved, jax.vjp(fn, block, resid)[1](cotangent)

    return ask(row), ask(column)


# a model, its copies, the routes
FORMS = {
    "fast": (GPT2, None, ("full", "myopic", "booleans", "weights")),
    "default": (GPT2._replace(column=None), None, ("myopic", "weights")),
    "halves": (GPT2, (0, 3), ("full",)),
    "unequal": (GPT2, (0, 2), ("weights",)),
    "windows": (SMALL, None, ("full", "booleans")),
    "window copies": (SMALL, tuple(range(LENGTH)), ("myopic",)),
}


@pytest.mark.parametrize(
    ("form", "name"), [(form, name) for form, (*_, names) in FORMS.items() for name in names]
)
def test_column_is_row(form, name):
    """Value, jvp and vjp of a column equal those of the block's row, at padded places too."""
    decoder, copies, _ = FORMS[form]
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        make = lambda seed: to64(tiny.params_of(decoder, seed, copies=len(copies or ())))
        x, dx = jnp.asarray(rng.normal(size=(2, LENGTH, 8)))
        args = x, make(1), dx, jnp.asarray(rng.normal(size=8))
        params = make(0)
        for side in ("left", "right"):
            batch = tiny.batch_of(3, pads=1, side=side)
            for i in (0, 3, 5):
                ask = partial(columns, params, batch, *args, i)
                row, column = traced(ask, route=ROUTES[name], form=form)
                close(column, row, 1e-12)
