"""Which trained models can tell whether Q is right? Those whose training was split and summed.

A result folder of `experiments.othello` or `experiments.tinystories` holds, by seed, the last
parameters, a ledger of the whole training and the probes of the final model. Here such folders are
checked and read, and smaller ones are made.
"""

import dataclasses
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments import othello_training, tinystories_training
from experiments.othello_config import Config as Othello
from experiments.othello_config import central, nodes_of
from experiments.othello_config import shape_of as othello_shape
from experiments.othello_numbers import square_name
from experiments.othello_probes import to_batch
from experiments.tinystories_config import Config as Stories
from experiments.tinystories_config import probed_nodes, tracked_nodes
from experiments.tinystories_config import shape_of as stories_shape
from experiments.tinystories_data import load_data, told_of
from jaxfeat.data import windows
from jaxfeat.grads.ledger import Ledger, load_ledger
from jaxfeat.io.arrays import load_arrays
from jaxfeat.models.gpt2 import make_gpt2
from jaxfeat.nn.blocks import at_nodes, residuals
from jaxfeat.nn.decoder import Decoder
from jaxfeat.run import folder
from jaxfeat.run.cli import config_dict
from jaxfeat.train.checkpoint import restore_checkpoint
from jaxfeat.types import Batch, Node, Tree, UserError

CONFIGS: dict[str, type] = {"othello": Othello, "stories": Stories}
OWN = {"othello": {"size", "games"}, "stories": {"data", "probed"}}  # settings that no other has
EXPERIMENTS = {"othello": "experiments.othello", "stories": "experiments.tinystories"}
SKILLS = {"othello": "share of top moves that are legal", "stories": "held-out loss, nats a token"}
FAR = 1e-3  # of the largest residual: what the ledger's last residuals may differ by


class Seed(NamedTuple):
    """One trained model: parameters, probe directions `[n, F, D]` at its nodes, ledger.

    skill: how well it does the task, in the unit of `SKILLS`.
    """

    params: Tree
    w: np.ndarray
    ledger: Ledger
    skill: float


class Models(NamedTuple):
    """The models of one task, on the held-out sequences that their ledgers were kept on."""

    task: str
    seeds: int
    decoder: Decoder
    batch: Batch
    nodes: tuple[Node, ...]
    names: tuple[str, ...]  # of the F features
    load: Callable[[int], Seed]


def check_folder(path: str) -> tuple[str, Any]:
    """The task of a finished result folder, and its settings.

    Raises:
        UserError: no run, one of another experiment, one that is not finished, that keeps no ledger
            of the whole training, or lacks files.
    """
    place = Path(path).expanduser()
    if not folder.is_run(place):
        raise UserError(f"--models: {path} is no result folder (config.json, provenance.json)")
    stored = folder.read_json(place / folder.CONFIG)
    fits = lambda task: OWN[task] <= stored.keys() <= {
        f.name for f in dataclasses.fields(CONFIGS[task])
    }  # fmt: skip
    tasks = [task for task in CONFIGS if isinstance(stored, dict) and fits(task)]
    if not tasks:
        known = " or ".join(EXPERIMENTS.values())
        raise UserError(f"--models: {path} is of another experiment, one of {known} needed")
    task = tasks[0]
    try:
        config = _restored(CONFIGS[task], stored)
    except (TypeError, ValueError, AttributeError):
        raise UserError(f"--models: {path}: its config.json is damaged") from None
    _check_tracked(path, task, config)
    if lacking := [name for name in _files(task, config) if not (place / name).exists()]:
        raise UserError(
            f"--models: {path} is not finished or lacks files, such as {lacking[0]}: "
            f"`python -m {EXPERIMENTS[task]} --out {path} --resume` makes them"
        )
    return task, config


def train_models(task: str, config: Any, place: Path) -> None:
    """Train every seed with its experiment's own functions; what is done is not done again."""
    place.mkdir(parents=True, exist_ok=True)
    folder.write_json(place / folder.CONFIG, config_dict(config))
    if all((place / name).exists() for name in _files(task, config)):
        return
    if task == "othello":
        setup = othello_training.set_up(config, othello_training.read_sides(config))
        othello_training.train_seeds(config, setup, place)
        return
    data = load_data(config.data, config.seed)
    print(told_of(data), flush=True)
    setup = tinystories_training.set_up(config, data)
    tinystories_training.train_variants(config, setup, place, ("standard",))


def read_models(task: str, config: Any, place: Path) -> Models:
    """The models of a folder; each seed is read when it is asked for.

    Raises:
        UserError: games or stories that cannot be read; when a seed is asked for, damaged files, or
            sequences or parameters that its ledger was not kept on.
    """
    return (_read_othello if task == "othello" else _read_stories)(config, place)


