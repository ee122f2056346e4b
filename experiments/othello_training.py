"""How is an OthelloGPT trained twice, read by probes and accounted for, one seed after another?

Run 1 gives the final model and its probes, run 2 is the same run again, tracked over its first
updates: influence on the probes of the squares, by the square's type in each game. What a seed
leaves: `seeds/SEED.npz` (numbers), `ledger/SEED.npz`, `checkpoints/SEED` (its last parameters).
"""

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfeat.data import othello, othello_games
from jaxfeat.features.probe import features_at, fit_probes
from jaxfeat.grads.ledger import make_ledger, save_ledger
from jaxfeat.grads.moments import StepRule
from jaxfeat.grads.plan import make_plan
from jaxfeat.grads.tally import open_tally, tally_influence
from jaxfeat.grads.track import Tracker, node_resid
from jaxfeat.io.arrays import save_arrays
from jaxfeat.linear import Ridge, predict
from jaxfeat.models.gpt2 import GPT2Config, make_gpt2
from jaxfeat.nn.blocks import at_nodes, forward, residuals
from jaxfeat.run import folder
from jaxfeat.run.progress import Progress
from jaxfeat.train.checkpoint import save_checkpoint
from jaxfeat.train.loop import Watch
from jaxfeat.train.replay import replay
from jaxfeat.train.step import make_update
from jaxfeat.types import Array, Batch, Tree, UserError, make_batch

DATA, INIT, HELD, FIT, TEST = range(5)  # what the key is folded with
KINDS = 3  # feature types: empty, useless, useful
Split = Literal["train", "held_out"]
READ_AT_ONCE = 512  # games whose residuals are read together


@dataclass(frozen=True)
class Config:
    """Settings of the Othello experiment."""

    size: int = 6
    """Board size: 4, 6 or 8."""
    games: str = ""
    """File of recorded games (8 x 8); random games are drawn without one."""
    width: int = 64
    """Residual width D."""
    heads: int = 4
    """Attention heads; they divide the width."""
    layers: int = 3
    """Blocks N."""
    batch: int = 128
    """Games an update."""
    steps: int = 1800
    """Updates."""
    learning_rate: float = 2e-3
    """Of Adam."""
    seeds: int = 2
    """Runs, each with its own initialisation and games."""
    seed: int = 0
    """What all randomness follows from."""
    positions: tuple[int, ...] = (6, 12, 18, 24, 30)
    """Moves whose nodes are tracked, at every layer from 1."""
    tracked: int = 600
    """First updates of run 2 that are tracked."""
    stride: int = 10
    """Updates between movements."""
    ends: str = "both"
    """Where movements are linearised: "start" of a stride or "both" ends."""
    held: int = 512
    """Held-out games of the influence (at least 8 x width in earnest runs)."""
    probe_fit: int = 4096
    """Games that probes are fitted on."""
    probe_test: int = 2048
    """Held-out games that probes are scored on."""
    alpha: float = 1.0
    """Ridge penalty of the probes."""
    chunks: int = 2
    """Slices of columns that tracked nodes are grouped into; only speed depends on it."""
    at_once: int = 1
    """Tracked rows batched into one product; only speed and memory depend on it."""


def decoder_of(config: Config):
    """The model."""
    c = config
    vocab, length = othello.vocab_size(c.size), othello.moves_in(c.size)
    return make_gpt2(GPT2Config(vocab, length, c.width, c.heads, c.layers))


def nodes_of(config: Config) -> list[tuple[int, int]]:
    """The tracked nodes."""
    return [(k, i) for k in range(1, config.layers + 1) for i in config.positions]


def central(size: int) -> list[int]:
    """The central 4 x 4 squares, which the influence is told of (all of a 4 x 4 board)."""
    first = (size - 4) // 2
    inner = range(first, first + 4)
    return [size * r + c for r in inner for c in inner]


def to_batch(tokens: Array) -> Batch:
    """Inputs and targets of games; padding carries no loss."""
    return make_batch(tokens, tokens != othello.PAD)


