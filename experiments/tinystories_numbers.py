"""What did models of stories learn with and without pre-caching, in numbers?

Every quantity is an array over seeds `[S]`, so that variants are compared paired by seed.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.tinystories_config import Config, probed_nodes
from experiments.tinystories_training import Setup
from experiments.toy_numbers import told_interval
from jaxfeat import stats
from jaxfeat.data.story_text import KINDS
from jaxfeat.grads.influence import Influence
from jaxfeat.grads.ledger import Ledger, influence
from jaxfeat.io.arrays import load_arrays
from jaxfeat.report.claims import Statement
from jaxfeat.run import folder
from jaxfeat.train import ledgers

PARTS = ("direct", "precached", "shared")
PLACE = "place in story"
MODELS = ("standard", "myopic", "untrained")


class Found(NamedTuple):
    """A run's numbers: arrays by model (the untrained one too), metric lines, ledgers."""

    config: Config
    setup: Setup
    arrays: dict[str, dict[str, np.ndarray]]
    metrics: list[dict[str, Any]]
    ledgers: dict[str, list[Ledger]]
    sgd: dict[str, list[Ledger]]


def read(config: Config, setup: Setup, workdir: Path) -> Found:
    """The numbers that training left in the result folder."""
    arrays: dict[str, dict[str, np.ndarray]] = {}
    for name in ("standard", "myopic"):
        found = load_arrays(workdir / "variants" / f"{name}.npz")
        before = "untrained_"
        arrays[name] = {k: x for k, x in found.items() if not k.startswith(before)}
        if name == "standard":
            mine = {k.removeprefix(before): x for k, x in found.items() if k.startswith(before)}
            arrays["untrained"] = mine
    load = lambda kind: {
        name: ledgers.load_ledgers(workdir / "ledger", name, config.seeds, kind)
        for name in config.tracked
    }
    sgd = load("sgd") if config.also_sgd else {}
    return Found(config, setup, arrays, folder.read_metrics(workdir), load("adam"), sgd)


def loss(found: Found, name: str, where: np.ndarray | None = None) -> np.ndarray:
    """Mean held-out loss over targets (of some kind `[W, T]`), nats a token; NaN without any."""
    counted = found.setup.exam.counted
    here = counted if where is None else counted & where
    losses = found.arrays[name]["losses"].astype(np.float64)
    return (losses * here).sum(axis=(1, 2)) / (here.sum() or np.nan)


def quality(
    found: Found, name: str, group: str, layers: Sequence[int] | None = None
) -> np.ndarray:
    """Mean Pearson r of a group's probes over layers (all from 1 on) and positions."""
    return _known_mean(by_node(found, name, group, layers))


def by_node(
    found: Found, name: str, group: str, layers: Sequence[int] | None = None
) -> np.ndarray:
    """Mean r of a group's probes at each node of some layers, `[S, nodes]`."""
    c = found.config
    layers = range(1, c.layers + 1) if layers is None else layers
    here = [n for n, (k, _) in enumerate(probed_nodes(c)) if k in layers]
    return _known_mean(found.arrays[name]["r"][:, here][..., found.setup.data.groups[group]])


def kept(found: Found, group: str) -> np.ndarray:
    """Of what standard training gains over the untrained model: myopic's gain less half of it."""
    gain = lambda name: quality(found, name, group) - quality(found, "untrained", group)
    return gain("myopic") - gain("standard") / 2


def answers(found: Found, name: str, kind: str) -> np.ndarray:
    """Share of questions of a kind whose answer is likelier than every other option."""
    options, mine = _options(found, kind)
    logits = np.where(options >= 0, found.arrays[name]["options"][:, mine], -np.inf)
    return (logits.argmax(axis=-1) == 0).mean(axis=-1)


def chance(found: Found, kind: str) -> float:
    """The same share for a blind guess among the options."""
    return float((1 / (_options(found, kind)[0] >= 0).sum(axis=-1)).mean())


def asked(found: Found, kind: str) -> int:
    """How many questions of a kind there are."""
    return int(_options(found, kind)[1].sum())


def parts_of(found: Found, variant: str, *, sgd: bool = False) -> list[Influence]:
    """Influence on the final probes of each seed, `[nodes, F]`, features in their own spread."""
    nodes = {node: n for n, node in enumerate(probed_nodes(found.config))}
    made = []
    for s, ledger in enumerate((found.sgd if sgd else found.ledgers)[variant]):
        here = [nodes[node] for node in ledger.nodes]
        arrays = found.arrays[variant]
        coef, spread = arrays["coef"][s, here], arrays["spread"][s, here][..., None]
        # a feature that no test window has is left out
        w = np.divide(coef, spread, out=np.zeros_like(coef), where=spread > 0)
        made.append(influence(ledger, w))
    return made


