"""How many Othello games a second, with and without their boards, features and feature types?

    python -m benchmarks.othello_games

Random games on the device against a plain-Python loop of the same rules in the same process.
"""

import random
import statistics
import time
from dataclasses import dataclass

import jax

from benchmarks import harness, othello_rules
from jaxfeat.data.othello import (
    board_features,
    boards_of,
    check_size,
    feature_types,
    moves_in,
    sample_games,
)
from jaxfeat.report.tables import text_table
from jaxfeat.run import cli
from jaxfeat.types import UserError


@dataclass(frozen=True)
class Config:
    """Sizes of the measured sampling."""

    size: int = 8
    """Board size."""
    games: int = 4096
    """Games of one program."""
    repeats: int = 5
    """Measured repeats, at least 5."""
    python_seconds: float = 4.0
    """How long each plain-Python loop runs (s)."""


PRESETS = {"games": Config(), "smoke": Config(size=4, games=8, python_seconds=0.05)}


def measure_all(preset: str, config: Config) -> dict:
    """Compile, run in turn, print the table; the figures as a dict."""
    c = config
    check_size(c.size)
    if c.repeats < 5 or c.games < 1 or c.python_seconds <= 0:
        raise UserError("--repeats at least 5, --games at least 1, --python-seconds above 0")
    key = jax.random.key(0)

    def typed(key):
        tokens = sample_games(key, c.games, c.size)
        boards = boards_of(tokens, c.size)
        return tokens, board_features(boards, c.size), feature_types(boards, c.size)

    programs = {
        "games": harness.compile_program(lambda k: sample_games(k, c.games, c.size), key),
        "games with features and types": harness.compile_program(typed, key),
    }
    times = harness.interleave(programs, c.repeats)
    rates = {name: [c.games / t for t in seconds] for name, seconds in times.items()}
    python = {name: _python_rate(c, types=name != "games") for name in programs}
    rows = [
        (name, *(f"{r:,.0f}" for r in harness.spread(rates[name])), f"{python[name]:,.1f}",
         f"{statistics.median(rates[name]) / python[name]:,.0f}")
        for name in programs
    ]  # fmt: skip
    columns = ("program", "least games/s", "median", "most", "plain Python", "times")
    print(text_table(rows, columns))
    plain, with_types = programs
    return {
        "preset": preset,
        "device": jax.devices()[0].device_kind,
        "size": c.size,
        "games": c.games,
        "games_per_s": statistics.median(rates[plain]),
        "games_per_s_with_types": statistics.median(rates[with_types]),
        "python_games_per_s": python[plain],
        "python_games_per_s_with_types": python[with_types],
        "over_python": statistics.median(rates[plain]) / python[plain],
        "over_python_with_types": statistics.median(rates[with_types]) / python[with_types],
        "compile_s": {name: p.compile_s for name, p in programs.items()},
    }


def _python_rate(config: Config, *, types: bool) -> float:
    """Games a second of the plain loop, at least one game."""
    rng, games, start = random.Random(0), 0, time.perf_counter()
    while games == 0 or time.perf_counter() - start < config.python_seconds:
        board, passed = othello_rules.start(config.size), False
        for _ in range(moves_in(config.size)):
            moves = sorted(othello_rules.legal(board))
            if not moves and passed:
                break
            passed = not moves
            board = othello_rules.play(board, rng.choice(moves) if moves else None)
            if types:
                othello_rules.types(board)
        games += 1
    return games / (time.perf_counter() - start)


if __name__ == "__main__":
    cli.benchmark(Config, PRESETS, measure_all, name="othello_games", doc=__doc__)
