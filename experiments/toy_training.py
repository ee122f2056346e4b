"""How are a toy experiment's variants trained, probed and accounted for?

Every variant's seeds are one program. What a run leaves in its folder: `variants/NAME.npz` (probes
of the trained and, beside the standard one, the untrained model), `ledger/NAME-KIND-SEED.npz`,
`checkpoints/NAME` (the last state) and `metrics.jsonl`.
"""

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.toy_config import (
    DATA,
    FIT,
    HELD,
    INIT,
    TEST,
    Config,
    draw,
    probed_nodes,
    seed_keys,
    shape_of,
    shared_key,
    tracking_plan,
    untie_at,
)
from jaxfeat.data import toy
from jaxfeat.features.probe import explained_share, features_at, fit_probes, score_probes
from jaxfeat.grads.ledger import Ledger
from jaxfeat.grads.moments import StepRule
from jaxfeat.grads.track import Tracker
from jaxfeat.grads.verify import split_residual
from jaxfeat.io.arrays import load_arrays, save_arrays
from jaxfeat.models.gpt2 import make_gpt2
from jaxfeat.nn.blocks import at_nodes, residuals
from jaxfeat.run import folder
from jaxfeat.run.progress import Progress, progress
from jaxfeat.train import ledgers
from jaxfeat.train.checkpoint import restore_checkpoint, save_checkpoint, saved_steps
from jaxfeat.train.loop import (
    Run,
    Watch,
    fresh,
    make_interval,
    over_seeds,
    start_run,
)
from jaxfeat.train.metrics import evaluate
from jaxfeat.train.schedule import train
from jaxfeat.train.step import TrainState, init_state, make_update
from jaxfeat.train.variants import Variant, init_params, make_variant
from jaxfeat.types import Array, Batch, Node, Tree, UserError, check_tokens


class Found(NamedTuple):
    """A run's numbers: probe results by variant, metric lines, ledgers by variant and seed.

    `nodes` are the probed nodes, the axis of every probe array after the seeds. `ledgers` are of
    Adam's steps, `sgd` of plain gradient steps on the same trajectories.
    """

    config: Config
    nodes: list[Node]
    probes: dict[str, dict[str, np.ndarray]]
    metrics: list[dict[str, Any]]
    ledgers: dict[str, list[Ledger]]
    sgd: dict[str, list[Ledger]]


Measure = Callable[[Config, Variant, Tree, Batch], dict[str, Array]]


def train_variants(config: Config, workdir: Path, measure: Measure | None = None) -> None:
    """Train every variant; one that is done is not run again.

    Args:
        measure: further metrics of one seed's parameters on the held-out sequences, logged beside
            the loss: `(config, variant, params, held) -> dict`.
    """
    logs = config.steps // config.log_every
    with progress(logs * len(config.variants), "train") as shown:
        for name in config.variants:
            train_variant(config, name, workdir, shown, measure)


def make_watch(config: Config, variant: Variant, held: Batch) -> Watch:
    """What a variant's ledger tracks; the memory that it is estimated to take is printed."""
    c = config
    plan, need = tracking_plan(c, variant.name)
    print(
        f"{variant.name}: tracking {len(plan.nodes)} nodes, about {need / 1e9:.2g} GB", flush=True
    )
    tracker = Tracker(
        make_gpt2(shape_of(c)), plan, StepRule(), variant.route, variant.copies, c.ends,
        c.also_sgd, (0, untie_at(c)) if c.by_copy else None,
    )  # fmt: skip
    return Watch(tracker, held, c.stride)


def data_hash(config: Config) -> str:
    """SHA-256 of the held-out sequences, which follow from the settings."""
    held = draw(config, shared_key(config, HELD), config.held, "held_out")
    check_tokens(held.token, config.task.vocab_size)
    return hashlib.sha256(np.asarray(held.token).tobytes()).hexdigest()


