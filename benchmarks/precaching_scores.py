"""How many features a second are ablated, against two whole forward passes for each?

    python -m benchmarks.precaching_scores   # about 2 minutes on 2 cores

The ordinary way is one compiled function that runs `forward` twice, unedited and edited, and takes
the KL of the next 10 predictions, for one feature of one example (batch 1) or of 8. Against it: all
features of 16 sequences by `make_effects`, in the same process, turn by turn, on a random model
whose weights are large enough for features to act; their largest difference; and the features that
`make_sampler` and `all_features` cover (a feature that is active at a place counts as one, as an
ablation does).

What an ablation computes again is 10 columns of the blocks above, where the ordinary way computes
128 columns of all blocks twice: at width 256 and layer 6 of 12 a factor of 49 in floating-point
work, less the share of the base run, which many jobs of a sequence make small. Of the vocabulary
the ordinary way unembeds 2 x 128 columns and an ablation 20 or fewer: the larger the vocabulary,
the nearer the ratio comes to 13; `--vocab` sets it, and one larger value is measured beside. The
gradients cost the same for a place whatever number of its features is active: so their features a
second grow with `--active`.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import harness
from jaxfeat.features.effects import Effects, Jobs, make_effects
from jaxfeat.features.sampled import all_features, make_sampler
from jaxfeat.models.gpt2 import GPT2Config, make_gpt2
from jaxfeat.nn.blocks import forward
from jaxfeat.nn.decoder import Decoder
from jaxfeat.nn.loss import kl_divergence
from jaxfeat.report.tables import text_table
from jaxfeat.run import cli
from jaxfeat.types import Array, Batch, Tree, UserError, make_batch


@dataclass(frozen=True)
class Config:
    """Sizes of the measured model and jobs."""

    width: int = 256
    """Residual width D."""
    heads: int = 4
    """Attention heads."""
    layers: int = 12
    """Blocks N."""
    layer: int = 6
    """Layer whose residual is edited, 0..N."""
    length: int = 128
    """Tokens of a sequence."""
    vocab: int = 1024
    """Token ids V."""
    large_vocab: int = 8192
    """A second, larger vocabulary, measured on fewer jobs; 0 leaves it out."""
    span: int = 10
    """Predictions that are compared, the edited position's included."""
    sequences: int = 16
    """Sequences whose features are ablated."""
    jobs: int = 256
    """Ablations of a sequence, at random positions (2 of its about 9,000 active features at each of
    128 places)."""
    few_jobs: int = 64
    """Ablations of a sequence where fewer are asked, at random positions and all at one place."""
    ordinary: int = 16
    """Ablations that the ordinary way is timed and compared on (a multiple of 8)."""
    features: int = 16384
    """Features whose scores are estimated at once."""
    active: int = 72
    """Features that are active at a place, on average."""
    places: int = 64
    """Places of the estimate, spread over the sequences."""
    draws: int = 16
    """Draws at each place, M."""
    pack: int = 8
    """Ablations of a sequence that run side by side."""
    at_once: int = 16
    """Packs that one program works on."""
    peak: int = harness.PEAK_SIZE
    """Size of the square matrices whose product is the peak."""
    repeats: int = 5
    """Measured repeats of every program, at least 5."""


PRESETS = {
    "scores": Config(),
    "smoke": Config(
        width=16, heads=2, layers=2, layer=1, length=16, vocab=32, large_vocab=0, span=4,
        sequences=2, jobs=16, few_jobs=4, ordinary=8, features=64, active=8, places=2, draws=2,
        pack=4, at_once=2, peak=128,
    ),
}  # fmt: skip
SIZE = 100.0  # of an edit: the next prediction changes by about a nat
NOISE = 0.05  # standard deviation added to every weight
TOGETHER = 8  # examples of the larger batch of the ordinary way


class Setting(NamedTuple):
    """A model with what is ablated in it."""

    decoder: Decoder
    params: Tree
    batch: Batch
    directions: Array  # [F, D]


def required_flop(config: Config, jobs: int | None = None) -> dict[str, float]:
    """Floating-point operations that an ablation needs, both ways.

    A column t of a block needs 24 D^2 in its linear maps (12 D^2 weights) and 4 D (t + 1) in
    attention; a column of the vocabulary 2 D V. An ablation needs the columns i .. i + span - 1 of
    the blocks above and of the vocabulary (i on average half of the places that jobs have), and
    its share of one run over the sequence; the ordinary way two runs.

    Args:
        jobs: ablations of a sequence; by default those of the settings.
    """
    c = config
    maps, read = 24 * c.width**2, 2 * c.width * c.vocab
    run = c.length * (c.layers * (maps + 2 * c.width * (c.length + 1)) + read)
    middle = (last_place(c) + c.span - 1) / 2  # mean t of the columns of all jobs
    columns = c.span * ((c.layers - c.layer) * (maps + 4 * c.width * (middle + 1)) + read)
    return {"ablation": columns + run / (jobs or c.jobs), "columns": columns, "ordinary": 2 * run}


def last_place(config: Config) -> int:
    """The last position at which all predictions of the span exist."""
    return config.length - config.span


