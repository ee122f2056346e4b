"""How well are squares read off the residual stream, and are the moves legal where they are not?

Ridge probes are fitted at every layer and move: one a square of its value (mine 1, theirs -1, empty
0; the feature whose influence is told) and three of its classes, the largest of which is what is
decoded. Everything is counted by the state of a square: empty, or mine or theirs and useless or
useful for the next token.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.othello_config import Config, shape_of
from jaxfeat.data import othello
from jaxfeat.features.probe import fit_probes
from jaxfeat.linear import Ridge, predict
from jaxfeat.nn.blocks import at_nodes, forward, residuals
from jaxfeat.nn.decoder import Decoder
from jaxfeat.types import Array, Batch, Tree, make_batch

STATES = ("empty", "useless mine", "useless theirs", "useful mine", "useful theirs")
VALUE = np.array([0, 1, -1, 1, -1])  # of a square in each state
RIGHT = ("top move legal", "all legal moves first")  # where the next move counts as right
CLASSES = (1, -1, 0)  # mine, theirs, empty
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


class Probing(NamedTuple):
    """`fit(params, tokens)` and `score(params, probes, tokens)`.

    Probes are of every node, `[nodes, 4 squares, D]`: first the squares' values, then whether they
    are mine, theirs, empty.

    `score` tells how well squares are decoded and moves are legal on held-out games. By layer and
    move, `[N+1, T]`: `right`, `count` and the sums `value`, `square` of what the value probes read
    and of its square, `[.., squares, states]`; `board`, the share of boards without a wrong square;
    `wrong`, `cases` `[.., RIGHT, states]`, wrong squares and all of them where the
    next move is right. By move, `[T]`: `top1`, `all`, the shares of games where it is, and `mass`,
    the probability on legal moves.
    """

    fit: Callable[[Tree, Array], Ridge]
    score: Callable[[Tree, Ridge, Array], dict[str, np.ndarray]]


def make_probing(config: Config, decoder: Decoder) -> Probing:
    """The two functions, whose programs are compiled once."""
    c, depth = config, config.layers + 1
    nodes, tile = all_nodes(c), lambda x: jnp.tile(x, (depth, *[1] * (x.ndim - 1)))
    run = jax.jit(lambda p, b: at_nodes(residuals(decoder, p, b)[0], nodes))
    logits = jax.jit(lambda p, b: forward(decoder, p, b).logits)

    def read(params: Tree, tokens: Array) -> Array:
        return _in_parts(lambda t: run(params, to_batch(t)), tokens, axis=1)

    @jax.jit
    def solve(resid: Array, tokens: Array) -> Ridge:
        cells = _cells(c, tokens)
        asked = jnp.concatenate([cells, *(cells == v for v in CLASSES)], axis=-1)
        return fit_probes(resid, tile(asked), tile(_playing(tokens)), alpha=c.alpha)

    def fit(params: Tree, tokens: Array) -> Ridge:
        with jax.default_matmul_precision("highest"):
            return solve(read(params, tokens), tokens)

    @jax.jit
    def judge(probes: Ridge, resid: Array, out: Array, tokens: Array) -> dict[str, Array]:
        truth, on, states = _cells(c, tokens), _playing(tokens), _states(c, tokens)
        legal = othello.legal_ids(othello.boards_of(tokens, c.size), c.size)[:, :-1]
        read = predict(probes, resid).reshape(depth, *truth.shape[:2], 4, -1)
        value = read[..., 0, :]
        decoded = jnp.array(CLASSES)[read[..., 1:, :].argmax(axis=-2)]
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
            "value": jnp.einsum("ktgf,tgfs->ktfs", value, states),
            "square": jnp.einsum("ktgf,tgfs->ktfs", value**2, states),
            "cases": jnp.broadcast_to(cases, (depth, *cases.shape)),
            "top1": share(best),
            "all": share(first),
            "mass": share(mass),
        }

    def score(params: Tree, probes: Ridge, tokens: Array) -> dict[str, np.ndarray]:
        out = _in_parts(lambda t: logits(params, to_batch(t)), tokens, axis=0)
        return jax.tree.map(np.asarray, judge(probes, read(params, tokens), out, tokens))

    return Probing(fit, score)


def majority(config: Config, fitted: Array, tokens: Array) -> dict[str, np.ndarray]:
    """As `score`'s `right`, `count` and `board` (over moves alone) of each square's most frequent
    class at each move of the fitted games.
    """
    classes = jnp.array(CLASSES)

    @jax.jit
    def count(fitted: Array, tokens: Array) -> dict[str, Array]:
        known, on, truth = _cells(config, fitted), _playing(fitted), _cells(config, tokens)
        counts = ((known[..., None] == classes) & on[..., None, None]).sum(axis=1)
        guess = jnp.broadcast_to(classes[counts.argmax(axis=-1)][:, None], truth.shape)
        return _count(guess, truth, _playing(tokens), _states(config, tokens))

    return jax.tree.map(np.asarray, count(fitted, tokens))


def _count(decoded: Array, truth: Array, on: Array, states: Array) -> dict[str, Array]:
    """`right`, `count` `[T, squares, states]` and `board` `[T]`."""
    right = decoded == truth
    return {
        "right": (right[..., None] * states).sum(axis=1),
        "count": states.sum(axis=1),
        "board": (right.all(axis=-1) & on).sum(axis=1) / jnp.maximum(on.sum(axis=1), 1),
    }


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


def _in_parts(fn, tokens: Array, axis: int) -> Array:
    """`fn` of some games at a time, joined on the axis of games."""
    size = min(AT_ONCE, len(tokens))
    parts = [fn(tokens[a : a + size]) for a in range(0, len(tokens), size)]
    return jnp.concatenate(parts, axis=axis)
