"""What is one step of training a sparse autoencoder?

On rows x, centred and scaled to a mean squared norm of D; `missed = |x - decode(encode(x))|^2 / D`
is the share of their variance that the reconstruction misses. What is made small:

    topk      mean missed                             arXiv 2406.04093
    relu      mean missed + penalty sum f / sqrt(D)   arXiv 2309.08600
    jumprelu  mean missed + penalty L0                arXiv 2407.14435, straight-through thresholds

Decoder rows keep norm 1. A feature that no row has activated for `dead_after` rows begins anew as
the error of a badly rebuilt row of the batch, drawn with chances in proportion to the square of its
squared error (Bricken et al. 2023, "Towards Monosemanticity"), without its moments in Adam.
"""

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxfeat.features.sae import KINDS, SAE, activate
from jaxfeat.types import Array, Tree, UserError, check_whole

END = 0.8  # share of the steps after which the rate falls to 0 and nothing begins anew
ADAM = optax.scale_by_adam()


@dataclasses.dataclass(frozen=True)
class SAEConfig:
    """How an SAE is trained; lengths in steps or rows (positions of the corpus)."""

    features: int = 2048  # M
    kind: str = "topk"  # one of topk, relu, jumprelu
    k: int = 32  # active features at a position (topk)
    penalty: float = 0.0  # of sum f / sqrt(D) (relu) or of an active feature (jumprelu)
    bandwidth: float = 0.3  # jumprelu: twice the distance at which an input moves a threshold
    learning_rate: float = 1e-3  # of Adam, after the warm-up
    warm_up: int = 100  # steps
    batch: int = 2048  # rows of a step
    steps: int = 2000  # updates
    dead_after: int = 100_000  # rows without activation after which a feature begins anew
    held_out: float = 0.05  # share of the sequences that are measured and not trained on


class TrainState(NamedTuple):
    """What an update changes."""

    params: Tree  # the arrays of the SAE, for normalised rows
    moments: Any
    idle: Array  # [M] rows since the feature was active


def check_config(config: SAEConfig) -> None:
    """Refuse a config out of range.

    Raises:
        UserError: the first value that is.
    """
    c = config
    if c.kind not in KINDS:
        raise UserError(f"kind: {c.kind!r} given; valid: {', '.join(KINDS)}")
    check_whole("features", c.features, 1)
    check_whole("k", c.k, 1, c.features if c.kind == "topk" else None)
    for name, least in (("warm_up", 0), ("batch", 1), ("steps", 1), ("dead_after", 1)):
        check_whole(name, getattr(c, name), least)
    for name in ("bandwidth", "learning_rate", "penalty"):
        value = getattr(c, name)
        if not isinstance(value, float | int) or not 0 <= value < math.inf:
            raise UserError(f"{name}: {value!r} given, a finite number of at least 0 needed")
        if name != "penalty" and value == 0:
            raise UserError(f"{name}: 0 given, a number above 0 needed")
    if (c.kind == "topk") != (c.penalty == 0):
        raise UserError(f"penalty: {c.penalty} given; topk has 0, relu and jumprelu more than 0")


def init_state(key: Array, config: SAEConfig, width: int) -> TrainState:
    """Random unit decoder rows, the encoder their transpose, biases 0."""
    w_dec = unit_rows(jax.random.normal(key, (config.features, width)))
    zeros = jnp.zeros(config.features)
    params = {
        "w_enc": w_dec.T, "b_enc": zeros, "w_dec": w_dec, "b_dec": jnp.zeros(width),
        "threshold": zeros + _first_threshold(config),
    }  # fmt: skip
    return TrainState(params, ADAM.init(params), jnp.zeros(config.features, jnp.int32))


def update(
    config: SAEConfig, state: TrainState, x: Array, key: Array, step: Array
) -> tuple[TrainState, dict[str, Array]]:
    """One step on normalised rows `x [B, D]`.

    Returns:
        The state, and before the step: `missed` and `l0` (means over the batch), `dead` (share of
        the features), `revived` (how many begin anew).
    """
    dead = state.idle >= config.dead_after
    due = dead.any() & (step < END * config.steps)
    anew = lambda state: revive(config, state, x, dead, key)
    state = jax.lax.cond(due, anew, lambda state: state, state)
    (_, (missed, f)), grads = jax.value_and_grad(_loss, has_aux=True)(state.params, x, config)
    w_dec, pull = state.params["w_dec"], grads["w_dec"]  # of the pull only what turns a row
    grads["w_dec"] = pull - jnp.sum(pull * w_dec, axis=1, keepdims=True) * w_dec
    steps, moments = ADAM.update(grads, state.moments)
    rate = learning_rate(config, step)
    params = jax.tree.map(lambda p, u: p - rate * u, state.params, steps)
    params["w_dec"] = unit_rows(params["w_dec"])
    params["threshold"] = jnp.maximum(params["threshold"], 0)
    active = f > 0
    idle = jnp.where(active.any(axis=0), 0, state.idle + len(x))
    told = {
        "missed": missed, "l0": jnp.sum(active, dtype=jnp.float32) / len(x),
        "dead": jnp.mean(dead, dtype=jnp.float32),
        "revived": jnp.where(due, jnp.sum(dead, dtype=jnp.float32), 0),
    }  # fmt: skip
    return TrainState(params, moments, idle), told