class Sides(NamedTuple):
    """Recorded games on both sides of the split, `[G, moves + 1]` ids each."""

    train: Array
    held_out: Array


def read_sides(config: Config) -> Sides | None:
    """The recorded games, split by their opening; None where games are drawn by chance.

    Raises:
        UserError: what `read_records` refuses; a side without a game.
    """
    if not config.games:
        return None
    width = othello.moves_in(config.size) + 1
    records = othello_games.read_records(config.games, config.size).tokens[:, :width]
    records = np.pad(records, ((0, 0), (0, width - records.shape[1])))
    held = othello_games.is_held_out(records, config.size)
    if held.all() or not held.any():
        raise UserError(
            f"games: {held.sum()} of the {len(held)} games in {config.games} have held-out "
            "openings; some on both sides are needed"
        )
    return Sides(jnp.asarray(records[~held]), jnp.asarray(records[held]))


def draw(config: Config, sides: Sides | None, key: Array, count: int, split: Split) -> Array:
    """`[count, moves + 1]` ids of one side, "train" or "held_out"."""
    if sides is None:
        return othello_games.draw_games(key, count, config.size, split=split)
    rows = getattr(sides, split)
    return rows[jax.random.randint(key, (count,), 0, len(rows))]


def shared_key(config: Config, purpose: int) -> Array:
    """A key that all seeds share: for what they are measured on."""
    return jax.random.fold_in(jax.random.key(config.seed), 1000 + purpose)


def report_overlap(config: Config, sides: Sides | None) -> int:
    """How many of the held-out test games share their opening with a fitted game; printed."""
    fit = draw(config, sides, shared_key(config, FIT), config.probe_fit, "train")
    test = draw(config, sides, shared_key(config, TEST), config.probe_test, "held_out")
    shared = othello_games.overlap(np.asarray(fit), np.asarray(test), config.size)
    told = "drawn" if sides is None else f"{len(sides.train) + len(sides.held_out)} read"
    print(
        f"games: {told}; openings (up to symmetry) of {config.probe_test} held-out games among "
        f"{config.probe_fit} training games: {shared}",
        flush=True,
    )
    return shared


