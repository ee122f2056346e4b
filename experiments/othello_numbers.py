"""What built useful and useless squares, in numbers: influence by type and its contrasts?"""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.othello_training import Config, central, nodes_of
from jaxfeat import stats
from jaxfeat.data import othello, othello_games
from jaxfeat.io.arrays import load_arrays
from jaxfeat.report.claims import Statement

LEARNED = 0.85  # mean legality of the most likely move from which the game has been learned
LEAST = 8  # games of a type at a node and square, below which its influence is not read
PARTS = ("direct", "precached", "shared", "combined")
USELESS, USEFUL = othello.USELESS, othello.USEFUL
DRAWS = 2000


class Found(NamedTuple):
    """Arrays of every seed, `[S, ...]`: influence by part `[S, nodes, squares, types]` and scores.

    `scale` is R(theta_0) and `fall` what R lost over the tracked updates, by type.
    """

    config: Config
    arrays: dict[str, np.ndarray]

    def influence(self, part: str) -> np.ndarray:
        """Of a part, "combined", "fall" or "remainder"."""
        get = lambda name: self.arrays[f"influence_{name}"]
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


def orbits(size: int) -> list[list[int]]:
    """The central squares (places among them) that the four symmetries carry into each other."""
    inner, maps = central(size), othello_games.symmetries(size)
    found: dict[tuple[int, ...], list[int]] = {}
    for place, square in enumerate(inner):
        found.setdefault(tuple(sorted(set(maps[:, square].tolist()))), []).append(place)
    return list(found.values())


def nested(found: Found, values: np.ndarray, weights: np.ndarray) -> stats.Interval:
    """Interval of a weighted mean of `[S, nodes, squares]`: seeds, orbits of squares, moves."""
    c = found.config
    nodes = np.array(nodes_of(c))
    mass = np.where(weights > 0, values * weights, 0)
    shape = (c.seeds, len(orbits(c.size)), len(c.positions))
    top, bottom = np.zeros(shape), np.zeros(shape)
    for o, squares in enumerate(orbits(c.size)):
        for m, i in enumerate(c.positions):
            here = np.ix_(range(c.seeds), nodes[:, 1] == i, squares)
            top[:, o, m], bottom[:, o, m] = mass[here].sum((1, 2)), weights[here].sum((1, 2))
    means = np.divide(top, bottom, out=np.zeros(shape), where=bottom > 0)
    return stats.nested_interval(means, bottom, draws=DRAWS, seed=c.seed)


def share(found: Found, part: str, kind: int) -> tuple[np.ndarray, np.ndarray]:
    """A part over the type's R(theta_0), and which entries count, `[S, nodes, squares]`."""
    scale = found.arrays["influence_scale"][..., kind]
    good = (found.arrays["counts"][..., kind] >= LEAST) & (scale > 0)
    value = np.divide(found.influence(part)[..., kind], scale, out=np.zeros_like(scale), where=good)
    return value, good.astype(float)


def unmatched(found: Found, part: str, kind: int) -> stats.Interval:
    """As the paper shows it: the mean over nodes and squares."""
    return nested(found, *share(found, part, kind))


def difference(found: Found, part: str) -> stats.Interval:
    """Useful minus useless, each over its own nodes and squares."""
    (a, wa), (b, wb) = share(found, part, USEFUL), share(found, part, USELESS)
    # the difference of two weighted means as one weighted mean
    whole = (wa + wb) / 2
    scaled = a * wa / wa.mean() - b * wb / wb.mean()
    values = np.divide(scaled * whole.mean(), whole, out=np.zeros_like(whole), where=whole > 0)
    return nested(found, values, whole)


def matched(found: Found, part: str) -> stats.Interval:
    """Useful minus useless of the same square at the same move, weighted n_u n_v / (n_u + n_v)."""
    (a, wa), (b, wb) = share(found, part, USEFUL), share(found, part, USELESS)
    n, m = (found.arrays["counts"][..., kind].astype(float) for kind in (USEFUL, USELESS))
    weights = np.where((wa > 0) & (wb > 0), n * m / np.maximum(n + m, 1), 0)
    return nested(found, a - b, weights)


def top1(found: Found) -> float:
    """Mean legality of the most likely move, over moves and seeds."""
    return float(found.arrays["trained_top1"].mean())


def statements(found: Found) -> list[Statement]:
    """The paper's claims, one statistic each named beforehand."""
    asked = [
        ("Direct builds useful squares", "direct, useful", unmatched(found, "direct", USEFUL)),
        ("Precached builds useless squares", "precached, useless",
         unmatched(found, "precached", USELESS)),
        ("Shared builds useless squares", "shared, useless", unmatched(found, "shared", USELESS)),
        ("All parts together build more of useful squares", "combined, useful minus useless",
         difference(found, "combined")),
        ("The same at the same square and move", "combined, matched difference",
         matched(found, "combined")),
        ("Direct builds more of useful squares at the same square and move",
         "direct, matched difference", matched(found, "direct")),
    ]  # fmt: skip
    right, seeds = top1(found), found.config.seeds
    blocked = ""
    if right < LEARNED:
        blocked = f"The model has not learned the game (legal top move {right:.2f})."
    elif seeds == 1:
        blocked = "Within one run: that does not tell what another would show."
    what = "(over R(theta_0); 95 % bootstrap over seeds, orbits of squares, moves)"
    return [Statement(name, f"{part} {what}", told, blocked=blocked) for name, part, told in asked]


def fall_covered(found: Found) -> dict[str, float]:
    """The share of R(theta_0) that fell in the tracked updates, and of that fall the remainder."""
    scale = found.arrays["influence_scale"][..., [USELESS, USEFUL]].sum()
    fall = found.influence("fall")[..., [USELESS, USEFUL]].sum()
    rest = found.influence("remainder")[..., [USELESS, USEFUL]].sum()
    return {"covered_fall": float(fall / scale), "remainder_of_fall": float(rest / fall)}
