"""Is the attribution true? What influence predicts, tested by retraining with a part turned down.

    python -m experiments.component_control                  # quick: 12 to 17 minutes on 2 cores
    python -m experiments.component_control --preset paper   # sizes of arXiv 2603.14087, 10 seeds

On both counting games a standard model is trained with its ledger, then models whose gradient from
later positions is multiplied by beta = 0, 1/2 and 2 (beta = 1 is the standard one), and one untied
at the first output. Three questions, each decided by differences or rank correlations paired by
seed: does the precached share of a feature's influence predict what weakening pre-caching removes
from it; does the influence that came by tying predict what untying removes; does taking out
directions that only pre-caching built cost later tokens more than directions that only the direct
part built? No answer is taken for granted: neither paper tested it.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from experiments import component_report, conditioned_majority, majority, toy_config
from experiments.component_effects import built, effects
from experiments.toy_config import need
from experiments.toy_training import data_hash, read, train_variants
from jaxfeat.run import cli, folder
from jaxfeat.types import UserError

TASKS = ("majority", "conditioned_majority")


@dataclass(frozen=True)
class Config:
    """Settings of both games and of the comparison."""

    majority: toy_config.Config
    """Of the models on Majority."""
    conditioned_majority: toy_config.Config
    """Of the models on Conditioned Majority."""
    tasks: tuple[str, ...] = TASKS
    """Games to play."""
    betas: tuple[float, ...] = (0.0, 0.5, 2.0)
    """Weights of what later positions send back, beside 1."""
    controls: int = 8
    """Random directions a node."""
    seed: int = 0
    """What all randomness follows from."""


def _of(presets: dict[str, toy_config.Config], name: str, **changes: Any) -> toy_config.Config:
    """A preset of a game, with a ledger of what is compared: inputs, below the last layer."""
    preset = presets[name]
    return replace(
        preset, by_copy=True, variants=("standard",), tracked=("standard",), ladder=1,
        last=preset.task.inputs - 1, top=preset.layers - 1, **changes,
    )  # fmt: skip


PRESETS = {
    name: Config(
        _of(majority.PRESETS, name, **a), _of(conditioned_majority.PRESETS, name, **b), **c
    )
    for name, a, b, c in (
        # E at least twice the width: half of it finds the directions, half tests them
        ("smoke", {"held": 32, "ends": "start"}, {"held": 32, "ends": "start"},
         {"tasks": ("conditioned_majority",), "betas": (0.5,)}),
        ("quick", {}, {}, {}),
        ("paper", {}, {}, {}),
    )
}  # fmt: skip


def settings(config: Config, task: str) -> toy_config.Config:
    """The settings of a game: the standard model is tracked, the others retrained beside it."""
    betas = tuple(f"beta={float(beta)!r}" for beta in config.betas)
    variants = ("standard", *betas, "untied")
    return replace(
        getattr(config, task), seed=config.seed, variants=variants, tracked=("standard",)
    )


def check(config: Config) -> None:
    """Refuse settings that cannot work before anything is written."""
    need("seed", 0 <= config.seed < 2**32, config.seed, "0..2^32 - 1")
    need("tasks", bool(config.tasks), "none", f"some of {', '.join(TASKS)}")
    for task in config.tasks:
        need("tasks", task in TASKS, task, f"some of {', '.join(TASKS)}")
    need("tasks", len(set(config.tasks)) == len(config.tasks), config.tasks, "each once")
    good = all(np.isfinite(beta) and beta >= 0 and beta != 1 for beta in config.betas)
    need("betas", good, config.betas, "finite numbers >= 0 (1 is trained anyway)")
    need("betas", any(beta < 1 for beta in config.betas), config.betas, "one below 1")
    need("betas", len(set(config.betas)) == len(config.betas), config.betas, "each once")
    need("controls", 2 <= config.controls <= 1000, config.controls, "2..1000")
    for task in config.tasks:
        option = f"--{task.replace('_', '-')}."
        mine, given = settings(config, task), getattr(config, task)
        for name, value, instead in (
            ("seed", 0, "--seed"), ("variants", ("standard",), "--betas"),
            ("tracked", ("standard",), "nothing: the standard model is tracked"),
        ):  # fmt: skip
            found = getattr(given, name)
            need(f"{task}.{name}", found == value, found, f"{instead}, which sets it,")
        try:
            toy_config.check(mine, task)
        except UserError as error:
            raise UserError(str(error).replace("--", option, 1)) from None
        need(f"{task}.layers", mine.layers >= 2, mine.layers, "2 or more")
        least = 2 * (mine.width + 1)
        need(f"{task}.held", mine.held >= least, mine.held, f"at least {least} (twice the width)")
        need(f"{task}.by_copy", mine.by_copy, mine.by_copy, "by-copy ledgers")


def main(config: Config, workdir: Path) -> dict[str, Any]:
    """Train on both games, compare prediction and retraining, report."""
    mine = {task: settings(config, task) for task in config.tasks}
    hashes = {task: data_hash(c) for task, c in mine.items()}
    folder.add_provenance(workdir, data_hash=hashes, analysis_precision="highest")
    results = []
    for task, c in mine.items():
        place = workdir / task
        place.mkdir(exist_ok=True)
        print(f"{task}:", flush=True)
        train_variants(c, place)
        found = read(c, place)
        results.append(
            component_report.Result(
                task, found, effects(found, place), built(found, place, config.controls)
            )
        )
    # what was played, as it was played
    played = {"tasks": config.tasks, "betas": config.betas, "controls": config.controls,
              "seed": config.seed, **mine}  # fmt: skip
    return component_report.write(played, results, workdir)


if __name__ == "__main__":
    cli.main(Config, PRESETS, main, name="component_control", doc=__doc__, check=check)
