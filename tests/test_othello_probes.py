"""Are squares counted by their state, and moves judged, as a plain loop over games would?"""

from dataclasses import replace

import jax
import numpy as np
import pytest

from experiments import othello_numbers as numbers
from experiments.othello import PRESETS
from experiments.othello_config import shape_of
from experiments.othello_probes import (
    RIGHT,
    STATES,
    all_nodes,
    at,
    majority,
    make_probing,
    to_batch,
)
from jaxfeat.data import othello
from jaxfeat.linear import predict
from jaxfeat.models.gpt2 import make_gpt2
from jaxfeat.nn.blocks import at_nodes, forward, residuals

CONFIG = PRESETS["smoke"]
GAMES = 24


@pytest.fixture(scope="module")
def judged():
    """An untrained model's probes on random 4 x 4 games, scored on other games."""
    decoder = make_gpt2(shape_of(CONFIG))
    params = decoder.init(jax.random.key(0))
    length = shape_of(CONFIG).length
    fitted, games = (
        othello.sample_games(jax.random.key(n), count, 4, length)
        for n, count in ((1, 64), (2, GAMES))
    )
    probing = make_probing(CONFIG, decoder)
    probes = probing.fit(params, fitted)
    told = probing.score(params, probes, games)
    boards = othello.boards_of(games, 4)
    read = jax.jit(lambda x: (residuals(decoder, params, x)[0], forward(decoder, params, x).logits))
    resid, logits = read(to_batch(games))
    return {
        "fitted": np.asarray(fitted), "games": np.asarray(games), "told": told, "probes": probes,
        "cells": np.asarray(othello.board_features(boards, 4)),
        "types": np.asarray(othello.feature_types(boards, 4)),
        "legal": np.asarray(othello.legal_ids(boards, 4)), "logits": np.asarray(logits),
        "read": np.asarray(predict(probes, at_nodes(resid, all_nodes(CONFIG)))),
    }  # fmt: skip


def by_hand(of, layer, move):
    """The counts at one layer and move, game by game and square by square."""
    sums = {name: np.zeros((16, len(STATES))) for name in ("right", "count", "value", "square")}
    sums |= {name: np.zeros((len(RIGHT), len(STATES))) for name in ("wrong", "cases")}
    on, top1 = 0, 0
    for g in range(GAMES):
        if of["games"][g, move] == othello.PAD:
            continue
        on += 1
        legal, logits = of["legal"][g, move], of["logits"][g, move]
        best = legal[logits.argmax()]
        first = set(np.argsort(-logits)[: legal.sum()]) == set(np.flatnonzero(legal))
        top1 += best
        for square in range(16):
            cell, kind = of["cells"][g, move, square], of["types"][g, move, square]
            name = {0: "empty", 1: "useless ", 2: "useful "}[int(kind)]
            state = STATES.index(name + {0: "", 1: "mine", -1: "theirs"}[int(cell)])
            read = of["read"][layer * 12 + move, g].reshape(4, 16)[:, square]
            good = (1, -1, 0)[read[1:].argmax()] == cell
            sums["value"][square, state] += read[0]
            sums["square"][square, state] += read[0] ** 2
            sums["count"][square, state] += 1
            sums["right"][square, state] += good
            for n, right in enumerate((best, first)):
                sums["cases"][n, state] += right
                sums["wrong"][n, state] += right and not good
    return sums | {"top1": top1 / on, "on": on}


@pytest.mark.parametrize(("layer", "move"), [(0, 1), (1, 4), (2, 9), (2, 11)])
def test_score(judged, layer, move):
    """Counts by square and state, and wrong squares where the next move is right."""
    expected, told = by_hand(judged, layer, move), judged["told"]
    for name in ("right", "count", "value", "square", "wrong", "cases"):
        np.testing.assert_allclose(told[name][layer, move], expected[name], atol=1e-3)
    assert told["top1"][move] == pytest.approx(expected["top1"])
    assert told["count"][layer, move].sum() == 16 * expected["on"]
    assert 0 < told["mass"][move] < 1 and told["all"][move] <= told["top1"][move]


def test_correlation_and_error(judged):
    """Pearson r and squared error within a type out of each state's sums, as from the readings."""
    config = replace(CONFIG, seeds=1)
    found = numbers.Found(config, {f"trained_{k}": x[None] for k, x in judged["told"].items()})
    layer, moves = 2, range(3, 8)
    for states, kind in ((numbers.OF_USEFUL, 2), (numbers.OF_USELESS, 1)):
        r = numbers.correlation(found, "trained", states, layer, moves)
        error = numbers.squared_error(found, "trained", states, layer, moves)
        for m, move in enumerate(moves):
            read = judged["read"][layer * 12 + move][:, :16]
            here = (judged["types"][:, move] == kind) & (judged["games"][:, [move]] != othello.PAD)
            for square in range(16):
                x, y = read[here[:, square], square], judged["cells"][here[:, square], move, square]
                assert error.weights[0, m, square] == len(x)
                if len(x):
                    told = error.values[0, m, square]
                    assert told == pytest.approx(np.mean((x - y) ** 2), rel=1e-3)
                if r.weights[0, m, square]:
                    expected = np.corrcoef(x, y)[0, 1]
                    assert r.values[0, m, square] == pytest.approx(expected, abs=2e-3)
                else:
                    assert len(x) < numbers.LEAST or len(set(y.tolist())) == 1
        assert r.weights.any()


def test_majority(judged):
    """The most frequent class of a square at a move in the fitted games, counted on others."""
    told = majority(CONFIG, judged["fitted"], judged["games"])
    known = np.asarray(
        othello.board_features(othello.boards_of(judged["fitted"], 4), 4)
    )[:, :-1]  # fmt: skip
    for move in (1, 6):
        on = judged["fitted"][:, move] != othello.PAD
        here = judged["games"][:, move] != othello.PAD
        guess = [max((1, -1, 0), key=lambda v: (known[on, move, s] == v).sum()) for s in range(16)]
        right = judged["cells"][here, move] == np.array(guess)
        np.testing.assert_array_equal(told["right"][move].sum(-1), right.sum(axis=0))
        assert told["board"][move] == pytest.approx(right.all(axis=1).mean())


def test_probes_at_nodes(judged):
    """The probes of a node are those that stand at its layer and move among all."""
    nodes = [(1, 3), (2, 7)]
    some = at(judged["probes"], nodes, CONFIG)
    for n, node in enumerate(nodes):
        row = all_nodes(CONFIG).index(node)
        np.testing.assert_array_equal(some.coef[n], judged["probes"].coef[row])
