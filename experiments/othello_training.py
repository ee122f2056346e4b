"""How is an OthelloGPT trained twice, read by probes and accounted for, one seed after another?

Run 1 gives the final model and its probes, run 2 is the same run again, tracked over its first
updates: influence on the probes of the squares, by the square's type in each game. What a seed
leaves: `seeds/SEED.npz` (numbers), `ledger/SEED.npz`, `checkpoints/SEED` (its last parameters).
"""

from pathlib import Path
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.othello_config import Config, central, nodes_of, shape_of, tracking_plan
from experiments.othello_probes import Probing, at, majority, make_probing, to_batch, types_of
from jaxfeat.data import othello, othello_games
from jaxfeat.data.order import epoch_rows
from jaxfeat.features.probe import features_at
from jaxfeat.grads.ledger import make_ledger, save_ledger
from jaxfeat.grads.moments import StepRule
from jaxfeat.grads.tally import open_tally, tally_influence
from jaxfeat.grads.track import Tracker, node_resid
from jaxfeat.io.arrays import save_arrays
from jaxfeat.linear import Ridge
from jaxfeat.models.gpt2 import make_gpt2
from jaxfeat.nn.decoder import Decoder
from jaxfeat.run import folder
from jaxfeat.run.progress import Progress, progress
from jaxfeat.train.checkpoint import save_checkpoint
from jaxfeat.train.loop import Watch, fresh
from jaxfeat.train.replay import Programs, replay, replay_programs
from jaxfeat.train.step import make_update
from jaxfeat.types import Array, Tree, UserError

DATA, INIT, HELD, FIT, TEST = range(5)  # what the key is folded with
KINDS = 3  # feature types: empty, useless, useful
Split = Literal["train", "held_out"]


class Sides(NamedTuple):
    """Recorded games on both sides of the split, `[G, moves + 1]` ids each."""

    train: Array
    held_out: Array


def read_sides(config: Config) -> Sides | None:
    """The recorded games, split by their opening; None where games are drawn by chance.

    Raises:
        UserError: what `read_records` refuses; a side with fewer games than are asked for.
    """
    if not config.games:
        return None
    width = othello.moves_in(config.size) + 1
    records = othello_games.read_records(config.games, config.size).tokens[:, :width]
    records = np.pad(records, ((0, 0), (0, width - records.shape[1])))
    held = othello_games.is_held_out(records, config.size)
    for name, side, told in (
        ("batch", ~held, "training"), ("probe_fit", ~held, "training"),
        ("held", held, "held-out"), ("probe_test", held, "held-out"),
    ):  # fmt: skip
        wanted, there = getattr(config, name), int(side.sum())
        if wanted > there:
            raise UserError(
                f"{name.replace('_', '-')}: {wanted} given, at most {there} possible: "
                f"{config.games} has no more {told} games (by their opening)"
            )
    return Sides(jnp.asarray(records[~held]), jnp.asarray(records[held]))


def draw(config: Config, sides: Sides | None, key: Array, count: int, split: Split) -> Array:
    """`[count, moves + 1]` ids of one side, "train" or "held_out"; of records, distinct ones."""
    if sides is None:
        return othello_games.draw_games(key, count, config.size, split=split)
    rows = getattr(sides, split)
    return rows[epoch_rows(key, jnp.int32(0), count, len(rows))]


def make_sample(config: Config, sides: Sides | None):
    """Batches of training: new games at every update, or every record once an epoch."""
    c = config
    if sides is None:
        return fresh(lambda key: to_batch(draw(c, None, key, c.batch, "train")))
    rows = sides.train
    return lambda key, step: to_batch(rows[epoch_rows(key, step, c.batch, len(rows))])


def shared_key(config: Config, purpose: int) -> Array:
    """A key that all seeds share: for what they are measured on."""
    return jax.random.fold_in(jax.random.key(config.seed), 1000 + purpose)


def report_overlap(config: Config, sides: Sides | None) -> int:
    """How many of the held-out test games share their opening with a fitted game; printed."""
    fitted = draw(config, sides, shared_key(config, FIT), config.probe_fit, "train")
    test = draw(config, sides, shared_key(config, TEST), config.probe_test, "held_out")
    shared = othello_games.overlap(np.asarray(fitted), np.asarray(test), config.size)
    told = "drawn" if sides is None else f"{len(sides.train) + len(sides.held_out)} read"
    print(
        f"games: {told}; openings (up to symmetry) of {config.probe_test} held-out games among "
        f"{config.probe_fit} training games: {shared}",
        flush=True,
    )
    return shared


