"""Which settings do the toy experiments share, and which of them can work?"""

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxfeat.data import toy
from jaxfeat.grads.budget import fit_plan
from jaxfeat.grads.plan import EXAMPLES, make_plan
from jaxfeat.models.gpt2 import GPT2Config, make_gpt2
from jaxfeat.nn.route import check_blocks, resolve
from jaxfeat.train.variants import VARIANTS, init_params, is_myopic, make_variant
from jaxfeat.types import Array, Batch, UserError, make_batch

DATA, INIT, HELD, FIT, TEST = range(5)  # what a seed's key is folded with


@dataclass(frozen=True)
class Config:
    """Settings of a toy experiment."""

    task: toy.ToyTask = field(default_factory=toy.ToyTask)
    """The game."""
    width: int = 32
    """Residual width D."""
    heads: int = 4
    """Attention heads; they divide the width."""
    layers: int = 2
    """Blocks N."""
    batch: int = 64
    """Sequences an update."""
    steps: int = 500
    """Updates."""
    learning_rate: float = 1e-3
    """Of Adam."""
    seeds: int = 5
    """Runs of each variant, each with its own initialisation and data."""
    seed: int = 0
    """What all randomness follows from."""
    variants: tuple[str, ...] = ("standard", "myopic", "untied", "both")
    """Variants to train (also fully_untied, beta=X); the standard one must be among them."""
    untie_at: int = 0
    """First position with parameters of its own; 0 means the first output's predictor."""
    independent: bool = False
    """Draw untied copies independently instead of equal."""
    tracked: tuple[str, ...] = ("standard",)
    """Variants with a ledger."""
    held: int = 256
    """Held-out sequences of the ledger (at least 8 x width in earnest runs)."""
    stride: int = 10
    """Updates between the ledger's movements."""
    first: int = 2
    """First position with a ledger."""
    last: int = 0
    """Last position with a ledger; 0 means the last of all."""
    top: int = 0
    """Highest layer with a ledger, which begins at layer 1; 0 means the last layer."""
    ends: str = "both"
    """Where movements are linearised: "start" of a stride or "both" ends."""
    also_sgd: bool = True
    """Keep the ledger of plain gradient steps on the same trajectory beside Adam's."""
    by_copy: bool = False
    """Keep a ledger of what acts through the same parameters if untied at untie_at, too."""
    ladder: int = 5
    """Copies of the ledger over the run, for influence over time."""
    log_every: int = 50
    """Updates between logs and checkpoints."""
    probe_fit: int = 2048
    """Sequences that probes are fitted on."""
    probe_test: int = 1024
    """Held-out sequences that probes are scored on."""
    alpha: float = 1.0
    """Ridge penalty of the claims' probes."""
    chunks: int = 2
    """Slices of columns that tracked nodes are grouped into; only speed depends on it."""
    at_once: int = 8
    """Tracked rows batched into one product; only speed and memory depend on it."""
    memory_gb: float = 8.0
    """What tracking may take beyond training (GB); fewer rows are batched to keep to it."""
    seeds_at_once: int = 1
    """Seeds of a tracked variant that run side by side; only speed and memory depend on it."""


