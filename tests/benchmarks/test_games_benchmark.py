"""Does the games' benchmark end in its JSON?"""

import json

import pytest

from benchmarks import othello_games
from jaxfeat.run import cli


def run(*options):
    return cli.benchmark(
        othello_games.Config, othello_games.PRESETS, othello_games.measure_all,
        name="othello_games", doc=othello_games.__doc__, argv=["--preset", "smoke", *options],
    )  # fmt: skip


def test_smoke(capsys):
    found = run()
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    for key in ("games_per_s", "games_per_s_with_types", "python_games_per_s",
                "python_games_per_s_with_types"):  # fmt: skip
        assert found[key] > 0 and last[key] == found[key]


def test_bad_size(capsys):
    with pytest.raises(SystemExit) as stop:
        run("--size", "5")
    assert stop.value.code == 2 and "valid board sizes are 4, 6, 8" in capsys.readouterr().err
