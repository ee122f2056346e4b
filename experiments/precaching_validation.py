"""Does the score Q of a feature tell which part of the gradient built it?

    Q(w) = sum_{j>i} KL_j / KL_i     against     I_pre / (|I_pre| + |I_dir|)

Q is read off a finished model, the integrated influence I off its whole training (arXiv 2603.14087,
Prop. 5.1 says that the first approximates I_pre / I_dir). Both are known only of models trained
here: reduced ones of Othello and of stories, or finished result folders of those experiments. Q is
positive and quadratic, the influences are signed and linear, and their ratio is undefined near
I_dir = 0: so ranks of ln Q and of the bounded share are compared, within each node of each seed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments import othello, othello_config, tinystories, tinystories_config
from experiments.precaching_validation_figures import figures
from experiments.precaching_validation_measures import make_programs, measure
from experiments.precaching_validation_models import (
    CONFIGS,
    check_folder,
    read_models,
    train_models,
)
from experiments.precaching_validation_numbers import Found, statements, told
from experiments.precaching_validation_tables import tables
from experiments.toy_config import need
from jaxfeat.io.arrays import load_arrays, save_arrays
from jaxfeat.run.progress import progress
from jaxfeat.types import UserError

__all__ = ["ValidationConfig", "check", "figures", "read", "run", "statements", "tables", "told"]
ROWS, SEQUENCE_KEY = "validation.npz", 77  # what the key of sampled labels is folded with


def _othello() -> othello_config.Config:
    """A game of four minutes on two cores."""
    return othello_config.Config(
        batch=64, steps=400, tracked=400, stride=25, seeds=5, also_sgd=False, probe_fit=2048,
        probe_test=256,
    )  # fmt: skip


def _stories() -> tinystories_config.Config:
    """Stories of four minutes on two cores."""
    return tinystories_config.Config(
        data=tinystories_config.DataConfig(stories=4000, vocab=1024), width=48, seeds=5, steps=192,
        stride=16, probed=(31,), probe_fit=2048, probe_test=1024, evaluated=40, prompts=4,
    )  # fmt: skip


@dataclass(frozen=True)
class ValidationConfig:
    """Settings of the comparison of Q with integrated influence."""

    tasks: tuple[str, ...] = ("othello", "stories")
    """Which models are trained: othello, stories (none where --models are given)."""
    othello: othello_config.Config = field(default_factory=_othello)
    """The models of Othello that are trained."""
    stories: tinystories_config.Config = field(default_factory=_stories)
    """The models of stories that are trained."""
    sequences: int = 192
    """Held-out sequences that every feature is ablated in."""
    draws: int = 16
    """Labels drawn for each prediction where Q is estimated from gradients."""
    cutoff: float = 0.1
    """Features are left out whose mean KL is below this share of the task's median."""


SMOKE = ValidationConfig(
    tasks=("othello",),
    othello=replace(othello.PRESETS["smoke"], steps=4, tracked=4, seeds=2),
    sequences=16, draws=2,
)  # fmt: skip


def check(config: ValidationConfig, models: Sequence[str] = ()) -> None:
    """Refuse settings and folders that cannot work before anything is written.

    Args:
        models: finished result folders that are read instead of training any, one of a task.

    Raises:
        UserError: a setting out of range; a folder that is no finished run of the two experiments.
    """
    c = config
    need("sequences", c.sequences >= 4 and c.sequences % 2 == 0, c.sequences, "an even number >= 4")
    need("draws", c.draws >= 1, c.draws, "at least 1")
    need("cutoff", bool(0 <= c.cutoff < 1), c.cutoff, "0..1")
    if models:
        found = [check_folder(path)[0] for path in models]
        if len(set(found)) < len(found):
            raise UserError(
                f"--models: {len(found)} folders of {found[0]}, one of each is possible"
            )
        return
    good = bool(c.tasks) and set(c.tasks) <= CONFIGS.keys() and len(set(c.tasks)) == len(c.tasks)
    need("tasks", good, c.tasks, f"some of {', '.join(CONFIGS)}")
    for task in c.tasks:
        try:
            _check_task(task, getattr(c, task))
        except UserError as error:
            raise UserError(f"--{task}.{str(error).removeprefix('--')}") from None


def run(config: ValidationConfig, seed: int, workdir: Path, models: Sequence[str] = ()) -> None:
    """Train what is missing under `workdir/models`, measure, write `workdir/validation.npz`.

    What is done is not done again: each trained seed, and each measured one (`workdir/measured`).
    """
    parts = []
    for task, settings, place in _folders(config, seed, workdir, models):
        those, programs = None, None
        with progress(settings.seeds, f"measure {task}", every=1) as shown:
            for s in range(settings.seeds):
                done = workdir / "measured" / f"{task}-{s}.npz"
                if not done.exists():
                    if those is None or programs is None:
                        those = read_models(task, settings, place)
                        programs = make_programs(those, config.draws)
                    key = jax.random.fold_in(jax.random.key(seed), SEQUENCE_KEY + s)
                    rows = measure(those, those.load(s), programs, config.sequences, key)
                    done.parent.mkdir(parents=True, exist_ok=True)
                    save_arrays(done, rows)
                rows = load_arrays(done)
                count = len(rows["layer"])
                parts.append({"task": np.repeat(task, count), "seed": np.repeat(s, count)} | rows)
                shown.tick()
    names = parts[0]
    whole = {name: np.concatenate([part[name] for part in parts], axis=-1) for name in names}
    save_arrays(workdir / ROWS, whole)


def read(config: ValidationConfig, workdir: Path) -> Found:
    """What `run` wrote."""
    return Found(load_arrays(workdir / ROWS), config.cutoff)


def _folders(
    c: ValidationConfig, seed: int, workdir: Path, given: Sequence[str]
) -> Sequence[tuple[str, Any, Path]]:
    """Task, settings and folder of every set of models; those that are trained here are trained."""
    if given:
        return [(*check_folder(path), Path(path).expanduser()) for path in given]
    made = []
    for task in c.tasks:
        settings, place = replace(getattr(c, task), seed=seed), workdir / "models" / task
        train_models(task, settings, place)
        made.append((task, settings, place))
    return made


def _check_task(task: str, config: Any) -> None:
    """Refuse settings of a task's models that its experiment refuses, or that tell nothing."""
    need("layers", config.layers >= 2, config.layers, "at least 2: above the last nothing is read")
    if task == "othello":
        othello_config.check(config)
        need("tracked", config.tracked == config.steps, config.tracked, f"{config.steps}, all")
        return
    tinystories_config.check_settings(config)
    need("tracked", "standard" in config.tracked, config.tracked, "standard among them")
    if config.data.path:
        tinystories.check(config)
