"""What do the two counting games look like, and how well could anyone play them?

Majority: inputs are uniform; every output is uniform on the set of tokens that are most frequent
so far (outputs count too). Conditioned Majority: only inputs whose predecessor is token 0 count,
and the counts are frozen after the inputs (arXiv 2603.14087). All is a pure function of a key and
runs on the device. About one input in eight is held out by a hash and never drawn for training.

Ids: 0 pad, 1 bos, 2.. the values 0, 1, .. A sequence is bos, the inputs, the outputs.
"""

import functools
import itertools
import math
from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from jaxfeat.data.holdout import held_out, mix
from jaxfeat.types import Array, UserError

PAD, BOS, FIRST = 0, 1, 2
KINDS = ("majority", "conditioned_majority")
Split = Literal["train", "held_out", "all"]


@dataclass(frozen=True)
class ToyTask:
    """A counting game: `kind`, number of token values, inputs and outputs.

    `exclude0` (Conditioned Majority only) leaves token 0 out of the arg-max.

    >>> ToyTask("majority", values=3, inputs=10, outputs=10).vocab_size
    5
    """

    kind: str = "majority"
    values: int = 3
    inputs: int = 10
    outputs: int = 10
    exclude0: bool = False

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UserError(f"kind: {self.kind!r} is none of {', '.join(KINDS)}")
        for name, least in (("values", 2), ("inputs", 1), ("outputs", 1)):
            if getattr(self, name) < least:
                raise UserError(f"{name}: {getattr(self, name)} must be at least {least}")
        if self.exclude0 and self.kind == "majority":
            raise UserError("exclude0 belongs to conditioned_majority")

    @property
    def vocab_size(self) -> int:
        """Ids in use: pad, bos and the values."""
        return FIRST + self.values

    @property
    def length(self) -> int:
        """Tokens in a sequence, bos included."""
        return 1 + self.inputs + self.outputs


def sample(task: ToyTask, key: Array, batch: int, *, split: Split = "train") -> Array:
    """Sequences of a game.

    Rows whose input lies on the wrong side of the split are drawn again until none is left, so the
    inputs are exactly uniform on their side. Row b depends on (key, b) only.

    Args:
        task: the game.
        key: a key of `jax.random.key`; the same key gives the same sequences.
        batch: B, rows.
        split: "train" never gives a held-out input, "held_out" gives only those, "all" either.

    Returns:
        `[B, 1 + inputs + outputs]` int32 ids, bos first.

    Raises:
        UserError: an unknown split, or a split without any input (tiny games only).

    >>> task = ToyTask("majority", values=3, inputs=5, outputs=2)
    >>> sample(task, jax.random.key(0), 4).shape
    (4, 8)
    """
    if split not in ("train", "held_out", "all"):
        raise UserError(f"split: {split!r} is none of train, held_out, all")
    if split != "all":
        _check_sides(task)
    return _sample(task, key, batch, split)


def is_held_out(task: ToyTask, inputs: Any) -> Any:
    """Whether inputs belong to the held-out eighth, by a hash of their tokens.

    The tokens' base-`values` index, mixed as 32-bit integers (MurmurHash3's finaliser); held out
    where the top three bits are 0.

    Args:
        task: the game.
        inputs: `[..., inputs]` ids of the inputs alone, without bos and outputs (JAX or NumPy).

    Returns:
        `[...]` booleans.

    Raises:
        UserError: the last axis is not the number of inputs.

    >>> task = ToyTask("majority", values=3, inputs=2)
    >>> is_held_out(task, jnp.array([[2, 2], [4, 2]])).tolist()
    [False, False]
    """
    if inputs.shape[-1] != task.inputs:
        raise UserError(f"inputs {inputs.shape}: the last axis must be {task.inputs}")
    # Long games overflow 32 bits; an odd multiplier then keeps every token's influence.
    base = task.values if task.values**task.inputs <= 2**32 else 16777619
    powers = np.array([pow(base, t, 2**32) for t in range(task.inputs)], np.uint32)
    digits = (inputs - FIRST).astype(np.uint32)
    powers = powers.reshape((1,) * (digits.ndim - 1) + (-1,))
    h = (digits * powers).sum(-1, dtype=np.uint32) + np.uint32(0x9E3779B9)
    return held_out(mix(h))