def _read_othello(c: Othello, place: Path) -> Models:
    """Probes of the central squares."""
    decoder, nodes = make_gpt2(othello_shape(c)), tuple(nodes_of(c))
    sides, key = othello_training.read_sides(c), othello_training.HELD
    held = othello_training.shared_key(c, key)
    batch = to_batch(othello_training.draw(c, sides, held, c.held, "held_out"))
    names = tuple(square_name(square, c.size) for square in central(c.size))

    def load(s: int) -> Seed:
        like = jax.eval_shape(decoder.init, jax.random.key(0))
        params = restore_checkpoint(place / "checkpoints" / str(s), like)
        arrays = load_arrays(place / "seeds" / f"{s}.npz")
        ledger = load_ledger(place / "ledger" / f"{s}.npz")
        made = Seed(params, arrays["trained_w"], ledger, float(arrays["trained_top1"].mean()))
        return _checked(made, decoder, batch, nodes, place, s)

    return Models("othello", c.seeds, decoder, batch, nodes, names, load)


def _read_stories(c: Stories, place: Path) -> Models:
    """Probes of tags, dependencies and the place in the story."""
    data = load_data(c.data, c.seed)
    decoder, nodes = make_gpt2(stories_shape(c, data.vocab)), tuple(tracked_nodes(c))
    held = jax.random.fold_in(jax.random.key(c.seed), 1000 + tinystories_training.HELD)
    cut = windows.epoch_windows(data.held_out, held, jnp.int32(0), c.held, c.length)
    batch = windows.to_batch(cut)
    arrays = load_arrays(place / "variants" / "standard.npz")
    at = {node: n for n, node in enumerate(probed_nodes(c))}
    here = [at[node] for node in nodes]
    keys = tinystories_training.seed_keys(c, tinystories_training.INIT)
    like = jax.eval_shape(jax.vmap(decoder.init), keys)
    params = restore_checkpoint(place / "ladder" / "standard", like, c.steps)
    lines = [m for m in folder.read_metrics(place) if m.get("variant") == "standard"]

    def load(s: int) -> Seed:
        coef, spread = arrays["coef"][s, here], arrays["spread"][s, here][..., None]
        w = np.divide(coef, spread, out=np.zeros_like(coef), where=spread > 0)
        ledger = load_ledger(place / "ledger" / f"standard-adam-{s}.npz")
        mine = jax.tree.map(lambda x: x[s], params)
        skill = float(lines[-1]["held_out_loss"][s])
        return _checked(Seed(mine, w, ledger, skill), decoder, batch, nodes, place, s)

    return Models("stories", c.seeds, decoder, batch, nodes, tuple(data.names), load)


def _checked(found: Seed, decoder, batch: Batch, nodes, place: Path, s: int) -> Seed:
    """A seed whose ledger ends at these parameters, read on these sequences at these nodes."""
    ledger, last = found.ledger, max(i for _, i in nodes) + 1
    seen = jax.tree.map(lambda x: x[:, :last], batch)
    resid = jax.jit(lambda p: at_nodes(residuals(decoder, p, seen)[0], nodes))(found.params)
    same = ledger.nodes == nodes and ledger.resid[-1].shape == resid.shape
    far = np.abs(ledger.resid[-1] - resid).max() if same else np.inf
    if far > FAR * np.abs(resid).max():
        raise UserError(
            f"--models: the ledger of seed {s} in {place} was kept on other sequences or parameters"
        )
    return found


def _restored(kind: type, stored: dict[str, Any]) -> Any:
    """A settings dataclass out of its JSON."""
    hints = typing.get_type_hints(kind)

    def value(name: str) -> Any:
        if dataclasses.is_dataclass(hints[name]):
            return _restored(hints[name], stored[name])  # pyright: ignore[reportArgumentType]
        return tuple(stored[name]) if isinstance(stored[name], list) else stored[name]

    return kind(**{name: value(name) for name in stored})


def _check_tracked(path: str, task: str, config: Any) -> None:
    """Refuse a run whose ledger does not hold the whole training, or whose nodes tell nothing."""
    whole = "standard" in config.tracked if task == "stories" else config.tracked == config.steps
    if not whole:
        need = "--tracked standard" if task == "stories" else f"--tracked {config.steps}"
        raise UserError(f"--models: {path} keeps no ledger of the whole training ({need} needed)")
    if config.layers < 2:
        raise UserError(f"--models: {path} has one block: nothing is precached at its only node")


def _files(task: str, c: Any) -> list[str]:
    """What the measuring reads of a folder; the checkpoints' last steps stand for them."""
    name = f"step_{c.steps:08d}.sha256.json"
    if task == "stories":
        ledgers = [f"ledger/standard-adam-{s}.npz" for s in range(c.seeds)]
        return ["variants/standard.npz", folder.METRICS, f"ladder/standard/{name}", *ledgers]
    kinds = ("seeds/{}.npz", "ledger/{}.npz", f"checkpoints/{{}}/{name}")
    return [kind.format(s) for kind in kinds for s in range(c.seeds)]
