"""Majority: does a model read the current majority because later tokens need it?

    python -m experiments.majority                     # quick: 5 to 6 minutes on 2 cores
    python -m experiments.majority --preset paper      # the sizes of arXiv 2603.14087, 10 seeds

Four variants (standard, myopic, untied at the first output, both) learn to go on with the most
frequent token. Probes read "token v is a maximum so far" at every node; the ledger tells what the
direct, precached and shared parts of the updates built of it. Expected: standard high, myopic and
untied reduced, both lowest at the input stage (paper, section 4; `quick` decides that both lies
below standard).
"""

import hashlib
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments import majority_report
from jaxfeat.data import toy
from jaxfeat.features.probe import explained_share, features_at, fit_probes, score_probes
from jaxfeat.grads.budget import estimate_bytes, fit_plan
from jaxfeat.grads.ledger import SUMS, Ledger, load_ledger, make_ledger, save_ledger
from jaxfeat.grads.moments import StepRule
from jaxfeat.grads.plan import make_plan
from jaxfeat.grads.track import Tracker, node_resid
from jaxfeat.grads.verify import split_residual
from jaxfeat.io.atomic import replacing
from jaxfeat.models.gpt2 import GPT2Config, make_gpt2
from jaxfeat.nn.blocks import at_nodes, residuals
from jaxfeat.run import cli, folder
from jaxfeat.train.checkpoint import save_checkpoint, saved_steps
from jaxfeat.train.loop import Run, Tracked, Watch, make_interval, over_seeds, start_run, train
from jaxfeat.train.metrics import evaluate
from jaxfeat.train.step import make_update
from jaxfeat.train.variants import VARIANTS, Variant, init_params, make_variant
from jaxfeat.types import Array, Batch, Tree, UserError, check_tokens, make_batch

DATA, INIT, HELD, FIT, TEST = range(5)  # what a seed's key is folded with
EXAMPLES = 256  # sequences of E that are worked on together


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
    """Variants to train (also fully_untied); the standard one must be among them."""
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
    """First position with a ledger; positions from here on at every layer from 1."""
    ends: str = "both"
    """Where movements are linearised: "start" of a stride or "both" ends."""
    also_sgd: bool = True
    """Keep the ledger of plain gradient steps on the same trajectory beside Adam's."""
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


PRESETS = {
    "smoke": Config(
        task=toy.ToyTask(inputs=4, outputs=2), width=8, heads=2, batch=8, steps=8, seeds=2,
        held=16, stride=2, ladder=2, log_every=4, probe_fit=64, probe_test=32, chunks=2,
        variants=("standard", "both"),
    ),
    "quick": Config(),
    "paper": Config(
        width=128, batch=256, steps=3000, seeds=10, held=1024, stride=1,
        log_every=100, ladder=6, tracked=("standard", "myopic", "untied", "both"),
        chunks=3, at_once=1,
    ),
}  # fmt: skip


def check(config: Config) -> None:
    """Refuse settings that cannot work before anything is written."""
    c, length = config, config.task.length - 1
    for name in ("width", "heads", "layers", "batch", "steps", "seeds", "held", "stride",
                 "ladder", "log_every", "chunks", "at_once"):  # fmt: skip
        _need(name, getattr(c, name) >= 1, getattr(c, name), "at least 1")
    _need("heads", c.width % c.heads == 0, c.heads, f"a divisor of --width {c.width}")
    for option, names in (("variants", c.variants), ("tracked", c.tracked)):
        for name in names:
            _need(option, name in VARIANTS, name, f"some of {', '.join(VARIANTS)}")
        _need(option, len(set(names)) == len(names), " ".join(names), "each name once")
    _need("variants", "standard" in c.variants, " ".join(c.variants), "standard among them")
    for name in c.tracked:
        _need("tracked", name in c.variants, name, "only names out of --variants")
    told = f"a divisor of --steps {c.steps} and a multiple of --stride {c.stride}"
    fits = c.steps % c.log_every == 0 and c.log_every % c.stride == 0
    _need("log-every", fits, c.log_every, told)
    intervals = c.steps // c.log_every
    _need("ladder", c.ladder <= intervals, c.ladder, f"at most the {intervals} logs of the run")
    _need("held", c.held % 2 == 0, c.held, "an even number")
    whole = c.held <= EXAMPLES or c.held % EXAMPLES == 0
    _need("held", whole, c.held, f"above {EXAMPLES} a multiple of it")
    _need("task.inputs", c.task.inputs >= 4, c.task.inputs, "at least 4 here")
    last = c.task.inputs - 1
    _need("first", 1 <= c.first <= last, c.first, f"1..{last}, a position of the input stage")
    _need("ends", c.ends in ("start", "both"), c.ends, "start or both")
    _need("untie-at", 0 <= c.untie_at < length, c.untie_at, f"0 or 1..{length - 1}")
    _need("probe-fit", c.probe_fit >= 2, c.probe_fit, "at least 2 sequences")
    _need("probe-test", c.probe_test >= 2, c.probe_test, "at least 2 sequences")
    _need("seeds-at-once", c.seeds_at_once >= 0, c.seeds_at_once, "at least 0")
    for name, least in (("learning_rate", 0), ("memory_gb", 0), ("alpha", -1)):
        value = getattr(c, name)
        good = np.isfinite(value) and (value > least if least == 0 else value >= 0)
        _need(name, bool(good), value, "a finite number above 0" if least == 0 else "0 or more")
    for name in c.tracked:
        tracking_plan(c, name)


