"""Othello: which part of the gradient builds squares that cannot matter for the next move?

    python -m experiments.othello                     # quick: 6 x 6, about 23 minutes on 2 cores
    python -m experiments.othello --preset paper      # 8 x 8, the sizes of arXiv 2603.14087
    python -m experiments.othello --preset wthor --games FILE   # real games, f5d6c5... a line

A small GPT learns to continue random games with legal moves and comes to represent the board. A
square is useful if turning its disc changes the legal moves, else useless for the next token.
Probes read every square at every layer and move; a second, identical run tells what the direct,
precached and shared parts of its tracked updates built of them, by type. Expected (paper, section
5): direct builds useful squares, precached and shared useless ones, all together more of useful.
"""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments import othello_report
from experiments.othello_config import Config
from experiments.othello_config import check as check_settings
from experiments.othello_training import read_sides, report_overlap, set_up, train_seeds
from jaxfeat.run import cli, folder
from jaxfeat.types import UserError

PRESETS = {
    "smoke": Config(
        size=4, width=8, heads=2, layers=2, batch=8, steps=20, seeds=1, positions=(3, 6),
        tracked=4, stride=2, ends="start", held=32, probe_fit=64, probe_test=64,
    ),
    "quick": Config(),
    "paper": Config(
        size=8, width=256, layers=6, batch=1024, steps=5000, seeds=3, learning_rate=1e-3,
        positions=tuple(range(4, 57, 4)), tracked=5000, stride=10, held=2048, memory_gb=16.0,
    ),
}  # fmt: skip
PRESETS["wthor"] = replace(
    PRESETS["quick"], size=8, seeds=1, positions=(8, 16, 24, 32, 40, 48), batch=64,
    held=512, probe_test=512, games="wthor_games.tsv",
)  # fmt: skip


def check(config: Config) -> None:
    """Refuse settings and games that cannot work before anything is written."""
    check_settings(config)
    try:
        read_sides(config)
    except UserError as error:
        raise UserError(f"--{error}") from None


def main(config: Config, workdir: Path) -> dict[str, Any]:
    """Run every seed (one that is done is not run again), then report."""
    sides = read_sides(config)
    report_overlap(config, sides)
    if config.games:
        digest = hashlib.sha256(Path(config.games).expanduser().read_bytes()).hexdigest()
    else:
        digest = f"random games, {config.size} x {config.size}, from the seed"
    folder.add_provenance(workdir, data_hash=digest, analysis_precision="highest")
    train_seeds(config, set_up(config, sides), workdir)
    return othello_report.write(config, workdir)


if __name__ == "__main__":
    cli.main(Config, PRESETS, main, name="othello", doc=__doc__, check=check)
