"""Settings of the Othello experiment, and what follows from them."""

from dataclasses import dataclass

import jax
import numpy as np

from experiments.toy_config import need
from jaxfeat.data import othello
from jaxfeat.grads.budget import fit_plan
from jaxfeat.grads.plan import EXAMPLES, Plan, make_plan
from jaxfeat.models.gpt2 import GPT2Config, make_gpt2


@dataclass(frozen=True)
class Config:
    """Settings of the Othello experiment."""

    size: int = 6
    """Board size: 4, 6 or 8."""
    games: str = ""
    """File of recorded games (8 x 8), one a line, the moves (f5d6c5..., passes implied) after the
    last tab; random games are drawn without one."""
    width: int = 64
    """Residual width D."""
    heads: int = 4
    """Attention heads; they divide the width."""
    layers: int = 3
    """Blocks N."""
    batch: int = 128
    """Games an update."""
    steps: int = 1500
    """Updates."""
    learning_rate: float = 2e-3
    """Of Adam."""
    seeds: int = 4
    """Runs, each with its own initialisation and games."""
    seed: int = 0
    """What all randomness follows from."""
    positions: tuple[int, ...] = (8, 16, 24)
    """Moves whose nodes are tracked, at every layer from 1."""
    tracked: int = 1500
    """First updates of run 2 that are tracked."""
    stride: int = 50
    """Updates between movements."""
    ends: str = "both"
    """Where movements are linearised: "start" of a stride or "both" ends."""
    also_sgd: bool = True
    """Track plain gradient steps on the same trajectory beside Adam's."""
    held: int = 512
    """Held-out games of the influence (at least 8 x width in earnest runs)."""
    probe_fit: int = 4096
    """Games that probes are fitted on."""
    probe_test: int = 2048
    """Held-out games that probes are scored on."""
    alpha: float = 1.0
    """Ridge penalty of the probes."""
    chunks: int = 3
    """Slices of columns that tracked nodes are grouped into; only speed depends on it."""
    at_once: int = 1
    """Tracked rows batched into one product; only speed and memory depend on it."""
    memory_gb: float = 4.0
    """What tracking may take beyond a plain update (GB)."""


def shape_of(config: Config) -> GPT2Config:
    """Sizes of the model."""
    c = config
    vocab, length = othello.vocab_size(c.size), othello.moves_in(c.size)
    return GPT2Config(vocab, length, c.width, c.heads, c.layers)


def nodes_of(config: Config) -> list[tuple[int, int]]:
    """The tracked nodes."""
    return [(k, i) for k in range(1, config.layers + 1) for i in config.positions]


def central(size: int) -> list[int]:
    """The central 4 x 4 squares, which the influence is told of (all of a 4 x 4 board)."""
    first = (size - 4) // 2
    inner = range(first, first + 4)
    return [size * r + c for r in inner for c in inner]


def tracking_plan(config: Config) -> tuple[Plan, int]:
    """The tracked nodes' plan, cut to the memory allowed; and its estimate in bytes.

    Raises:
        UserError: the memory does not suffice.
    """
    c, shape = config, shape_of(config)
    plan = make_plan(
        nodes_of(c), layers=c.layers, length=shape.length, chunks=c.chunks, at_once=c.at_once
    )
    params = jax.eval_shape(make_gpt2(shape).init, jax.random.key(0))
    return fit_plan(
        plan, params, c.memory_gb * 1e9, batch=c.batch, held=c.held, length=shape.length,
        width=c.width, hidden=4 * c.width, also_sgd=c.also_sgd,
    )  # fmt: skip


def check(config: Config) -> None:
    """Refuse settings that cannot work before anything is written."""
    c = config
    need("size", c.size in othello.SIZES, c.size, "4, 6 or 8")
    for name in ("width", "heads", "layers", "batch", "steps", "seeds", "held", "stride",
                 "tracked", "chunks", "at_once"):  # fmt: skip
        need(name, getattr(c, name) >= 1, getattr(c, name), "at least 1")
    need("heads", c.width % c.heads == 0, c.heads, f"a divisor of --width {c.width}")
    need("seed", 0 <= c.seed < 2**32, c.seed, "0..2^32 - 1")
    need("games", not c.games or c.size == 8, c.games, "records only with --size 8")
    good = np.isfinite(c.learning_rate) and c.learning_rate > 0
    need("learning-rate", bool(good), c.learning_rate, "a finite number above 0")
    need("alpha", bool(np.isfinite(c.alpha) and c.alpha >= 0), c.alpha, "0 or more")
    need("steps", c.steps % c.stride == 0, c.steps, f"a multiple of --stride {c.stride}")
    fits = c.tracked <= c.steps and c.tracked % c.stride == 0
    need("tracked", fits, c.tracked, f"a multiple of --stride {c.stride} up to {c.steps}")
    need("ends", c.ends in ("start", "both"), c.ends, "start or both")
    whole = c.held % 2 == 0 and (c.held <= EXAMPLES or c.held % EXAMPLES == 0)
    need("held", whole, c.held, f"an even number, above {EXAMPLES} a multiple of it")
    for name in ("probe_fit", "probe_test"):
        need(name, getattr(c, name) >= 2, getattr(c, name), "at least 2 games")
    last = othello.moves_in(c.size) - 1
    good = bool(c.positions) and all(1 <= i <= last for i in c.positions)
    need("positions", good and len(set(c.positions)) == len(c.positions), c.positions,
         f"distinct moves 1..{last}")  # fmt: skip
    need("memory-gb", bool(np.isfinite(c.memory_gb) and c.memory_gb > 0), c.memory_gb, "above 0")
    tracking_plan(c)
