"""How are the variants of the stories experiment trained, kept on a ladder of steps and measured?

Every variant's seeds are one program. What a run leaves in its folder: `ladder/NAME` (parameters of
all seeds at powers of two, at every log and at the end), `variants/NAME.npz` (losses, answers,
probes, continuations; beside the standard one's those of the untrained models),
`ledger/NAME-KIND-SEED.npz`, `tokenizer.json` and `metrics.jsonl`.
"""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.tinystories_config import Config, shape_of, tracking_plan
from experiments.tinystories_data import Data
from experiments.tinystories_measures import (
    Exam,
    losses_of,
    make_exam,
    probes_of,
    quick_loss,
    write_on,
)
from jaxfeat.data.windows import epoch_windows, to_batch
from jaxfeat.grads.moments import StepRule
from jaxfeat.grads.track import Tracker
from jaxfeat.grads.verify import split_residual
from jaxfeat.io.arrays import load_arrays, save_arrays
from jaxfeat.models.gpt2 import make_gpt2
from jaxfeat.nn.decoder import Decoder
from jaxfeat.run import folder, trackers
from jaxfeat.run.cli import config_dict
from jaxfeat.run.progress import Progress, progress
from jaxfeat.train import ledgers
from jaxfeat.train.checkpoint import restore_checkpoint, save_checkpoint, saved_steps
from jaxfeat.train.loop import Run, Watch, make_stretch, over_seeds, start_run
from jaxfeat.train.schedule import ladder_steps, train
from jaxfeat.train.step import make_update
from jaxfeat.train.variants import Variant, init_params, is_myopic, make_variant
from jaxfeat.types import Array, Batch, Tree, UserError

DATA, INIT, HELD, FIT, TEST, WRITE = range(6)  # what a key is folded with
LEDGER_PLACES = 4  # stretches of training that a ledger tells apart


class Setup(NamedTuple):
    """What all variants share."""

    decoder: Decoder
    data: Data
    exam: Exam
    held: Batch  # E


def set_up(config: Config, data: Data) -> Setup:
    """The model's functions and the windows that it is measured on."""
    c, decoder = config, make_gpt2(shape_of(config, data.vocab))
    shared = lambda purpose: jax.random.fold_in(jax.random.key(c.seed), 1000 + purpose)
    held = epoch_windows(data.held_out, shared(HELD), jnp.int32(0), c.held, c.length)
    exam = make_exam(c, data, shared(FIT), shared(TEST))
    # columns beyond the last tracked position reach no node
    seen = jax.tree.map(lambda x: x[:, : max(c.positions) + 1], to_batch(held))
    return Setup(decoder, data, exam, seen)


def seed_keys(config: Config, purpose: int) -> Array:
    """A key for each seed, `[S]`."""
    base = jax.random.key(config.seed)
    own = lambda s: jax.random.fold_in(jax.random.fold_in(base, s), purpose)
    return jax.vmap(own)(jnp.arange(config.seeds))


def variant_of(config: Config, name: str) -> Variant:
    """The variant, standard or myopic."""
    return make_variant(name, m=1, length=config.length)


def ladder_of(config: Config) -> tuple[int, ...]:
    """The steps whose parameters are kept."""
    return ladder_steps(config.steps, config.every)


def ledger_steps(config: Config) -> list[int]:
    """The steps at which the ledger's sums are copied: multiples of `every`."""
    logs = config.steps // config.every
    places = np.unique(np.linspace(0, logs, min(LEDGER_PLACES, logs) + 1).astype(int))
    return [int(p) * config.every for p in places]


def train_variants(config: Config, setup: Setup, workdir: Path, names: tuple[str, ...]) -> None:
    """Train every variant; one that is done is not run again."""
    told = trackers.open_tracker(
        config.log, workdir, name=workdir.name, config=config_dict(config)
    )
    with progress(config.steps * len(names), "train") as shown:
        for name in names:
            _train_variant(config, name, setup, workdir, shown, told)


def make_watch(config: Config, name: str, setup: Setup) -> Watch:
    """What a variant's ledger tracks; the memory that it is estimated to take is printed."""
    c, variant, data = config, variant_of(config, name), setup.data
    myopic = is_myopic(variant, c.length)
    plan, need = tracking_plan(c, data.vocab, data.occurring, myopic=myopic)
    print(f"{name}: tracking {len(plan.nodes)} nodes, about {need / 1e9:.2g} GB", flush=True)
    tracker = Tracker(
        setup.decoder, plan, StepRule(), variant.route, ends=c.ends, also_sgd=c.also_sgd,
        occurring=data.occurring,
    )  # fmt: skip
    return Watch(tracker, setup.held, c.stride)


