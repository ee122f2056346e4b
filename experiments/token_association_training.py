"""How is the one-hot model descended, and kept at the rungs of its ladder?

`weights/STEP.npz` holds the weights after so many updates; plain descent has no other state, so
that a run goes on from its last rung bit for bit.
"""

from itertools import takewhile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from experiments.token_association_config import Config
from jaxfeat.corpus.closed_form import NAMES, Weights, params_of, weights_of
from jaxfeat.data.order import epoch_rows
from jaxfeat.io.arrays import load_arrays, save_arrays
from jaxfeat.models.onehot import OneHotConfig, make_onehot, mean_loss
from jaxfeat.run import folder
from jaxfeat.run.progress import progress
from jaxfeat.types import Array, Tree, UserError

AT_ONCE = 8  # updates between signs of life


def rung(workdir: Path, step: int) -> Path:
    """Where the weights after so many updates are kept."""
    return workdir / "weights" / f"{step:06d}.npz"


def load_weights(workdir: Path, step: int) -> Weights:
    """The weights at a rung."""
    held = load_arrays(rung(workdir, step))
    if set(held) != set(NAMES):
        raise UserError(f"{rung(workdir, step)} holds no weights; delete it and --resume")
    return Weights(*(np.asarray(held[name], np.float64) for name in NAMES))


def first_rows(config: Config, count: int) -> np.ndarray:
    """Which sequences the statistics count: the first batch, or all."""
    if config.statistics == "all":
        return np.arange(count)
    return np.asarray(epoch_rows(order_key(config), jnp.uint32(0), config.batch, count))


def order_key(config: Config) -> Array:
    """The key of the order of batches."""
    return jax.random.fold_in(jax.random.key(config.seed), 1)


def _gradient(params: Tree, tokens: Array, at_once: int) -> tuple[Array, Tree]:
    """Loss and gradient of all sequences, some at a time."""
    grad = jax.value_and_grad(mean_loss)
    if not at_once or at_once == len(tokens):
        return grad(params, tokens)
    parts = tokens.reshape(-1, at_once, tokens.shape[1])
    add = lambda total, some: (jax.tree.map(jnp.add, total, grad(params, some)), None)
    zero = jnp.float32(0), jax.tree.map(jnp.zeros_like, params)
    total, _ = jax.lax.scan(add, zero, parts)
    return jax.tree.map(lambda x: x / len(parts), total)


def descend(config: Config, tokens: np.ndarray, workdir: Path) -> None:
    """Descend to the last rung; the first rungs that are kept are not made again."""
    c, length = config, tokens.shape[1] - 1
    key, held = order_key(c), jnp.asarray(tokens)

    @jax.jit
    def run(params: Tree, tokens: Array, start: Array, stop: Array) -> tuple[Tree, Array]:
        def one(step: Array, carry: tuple[Tree, Array]) -> tuple[Tree, Array]:
            rows = epoch_rows(key, step, c.batch, len(tokens)) if c.batch else slice(None)
            loss, grads = _gradient(carry[0], tokens[rows], c.at_once)
            return jax.tree.map(lambda p, g: p - c.rate * g, carry[0], grads), loss

        return jax.lax.fori_loop(start, stop, one, (params, jnp.float32(0)))

    done = list(takewhile(lambda step: rung(workdir, step).exists(), c.ladder))
    start = done[-1] if done else 0
    if done:
        params = jax.tree.map(jnp.asarray, params_of(load_weights(workdir, start)))
    else:
        config_of = OneHotConfig(c.data.vocab, length, c.layers, scale=c.scale)
        params = make_onehot(config_of).init(jax.random.key(c.seed))
    folder.truncate_metrics(workdir, start)
    at, loss = start, jnp.float32(0)
    with progress(c.ladder[-1], "descend") as shown, jax.default_matmul_precision("highest"):
        shown.begin("", start, c.ladder[-1])
        for step in (s for s in c.ladder if s > start):
            while at < step:
                some = min(AT_ONCE, step - at)
                params, loss = run(params, held, jnp.int32(at), jnp.int32(at + some))
                at += some
                shown.tick(float(loss), tokens=some * (c.batch or len(tokens)) * length, steps=some)
                if not np.isfinite(float(loss)):
                    raise UserError(
                        f"--rate: the loss is not finite after {at} updates at {c.rate}; choose a "
                        "smaller one"
                    )
            weights = weights_of(jax.device_get(params))
            kept = {name: np.float32(x) for name, x in weights._asdict().items()}
            save_arrays(rung(workdir, step), kept)
            folder.append_metrics(workdir, {"step": step, "loss": float(loss)})
