"""How far is one tracked update from what its definition needs?

    python -m benchmarks.gradient_split --preset majority   # about 6 minutes on 2 cores
    python -m benchmarks.gradient_split --preset othello    # about 3 minutes: 84 nodes, 48 pairs
    python -m benchmarks.gradient_split --preset tinystories   # a minute: 50,257 ids, 22 features

One process measures the machine's matmul peak, plain updates of every variant, a tracking step
(component moments and movements at every node, with JVPs at every update and at every eighth) and
the split by definition; the required work is a formula, tested in tests/benchmarks.
"""

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import harness
from jaxfeat.data import othello, toy
from jaxfeat.features.probe import features_at
from jaxfeat.grads.budget import fit_plan
from jaxfeat.grads.ledger import open_ledger
from jaxfeat.grads.moments import StepRule
from jaxfeat.grads.plan import make_plan
from jaxfeat.grads.split import split_by_definition
from jaxfeat.grads.tally import open_tally
from jaxfeat.grads.track import Tracker, advance, measure, node_resid, start_window
from jaxfeat.models.gpt2 import GPT2Config, make_gpt2
from jaxfeat.report.tables import text_table
from jaxfeat.run import cli
from jaxfeat.train.loop import Run, Tracked, Watch, fresh, make_interval, step_key, take_in
from jaxfeat.train.step import init_state, make_update
from jaxfeat.train.variants import VARIANTS, init_params, make_variant
from jaxfeat.types import Array, Batch, UserError, make_batch

TIED, OCCURRING = "standard", "occurring rows"
TASKS = ("majority", "othello", "tinystories")


@dataclass(frozen=True)
class Config:
    """Sizes of the measured task, with the settings of arXiv 2603.14087."""

    task: str = "majority"
    """majority; othello: 8 x 8, every fourth move, 16 squares x 3 types in one run; tinystories:
    GPT-2's vocabulary, positions 30-34, 22 features, with all embedding rows and with occurring
    ones."""

    width: int = 128
    """Residual width D."""
    heads: int = 4
    """Attention heads."""
    layers: int = 2
    """Blocks."""
    inputs: int = 10
    """Input tokens."""
    outputs: int = 10
    """Output tokens."""
    batch: int = 256
    """Sequences an update, and sequences of E."""
    first: int = 2
    """First tracked position; all later ones are tracked (every fourth of Othello's, five of
    tinystories')."""
    updates: int = 8
    """Updates a measured program (a multiple of 8; of the others any number)."""
    repeats: int = 5
    """Measured repeats of every program, at least 5 (3 of Othello's)."""
    memory_gb: float = 8.0
    """What tracking may take beyond a plain update (GB)."""
    definition_batch: int = 8
    """Sequences of the split by definition; 0 leaves it out."""
    chunks: int = 2
    """Slices of columns that the nodes are grouped into."""
    at_once: int = 1
    """Rows that are batched into one product."""
    examples: int = 256
    """Sequences that are worked on together."""


PRESETS = {
    "majority": Config(),
    "othello": Config(
        task="othello", width=256, layers=6, batch=64, first=4, updates=1, repeats=3,
        definition_batch=0, chunks=4, memory_gb=5.0, examples=32,
    ),
    "tinystories": Config(
        task="tinystories", layers=4, batch=16, first=30, updates=2, definition_batch=0, chunks=1,
    ),
    "smoke": Config(width=16, heads=2, inputs=3, outputs=3, batch=8, definition_batch=2),
}  # fmt: skip
OTHELLO_LENGTH, OTHELLO_SIZE = 61, 8
STORY_LENGTH, STORY_VOCAB, STORY_OCCURRING, STORY_FEATURES = 64, 50_257, 6_000, 22
CENTRAL = [8 * r + c for r in range(2, 6) for c in range(2, 6)]  # 16 squares


class Task(NamedTuple):
    """What is measured on: the model's sizes, a batch from a key, feature types at the nodes.

    `features`: tallied at each node; `occurring`: the ids that the batches hold, where not all.
    """

    shape: GPT2Config
    sample: Callable[[Array], Batch]
    features: int = 0
    types: Callable[[Batch], Array] | None = None
    occurring: np.ndarray | None = None