def _train_variant(
    config: Config, name: str, setup: Setup, workdir: Path, shown: Progress,
    told: trackers.Tracker,
) -> None:  # fmt: skip
    """Train all seeds of a variant as one program; write what it leaves."""
    c, done = config, workdir / "variants" / f"{name}.npz"
    running, copies = (workdir / "checkpoints" / f"{name}{end}" for end in ("", "-ledger"))
    if done.exists():
        shown.begin(name, c.steps, c.steps)
        _check_done(c, name, setup, workdir, done)
        return
    decoder, rule, variant, data = setup.decoder, StepRule(), variant_of(c, name), setup.data
    watch = make_watch(c, name, setup) if name in c.tracked else None
    params = jax.jit(jax.vmap(lambda key: init_params(decoder, variant, key)))(seed_keys(c, INIT))
    run = jax.jit(jax.vmap(lambda p: start_run(rule, p, watch)))(params)
    update = make_update(decoder, rule, route=variant.route)
    sample = lambda key, step: to_batch(epoch_windows(data.train, key, step, c.batch, c.length))
    stretch = make_stretch(update, sample, c.stride if watch else c.every, watch=watch)
    judge = _each_seed(partial(quick_loss, decoder))
    start = (saved_steps(running) or [0])[-1]
    folder.truncate_metrics(workdir, start, variant=name)

    def log(step: int, run: Run, losses: Array | None) -> None:
        line = {
            "variant": name, "step": step,
            "loss": None if losses is None else np.mean(losses, axis=-1).tolist(),
            "held_out_loss": np.asarray(judge((run.state.params,), setup.exam)).tolist(),
        }  # fmt: skip
        folder.append_metrics(workdir, line)
        told(line)
        save_checkpoint(workdir / "ladder" / name, step, run.state.params, kept=None)
        if watch is not None and run.tracked is not None and step in ledger_steps(c):
            ledgers.save_snapshot(copies, step, watch, run.state.params, run.tracked)
        if losses is not None:
            steps = losses.shape[-1]
            read = steps * c.seeds * c.batch * c.length
            shown.tick(float(np.mean(losses)), tokens=read, steps=steps)

    if start == 0:
        folder.truncate_metrics(workdir, -1, variant=name)
        log(0, run, None)
    shown.begin(name, start, c.steps)
    try:
        run = train(
            jax.jit(over_seeds(stretch, 1)), run, seed_keys(c, DATA), c.learning_rate,
            steps=c.steps, every=c.every, checkpoints=running, on_log=log, ladder=ladder_of(c),
            stretch=c.stride if watch else c.every,
        )  # fmt: skip
    except UserError as error:
        raise UserError(f"variant {name}: {error}") from None
    if watch is not None:
        ledgers.write_ledgers(copies, ledger_steps(c), watch, workdir / "ledger", name)
    measure, keys = _each_seed(partial(_measure, c, decoder)), seed_keys(c, WRITE)
    results = dict(measure((run.state.params, keys), setup.exam))
    if name == "standard":
        before = measure((params, keys), setup.exam)
        results |= {f"untrained_{key}": value for key, value in before.items()}
        few = jax.tree.map(lambda x: x[:4], setup.held)
        first = jax.tree.map(lambda x: x[0], run.state.params)
        results["split_residual"] = split_residual(decoder, first, few, [(1, 1), (1, 3)])
    save_arrays(done, results)
    for place in (running, copies):
        shutil.rmtree(place, ignore_errors=True)
    if not any(running.parent.iterdir()):
        running.parent.rmdir()


def _measure(
    config: Config, decoder: Decoder, params: Tree, key: Array, exam: Exam
) -> dict[str, Array]:
    """Losses, answers, probes and continuations of one seed."""
    found = losses_of(decoder, params, exam) | probes_of(config, decoder, params, exam)
    if len(exam.prompts.ids):
        found["written"] = write_on(config, decoder, params, key, exam)
    return found


def _each_seed(fn: Callable) -> Callable:
    """`fn(*values of a seed, exam)` of all seeds, one after another, as one program."""
    return jax.jit(lambda values, exam: jax.lax.map(lambda own: fn(*own, exam), values))


def final_params(config: Config, name: str, setup: Setup, workdir: Path, step: int) -> Tree:
    """The parameters of all seeds at a step of the ladder."""
    init = lambda key: init_params(setup.decoder, variant_of(config, name), key)
    like = jax.eval_shape(jax.vmap(init), seed_keys(config, INIT))
    return restore_checkpoint(workdir / "ladder" / name, like, step)


def _check_done(config: Config, name: str, setup: Setup, workdir: Path, done: Path) -> None:
    """Refuse a finished variant whose files are damaged before others are trained."""
    try:
        load_arrays(done)
        final_params(config, name, setup, workdir, config.steps)
        if name in config.tracked:
            ledgers.load_ledgers(workdir / "ledger", name, config.seeds)
    except UserError as error:
        told = str(error).partition(";")[0]
        raise UserError(f"{told}; delete {done} and --resume to train {name} again") from None
