"""What built useful and useless squares, and how are they read, in numbers with intervals?"""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.othello_config import Config, central, nodes_of, shape_of
from experiments.othello_probes import STATES, VALUE
from jaxfeat import stats
from jaxfeat.data import othello, othello_games
from jaxfeat.grads.influence import FLAG_REMAINDER
from jaxfeat.io.arrays import load_arrays
from jaxfeat.report.claims import Statement

LEARNED = 0.85  # mean legality of the most likely move from which the game has been learned
LEAST = 8  # games of a type at a node and square, below which its influence is not read
PARTS = ("direct", "precached", "shared", "combined")
USELESS, USEFUL = othello.USELESS, othello.USEFUL
KINDS = (("useful", USEFUL), ("useless", USELESS))
DRAWS = 2000
OF_USEFUL, OF_USELESS = (
    [i for i, name in enumerate(STATES) if name.startswith(kind)] for kind in ("useful", "useless")
)


class Found(NamedTuple):
    """Arrays of every seed, `[S, ...]`: influence by part `[S, nodes, squares, types]` and scores.

    `scale` is R(theta_0) and `fall` what R lost over the tracked updates, by type.
    """

    config: Config
    arrays: dict[str, np.ndarray]

    def influence(self, part: str, steps: str = "influence") -> np.ndarray:
        """Of a part, "combined", "fall" or "remainder"; of Adam's or of plain steps ("sgd")."""
        get = lambda name: self.arrays[f"{steps}_{name}"]
        if part == "combined":
            return get("direct") + get("precached") + get("shared")
        if part == "fall":
            return get("risk_start") - get("risk_stop")
        if part == "remainder":
            return self.influence("fall") - self.influence("combined")
        return get(part)


def read(config: Config, workdir: Path) -> Found:
    """What the seeds left."""
    seeds = [load_arrays(workdir / "seeds" / f"{s}.npz") for s in range(config.seeds)]
    return Found(config, {name: np.stack([x[name] for x in seeds]) for name in seeds[0]})


def orbits(size: int, squares: list[int]) -> list[list[int]]:
    """Squares (their places in the list) that the four symmetries carry into each other."""
    maps = othello_games.symmetries(size)
    found: dict[tuple[int, ...], list[int]] = {}
    for place, square in enumerate(squares):
        found.setdefault(tuple(sorted(set(maps[:, square].tolist()))), []).append(place)
    return list(found.values())


class Cells(NamedTuple):
    """Values and their weights `[S, nodes, squares]`; the move of each node, the squares' names."""

    values: np.ndarray
    weights: np.ndarray
    moves: np.ndarray
    squares: list[int]


def nested(config: Config, cells: Cells, minus: Cells | None = None) -> stats.Interval:
    """Bootstrap interval of a weighted mean, or of the difference of two: seeds, orbits, moves."""
    sides = [_grouped(config, side) for side in (cells, minus) if side is not None]
    if not all(weights.any() for _, weights in sides):
        return stats.Interval(np.nan, np.nan, np.nan, len(cells.values), np.nan)
    over = sides[1] if minus is not None else None
    return stats.nested_interval(*sides[0], minus=over, draws=DRAWS, seed=config.seed)


def by_seed(cells: Cells, minus: Cells | None = None) -> stats.Interval:
    """The same with a t interval over the seeds' own means: what decides a claim."""
    mean = lambda c: (c.values * c.weights).sum((1, 2)) / np.maximum(c.weights.sum((1, 2)), 1e-12)
    return stats.paired_interval(mean(cells), mean(minus) if minus else np.zeros(len(cells.values)))


def _grouped(config: Config, cells: Cells) -> tuple[np.ndarray, np.ndarray]:
    """Means and weights by seed, orbit of squares and move."""
    groups, moves = orbits(config.size, cells.squares), np.unique(cells.moves)
    mass = np.where(cells.weights > 0, cells.values * cells.weights, 0)
    shape = (len(mass), len(groups), len(moves))
    top, bottom = np.zeros(shape), np.zeros(shape)
    for o, squares in enumerate(groups):
        for m, move in enumerate(moves):
            here = np.ix_(range(len(mass)), cells.moves == move, squares)
            top[:, o, m] = mass[here].sum((1, 2))
            bottom[:, o, m] = cells.weights[here].sum((1, 2))
    return np.divide(top, bottom, out=np.zeros(shape), where=bottom > 0), bottom