def check(config: Config, kind: str) -> None:
    """Refuse settings that cannot work before anything is written.

    Args:
        kind: the game that the experiment is about.
    """
    c, length = config, config.task.length - 1
    need("task.kind", c.task.kind == kind, c.task.kind, f"{kind} (the other has its experiment)")
    need("seed", 0 <= c.seed < 2**32, c.seed, "0..2^32 - 1")
    for name in ("width", "heads", "layers", "batch", "steps", "seeds", "held", "stride",
                 "ladder", "log_every", "chunks", "at_once"):  # fmt: skip
        need(name, getattr(c, name) >= 1, getattr(c, name), "at least 1")
    need("heads", c.width % c.heads == 0, c.heads, f"a divisor of --width {c.width}")
    for option, names in (("variants", c.variants), ("tracked", c.tracked)):
        for name in names:
            known = name in VARIANTS or name.startswith("beta=")
            need(option, known, name, f"some of {', '.join(VARIANTS)}, beta=X")
        need(option, len(set(names)) == len(names), " ".join(names), "each name once")
    need("variants", "standard" in c.variants, " ".join(c.variants), "standard among them")
    for name in c.tracked:
        need("tracked", name in c.variants, name, "only names out of --variants")
    told = f"a divisor of --steps {c.steps} and a multiple of --stride {c.stride}"
    fits = c.steps % c.log_every == 0 and c.log_every % c.stride == 0
    need("log-every", fits, c.log_every, told)
    intervals = c.steps // c.log_every
    need("ladder", c.ladder <= intervals, c.ladder, f"at most the {intervals} logs of the run")
    need("held", c.held % 2 == 0, c.held, "an even number")
    whole = c.held <= EXAMPLES or c.held % EXAMPLES == 0
    need("held", whole, c.held, f"above {EXAMPLES} a multiple of it")
    need("task.inputs", c.task.inputs >= 4, c.task.inputs, "at least 4 here")
    last = c.task.inputs - 1
    least = 1 if c.task.kind == "majority" else 2  # before it the feature does not vary
    fits = least <= c.first <= last
    need("first", fits, c.first, f"{least}..{last}, a position of the input stage")
    fits = c.last == 0 or c.first <= c.last < length
    need("last", fits, c.last, f"0 or --first {c.first}..{length - 1}")
    need("top", 0 <= c.top <= c.layers, c.top, f"0..{c.layers}")
    need("ends", c.ends in ("start", "both"), c.ends, "start or both")
    need("untie-at", 0 <= c.untie_at < length, c.untie_at, f"0 or 1..{length - 1}")
    need("probe-fit", c.probe_fit >= 2, c.probe_fit, "at least 2 sequences")
    need("probe-test", c.probe_test >= 2, c.probe_test, "at least 2 sequences")
    need("seeds-at-once", c.seeds_at_once >= 0, c.seeds_at_once, "at least 0")
    for name, least in (("learning_rate", 0), ("memory_gb", 0), ("alpha", -1)):
        value = getattr(c, name)
        good = np.isfinite(value) and (value > least if least == 0 else value >= 0)
        need(name, bool(good), value, "a finite number above 0" if least == 0 else "0 or more")
    for name in c.variants:
        try:
            variant = make_variant(name, m=untie_at(c), length=length)
            check_blocks(resolve(variant.route, length), c.layers)
        except UserError as error:
            raise UserError(f"--variants: {error}") from None
    for name in c.tracked:
        tracking_plan(c, name)


def need(name: str, fits: bool, given: Any, needed: str) -> None:
    """Refuse a setting, naming its option and what it takes."""
    if not fits:
        raise UserError(f"--{name.replace('_', '-')}: {given} given, {needed} needed")


def shape_of(config: Config) -> GPT2Config:
    """The model's sizes."""
    c = config
    return GPT2Config(c.task.vocab_size, c.task.length - 1, c.width, c.heads, c.layers)


def untie_at(config: Config) -> int:
    """Where parameters are untied: by default at the position that predicts the first output."""
    return config.untie_at or config.task.inputs


def seed_keys(config: Config, purpose: int) -> Array:
    """A key for each seed, `[S]`."""
    base = jax.random.fold_in(jax.random.key(config.seed), purpose)
    return jax.vmap(lambda s: jax.random.fold_in(base, s))(jnp.arange(config.seeds))


def draw(config: Config, key: Array, count: int, split: toy.Split) -> Batch:
    """A batch of sequences of the task."""
    return make_batch(toy.sample(config.task, key, count, split=split))


def shared_key(config: Config, purpose: int) -> Array:
    """A key that all seeds share: for what they are measured on."""
    return jax.random.fold_in(jax.random.key(config.seed), purpose)


def tracked_nodes(config: Config) -> list[tuple[int, int]]:
    """The nodes with a ledger."""
    length = config.task.length - 1
    last, top = config.last or length - 1, config.top or config.layers
    return [(k, i) for k in range(1, top + 1) for i in range(config.first, last + 1)]


def probed_nodes(config: Config) -> list[tuple[int, int]]:
    """All nodes at which a feature varies: not bos, nor an input without a previous one."""
    length = config.task.length - 1
    first = 1 if config.task.kind == "majority" else 2
    return [(k, i) for k in range(config.layers + 1) for i in range(first, length)]


def tracking_plan(config: Config, name: str):
    """The tracked nodes' plan for a variant, cut to the memory allowed; and its estimate, bytes."""
    c, length = config, config.task.length - 1
    decoder = make_gpt2(shape_of(c))
    variant = make_variant(name, m=untie_at(c), length=length)
    plan = make_plan(
        tracked_nodes(c), layers=c.layers, length=length, chunks=c.chunks, at_once=c.at_once,
        precached=not is_myopic(variant, length),
    )  # fmt: skip
    params = jax.eval_shape(lambda k: init_params(decoder, variant, k), jax.random.key(0))
    groups = c.seeds_at_once or c.seeds
    plan, need = fit_plan(
        plan, params, c.memory_gb * 1e9 / groups, batch=c.batch, held=c.held, length=length,
        width=c.width, hidden=4 * c.width, also_sgd=c.also_sgd,
    )  # fmt: skip
    return plan, groups * need