def legal(task: ToyTask, tokens: Array) -> Array:
    """Which ids the game allows next.

    Args:
        task: the game.
        tokens: `[..., T+1]` ids with bos first, T = inputs + outputs.

    Returns:
        `[..., T, V]` booleans; row t tells which ids are legal for token t + 1.

    Raises:
        UserError: the sequences do not have the game's length.

    >>> task = ToyTask("majority", values=2, inputs=3, outputs=1)
    >>> legal(task, jnp.array([[1, 2, 3, 3, 3]]))[0, -1].tolist()
    [False, False, False, True]
    """
    is_value = _onehot(task, tokens)  # [..., T+1, values]
    if task.kind == "majority":
        allowed = _arg_max(is_value.cumsum(-2))[..., :-1, :]
    else:
        last = _conditioned_set(task, tokens[..., 1 : 1 + task.inputs])
        allowed = jnp.broadcast_to(jnp.expand_dims(last, -2), is_value[..., 1:, :].shape)
    is_input = jnp.arange(task.length - 1) < task.inputs
    allowed = allowed | jnp.broadcast_to(is_input[:, None], allowed.shape)
    return jnp.pad(allowed, [(0, 0)] * (allowed.ndim - 1) + [(FIRST, 0)])


def features(task: ToyTask, tokens: Array) -> Array:
    """The features that the game's circuit needs, aligned with the tokens.

    Majority: after token t, value v is a (tied) maximum. Conditioned Majority: value v is the token
    before token t, for t >= 2.

    Args:
        task: the game.
        tokens: `[..., T+1]` ids with bos first.

    Returns:
        `[..., T+1, F]` int8 zeros and ones with F = values; the row of bos is zero.

    Raises:
        UserError: the sequences do not have the game's length.

    >>> task = ToyTask("conditioned_majority", values=2, inputs=3, outputs=1)
    >>> features(task, jnp.array([[1, 2, 3, 3, 3]]))[0].tolist()
    [[0, 0], [0, 0], [1, 0], [0, 1], [0, 1]]
    """
    is_value = _onehot(task, tokens)
    if task.kind == "majority":
        found = _arg_max(is_value.cumsum(-2)).at[..., 0, :].set(False)
    else:
        found = jnp.zeros_like(is_value).at[..., 1:, :].set(is_value[..., :-1, :])
    return found.astype(jnp.int8)


def feature_names(task: ToyTask) -> tuple[str, ...]:
    """Names of the features, in the order of the last axis of `features`.

    >>> feature_names(ToyTask("majority", values=2))
    ('is_majority_0', 'is_majority_1')
    """
    stem = "is_majority" if task.kind == "majority" else "prev_is"
    return tuple(f"{stem}_{v}" for v in range(task.values))


@functools.lru_cache(maxsize=32)
def _outcomes(task: ToyTask) -> Counter:
    """Number of inputs with each (unordered counts, legal set of the first output); exact."""
    nothing = (0,) * task.values
    states: Counter = Counter({(False, nothing, nothing): 1})
    add = lambda counts, v: (*counts[:v], counts[v] + 1, *counts[v + 1 :])
    for _ in range(task.inputs):
        after: Counter = Counter()
        for (after0, seen, counted), ways in states.items():
            for v in range(task.values):
                if task.kind == "majority":
                    after[False, add(seen, v), nothing] += ways
                else:
                    after[v == 0, add(seen, v), add(counted, v) if after0 else counted] += ways
        states = after
    result: Counter = Counter()
    for (_, seen, counted), ways in states.items():
        counts = seen if task.kind == "majority" else counted
        start = 1 if task.exclude0 else 0
        top = max(counts[start:])
        result[seen, tuple(v for v in range(start, task.values) if counts[v] == top)] += ways
    return result


