"""How well are squares read off the residual stream, and are the moves legal where they are not?

Probes (ridge, mine 1, theirs -1, empty 0) are fitted at every layer and move; decoded is the class
nearest to a probe's value. Everything is counted by the state of a square: empty, or mine or
theirs and useless or useful for the next token.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.othello_config import Config, shape_of
from jaxfeat.data import othello
from jaxfeat.features.probe import fit_probes
from jaxfeat.linear import Ridge, predict
from jaxfeat.nn.blocks import at_nodes, forward, residuals
from jaxfeat.types import Array, Batch, Tree, make_batch

STATES = ("empty", "useless mine", "useless theirs", "useful mine", "useful theirs")
RIGHT = ("top move legal", "all legal moves first")  # where the next move counts as right
AT_ONCE = 512  # games whose residuals are read together


def to_batch(tokens: Array) -> Batch:
    """Inputs and targets of games; padding carries no loss."""
    return make_batch(tokens, tokens != othello.PAD)


def all_nodes(config: Config) -> list[tuple[int, int]]:
    """Every layer and move, layer by layer."""
    return [(k, i) for k in range(config.layers + 1) for i in range(shape_of(config).length)]


def at(probes: Ridge, nodes: list[tuple[int, int]], config: Config) -> Ridge:
    """The probes at some nodes, out of those at all."""
    rows = jnp.array([k * shape_of(config).length + i for k, i in nodes])
    return jax.tree.map(lambda x: x[rows], probes)


def types_of(tokens: Array, size: int) -> Array:
    """Feature types after every token, `[G, T+1, squares]`."""
    return othello.feature_types(othello.boards_of(tokens, size), size)


def fit(config: Config, decoder, params: Tree, tokens: Array) -> Ridge:
    """Probes of every square at every node."""
    cells, on = _cells(config, tokens), _playing(tokens)
    many = lambda x: jnp.tile(x, (config.layers + 1, *[1] * (x.ndim - 1)))
    with jax.default_matmul_precision("highest"):
        run = jax.jit(lambda x, y, m: fit_probes(x, many(y), many(m), alpha=config.alpha))
        return run(_read(config, decoder, params, tokens), cells, on)


def score(config: Config, decoder, params: Tree, probes: Ridge, tokens: Array) -> dict[str, Any]:
    """How well squares are decoded and moves are legal, on held-out games.

    Returns:
        Over `[N+1, T]` (layer, move): `right`, `count` `[.., squares, states]`; `board`, the share
        of boards without a wrong square; `wrong`, `cases` `[.., RIGHT, states]`, wrong squares and
        all of them where the next move is right. Over `[T]`: `top1`, `all`, the shares of games
        where it is, and `mass`, the probability on legal moves.
    """
    c, depth = config, config.layers + 1
    truth, on, states = _cells(c, tokens), _playing(tokens), _states(c, tokens)
    legal = othello.legal_ids(othello.boards_of(tokens, c.size), c.size)[:, :-1]
    logits = jax.jit(lambda p, b: forward(decoder, p, b).logits)
    out = _in_parts(lambda t: logits(params, to_batch(t)), tokens, axis=0)

    @jax.jit
    def judge(
        resid: Array, out: Array, truth: Array, on: Array, states: Array, legal: Array
    ) -> dict[str, Array]:
        decoded = _decode(predict(probes, resid)).reshape(depth, *truth.shape)
        found = jax.vmap(lambda x: _count(x, truth, on, states))(decoded)
        best = jnp.take_along_axis(legal, out.argmax(axis=-1)[..., None], axis=-1)[..., 0]
        least = jnp.where(legal, out, jnp.inf).min(axis=-1)
        first = least > jnp.where(legal, -jnp.inf, out).max(axis=-1)
        mass = jnp.sum(jnp.where(legal, jax.nn.softmax(out), 0), axis=-1)
        here = (jnp.stack([best, first], axis=-1) & on.T[..., None]).swapaxes(0, 1)
        here, wrong = here.astype(jnp.float32), (decoded != truth).astype(jnp.float32)
        cases = jnp.einsum("tgc,tgfs->tcs", here, states)
        share = lambda x: (x * on.T).sum(axis=0) / jnp.maximum(on.T.sum(axis=0), 1)
        return found | {
            "wrong": jnp.einsum("tgc,tgfs,ktgf->ktcs", here, states, wrong),
            "cases": jnp.broadcast_to(cases, (depth, *cases.shape)),
            "top1": share(best),
            "all": share(first),
            "mass": share(mass),
        }

    resid = _read(c, decoder, params, tokens)
    return jax.tree.map(np.asarray, judge(resid, out, truth, on, states, legal))


def majority(config: Config, fitted: Array, tokens: Array) -> dict[str, np.ndarray]:
    """As `score`'s `right`, `count` and `board` (over moves alone) of each square's most frequent
    class at each move of the fitted games.
    """
    classes = jnp.array([-1, 0, 1])
    known, on = _cells(config, fitted), _playing(fitted)
    counts = ((known[..., None] == classes) & on[..., None, None]).sum(axis=1)
    guess = jnp.broadcast_to(classes[counts.argmax(axis=-1)][:, None], _cells(config, tokens).shape)
    found = _count(guess, _cells(config, tokens), _playing(tokens), _states(config, tokens))
    return jax.tree.map(np.asarray, found)


def _count(decoded: Array, truth: Array, on: Array, states: Array) -> dict[str, Array]:
    """`right`, `count` `[T, squares, states]` and `board` `[T]`."""
    right = decoded == truth
    return {
        "right": (right[..., None] * states).sum(axis=1),
        "count": states.sum(axis=1),
        "board": (right.all(axis=-1) & on).sum(axis=1) / jnp.maximum(on.sum(axis=1), 1),
    }


def _decode(read: Array) -> Array:
    """The class nearest to a probe's value: 1, 0 or -1."""
    return jnp.where(read > 0.5, 1, jnp.where(read < -0.5, -1, 0))


def _cells(config: Config, tokens: Array) -> Array:
    """1 mine, -1 theirs, 0 empty after every move, `[T, G, squares]`."""
    cells = othello.board_features(othello.boards_of(tokens, config.size), config.size)
    return jnp.moveaxis(cells[:, :-1], 1, 0)


def _playing(tokens: Array) -> Array:
    """Which games are still on, `[T, G]`."""
    return (tokens[:, :-1] != othello.PAD).T


def _states(config: Config, tokens: Array) -> Array:
    """1.0 at the state of each square while the game is on, `[T, G, squares, states]`."""
    types = jnp.moveaxis(types_of(tokens, config.size)[:, :-1], 1, 0)
    theirs = _cells(config, tokens) == -1
    state = jnp.where(types == 0, 0, 2 * types - 1 + theirs)
    return jax.nn.one_hot(state, len(STATES)) * _playing(tokens)[..., None, None]


def _read(config: Config, decoder, params: Tree, tokens: Array) -> Array:
    """Residuals at all nodes, `[nodes, G, D]`."""
    run = jax.jit(lambda p, b: at_nodes(residuals(decoder, p, b)[0], all_nodes(config)))
    return _in_parts(lambda t: run(params, to_batch(t)), tokens, axis=1)


def _in_parts(fn, tokens: Array, axis: int) -> Array:
    """`fn` of some games at a time, joined on the axis of games."""
    size = min(AT_ONCE, len(tokens))
    parts = [fn(tokens[a : a + size]) for a in range(0, len(tokens), size)]
    return jnp.concatenate(parts, axis=axis)