def task_of(config: Config) -> Task:
    """The task of the settings."""
    c, length = config, length_of(config)
    if c.task == "majority":
        game = toy.ToyTask(inputs=c.inputs, outputs=c.outputs)
        split = "train" if c.inputs > 3 else "all"
        draw = lambda key: make_batch(toy.sample(game, key, c.batch, split=split))
        shape = GPT2Config(game.vocab_size, length, c.width, c.heads, c.layers)
        return Task(shape, draw)
    if c.task == "tinystories":
        ids = np.random.default_rng(0).choice(STORY_VOCAB, STORY_OCCURRING, replace=False)
        ids = np.sort(ids).astype(np.int32)
        shape = GPT2Config(STORY_VOCAB, length, c.width, c.heads, c.layers)
        draw = lambda key: make_batch(
            jnp.asarray(ids)[jax.random.randint(key, (c.batch, length + 1), 0, len(ids))]
        )
        return Task(shape, draw, STORY_FEATURES, occurring=ids)
    vocab, central = othello.vocab_size(OTHELLO_SIZE), jnp.array(CENTRAL)

    def draw(key: Array) -> Batch:
        tokens = othello.sample_games(key, c.batch, OTHELLO_SIZE, length)
        return make_batch(tokens, tokens != othello.PAD)

    def types(batch: Batch) -> Array:
        tokens = jnp.c_[batch.token, batch.target[:, -1:]]
        found = othello.feature_types(othello.boards_of(tokens, OTHELLO_SIZE), OTHELLO_SIZE)
        return features_at(found[:, :-1], nodes_of(c))[..., central]

    shape = GPT2Config(vocab, length, c.width, c.heads, c.layers)
    return Task(shape, draw, len(CENTRAL), types)


def length_of(config: Config) -> int:
    """Positions."""
    lengths = {"othello": OTHELLO_LENGTH, "tinystories": STORY_LENGTH}
    return lengths.get(config.task, config.inputs + config.outputs)


def required_flop(config: Config) -> dict[str, float]:
    """Floating-point operations that a plain update and a tracking step need.

    Per token and block a forward pass needs 24 D^2 in its linear maps (12 D^2 weights) and
    4 D (t + 1) in attention at column t; a backward pass as much again for activations and as
    much for weights; a JVP as much for each of its two terms. A tracking step needs: forward,
    backward and, below the readout, myopic backward for activations on the batch; forward and one
    JVP for all nodes on E; per row (a component of a node) a VJP and a JVP, in its top block at one
    column with reassociated attention (4 H D (i + 1)), in the blocks below at columns <= i.
    """
    c, length = config, length_of(config)
    width, batch = c.width, c.batch
    vocab = task_of(config).shape.vocab
    maps = 24 * width**2

    def columns(count: int) -> float:
        """Forward work of one block on columns 0..count-1 of the batch."""
        return batch * (count * maps + 4 * width * count * (count + 1) / 2)

    def column(i: int) -> float:
        """Forward work of one block at column i alone."""
        return batch * (maps + 4 * c.heads * width * (i + 1))

    forward = c.layers * columns(length)
    unembed = 2 * batch * length * width * vocab
    plain = 3 * (forward + unembed)
    rows = 0.0
    for layer, i in nodes_of(config):
        components = 1 if layer == c.layers else 2
        rows += components * (2 * column(i) + (layer - 1) * 2 * columns(i + 1))
    tracking = 3 * forward + 2 * unembed + 3 * forward + 2 * rows
    return {"plain": plain, "tracking": tracking}


def nodes_of(config: Config) -> list[tuple[int, int]]:
    """The tracked nodes (layer, position)."""
    spans = {"othello": (57, 4), "tinystories": (config.first + 5, 1)}
    end, step = spans.get(config.task, (length_of(config), 1))
    return [(k, i) for k in range(1, config.layers + 1) for i in range(config.first, end, step)]