def bayes_floors(task: ToyTask) -> dict[str, Any]:
    """The least expected loss of any predictor, and what guessing achieves.

    Inputs cost log(values). An output costs E log |arg-max set|; in Majority only the first one,
    because it breaks the tie that the later ones follow. Exact sums over all inputs, taken uniform:
    that one side of the held-out split is missing from them is ignored.

    Args:
        task: the game.

    Returns:
        `per_position`: `[T]` float64, nats, for predicting token t + 1 at position t;
        `mean`: its mean over all T targets; `first_output_chance`: the best probability of a legal
        first output for a predictor that knows nothing of the input (`blind`) or only how often
        each token occurs in it (`counts`).

    >>> floors = bayes_floors(ToyTask("conditioned_majority", values=3, inputs=6, outputs=3))
    >>> {name: round(p, 3) for name, p in floors["first_output_chance"].items()}
    {'blind': 0.557, 'counts': 0.778}
    """
    outcomes, total = _outcomes(task), task.values**task.inputs
    tie = sum(ways * math.log(len(best)) for (_, best), ways in outcomes.items()) / total
    later = 0.0 if task.kind == "majority" else tie
    floors = [math.log(task.values)] * task.inputs + [tie] + [later] * (task.outputs - 1)
    blind: Counter = Counter()
    by_counts: dict[Any, Counter] = {}
    for (seen, best), ways in outcomes.items():
        for v in best:
            blind[v] += ways
            by_counts.setdefault(seen, Counter())[v] += ways
    known = sum(max(ways.values()) for ways in by_counts.values())
    return {
        "per_position": np.array(floors),
        "mean": float(np.mean(floors)),
        "first_output_chance": {"blind": max(blind.values()) / total, "counts": known / total},
    }


@functools.partial(jax.jit, static_argnames=("task", "batch", "split"))
def _sample(task: ToyTask, key: Array, batch: int, split: Split) -> Array:
    """`sample` after the checks."""
    return jax.vmap(lambda k: _sample_row(task, k, split))(jax.random.split(key, batch))


def _sample_row(task: ToyTask, key: Array, split: Split) -> Array:
    """One sequence; under vmap the loop goes on for the rejected rows only."""
    key, output_key = jax.random.split(key)

    def draw(state: tuple[Array, Array]) -> tuple[Array, Array]:
        key, use = jax.random.split(state[0])
        return key, jax.random.randint(use, (task.inputs,), FIRST, task.vocab_size, jnp.int32)

    state = draw((key, jnp.zeros((task.inputs,), jnp.int32)))
    if split != "all":
        wrong = lambda s: is_held_out(task, s[1]) != (split == "held_out")
        state = jax.lax.while_loop(wrong, draw, state)
    inputs = state[1]
    luck = lambda n: jax.random.uniform(output_key, (n, task.values))
    if task.kind == "majority":  # the first output breaks the tie, so that it is repeated
        best = _arg_max((inputs[:, None] == FIRST + jnp.arange(task.values)[None]).sum(0))
        outputs = jnp.repeat(jnp.where(best[None], luck(1), -1).argmax(-1), task.outputs)
    else:
        best = _conditioned_set(task, inputs)
        outputs = jnp.where(best[None], luck(task.outputs), -1).argmax(-1)
    return jnp.concatenate([jnp.array([BOS]), inputs, FIRST + outputs]).astype(jnp.int32)


def _onehot(task: ToyTask, tokens: Array) -> Array:
    """`[..., T+1, values]` booleans: which value each token is."""
    if tokens.shape[-1] != task.length:
        raise UserError(f"tokens {tokens.shape}: the last axis must be {task.length}")
    ids = (FIRST + jnp.arange(task.values)).reshape((1,) * tokens.ndim + (-1,))
    return tokens[..., None] == ids


def _arg_max(counts: Array) -> Array:
    """True for every value that ties for the largest count."""
    return counts == counts.max(-1, keepdims=True)


def _conditioned_set(task: ToyTask, inputs: Array) -> Array:
    """`[..., values]`: the arg-max set of the inputs that follow token 0; all if there is none."""
    ids = (FIRST + jnp.arange(task.values)).reshape((1,) * inputs.ndim + (-1,))
    counted = (inputs[..., 1:, None] == ids) & (inputs[..., :-1, None] == FIRST)
    counts = counted.sum(-2)
    if task.exclude0:
        counts = counts.at[..., 0].set(-1)
    return _arg_max(counts)


@functools.lru_cache(maxsize=32)
def _check_sides(task: ToyTask) -> None:
    """Refuse a game too small for both sides of the split to hold an input."""
    if task.values**task.inputs > 4096:
        return
    every = np.array(list(itertools.product(range(FIRST, task.vocab_size), repeat=task.inputs)))
    held = is_held_out(task, every)
    if held.all() or not held.any():
        raise UserError(f"{len(held)} inputs are too few for a held-out part: use split='all'")