def revive(config: SAEConfig, state: TrainState, x: Array, dead: Array, key: Array) -> TrainState:
    """The features `dead [M]` begin anew: the n-th of them as the error of the n-th row drawn."""
    params = state.params
    error = x - _decode(params, _encode(params, x, config)[0])
    # the largest of log chance + Gumbel noise first: rows drawn without putting them back
    chance = 2 * jnp.log(jnp.sum(error * error, axis=1) + 1e-30)
    drawn = jnp.argsort(-(chance + jax.random.gumbel(key, chance.shape)))
    new = unit_rows(error[drawn[(jnp.cumsum(dead) - 1) % len(x)]])
    norms = jnp.linalg.norm(params["w_enc"], axis=0)
    alive = jnp.sum(jnp.where(dead, 0, norms)) / jnp.maximum(jnp.sum(~dead), 1)
    begun = {
        "w_enc": jnp.where(dead.all(), 1, alive) * new.T, "w_dec": new,
        "b_enc": jnp.zeros_like(params["b_enc"]),
        "threshold": jnp.full_like(params["threshold"], _first_threshold(config)),
    }  # fmt: skip
    which = {"w_enc": dead[None], "w_dec": dead[:, None], "b_enc": dead, "threshold": dead}

    def put(old: Tree, new: Tree) -> Tree:
        return old | {name: jnp.where(which[name], new[name], old[name]) for name in new}

    none = jax.tree.map(jnp.zeros_like, begun)
    moments = state.moments._replace(mu=put(state.moments.mu, none), nu=put(state.moments.nu, none))
    return TrainState(put(params, begun), moments, jnp.where(dead, 0, state.idle))


def unit_rows(w: Array) -> Array:
    """Rows scaled to norm 1; rows of zeros stay."""
    return w / jnp.maximum(jnp.linalg.norm(w, axis=1, keepdims=True), 1e-12)


def learning_rate(config: SAEConfig, step: Array) -> Array:
    """Linear warm-up, constant, from `END` of the steps on a linear fall to 0."""
    up = (step + 1) / max(config.warm_up, 1)
    down = (config.steps - step) / max((1 - END) * config.steps, 1)
    return config.learning_rate * jnp.minimum(1, jnp.minimum(up, down))


def _first_threshold(config: SAEConfig) -> float:
    """What thresholds begin with."""
    return config.bandwidth if config.kind == "jumprelu" else 0.0


def _loss(params: Tree, x: Array, config: SAEConfig) -> tuple[Array, tuple[Array, Array]]:
    """The loss; with it the share of the variance that is missed, and f."""
    f, gate = _encode(params, x, config)
    width = x.shape[1]
    missed = jnp.mean(jnp.sum((x - _decode(params, f)) ** 2, axis=1)) / width
    if config.kind == "topk":
        return missed, (missed, f)
    cost = f / math.sqrt(width) if config.kind == "relu" else gate
    return missed + config.penalty * jnp.mean(jnp.sum(cost, axis=1)), (missed, f)


def _encode(params: Tree, x: Array, config: SAEConfig) -> tuple[Array, Array]:
    """`f` and `f > 0`, both `[B, M]`; of jumprelu with straight-through gradients of thresholds t.

    `df/dt = -t near` and `d(f > 0)/dt = -near`, `near = 1(|pre - t| < bandwidth / 2) / bandwidth`.
    """
    sae = SAE(**params, kind=config.kind, k=config.k, layer=0)
    pre = jnp.matmul(x, params["w_enc"], precision="highest") + params["b_enc"][None]
    threshold = params["threshold"][None]
    f = activate(sae, pre, threshold)
    gate = (f > 0).astype(x.dtype)
    if config.kind != "jumprelu":
        return f, gate
    stop = jax.lax.stop_gradient
    near = stop((jnp.abs(pre - threshold) < config.bandwidth / 2).astype(x.dtype))
    moved = near / config.bandwidth * (threshold - stop(threshold))  # 0, but for its gradient
    return f - stop(threshold) * moved, gate - moved


def _decode(params: Tree, f: Array) -> Array:
    """The reconstruction of normalised rows."""
    return jnp.matmul(f, params["w_dec"], precision="highest") + params["b_dec"][None]