def share(told: list[Influence], part: str, group: Sequence[int], nodes=slice(None)) -> np.ndarray:
    """A part over R(theta_0), both summed over a group's features and some nodes, `[S]`."""
    total = lambda x: np.asarray(x)[nodes][:, group].sum()
    return np.array([total(getattr(one, part)) / total(one.scale) for one in told])


def statements(found: Found) -> list[Statement]:
    """The claims, named beforehand, each about one contrast paired by seed."""
    blocked = "" if found.config.seeds > 1 else "One seed gives no interval: at least 2 are needed."
    made = [
        Statement(
            "Myopic training costs loss", "Held-out loss, myopic minus standard (nats a token)",
            stats.paired_interval(loss(found, "myopic"), loss(found, "standard")), blocked=blocked,
        )
    ]  # fmt: skip
    for group in found.setup.data.groups:
        difference = kept(found, group)
        if not np.isfinite(difference).all():
            continue  # the windows hold none of these features, or they never vary
        told = _gains(found, group)
        zero = np.zeros_like(difference)
        if group == PLACE:
            name = "Place in the story needs pre-caching: myopic models keep less than half of it"
            interval = stats.paired_interval(zero, difference)
            what = "Half of what standard models gain in r over untrained ones, less myopic's gain"
        else:
            title = {"part of speech": "Parts of speech", "dependency": "Dependencies"}[group]
            name = f"{title} need no pre-caching: myopic models keep more than half of them"
            interval = stats.paired_interval(difference, zero)
            what = "Myopic's gain in r over untrained models, less half of the standard one's"
        made.append(Statement(name, what, interval, after=told, blocked=blocked))
    for kind, name in zip(KINDS, ("Questions of one step", "Questions of two steps")):
        if asked(found, kind):
            made.append(_answer_statement(found, kind, name, blocked))
    for variant in found.ledgers:
        groups = found.setup.data.groups
        others = [n for group, features in groups.items() if group != PLACE for n in features]
        if variant == "standard" and others:
            told = parts_of(found, variant)
            pair = [share(told, "precached", f) for f in (groups[PLACE], others)]
            made.append(
                Statement(
                    "Precached gradient builds more of the place than of syntax",
                    "Precached influence over R(theta_0), place less syntax",
                    stats.paired_interval(*pair), blocked=blocked,
                )
            )  # fmt: skip
    return made


def told(values: np.ndarray) -> str:
    """Mean over seeds with its 95 % t interval; seeds without a value are left out."""
    known = values[np.isfinite(values)]
    return told_interval(known) if len(known) else "-"


def _answer_statement(found: Found, kind: str, name: str, blocked: str) -> Statement:
    """Whether standard models answer better than myopic ones."""
    right = {model: answers(found, model, kind) for model in MODELS[:2]}
    guess = chance(found, kind)
    learned = stats.paired_interval(right["standard"], np.full(found.config.seeds, guess))
    if not blocked and not learned.low > 0:
        blocked = "The standard models answer no better than a blind guess."
    words = f"Right: standard {told(right['standard'])}, myopic {told(right['myopic'])}, "
    return Statement(
        f"{name} are answered better with pre-caching", "Share right, standard minus myopic",
        stats.paired_interval(right["standard"], right["myopic"]),
        after=f"{words}blind guess {guess:.2f} ({asked(found, kind)} questions).", blocked=blocked,
    )  # fmt: skip


def _gains(found: Found, group: str) -> str:
    """Each variant's gain over the untrained model, in words."""
    base = quality(found, "untrained", group)
    gains = [f"{name} {told(quality(found, name, group) - base)}" for name in MODELS[:2]]
    return f"Untrained models have r {told(base)}; gains over them: {', '.join(gains)}."


def _known_mean(values: np.ndarray) -> np.ndarray:
    """The mean over the last axis of what is not NaN; NaN where nothing is known."""
    count = np.isfinite(values).sum(axis=-1)
    return np.where(count > 0, np.nansum(values, axis=-1), np.nan) / np.maximum(count, 1)


def _options(found: Found, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """The options of a kind's questions `[q, O]`, and which questions `[Q]` these are."""
    asks = found.setup.exam.asks
    mine = asks.kind == KINDS.index(kind)
    return asks.options[mine], mine
