"""Othello: which part of the gradient builds squares that cannot matter for the next move?

    python -m experiments.othello                     # quick: 6 x 6 boards (time not measured yet)
    python -m experiments.othello --preset paper      # 8 x 8, the sizes of arXiv 2603.14087
    python -m experiments.othello --preset wthor --games FILE   # real games, f5d6c5... a line

A small GPT learns to continue random games with legal moves and comes to represent the board. A
square is useful if turning its disc changes the legal moves, else useless for the next token.
Probes read every square at every layer and move; a second, identical run tells what the direct,
precached and shared parts of its first updates built of them, by type. Expected (paper, section 5):
direct builds useful squares, precached and shared build useless ones, all together more of useful.
"""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from experiments import othello_report
from experiments.othello_training import Config, read_sides, report_overlap, run_seed
from experiments.toy_config import need
from jaxfeat.data import othello
from jaxfeat.grads.plan import make_plan
from jaxfeat.run import cli, folder
from jaxfeat.run.progress import progress
from jaxfeat.types import UserError

PRESETS = {
    "smoke": Config(
        size=4, width=8, heads=2, layers=2, batch=8, steps=20, seeds=1, positions=(3, 6),
        tracked=4, stride=2, ends="start", held=32, probe_fit=64, probe_test=64,
    ),
    "quick": Config(),
    "paper": Config(
        size=8, width=256, layers=6, batch=1024, steps=5000, seeds=3, learning_rate=1e-3,
        positions=tuple(range(4, 57, 4)), tracked=5000, stride=10, held=2048,
    ),
}  # fmt: skip
PRESETS["wthor"] = replace(
    PRESETS["quick"], size=8, seeds=1, positions=(8, 16, 24, 32, 40, 48), batch=64,
    games="wthor_games.tsv",
)  # fmt: skip


def check(config: Config) -> None:
    """Refuse settings that cannot work before anything is written."""
    c = config
    need("size", c.size in othello.SIZES, c.size, "4, 6 or 8")
    for name in ("width", "heads", "layers", "batch", "steps", "seeds", "held", "stride",
                 "tracked", "chunks", "at_once"):  # fmt: skip
        need(name, getattr(c, name) >= 1, getattr(c, name), "at least 1")
    need("heads", c.width % c.heads == 0, c.heads, f"a divisor of --width {c.width}")
    need("seed", 0 <= c.seed < 2**32, c.seed, "0..2^32 - 1")
    need("games", not c.games or c.size == 8, c.games, "records only with --size 8")
    good = np.isfinite(c.learning_rate) and c.learning_rate > 0
    need("learning-rate", bool(good), c.learning_rate, "a finite number above 0")
    need("alpha", bool(np.isfinite(c.alpha) and c.alpha >= 0), c.alpha, "0 or more")
    fits = c.tracked <= c.steps and c.tracked % c.stride == 0
    need("tracked", fits, c.tracked, f"a multiple of --stride {c.stride} up to {c.steps}")
    need("ends", c.ends in ("start", "both"), c.ends, "start or both")
    whole = c.held % 2 == 0 and (c.held <= 256 or c.held % 256 == 0)
    need("held", whole, c.held, "an even number, above 256 a multiple of it")
    for name in ("probe_fit", "probe_test"):
        need(name, getattr(c, name) >= 2, getattr(c, name), "at least 2 games")
    try:
        nodes = [(k, i) for k in range(1, c.layers + 1) for i in c.positions]
        make_plan(nodes, layers=c.layers, length=othello.moves_in(c.size))
    except UserError as error:
        raise UserError(f"--positions: {error}") from None
    need("positions", min(c.positions) >= 1, c.positions, "moves, from 1 on")
    if c.games:
        try:
            read_sides(c)
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
    with progress(40 * config.seeds, "train") as shown:
        for s in range(config.seeds):
            if (workdir / "seeds" / f"{s}.npz").exists():
                shown.begin(f"seed {s}", 40, 40)
                continue
            folder.truncate_metrics(workdir, -1, seed=s)
            run_seed(config, s, sides, workdir, shown)
    return othello_report.write(config, workdir)


if __name__ == "__main__":
    cli.main(Config, PRESETS, main, name="othello", doc=__doc__, check=check)
