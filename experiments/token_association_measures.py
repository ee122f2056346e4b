"""What is measured at every rung of a descent, and at its end?"""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.token_association_config import Config
from experiments.token_association_data import Data, Maps
from experiments.token_association_training import load_weights
from jaxfeat.corpus.attention_ranks import Ranks, attention_ranks
from jaxfeat.corpus.by_parts import part_losses
from jaxfeat.corpus.closed_form import (
    NAMES,
    SYMBOLS,
    Condition,
    Weights,
    conditions,
    error_bounds,
    leading_terms,
    params_of,
    remove_projection,
)
from jaxfeat.corpus.compare import (
    Row,
    blocks_of,
    compare_weights,
    control_cosines,
    wrong_maps,
)
from jaxfeat.corpus.next_order import next_order
from jaxfeat.corpus.validity import Departures, departures
from jaxfeat.models.onehot import mean_loss
from jaxfeat.run.progress import Progress

AT_ONCE = 64  # sequences whose loss is taken together
WHOLE = "whole model"
FORMS = ("learned", "closed form")


class Rung(NamedTuple):
    """One rung: s updates; losses in nats a token of the evaluated sequences."""

    step: int
    rows: list[Row]  # against the own leading terms
    controls: list[Row]  # against wrong maps
    next_rows: list[Row]  # W_O and V against leading terms and next order
    bounds: Weights  # of the errors, relative to the leading terms
    losses: dict[str, dict[str, float]]  # of FORMS: by part, and of the whole model
    departures: Departures
    ranks: Ranks
    conditions: list[Condition]


class Found(NamedTuple):
    """All of a run."""

    config: Config
    data: Data
    maps: Maps
    rungs: list[Rung]
    removed: dict[str, float]  # loss at the last rung without a weight's projection
    learned: Weights  # at the last rung
    predicted: Weights


def measure(config: Config, data: Data, maps: Maps, workdir: Path, shown: Progress) -> Found:
    """Every rung, then what removing leading terms costs at the last."""
    c, tokens = config, data.tokens[: config.evaluated]
    wrong = wrong_maps(maps.text, maps.shuffled)
    score, rungs = maps.text.score, []
    shown.begin("", 0, len(c.ladder))
    for step in c.ladder:
        rungs.append(_rung(c, maps, wrong, score, tokens, load_weights(workdir, step), step))
        shown.tick(rungs[-1].losses["learned"][WHOLE], steps=1)
    learned = load_weights(workdir, c.ladder[-1])
    predicted = leading_terms(maps.text, c.ladder[-1], c.rate, c.layers)
    return Found(c, data, maps, rungs, _removed(learned, predicted, tokens), learned, predicted)


def _rung(
    c: Config, maps: Maps, wrong: dict, score: np.ndarray, tokens: np.ndarray, learned: Weights,
    step: int,
) -> Rung:  # fmt: skip
    """One rung."""
    terms = leading_terms(maps.text, step, c.rate, c.layers)
    more = next_order(maps.text, step, c.rate, c.layers)
    both = Weights(*(a + b for a, b in zip(terms, more, strict=True)))
    bounds = error_bounds(step, c.rate, c.layers, c.data.length)
    size = lambda x, name: np.linalg.norm(x) if name == "output" else np.linalg.norm(x[0])
    relative = Weights(*(
        float(bound / size(term, name)) if term.any() else float("nan")
        for bound, term, name in zip(bounds, terms, NAMES, strict=True)
    ))  # fmt: skip
    params = params_of(learned)
    return Rung(
        step=step,
        rows=compare_weights(learned, terms, maps.null),
        controls=control_cosines(learned, wrong, maps.null),
        next_rows=[r for r in compare_weights(learned, both, maps.null)
                   if r.weight in ("output", "value")],
        bounds=relative,
        losses={form: {WHOLE: _loss(w, tokens), **part_losses(w, tokens)}
                for form, w in zip(FORMS, (learned, terms), strict=True)},
        departures=departures(params, tokens),
        ranks=attention_ranks(params, tokens, score),
        conditions=conditions(step, c.rate, c.layers, c.data.length, c.data.vocab),
    )  # fmt: skip


def _loss(weights: Weights, tokens: np.ndarray) -> float:
    """Nats a token of the whole model."""
    params = jax.tree.map(jnp.asarray, params_of(weights))
    chunks = [tokens[at : at + AT_ONCE] for at in range(0, len(tokens), AT_ONCE)]
    sums = [float(_chunk_loss(params, jnp.asarray(some))) * len(some) for some in chunks]
    return sum(sums) / len(tokens)


_chunk_loss = jax.jit(mean_loss)


def _removed(learned: Weights, predicted: Weights, tokens: np.ndarray) -> dict[str, float]:
    """The loss without the projection of one weight on its leading term, by weight and block; of
    several blocks also without those of all."""
    layers = range(1, len(learned.value) + 1)
    loss = lambda name, blocks: _loss(_without(learned, predicted, name, blocks), tokens)
    found = {"nothing": _loss(learned, tokens)}
    for name, block, _ in blocks_of(learned):
        found[label(name, block)] = loss(name, [block])
    for name in NAMES[1:] if len(layers) > 1 else ():
        found[f"{SYMBOLS[name]}, all"] = loss(name, layers)
    return found


def _without(learned: Weights, predicted: Weights, name: str, blocks: Iterable[int]) -> Weights:
    """The weights less the projections of some blocks (from 1; 0: W_O) on their leading terms."""
    whole, term = np.array(getattr(learned, name)), getattr(predicted, name)
    for block in blocks:
        at = block - 1 if block else slice(None)
        whole[at] = remove_projection(whole[at], term[at])
    return learned._replace(**{name: whole})


def label(name: str, block: int) -> str:
    """How a weight is named in tables and figures.

    >>> label("value", 2), label("output", 0)
    ('V 2', 'W_O')
    """
    return f"{SYMBOLS[name]} {block}" if block else SYMBOLS[name]