def train_variant(
    config: Config, name: str, workdir: Path, shown: Progress, measure: Measure | None = None
) -> None:
    """Train all seeds of a variant as one program; write its probes and ledgers."""
    c, done = config, workdir / "variants" / f"{name}.npz"
    logs = c.steps // c.log_every
    if done.exists():
        shown.begin(name, logs, logs)
        _check_done(c, name, workdir, done)
        _tidy(workdir, name)
        return
    decoder, rule = make_gpt2(shape_of(c)), StepRule()
    length = c.task.length - 1
    variant = make_variant(name, m=untie_at(c), length=length)
    held = draw(c, shared_key(c, HELD), c.held, "held_out")
    watch = make_watch(c, variant, held) if name in c.tracked else None
    init = lambda key: init_params(decoder, variant, key, independent=c.independent)
    params = jax.jit(jax.vmap(init))(seed_keys(c, INIT))
    run = jax.jit(jax.vmap(lambda p: start_run(rule, p, watch)))(params)
    update = make_update(decoder, rule, route=variant.route, copies=variant.copies)
    sample = fresh(lambda key: draw(c, key, c.batch, "train"))
    interval = make_interval(update, sample, c.log_every, watch=watch)
    legal = toy.legal(c.task, jnp.c_[held.token, held.target[:, -1:]])
    more = measure or (lambda *_: {})

    @jax.jit
    @jax.vmap
    def judge(p: Tree) -> tuple[dict[str, Array], dict[str, Array]]:
        return evaluate(decoder, p, held, legal, variant.copies), more(c, variant, p, held)

    places = np.unique(np.linspace(0, logs, c.ladder + 1).astype(int))
    ladder = [int(p) * c.log_every for p in places]
    checkpoints = _running(workdir, name)
    start = (saved_steps(checkpoints) or [0])[-1]
    folder.truncate_metrics(workdir, start, variant=name)

    def log(step: int, run: Run, losses: Array | None) -> None:
        found, added = jax.tree.map(np.asarray, judge(run.state.params))
        line = {
            "variant": name,
            "step": step,
            "loss": None if losses is None else float(jnp.mean(losses)),
            "held_out_loss": found["loss"].tolist(),
            "first_output_legal": found["legal_by_position"][:, c.task.inputs].tolist(),
            **{key: value.tolist() for key, value in added.items()},
        }
        folder.append_metrics(workdir, line)
        if watch is not None and run.tracked is not None and step in ladder:
            place = _snapshots(workdir, name)
            ledgers.save_snapshot(place, step, watch, run.state.params, run.tracked)
        if step:
            shown.tick(line["loss"], tokens=c.log_every * c.seeds * c.batch * length)

    if start == 0:
        folder.truncate_metrics(workdir, -1, variant=name)
        log(0, run, None)
    shown.begin(name, start // c.log_every, logs)
    every_seed = jax.jit(over_seeds(interval, c.seeds_at_once if watch else 0))
    try:
        run = train(
            every_seed, run, seed_keys(c, DATA), c.learning_rate, steps=c.steps,
            every=c.log_every, checkpoints=checkpoints, on_log=log,
        )  # fmt: skip
    except UserError as error:
        raise UserError(f"variant {name}: {error}") from None
    if watch is not None:
        place = _snapshots(workdir, name)
        ledgers.write_ledgers(place, ladder, watch, workdir / "ledger", name)
    results = probe_all(c, decoder, variant, run.state.params)
    if name == "standard":
        before = probe_all(c, decoder, variant, params)
        results |= {f"untrained_{key}": value for key, value in before.items()}
        few = jax.tree.map(lambda x: x[:8], held)
        first = jax.tree.map(lambda x: x[0], run.state.params)
        worst = split_residual(decoder, first, few, [(1, c.first), (1, length - 1)])
        results |= {"split_residual": worst}
    # what is left of training is its last state, without moments and sums
    save_checkpoint(workdir / "checkpoints" / name, c.steps, run.state)
    save_arrays(done, results)
    _tidy(workdir, name)


def _check_done(config: Config, name: str, workdir: Path, done: Path) -> None:
    """Refuse a finished variant whose files are damaged before others are trained."""
    try:
        load_arrays(done)
        final_state(config, name, workdir)
        if name in config.tracked:
            load_ledgers(config, workdir, name)
    except UserError as error:
        told = str(error).partition(";")[0]
        raise UserError(f"{told}; delete {done} and --resume to train {name} again") from None


def final_state(config: Config, name: str, workdir: Path) -> TrainState:
    """The state of all seeds of a trained variant."""
    decoder = make_gpt2(shape_of(config))
    variant = make_variant(name, m=untie_at(config), length=config.task.length - 1)
    begin = lambda key: init_state(StepRule(), init_params(decoder, variant, key))
    like = jax.eval_shape(jax.vmap(begin), seed_keys(config, INIT))
    return restore_checkpoint(workdir / "checkpoints" / name, like)


def probe_all(config: Config, decoder, variant: Variant, params: Tree) -> dict[str, np.ndarray]:
    """Probes of all seeds at every node, scored on held-out sequences."""
    c, nodes = config, probed_nodes(config)

    def read(key: Array, count: int, split: toy.Split, params: Tree):
        batch = draw(c, key, count, split)
        tokens = jnp.c_[batch.token, batch.target[:, -1:]]
        resid = residuals(decoder, params, batch, copies=variant.copies)[0]
        truth = features_at(toy.features(c.task, tokens)[:, :-1].astype(jnp.float32), nodes)
        return at_nodes(resid, nodes), truth

    def one(params: Tree) -> dict[str, Array]:
        with jax.default_matmul_precision("highest"):
            x, y = read(shared_key(c, FIT), c.probe_fit, "train", params)
            x_test, y_test = read(shared_key(c, TEST), c.probe_test, "held_out", params)
            fixed, free = fit_probes(x, y, alpha=c.alpha), fit_probes(x, y, alpha="gcv")
            scores, free_scores = (score_probes(p, x_test, y_test) for p in (fixed, free))
            return {
                "coef": fixed.coef, "r": scores.r, "mse": scores.mse, "r_gcv": free_scores.r,
                "alpha_gcv": free.alpha, "condition": fixed.condition,
                "explained": explained_share(x_test, y_test).joint,
            }  # fmt: skip

    return jax.tree.map(np.asarray, jax.jit(jax.vmap(one))(params))


def _snapshots(workdir: Path, name: str) -> Path:
    """Where copies of a variant's ledger stand while it trains."""
    return workdir / "checkpoints" / f"{name}-ledger"


def _running(workdir: Path, name: str) -> Path:
    """Where the checkpoints of a variant stand while it trains."""
    return workdir / "checkpoints" / f"{name}-running"


def _tidy(workdir: Path, name: str) -> None:
    """Remove what only a running variant needs."""
    for place in (_snapshots(workdir, name), _running(workdir, name)):
        shutil.rmtree(place, ignore_errors=True)


def load_ledgers(config: Config, workdir: Path, name: str, kind: str = "adam") -> list[Ledger]:
    """The ledgers of a variant's seeds, of Adam's steps or of plain gradient steps ("sgd")."""
    return ledgers.load_ledgers(workdir / "ledger", name, config.seeds, kind)


def read(config: Config, workdir: Path) -> Found:
    """The numbers that training left in the result folder."""
    probes = {}
    for name in config.variants:
        arrays = load_arrays(workdir / "variants" / f"{name}.npz")
        probes[name] = {k: x for k, x in arrays.items() if not k.startswith("untrained_")}
        before = {k.removeprefix("untrained_"): x for k, x in arrays.items() if "untrained_" in k}
        if before:
            probes["untrained"] = before
    adam, sgd = (
        {name: load_ledgers(config, workdir, name, kind) for name in config.tracked}
        if kind == "adam" or config.also_sgd
        else {}
        for kind in ("adam", "sgd")
    )
    metrics = folder.read_metrics(workdir)
    return Found(config, probed_nodes(config), probes, metrics, adam, sgd)