def measure_all(preset: str, config: Config) -> dict:
    """Compile, run in turn, print the table; the figures as a dict."""
    c, whole = config, config.task == "majority"
    if c.task not in TASKS:
        raise UserError(f"--task: {c.task} given; valid are {', '.join(TASKS)}")
    least, unit = (3 if c.task == "othello" else 5), (8 if whole else 1)
    if c.repeats < least or c.updates < 1 or c.updates % unit:
        raise UserError(
            f"--repeats, --updates: {c.repeats}, {c.updates} given, at least {least} and a "
            f"multiple of {unit} needed"
        )
    length, task = length_of(c), task_of(c)
    shape, sample = task.shape, task.sample
    decoder, rule = make_gpt2(shape), StepRule()
    key = jax.random.key(0)
    held = jax.jit(sample)(jax.random.key(1))
    nodes, rate = nodes_of(c), jnp.float32(1e-3)
    make = lambda at_once: make_plan(
        nodes, layers=c.layers, length=length, chunks=c.chunks, at_once=at_once,
        examples=c.examples,
    )  # fmt: skip
    plan, _ = fit_plan(
        make(c.at_once), jax.eval_shape(decoder.init, key), c.memory_gb * 1e9, batch=c.batch,
        held=c.batch, length=length, width=c.width, hidden=4 * c.width,
    )  # fmt: skip
    tracker = Tracker(decoder, plan, rule)

    programs = {"peak": harness.matmul_program()}
    variants = VARIANTS if whole else (TIED,)
    for name in variants:
        variant = make_variant(name, m=c.inputs, length=length)
        update = make_update(decoder, rule, route=variant.route, copies=variant.copies)
        run = Run(init_state(rule, init_params(decoder, variant, key)))
        interval = make_interval(update, fresh(sample), c.updates)
        programs[name] = harness.compile_program(interval, run, key, rate, updates=c.updates)

    update = make_update(decoder, rule)
    before = init_state(rule, decoder.init(key))
    after, _ = jax.jit(update)(before, sample(step_key(key, jnp.int32(0))), rate)
    first = node_resid(tracker, before.params, held)

    def tracking(stride: int, features: int = 0, tracker: Tracker = tracker):
        """Tracking alone, `updates` times; the update's results are given."""
        watch = Watch(tracker, held, stride)
        w = jax.random.normal(key, (len(nodes), max(features, 1), c.width))
        kinds = None if task.types is None else jax.jit(task.types)(held)
        tally = open_tally(first, w, kinds, 3 if kinds is not None else 1) if features else None
        window = start_window(tracker, before.params)
        tracked = Tracked(window.moments, open_ledger(first), tally)

        def program(before, after, tracked):
            def inner(carry, step):
                # before and after change places, so that no work can leave the loop
                window, now, then = carry
                batch = sample(step_key(key, step))
                window = advance(tracker, window, now.params, then.opt_state, batch, rate)
                return (window, then, now), None

            def outer(carry, steps):
                tracked, now, then = carry
                window = start_window(tracker, now.params, tracked.moments)
                (window, now, then), _ = jax.lax.scan(inner, (window, now, then), steps)
                movement = measure(tracker, window, then.params, held)
                return (take_in(tracked, window.moments, movement, watch), now, then), None

            steps = jnp.arange(c.updates).reshape(-1, stride)
            return jax.lax.scan(outer, (tracked, before, after), steps)[0]

        return harness.compile_program(program, before, after, tracked, updates=c.updates)

    if not whole:
        programs["tracking"] = tracking(1, task.features)
        if task.occurring is not None:
            fewer = tracker._replace(occurring=task.occurring)
            programs[OCCURRING] = tracking(1, task.features, fewer)
        return _report(preset, c, programs)
    programs |= {
        "tracking": tracking(1),
        "stride 8": tracking(8),
        "3 features": tracking(1, 3),
        "300 features": tracking(1, 300),
    }
    interval = make_interval(update, fresh(sample), c.updates, watch=Watch(tracker, held))
    window = start_window(tracker, before.params)
    run = Run(before, Tracked(window.moments, open_ledger(first)))
    programs["update and tracking"] = harness.compile_program(
        interval, run, key, rate, updates=c.updates
    )
    if c.definition_batch:
        few = jax.tree.map(lambda x: x[: c.definition_batch], held)
        programs["definition"] = harness.compile_program(
            lambda p: split_by_definition(decoder, p, few, nodes), before.params
        )

    counted = _counted_gflop(tracker._replace(plan=make(10**6)), before, after, held, rate)
    return _report(preset, c, programs, counted)