def paired(one: Cells, other: Cells, n: np.ndarray, m: np.ndarray) -> Cells:
    """The difference at the same square and move, weighted n m / (n + m) by the games of each."""
    there = (one.weights > 0) & (other.weights > 0)
    weights = np.where(there, n * m / np.maximum(n + m, 1), 0)
    return one._replace(values=one.values - other.values, weights=weights)


def built(
    found: Found, part: str, kind: int, steps: str = "influence", *, scaled: bool = False
) -> Cells:
    """What a part built, each node and square that has enough games counting 1.

    In squares of the value that a probe reads; `scaled`: over the type's own R(theta_0). Scaled and
    with the whole run tracked, the parts together are 1 less the remainder everywhere.
    """
    c, scale = found.config, found.arrays["influence_scale"][..., kind]
    good = (found.arrays["counts"][..., kind] >= LEAST) & (scale > 0)
    value = np.where(good, found.influence(part, steps)[..., kind], 0)
    if scaled:
        value = np.divide(value, scale, out=np.zeros_like(scale), where=good)
    moves = np.array([i for _, i in nodes_of(c)])
    return Cells(value, good.astype(float), moves, central(c.size))


def matched(found: Found, part: str, steps: str = "influence", *, scaled: bool = False) -> Cells:
    """Useful minus useless of the same square at the same move."""
    useful, useless = (built(found, part, k, steps, scaled=scaled) for k in (USEFUL, USELESS))
    n, m = (found.arrays["counts"][..., kind].astype(float) for kind in (USEFUL, USELESS))
    return paired(useful, useless, n, m)


def intervals(found: Found, part: str, steps: str = "influence") -> tuple[stats.Interval, ...]:
    """Useful, useless, their difference, that at the same square and move, that over R(theta_0)."""
    useful, useless = (built(found, part, kind, steps) for _, kind in KINDS)
    told = lambda *cells: nested(found.config, *cells)
    same = (told(matched(found, part, steps, scaled=scaled)) for scaled in (False, True))
    return told(useful), told(useless), told(useful, useless), *same


def accuracy(found: Found, model: str, states: list[int], layer: int, moves: range) -> Cells:
    """The share of squares decoded right, every game counting 1.

    Args:
        model: "trained", "untrained", or "majority" (no layer: it reads nothing).
        states: of `experiments.othello_probes.STATES`.
    """
    right, count = (found.arrays[f"{model}_{name}"] for name in ("right", "count"))
    if model != "majority":
        right, count = right[:, layer], count[:, layer]
    right, count = (x[:, list(moves)][..., states].sum(-1).astype(float) for x in (right, count))
    value = np.divide(right, count, out=np.zeros_like(right), where=count > 0)
    return Cells(value, count, np.array(moves), list(range(found.config.size**2)))


def correlation(found: Found, model: str, states: list[int], layer: int, moves: range) -> Cells:
    """Pearson r of the value probes within some states, each place counting by its games.

    The value is constant within a state, so that r follows from each state's sums. Places where
    one value alone occurs, or that have fewer than `LEAST` games, are left out.
    """
    at = lambda name: found.arrays[f"{model}_{name}"][:, layer, list(moves)][..., states]
    n, first, second = (at(name).astype(float) for name in ("count", "value", "square"))
    truth, total = VALUE[states], n.sum(-1)
    mean = lambda x: x.sum(-1) / np.maximum(total, 1)
    center, level = mean(first), mean(n * truth)
    spread = (mean(second) - center**2) * (mean(n * truth**2) - level**2)
    good = (total >= LEAST) & (spread > 1e-12)
    r = np.divide(mean(first * truth) - center * level, np.sqrt(np.maximum(spread, 0)),
                  out=np.zeros_like(center), where=good)  # fmt: skip
    places = list(range(found.config.size**2))
    return Cells(r, np.where(good, total, 0), np.array(moves), places)