def setting_of(config: Config, vocab: int) -> Setting:
    """A random model, sequences and directions."""
    c = config
    decoder = make_gpt2(GPT2Config(vocab, c.length, c.width, c.heads, c.layers))
    rng = np.random.default_rng(0)
    noise = lambda x: x + NOISE * rng.standard_normal(x.shape).astype(np.float32)
    params = jax.tree.map(noise, jax.jit(decoder.init)(jax.random.key(0)))
    tokens = rng.integers(0, vocab, (max(c.sequences, c.ordinary), c.length + 1))
    w = rng.standard_normal((c.features, c.width)).astype(np.float32)
    w *= SIZE / np.linalg.norm(w, axis=1, keepdims=True)
    return Setting(decoder, params, make_batch(jnp.asarray(tokens)), jnp.asarray(w))


def jobs_of(config: Config, jobs: int, *, places: int = 0, seed: int = 0) -> Jobs:
    """So many jobs of each sequence, at random positions or at so many of them."""
    c, rng = config, np.random.default_rng(seed)
    shape = (c.sequences, places or jobs)
    position = rng.integers(0, last_place(c) + 1, shape)
    position = np.repeat(position, jobs // shape[1], axis=1).reshape(-1)
    sequence = np.repeat(np.arange(c.sequences), jobs)
    return Jobs(sequence, position, rng.integers(0, c.features, len(sequence)))


def edit(directions: Array, feature: Array, resid: Array) -> Array:
    """What ablating a feature adds to the residual."""
    return -directions[feature]


def ordinary_of(config: Config, decoder: Decoder) -> Callable[..., Array]:
    """`(params, sequence, i, delta [D]) -> [span]`: two whole passes over one example."""
    c, time = config, jnp.arange(config.length)

    def ordinary(params: Tree, sequence: Batch, i: Array, delta: Array) -> Array:
        one = jax.tree.map(lambda x: x[None], sequence)
        moved = lambda resid: resid + jnp.where((time == i)[:, None], delta, 0)
        runs = [forward(decoder, params, one, edits=e).logits for e in (None, {c.layer: moved})]
        base, edited = (jax.lax.dynamic_slice_in_dim(x[0], i, c.span) for x in runs)
        return kl_divergence(base, edited)

    return ordinary


def ordinary_program(config: Config, setting: Setting, jobs: Jobs, size: int) -> harness.Program:
    """The ordinary way on these jobs, `size` examples at a time; its result is `[n, span]`."""
    one = ordinary_of(config, setting.decoder)
    many = one if size == 1 else jax.vmap(one, in_axes=(None, 0, 0, 0))
    count, calls = len(jobs.sequence), []
    delta = -setting.directions[jobs.feature]
    for n in range(0, count, size):
        at = n if size == 1 else slice(n, n + size)
        sequence = jax.tree.map(lambda x, at=at: x[jobs.sequence[at]], setting.batch)
        calls.append((sequence, jnp.asarray(jobs.position[at]), delta[at]))
    start = time.perf_counter()
    compiled = jax.jit(many).lower(setting.params, *calls[0]).compile()
    seconds = time.perf_counter() - start

    def call() -> Array:
        found = [jax.block_until_ready(compiled(setting.params, *given)) for given in calls]
        return jnp.stack(found).reshape(count, config.span)

    return harness.Program(call, seconds, count)


def timed_program(call: Callable[[], Any], updates: int) -> harness.Program:
    """A function that compiles at its first call: that call's time less a second one's."""
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        jax.block_until_ready(call())
        seconds.append(time.perf_counter() - start)
    return harness.Program(call, max(0.0, seconds[0] - seconds[1]), updates)


def check(config: Config) -> None:
    """Refuse settings that cannot be measured."""
    c = config
    if c.repeats < 5 or c.ordinary < TOGETHER or c.ordinary % TOGETHER:
        raise UserError(
            f"--repeats, --ordinary: {c.repeats}, {c.ordinary} given, at least 5 and a multiple "
            f"of {TOGETHER} needed"
        )
    if not 0 <= c.layer <= c.layers or not 1 <= c.span <= c.length:
        raise UserError(f"--layer: 0..{c.layers} needed; --span: 1..{c.length} needed")
    if min(c.jobs, c.few_jobs, c.sequences, c.places, c.active) < 1 or c.active > c.features:
        raise UserError("--jobs, --few-jobs, --sequences, --places, --active: 1 or more needed")


def measure_all(preset: str, config: Config) -> dict:
    """Compile, run in turn, print the table; the figures as a dict."""
    c = config
    check(c)
    setting = setting_of(c, c.vocab)
    effects = lambda decoder: make_effects(
        decoder, c.layer, edit, span=c.span, pack=c.pack, at_once=c.at_once
    )
    run = effects(setting.decoder)

    def ablations(jobs: Jobs, run=run, setting=setting) -> harness.Program:
        given = setting.params, setting.batch, jobs, setting.directions
        return timed_program(lambda: run(*given).kl, len(jobs.sequence))

    few = jobs_of(c, c.few_jobs)
    picked = np.random.default_rng(1).permutation(len(few.sequence))[: c.ordinary]
    some = Jobs(*(x[np.resize(picked, c.ordinary)] for x in few))
    programs = {
        "matmul peak": harness.matmul_program(c.peak),
        "ordinary": ordinary_program(c, setting, some, 1),
        "ordinary, batch 8": ordinary_program(c, setting, some, TOGETHER),
        "ablations": ablations(jobs_of(c, c.jobs)),
        f"{c.few_jobs} a sequence": ablations(few),
        f"{c.few_jobs} at one place": ablations(jobs_of(c, c.few_jobs, places=1)),
        "gradients": gradient_program(c, setting),
    }
    if c.large_vocab:
        large = setting_of(c, c.large_vocab)
        programs |= {
            f"ordinary, V = {c.large_vocab}": ordinary_program(c, large, some, 1),
            f"{c.few_jobs} a sequence, V = {c.large_vocab}": ablations(
                few, effects(large.decoder), large
            ),
        }
    found: Effects = run(setting.params, setting.batch, some, setting.directions)
    truth = [np.asarray(programs[name].call()) for name in ("ordinary", "ordinary, batch 8")]
    memory = {name: harness.peak_memory(programs[name]) for name in ("ordinary", "ablations")}
    times = harness.interleave(programs, c.repeats)
    return _report(preset, c, programs, times, memory, found.kl, truth)


def gradient_program(config: Config, setting: Setting) -> harness.Program:
    """Scores of all features from gradients at some places; an update is an active feature."""
    c, rng = config, np.random.default_rng(2)
    sampler = make_sampler(setting.decoder, c.layer, span=c.span, draws=c.draws)
    sequence = np.arange(c.places) % c.sequences
    position = rng.integers(0, last_place(c) + 1, c.places)
    active = rng.random((c.places, c.features)) < c.active / c.features
    strength = jnp.asarray(active * rng.gamma(2, 0.5, active.shape), jnp.float32)
    key = jax.random.key(0)

    def call() -> Any:
        sampled = sampler(setting.params, setting.batch, sequence, position, key)
        return all_features(sampled, strength, setting.directions)

    return timed_program(call, int(active.sum()))


def _report(
    preset: str,
    config: Config,
    programs: dict[str, harness.Program],
    times: dict[str, list[float]],
    memory: dict[str, int],
    kl: np.ndarray,
    truth: list[np.ndarray],
) -> dict:
    """Print the table; the figures as a dict."""
    c, middle = config, {name: statistics.median(t) for name, t in times.items()}
    peak = [harness.matmul_flop(c.peak) / t for t in times["matmul peak"]]
    need = required_flop(c)
    rows = []
    for name, program in programs.items():
        against = f"ordinary, V = {c.large_vocab}" if f"V = {c.large_vocab}" in name else "ordinary"
        ratio = harness.ratio(times[against], times[name])
        rows.append((
            name, *(f"{1e3 * t:.3f}" for t in harness.spread(times[name])),
            "" if name == "matmul peak" else f"{1 / middle[name]:,.0f}",
            "" if name == "matmul peak" else f"{ratio:.1f}", f"{program.compile_s:.2f}",
        ))  # fmt: skip
    columns = ("program", "least ms", "median ms", "most ms", "features/s", "times", "compile s")
    print(text_table(rows, columns))
    ideal = [need["ablation"] / p for p in peak]
    result = {
        "preset": preset,
        "device": jax.devices()[0].device_kind,
        "precision": "float32",
        "vocab": c.vocab,
        "jobs_a_sequence": c.jobs,
        "speedup": harness.ratio(times["ordinary"], times["ablations"]),
        "speedup_batch8": harness.ratio(times["ordinary, batch 8"], times["ablations"]),
        "speedup_few_jobs": harness.ratio(times["ordinary"], times[f"{c.few_jobs} a sequence"]),
        "speedup_one_place": harness.ratio(times["ordinary"], times[f"{c.few_jobs} at one place"]),
        "max_abs_difference": float(max(np.abs(kl - x).max() for x in truth)),
        "largest_kl": float(kl.max()),
        "features_per_s": 1 / middle["ablations"],
        "features_per_s_gradient": 1 / middle["gradients"],
        "features_per_s_ordinary": 1 / middle["ordinary"],
        "gradient_features": c.features,
        "gradient_active_a_place": c.active,
        "matmul_peak_gflops": statistics.median(peak) / 1e9,
        "required_mflop": need["ablation"] / 1e6,
        "required_ordinary_mflop": need["ordinary"] / 1e6,
        "over_required": harness.ratio(times["ablations"], ideal),
        "peak_memory_bytes": memory["ablations"],
        "peak_memory_ordinary_bytes": memory["ordinary"],
    }
    if c.large_vocab:
        result["speedup_large_vocab"] = harness.ratio(
            times[f"ordinary, V = {c.large_vocab}"],
            times[f"{c.few_jobs} a sequence, V = {c.large_vocab}"],
        )
    return result


if __name__ == "__main__":
    cli.benchmark(Config, PRESETS, measure_all, name="precaching_scores", doc=__doc__)