def tick_every(config: Config) -> int:
    """Updates between two reports of progress: whole strides, about a twentieth of a run."""
    return config.stride * -(-config.steps // (20 * config.stride))


def ticks(config: Config) -> int:
    """Reports of progress a seed: those of both its runs."""
    return 2 * (config.steps // tick_every(config))


class Setup(NamedTuple):
    """What all seeds share: data, probing and the compiled programs of a replay.

    fitted, test `[games, moves + 1]`: what probes are fitted and scored on. types
    `[n, E, squares]`: of the central squares in the watch's games at the nodes, `KINDS` where a
    game is over.
    """

    decoder: Decoder
    fitted: Array
    test: Array
    types: Array
    probing: Probing
    programs: Programs


def set_up(config: Config, sides: Sides | None) -> Setup:
    """Games, programs; the memory that tracking is estimated to take is printed."""
    c, decoder, rule = config, make_gpt2(shape_of(config)), StepRule()
    games = lambda purpose, count, split: draw(c, sides, shared_key(c, purpose), count, split)
    plan, need = tracking_plan(c)
    print(f"tracking {len(plan.nodes)} nodes, about {need / 1e9:.2g} GB", flush=True)
    held = games(HELD, c.held, "held_out")
    batch, nodes = to_batch(held), nodes_of(c)
    types = features_at(types_of(held, c.size)[:, :-1], nodes)[..., jnp.array(central(c.size))]
    types = jnp.where(features_at(batch.mask, nodes)[..., None], types, KINDS)
    watch = Watch(Tracker(decoder, plan, rule, ends=c.ends, also_sgd=c.also_sgd), batch, c.stride)
    programs = replay_programs(make_update(decoder, rule), make_sample(c, sides), watch)
    fitted = games(FIT, c.probe_fit, "train")
    test = games(TEST, c.probe_test, "held_out")
    return Setup(decoder, fitted, test, types, make_probing(c, decoder), programs)


def train_seeds(config: Config, setup: Setup, workdir: Path) -> None:
    """Run every seed; one that is done is not run again."""
    count = ticks(config)
    with progress(count * config.seeds, "train") as shown:
        for s in range(config.seeds):
            if (workdir / "seeds" / f"{s}.npz").exists():
                shown.begin(f"seed {s}", count, count)
                continue
            folder.truncate_metrics(workdir, -1, seed=s)
            run_seed(config, s, setup, workdir, shown)


def run_seed(config: Config, s: int, setup: Setup, workdir: Path, shown: Progress) -> None:
    """Train twice, probe, account; write what the seed leaves."""
    c, watch, every = config, setup.programs.watch, tick_every(config)
    base = jax.random.fold_in(jax.random.key(c.seed), s)
    params = setup.decoder.init(jax.random.fold_in(base, INIT))
    nodes, squares = nodes_of(c), jnp.array(central(c.size))

    def probes_of(params: Tree) -> Ridge:
        return setup.probing.fit(params, setup.fitted)

    def tally_of(probes: Ridge, first: Array):
        return open_tally(first, at(probes, nodes, c).coef[:, squares], setup.types, KINDS)

    def on_block(run: int, done: int, losses: Array) -> None:
        if done == c.stride:
            shown.begin(f"seed {s}, run {run}{', tracked' if run == 2 else ''}")
        if done % every:
            return
        loss = float(losses.mean())  # of the last stride
        shown.tick(loss, tokens=c.batch * shape_of(c).length * every)
        if run == 1:
            folder.append_metrics(workdir, {"seed": s, "step": done, "loss": loss})

    found = replay(
        setup.programs, watch.tracker.rule, params, jax.random.fold_in(base, DATA), steps=c.steps,
        learning_rate=c.learning_rate, fit_probes=probes_of, tally_of=tally_of,
        spans=((0, c.tracked),), on_block=on_block,
    )  # fmt: skip
    tracked = found.tracked
    goal = node_resid(watch.tracker, found.params, watch.held)
    assert tracked.tally is not None  # opened by tally_of
    results = {}
    for name, tally in {"influence": tracked.tally, **tracked.also_tally}.items():
        told = tally_influence(tally, goal, found.stop)._asdict()
        results |= {f"{name}_{key}": np.asarray(value) for key, value in told.items()}
    kinds = [np.asarray(setup.types == k).sum(axis=1) for k in range(KINDS)]
    results["counts"] = np.stack(kinds, -1)
    for name, model, probes in (
        ("trained", found.params, found.probes), ("untrained", params, probes_of(params)),
    ):  # fmt: skip
        scores = setup.probing.score(model, probes, setup.test)
        results |= {f"{name}_{key}": value for key, value in scores.items()}
    guessed = majority(c, setup.fitted, setup.test)
    results |= {f"majority_{key}": value for key, value in guessed.items()}
    results["trained_w"] = np.asarray(at(found.probes, nodes, c).coef[:, squares])
    results["losses"], results["covered"] = found.losses, np.array(found.covered)
    mask = np.asarray(watch.held.mask)[:, [i for _, i in nodes]].T
    sums = tracked.sums._asdict()
    empty = {name: np.zeros_like(np.asarray(x)) for name, x in sums.items()}
    copies = [empty | {"resid": sums["first"]}, sums | {"resid": found.stop}]
    save_ledger(make_ledger(nodes, (0, c.tracked), mask, copies), workdir / "ledger" / f"{s}.npz")
    save_checkpoint(workdir / "checkpoints" / str(s), c.steps, found.params)
    last = {"seed": s, "step": c.steps, "legal_top1": float(results["trained_top1"].mean())}
    folder.append_metrics(workdir, last)
    save_arrays(workdir / "seeds" / f"{s}.npz", results)