def squared_error(found: Found, model: str, states: list[int], layer: int, moves: range) -> Cells:
    """Mean squared error of the value probes within some states, every game counting 1."""
    at = lambda name: found.arrays[f"{model}_{name}"][:, layer, list(moves)][..., states]
    n, first, second = (at(name).astype(float) for name in ("count", "value", "square"))
    truth, total = VALUE[states], n.sum(-1)
    error = (second - 2 * truth * first + n * truth**2).sum(-1)
    value = np.divide(error, total, out=np.zeros_like(error), where=total > 0)
    return Cells(value, total, np.array(moves), list(range(found.config.size**2)))


def gap(
    found: Found,
    model: str,
    layer: int,
    moves: range,
    *,
    of: Callable[..., Cells] = accuracy,
    same_place: bool = False,
) -> stats.Interval:
    """Useful minus useless squares, in accuracy or r; `same_place`: of the same square and move."""
    useful, useless = (of(found, model, states, layer, moves) for states in (OF_USEFUL, OF_USELESS))
    if same_place:
        return nested(found.config, paired(useful, useless, useful.weights, useless.weights))
    return nested(found.config, useful, useless)


def square_name(square: int, size: int) -> str:
    """A square as a letter and a digit."""
    return f"{'abcdefgh'[square % size]}{square // size + 1}"


def all_moves(config: Config) -> range:
    """The moves that probes are scored after: from the first on."""
    return range(1, shape_of(config).length)


def top1(found: Found) -> float:
    """Mean legality of the most likely move, over moves and seeds."""
    return float(found.arrays["trained_top1"].mean())


def statements(found: Found) -> list[Statement]:
    """The paper's claims, one statistic each named beforehand."""
    useful, useless = (functools.partial(built, found, kind=kind) for kind in (USEFUL, USELESS))
    asked: list[tuple[str, str, tuple[Cells, ...]]] = [
        ("Direct builds useful squares", "direct, useful", (useful("direct"),)),
        ("Precached builds useless squares", "precached, useless", (useless("precached"),)),
        ("Shared builds useless squares", "shared, useless", (useless("shared"),)),
        ("All parts together build more of useful squares", "combined, useful minus useless",
         (useful("combined"), useless("combined"))),
        ("All parts together build more of useful squares at the same square and move",
         "combined, matched difference", (matched(found, "combined"),)),
        ("Direct builds more of useful squares at the same square and move",
         "direct over R(theta_0), matched difference", (matched(found, "direct", scaled=True),)),
    ]  # fmt: skip
    right, seeds = top1(found), found.config.seeds
    blocked = ""
    if right < LEARNED:
        blocked = f"The model has not learned the game (legal top move {right:.2f})."
    elif seeds == 1:
        blocked = "Within one run: that does not tell what another would show."
    over = "over seeds, orbits of squares, moves" if seeds > 1 else "over orbits of squares, moves"
    what = f"(95 % bootstrap {over}{'' if seeds > 1 else ', within run'})"
    note = f" by a t test over {seeds} seeds" if seeds > 1 else " (one seed: no test)"
    return [
        Statement(
            name, f"{part} {what}", nested(found.config, *cells), decides=by_seed(*cells),
            note=note, blocked=blocked,
        )
        for name, part, cells in asked
    ]  # fmt: skip


def fall_covered(found: Found) -> dict[str, float]:
    """Of useful and useless squares with enough games: the share of R(theta_0) that fell in the
    tracked updates, of that fall the remainder, and at how many places that exceeds 5 %.
    """
    kinds = [USELESS, USEFUL]
    good = found.arrays["counts"][..., kinds] >= LEAST
    scale = found.arrays["influence_scale"][..., kinds][good]
    fall, rest = (found.influence(name)[..., kinds][good] for name in ("fall", "remainder"))
    large = np.abs(rest) > FLAG_REMAINDER * np.abs(fall)
    return {
        "covered_fall": float(fall.sum() / scale.sum()),
        "remainder_of_fall": float(rest.sum() / fall.sum()),
        "places_with_large_remainder": float(large.mean()),
    }
