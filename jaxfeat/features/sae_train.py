"""How is a sparse autoencoder of a layer's residual learned, and what becomes of its units?

The rows of a corpus in an order of (key, epoch), many updates (`jaxfeat.features.sae_update`) a
dispatch. Inputs are centred and scaled to a mean squared norm of D, which is folded into the arrays
at the end, so that the SAE reads and writes the model's own residuals.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfeat.features.activations import (
    Activations,
    kept_places,
    shuffled_places,
    split_activations,
    take_rows,
)
from jaxfeat.features.sae import SAE, check_arrays
from jaxfeat.features.sae_facts import Facts, sae_facts
from jaxfeat.features.sae_update import SAEConfig, TrainState, check_config, init_state, update
from jaxfeat.types import Array, Tree, UserError

BYTES = 2**26  # of rows that one dispatch takes to the device
MOST = 200  # steps of one dispatch
SAMPLE = 2**14  # rows that centre and scale are taken from


class TrainedSAE(NamedTuple):
    """An SAE in the units of the model, how it came about, and what it does on held-out rows."""

    sae: SAE
    history: dict[str, np.ndarray]  # [steps] each: missed, l0, dead (share), revived (count)
    metrics: Facts


def train_sae(
    key: Array,
    stream: Activations,
    config: SAEConfig,
    *,
    on_log: Callable[[int, dict[str, np.ndarray]], None] = lambda step, history: None,
) -> TrainedSAE:
    """Train on activations of one layer; the same key, data and config give the same SAE.

    Args:
        stream: rows of one layer (`jaxfeat.features.activations`), in memory or on disk; the last
            sequences are held out.
        on_log: called after each dispatch with the updates done and the history since the last.

    Returns:
        The SAE (decoder rows of norm 1, f in the residual's units, `scale` as it was folded in),
        the history of every step, and `Facts` on the held-out rows.

    Raises:
        UserError: a config out of range, too few sequences, rows that are all alike, a loss that
            is not finite.

    >>> from jaxfeat.features.activations import from_rows
    >>> x = jax.random.normal(jax.random.key(0), (50, 4))
    >>> few = SAEConfig(features=8, k=2, batch=10, steps=3)
    >>> trained = train_sae(jax.random.key(1), from_rows(x, layer=2), few)
    >>> trained.sae.w_dec.shape, trained.sae.layer, len(trained.history["missed"])
    ((8, 4), 2, 3)
    """
    check_config(config)
    train, held = split_activations(stream, config.held_out)
    places, width = kept_places(train), stream.resid.shape[-1]
    spread = np.linspace(0, len(places) - 1, min(SAMPLE, len(places))).astype(np.int64)
    centre, scale = _normalisation(take_rows(train, places[spread]))
    made, order = jax.random.split(key)
    state = init_state(made, config, width)
    bytes_of_step = config.batch * width * stream.resid.dtype.itemsize
    most = max(1, min(MOST, BYTES // bytes_of_step, config.steps))
    history = []
    for done in range(0, config.steps, most):
        count = min(most, config.steps - done)
        at = shuffled_places(order, done + jnp.arange(most), config.batch, len(places))
        rows = take_rows(train, places[np.asarray(at)])
        state, told = _updates(config, state, rows, centre, scale, made, done, count)
        told = {name: np.asarray(x)[:count] for name, x in told.items()}
        if not np.isfinite(told["missed"]).all():
            raise UserError(
                f"the loss is not finite within updates {done}..{done + count}: a lower "
                f"learning_rate than {config.learning_rate:g} is needed"
            )
        history.append(told)
        on_log(done + count, told)
    sae = in_model_units(config, state.params, centre, scale, stream.layer)
    joined = {name: np.concatenate([part[name] for part in history]) for name in history[0]}
    return TrainedSAE(sae, joined, sae_facts(sae, held))


def in_model_units(
    config: SAEConfig, params: Tree, centre: np.ndarray, scale: float, layer: int
) -> SAE:
    """The SAE that does to x what `params` do to `scale (x - centre)`, f in the units of x.

    f = f' / scale:   W_enc = W_enc'   b_enc = b_enc' / scale - centre W_enc'   W_dec = W_dec'
    threshold = threshold' / scale     b_dec = b_dec' / scale + centre
    """
    wide = {name: np.asarray(x, np.float64) for name, x in params.items()}
    wide["b_enc"] = wide["b_enc"] / scale - centre @ wide["w_enc"]
    wide["b_dec"] = wide["b_dec"] / scale + centre
    wide["threshold"] = wide["threshold"] / scale
    arrays = {name: jnp.asarray(x, params[name].dtype) for name, x in wide.items()}
    k = config.k if config.kind == "topk" else 0
    return check_arrays(SAE(**arrays, kind=config.kind, k=k, layer=layer, scale=scale))


@partial(jax.jit, static_argnums=0, donate_argnums=1)
def _updates(
    config: SAEConfig, state: TrainState, rows: Array, centre: Array, scale: Array, key: Array,
    done: Array, count: Array,
):  # fmt: skip
    """The first `count` updates of those that `rows [S, B, D]` are for; histories `[S]`."""
    told = dict.fromkeys(("missed", "l0", "dead", "revived"), jnp.zeros(len(rows)))
    centre, scale = jnp.asarray(centre, jnp.float32), jnp.asarray(scale, jnp.float32)

    def one(n: Array, carry: tuple[TrainState, dict[str, Array]]):
        state, told = carry
        x = scale * (rows[n].astype(jnp.float32) - centre[None])
        state, more = update(config, state, x, jax.random.fold_in(key, done + n), done + n)
        return state, {name: told[name].at[n].set(more[name]) for name in told}

    return jax.lax.fori_loop(0, count, one, (state, told))


def _normalisation(rows: np.ndarray) -> tuple[np.ndarray, float]:
    """Centre `[D]` and scale of rows: `mean |scale (x - centre)|^2 = D`."""
    rows = rows.astype(np.float64)
    centre = rows.mean(axis=0)
    square = float(np.mean(np.sum((rows - centre) ** 2, axis=1)))
    if not 0 < square < math.inf:
        raise UserError("stream: rows that differ and are finite needed")
    return centre, math.sqrt(rows.shape[1] / square)