def run_seed(config: Config, s: int, sides: Sides | None, workdir: Path, shown: Progress) -> None:
    """Train twice, probe, account; write what the seed leaves."""
    c, decoder, rule = config, decoder_of(config), StepRule()
    base = jax.random.fold_in(jax.random.key(c.seed), s)
    key = lambda purpose: jax.random.fold_in(base, purpose)
    games = functools.partial(draw, c, sides)
    params = decoder.init(key(INIT))
    held = games(shared_key(c, HELD), c.held, "held_out")
    fit = games(shared_key(c, FIT), c.probe_fit, "train")
    test = games(shared_key(c, TEST), c.probe_test, "held_out")
    nodes, squares = nodes_of(c), jnp.array(central(c.size))
    plan = make_plan(
        nodes, layers=c.layers, length=othello.moves_in(c.size), chunks=c.chunks, at_once=c.at_once
    )
    tracker = Tracker(decoder, plan, rule, ends=c.ends)
    batch = to_batch(held)
    watch = Watch(tracker, batch, c.stride)
    types = features_at(types_of(held, c.size)[:, :-1], nodes)[..., squares]

    def sample(key: Array) -> Batch:
        return to_batch(games(key, c.batch, "train"))

    def probes_of(params: Tree) -> Ridge:
        return probe(c, decoder, params, fit)

    def tally_of(probes: Ridge, first: Array):
        return open_tally(first, _at(c, probes).coef[:, squares], types, KINDS)

    def on_step(run: int, step: int, loss: Array) -> None:
        # twenty ticks a run, whatever the number of updates
        if 20 * step // c.steps > 20 * (step - 1) // c.steps:
            shown.tick(loss, tokens=c.batch * othello.moves_in(c.size) * c.steps // 20)

    shown.begin(f"seed {s}")
    found = replay(
        make_update(decoder, rule), sample, rule, params, key(DATA), steps=c.steps,
        learning_rate=c.learning_rate, watch=watch, fit_probes=probes_of, tally_of=tally_of,
        spans=((0, c.tracked),), on_step=on_step,
    )  # fmt: skip
    tracked = found.tracked
    goal = node_resid(tracker, found.params, batch)
    assert tracked.tally is not None  # opened by tally_of
    told = tally_influence(tracked.tally, goal, found.stop)
    results = {f"influence_{name}": np.asarray(value) for name, value in told._asdict().items()}
    results["counts"] = np.stack([np.asarray(types == k).sum(axis=1) for k in range(KINDS)], -1)
    for name, model, probes in (
        ("trained", found.params, found.probes), ("untrained", params, probes_of(params)),
    ):  # fmt: skip
        scores = score(c, decoder, model, probes, test)
        results |= {f"{name}_{key}": value for key, value in scores.items()}
    results |= majority(c, fit, test)
    results["trained_w"] = np.asarray(_at(c, found.probes).coef[:, squares])
    results["losses"], results["covered"] = found.losses, np.array(found.covered)
    mask = np.asarray(batch.mask)[:, [i for _, i in nodes]].T
    sums = tracked.sums._asdict()
    empty = {name: np.zeros_like(np.asarray(x)) for name, x in sums.items()}
    copies = [empty | {"resid": sums["first"]}, sums | {"resid": found.stop}]
    save_ledger(make_ledger(nodes, (0, c.tracked), mask, copies), workdir / "ledger" / f"{s}.npz")
    save_checkpoint(workdir / "checkpoints" / str(s), c.steps, found.params)
    last = {"seed": s, "step": c.steps, "loss": float(found.losses[-1])}
    folder.append_metrics(workdir, last | {"legal_top1": float(results["trained_top1"].mean())})
    save_arrays(workdir / "seeds" / f"{s}.npz", results)


def types_of(tokens: Array, size: int) -> Array:
    """Feature types after every token, `[G, T+1, squares]`."""
    return othello.feature_types(othello.boards_of(tokens, size), size)


def _at(config: Config, probes: Ridge) -> Ridge:
    """The probes at the tracked nodes, out of those at every layer and position."""
    length = othello.moves_in(config.size)
    rows = jnp.array([k * length + i for k, i in nodes_of(config)])
    return jax.tree.map(lambda x: x[rows], probes)


def all_nodes(config: Config) -> list[tuple[int, int]]:
    """Every layer and position, layer by layer."""
    length = othello.moves_in(config.size)
    return [(k, i) for k in range(config.layers + 1) for i in range(length)]


def read(config: Config, decoder, params: Tree, tokens: Array) -> Array:
    """Residuals at all nodes, `[nodes, G, D]`, some games at a time."""
    run = jax.jit(lambda p, b: at_nodes(residuals(decoder, p, b)[0], all_nodes(config)))
    size = min(READ_AT_ONCE, len(tokens))
    parts = [run(params, to_batch(tokens[a : a + size])) for a in range(0, len(tokens), size)]
    return jnp.concatenate(parts, axis=1)


def boards(config: Config, tokens: Array) -> Array:
    """1 mine, -1 theirs, 0 empty at every node, `[nodes, G, squares]`."""
    cells = othello.board_features(othello.boards_of(tokens, config.size), config.size)
    at = jnp.moveaxis(cells[:, :-1], 1, 0)
    return jnp.tile(at, (config.layers + 1, 1, 1))


def real(config: Config, tokens: Array) -> Array:
    """Which games are still on at each node, `[nodes, G]`."""
    return jnp.tile((tokens[:, :-1] != othello.PAD).T, (config.layers + 1, 1))


def probe(config: Config, decoder, params: Tree, tokens: Array) -> Ridge:
    """Probes of every square at every node."""
    with jax.default_matmul_precision("highest"):
        resid = read(config, decoder, params, tokens)
        return jax.jit(lambda x, y, m: fit_probes(x, y, m, alpha=config.alpha))(
            resid, boards(config, tokens), real(config, tokens)
        )


def score(config: Config, decoder, params: Tree, probes: Ridge, tokens: Array) -> dict[str, Any]:
    """How well squares are decoded and moves are legal, on held-out games.

    Decoded is the class (mine, theirs, empty) nearest to the probe's value. Arrays over `[N+1, T]`
    (layer, position): `right`, `count` `[.., squares, types]`, `board` (all squares right),
    `fragile` `[.., types]`: wrongly decoded squares where the most likely move is legal, and
    `fragile_count`. Over `[T]`: `top1`, `mass` (probability on legal moves).
    """
    c, length = config, othello.moves_in(config.size)
    shape = (c.layers + 1, length)
    resid = read(c, decoder, params, tokens)
    truth, on = boards(c, tokens), real(c, tokens)
    types = jnp.tile(jnp.moveaxis(types_of(tokens, c.size)[:, :-1], 1, 0), (c.layers + 1, 1, 1))
    legal = othello.legal_ids(othello.boards_of(tokens, c.size), c.size)[:, :-1]

    @jax.jit
    def logits(params: Tree, batch: Batch) -> Array:
        return forward(decoder, params, batch).logits

    @jax.jit
    def judge(probes: Ridge, resid: Array, out: Array) -> dict[str, Array]:
        read = predict(probes, resid)
        decoded = jnp.where(read > 0.5, 1, jnp.where(read < -0.5, -1, 0))
        right = (decoded == truth) & on[..., None]
        kind = jnp.stack([(types == k) & on[..., None] for k in range(KINDS)], axis=-1)
        best = jnp.take_along_axis(legal, out.argmax(axis=-1)[..., None], axis=-1)[..., 0]
        mass = jnp.sum(jnp.where(legal, jax.nn.softmax(out), 0), axis=-1)
        playing = on[:length].T
        here = jnp.tile((best & playing).T, (c.layers + 1, 1))[..., None, None]
        mean = lambda x: (x * playing).sum(axis=0) / jnp.maximum(playing.sum(axis=0), 1)
        return {
            "right": (right[..., None] & kind).sum(axis=1),
            "count": kind.sum(axis=1),
            "board": (right.all(axis=-1) & on).sum(axis=1) / jnp.maximum(on.sum(axis=1), 1),
            "fragile": (~right[..., None] & kind & here).sum(axis=(1, 2)),
            "fragile_count": (kind & here).sum(axis=(1, 2)),
            "top1": mean(best),
            "mass": mean(mass),
        }

    size = min(READ_AT_ONCE, len(tokens))
    out = [logits(params, to_batch(tokens[a : a + size])) for a in range(0, len(tokens), size)]
    found = jax.tree.map(np.asarray, judge(probes, resid, jnp.concatenate(out)))
    by_node = lambda x: x.reshape(*shape, *x.shape[1:])
    return {k: x if k in ("top1", "mass") else by_node(x) for k, x in found.items()}


def majority(config: Config, fit: Array, test: Array) -> dict[str, np.ndarray]:
    """Accuracy of each square's most frequent class in the fitted games, `[T, squares]`."""
    length = othello.moves_in(config.size)
    classes = (-1, 0, 1)
    known, seen = boards(config, fit)[:length], boards(config, test)[:length]
    on_fit, on = real(config, fit)[:length], real(config, test)[:length]
    counts = jnp.stack([((known == v) & on_fit[..., None]).sum(axis=1) for v in classes])
    guess = jnp.array(classes)[counts.argmax(axis=0)]
    right = ((seen == guess[:, None]) & on[..., None]).sum(axis=1)
    return {"majority": np.asarray(right / jnp.maximum(on.sum(axis=1), 1)[:, None])}