def _report(
    preset: str, config: Config, programs: dict[str, harness.Program], counted: float = math.nan
) -> dict:
    """Run all programs in turn, print the table; the figures as a dict."""
    c, nodes = config, nodes_of(config)
    measured = [name for name in (TIED, "tracking", OCCURRING) if name in programs]
    memory = {name: harness.peak_memory(programs[name]) for name in measured}
    times = harness.interleave(programs, c.repeats)
    need = required_flop(c)
    peak = [harness.matmul_flop() / t for t in times["peak"]]
    ideal = {kind: [flop / p for p in peak] for kind, flop in need.items()}
    middle = {name: statistics.median(t) for name, t in times.items()}
    result = {
        "preset": preset,
        "device": jax.devices()[0].device_kind,
        "precision": "float32",
        "nodes": len(nodes),
        "matmul_peak_gflops": statistics.median(peak) / 1e9,
        "plain_step_s": middle[TIED],
        "tracking_step_s": middle["tracking"],
        "tracking_over_plain": harness.ratio(times["tracking"], times[TIED]),
        "plain_over_required": harness.ratio(times[TIED], ideal["plain"]),
        "tracking_over_required": harness.ratio(times["tracking"], ideal["tracking"]),
        "tracking_gflop": counted / 1e9,
        "required_gflop": need["tracking"] / 1e9,
        "required_plain_gflop": need["plain"] / 1e9,
        "peak_memory_bytes": memory["tracking"] - memory[TIED],
        "compile_plain_s": programs[TIED].compile_s,
        "compile_tracking_s": programs["tracking"].compile_s,
    }
    if OCCURRING in times:
        result |= {
            "occurring_rows": STORY_OCCURRING,
            "occurring_step_s": middle[OCCURRING],
            "occurring_over_plain": harness.ratio(times[OCCURRING], times[TIED]),
            "occurring_memory_bytes": memory[OCCURRING] - memory[TIED],
        }
    if "stride 8" in times:
        ran = [name for name in VARIANTS if name in times]
        result |= {
            "update_and_tracking_s": middle["update and tracking"],
            "tracking_stride8_s": middle["stride 8"],
            "stride8_over_1": harness.ratio(times["stride 8"], times["tracking"]),
            "features300_over_3": harness.ratio(times["300 features"], times["3 features"]),
            "variants": {name: middle[name] for name in ran},
            "variants_over_standard": {n: harness.ratio(times[n], times[TIED]) for n in ran},
            "definition_s": middle.get("definition"),
            "definition_batch": c.definition_batch,
        }
    rows = [
        (name, *(f"{1e3 * t:.1f}" for t in harness.spread(times[name])), f"{p.compile_s:.2f}")
        for name, p in programs.items()
    ]
    columns = ("program", "min ms", "median ms", "max ms", "compile s")
    print(text_table(rows, columns))
    return result


def _counted_gflop(tracker, before, after, held, rate) -> float:
    """Operations of one tracking step as XLA counts them, without loops that hide their bodies."""

    def program(before, after, held):
        window = start_window(tracker, before.params)
        window = advance(tracker, window, before.params, after.opt_state, held, rate)
        return measure(tracker, window, after.params, held)

    counts = jax.jit(program).lower(before, after, held).cost_analysis()
    return math.nan if counts is None else counts["flops"]


if __name__ == "__main__":
    cli.benchmark(Config, PRESETS, measure_all, name="gradient_split", doc=__doc__)