def _need(name: str, fits: bool, given: Any, needed: str) -> None:
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
    return [(k, i) for k in range(1, config.layers + 1) for i in range(config.first, length)]


def probed_nodes(config: Config) -> list[tuple[int, int]]:
    """All nodes but those of bos."""
    length = config.task.length - 1
    return [(k, i) for k in range(config.layers + 1) for i in range(1, length)]


def main(config: Config, workdir: Path) -> dict[str, Any]:
    """Train every variant, probe, account and report; a variant that is done is not run again."""
    held = draw(config, shared_key(config, HELD), config.held, "held_out")
    check_tokens(held.token, config.task.vocab_size)
    digest = hashlib.sha256(np.asarray(held.token).tobytes()).hexdigest()
    folder.add_provenance(workdir, data_hash=digest, analysis_precision="highest")
    steps = config.steps * len(config.variants)
    with cli.progress(steps // config.log_every, "train") as tick:
        for name in config.variants:
            train_variant(config, name, workdir, tick)
    return majority_report.write(read(config, workdir), workdir)


def tracking_plan(config: Config, name: str):
    """The tracked nodes' plan for a variant, cut to the memory allowed; and its estimate, bytes."""
    c, length = config, config.task.length - 1
    decoder, size = make_gpt2(shape_of(c)), min(EXAMPLES, c.held)
    variant = make_variant(name, m=untie_at(c), length=length)
    plan = make_plan(
        tracked_nodes(c), layers=c.layers, length=length, chunks=c.chunks, at_once=c.at_once,
        precached=name not in ("myopic", "both"),
    )  # fmt: skip
    params = jax.eval_shape(lambda k: init_params(decoder, variant, k), jax.random.key(0))
    sizes = {
        "batch": max(c.batch, size), "held": c.held, "length": length, "width": c.width,
        "hidden": 4 * c.width,
    }  # fmt: skip
    groups = c.seeds_at_once or c.seeds
    plan = fit_plan(plan, params, c.memory_gb * 1e9 / groups, **sizes)
    return plan, groups * estimate_bytes(params, plan, **sizes)


def make_watch(config: Config, variant: Variant, held: Batch) -> Watch:
    """What a variant's ledger tracks; the memory that it is estimated to take is printed."""
    c = config
    plan, need = tracking_plan(c, variant.name)
    print(
        f"{variant.name}: tracking {len(plan.nodes)} nodes, about {need / 1e9:.2g} GB", flush=True
    )
    tracker = Tracker(
        make_gpt2(shape_of(c)), plan, StepRule(), variant.route, variant.copies, c.ends,
        min(EXAMPLES, c.held), c.also_sgd,
    )  # fmt: skip
    return Watch(tracker, held, c.stride)


def train_variant(config: Config, name: str, workdir: Path, tick) -> None:
    """Train all seeds of a variant as one program; write its probes and ledgers."""
    c, done = config, workdir / "variants" / f"{name}.npz"
    if done.exists():
        for _ in range(c.steps // c.log_every):
            tick()
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
    sample = lambda key: draw(c, key, c.batch, "train")
    interval = make_interval(update, sample, c.log_every, watch=watch)
    legal = toy.legal(c.task, jnp.c_[held.token, held.target[:, -1:]])
    judge = jax.jit(jax.vmap(lambda p: evaluate(decoder, p, held, legal, variant.copies)))
    places = np.unique(np.linspace(0, c.steps // c.log_every, c.ladder + 1).astype(int))
    ladder = [int(p) * c.log_every for p in places]
    checkpoints = workdir / "checkpoints" / name
    start = (saved_steps(checkpoints) or [0])[-1]
    folder.truncate_metrics(workdir, start, variant=name)

    def log(step: int, run: Run, losses: Array | None) -> None:
        found = jax.tree.map(np.asarray, judge(run.state.params))
        line = {
            "variant": name,
            "step": step,
            "loss": None if losses is None else float(jnp.mean(losses)),
            "held_out_loss": found["loss"].tolist(),
            "first_output_legal": found["legal_by_position"][:, c.task.inputs].tolist(),
        }
        folder.append_metrics(workdir, line)
        if watch is not None and run.tracked is not None and step in ladder:
            path = _snapshots(workdir, name) / f"{step}.npz"
            _save_snapshot(path, watch, run.state.params, run.tracked)
        if step:
            tick(line["loss"], tokens=c.log_every * c.seeds * c.batch * length)

    if start == 0:
        folder.truncate_metrics(workdir, -1, variant=name)
        log(0, run, None)
    for _ in range(start // c.log_every):
        tick()
    run = train(
        jax.jit(over_seeds(interval, c.seeds_at_once if watch else 0)), run, seed_keys(c, DATA),
        c.learning_rate, steps=c.steps, every=c.log_every, checkpoints=checkpoints, on_log=log,
    )  # fmt: skip
    if watch is not None:
        _write_ledgers(config, name, ladder, workdir, watch)
    results = probe_all(c, decoder, variant, run.state.params)
    if name == "standard":
        before = probe_all(c, decoder, variant, params)
        results |= {f"untrained_{key}": value for key, value in before.items()}
        few = jax.tree.map(lambda x: x[:8], held)
        first = jax.tree.map(lambda x: x[0], run.state.params)
        worst = split_residual(decoder, first, few, [(1, c.first), (1, length - 1)])
        results |= {"split_residual": worst}
    _save_arrays(done, results)
    # what is left of training is its last state, without moments and sums
    shutil.rmtree(_snapshots(workdir, name), ignore_errors=True)
    shutil.rmtree(checkpoints)
    save_checkpoint(checkpoints, c.steps, Run(run.state))


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


def _save_snapshot(path: Path, watch: Watch, params: Tree, tracked: Tracked) -> None:
    """A copy of all seeds' ledger sums and of the residuals at this step."""
    resid = jax.jit(jax.vmap(lambda p: node_resid(watch.tracker, p, watch.held)))
    arrays = {"resid": resid(params)} | tracked.sums._asdict()
    if tracked.sgd is not None:
        arrays |= {f"sgd_{name}": x for name, x in tracked.sgd._asdict().items()}
    _save_arrays(path, arrays)


def _write_ledgers(config: Config, name: str, ladder: list[int], workdir: Path, watch) -> None:
    """One ledger a seed (and kind of step) out of the copies."""
    place, nodes = _snapshots(workdir, name), watch.tracker.plan.nodes
    copies = [dict(np.load(place / f"{step}.npz")) for step in ladder]
    mask = np.ones((len(nodes), config.held), bool)
    (workdir / "ledger").mkdir(exist_ok=True)
    for kind in ("adam", "sgd") if config.also_sgd else ("adam",):
        before, kept = ("", ladder) if kind == "adam" else ("sgd_", [ladder[0], ladder[-1]])
        for s in range(config.seeds):
            mine = [
                {"resid": copy["resid"][s]} | {n: copy[before + n][s] for n in SUMS}
                for step, copy in zip(ladder, copies, strict=True)
                if step in kept
            ]
            ledger = make_ledger(nodes, kept, mask, mine)
            save_ledger(ledger, workdir / "ledger" / f"{name}-{kind}-{s}.npz")


def load_ledgers(config: Config, workdir: Path, name: str, kind: str = "adam") -> list[Ledger]:
    """The ledgers of a variant's seeds, of Adam's steps or of plain gradient steps ("sgd")."""
    place = workdir / "ledger"
    return [load_ledger(place / f"{name}-{kind}-{s}.npz") for s in range(config.seeds)]


def read(config: Config, workdir: Path) -> majority_report.Found:
    """The numbers that training left in the result folder."""
    probes = {}
    for name in config.variants:
        with np.load(workdir / "variants" / f"{name}.npz", allow_pickle=False) as z:
            probes[name] = {key: z[key] for key in z.files if not key.startswith("untrained_")}
            before = {k.removeprefix("untrained_"): z[k] for k in z.files if "untrained_" in k}
        if before:
            probes["untrained"] = before
    ledgers, sgd = (
        {name: load_ledgers(config, workdir, name, kind) for name in config.tracked}
        if kind == "adam" or config.also_sgd
        else {}
        for kind in ("adam", "sgd")
    )
    metrics = folder.read_metrics(workdir)
    return majority_report.Found(config, probed_nodes(config), probes, metrics, ledgers, sgd)


def _save_arrays(path: Path, arrays: dict[str, Any]) -> None:
    """Arrays as one `.npz`, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary, open(temporary, "wb") as handle:
        np.savez(handle, **arrays)


if __name__ == "__main__":
    cli.main(Config, PRESETS, main, name="majority", doc=__doc__, check=check)
