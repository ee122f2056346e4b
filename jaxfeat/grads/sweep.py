"""How do cotangents at nodes reach the parameters, and parameter steps the nodes?

With `J[k, i] = d r[k, i] / d params`, `pull` applies `J^T` to a cotangent at each row's node and
`push` applies `J` to a parameter step of each row. A row's top block needs its query, output
projection and MLP at ONE column; the blocks below need columns <= i. The linearisation of a block
is shared by all rows of a chunk.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfeat.grads.plan import Plan
from jaxfeat.nn.blocks import run_block, run_column
from jaxfeat.nn.copies import Copies, crop_copies, over_positions
from jaxfeat.nn.decoder import Decoder, layer_of
from jaxfeat.nn.route import Resolved, crop, of_block, rows_of
from jaxfeat.types import Array, Batch, Tree


class Parts(NamedTuple):
    """Parameter-shaped values of a plan's rows; what is not held is exactly 0.

    `outer[c]`: the rows of chunk c. `ending[b]`: block b of the rows whose node is at its end.
    `through[b][c]`: block b of the rows of chunk c whose node lies higher. Leaves have a leading
    axis over those rows.
    """

    outer: tuple[Tree, ...]
    ending: tuple[Tree, ...]
    through: tuple[tuple[Tree, ...], ...]


class View(NamedTuple):
    """What a sweep reads: a model, the sequences, the residuals `[B, N+1, T, D]` on them."""

    decoder: Decoder
    params: Tree
    batch: Batch
    resid: Array
    route: Resolved = None
    copies: Copies = None


def pull(view: View, cotangents: Array, plan: Plan) -> Parts:
    """`J^T d` for every row: gradients of `sum_b <d[b], r[k, i][b]>`.

    Args:
        view: with the route of the graph that training uses.
        cotangents: `[R, B, D]`, one for each of `plan.rows`.
    """
    over = partial(_over_rows, at_once=plan.at_once)
    positions = np.array([r.position for r in plan.rows])
    flowing: list[list[Array]] = [[] for _ in plan.chunks]  # [rows, B, length, D] at one layer
    ending, through = [], []
    for b in reversed(range(plan.top)):
        passed = []
        for c, chunk in enumerate(plan.chunks):
            if flowing[c]:
                block = partial(_block, view, b, chunk.length)
                _, back = jax.vjp(block, _params(view, b), view.resid[:, b, : chunk.length])
                grads, moved = over(back, jnp.concatenate(flowing[c]))
                flowing[c] = [moved]
                passed.append(grads)
            else:
                passed.append(())
        through.append(tuple(passed))
        rows = plan.ending(b + 1)
        if rows.stop == rows.start:
            ending.append(())
            continue

        def back(i, cot, b=b):
            column = partial(_column, view, b, i)
            return jax.vjp(column, _params(view, b), view.resid[:, b])[1](cot)

        grads, moved = over(back, jnp.array(positions[rows]), cotangents[rows])
        ending.append(grads)
        _deal(flowing, plan, rows, moved)
    base = plan.ending(0)
    if base.stop > base.start:
        here = jnp.arange(view.resid.shape[2]) == jnp.array(positions[base])[:, None]
        _deal(flowing, plan, base, here[:, None, :, None] * cotangents[base, :, None, :])
    outer = []
    for c, chunk in enumerate(plan.chunks):
        _, back = jax.vjp(partial(_embed, view, chunk.length), view.params["outer"])
        outer.append(over(back, jnp.concatenate(flowing[c]))[0])
    return Parts(tuple(outer), tuple(ending[::-1]), tuple(through[::-1]))


def push(view: View, steps: Parts, plan: Plan) -> Array:
    """`J G` for every row's parameter step G, in the full graph whatever the view's route.

    Returns:
        `[R, B, D]`: how each example's residual at the row's node moves along its step.
    """
    view, over = view._replace(route=None), partial(_over_rows, at_once=plan.at_once)
    positions = np.array([r.position for r in plan.rows])
    flowing = []
    for chunk, step in zip(plan.chunks, steps.outer, strict=True):
        _, along = jax.linearize(partial(_embed, view, chunk.length), view.params["outer"])
        flowing.append(over(along, step))
    arrived = []
    base = plan.ending(0)
    if base.stop > base.start:
        here = jnp.array(positions[base])
        moved = _gather(flowing, plan, base, 0, view.resid.shape[2])
        arrived.append(jax.vmap(lambda f, i: f[:, i])(moved, here))
    for b in range(plan.top):
        rows = plan.ending(b + 1)
        if rows.stop > rows.start:

            def along_column(i, p, f, b=b):
                column = partial(_column, view, b, i)
                return jax.jvp(column, (_params(view, b), view.resid[:, b]), (p, f))[1]

            moved = _gather(flowing, plan, rows, b, view.resid.shape[2])
            arrived.append(over(along_column, jnp.array(positions[rows]), steps.ending[b], moved))
        for c, chunk in enumerate(plan.chunks):
            count = plan.above(chunk, b + 1)
            if count:
                block = partial(_block, view, b, chunk.length)
                x = view.resid[:, b, : chunk.length]
                _, along = jax.linearize(block, _params(view, b), x)
                flowing[c] = over(along, steps.through[b][c], flowing[c][:count])
    return jnp.concatenate(arrived[::-1])


def _params(view: View, b: int) -> Tree:
    """The parameters of block b."""
    return layer_of(view.params["blocks"], b)


def _embed(view: View, length: int, outer: Tree) -> Array:
    """`[B, length, D]` embeddings."""
    copies = crop_copies(view.copies, length)
    along = lambda t, p: over_positions(view.decoder.embed, outer, copies, t, p)
    return jax.vmap(along)(view.batch.token[:, :length], view.batch.position[:, :length])


def _block(view: View, b: int, length: int, block: Tree, x: Array) -> Array:
    """`[B, length, D]` through block b."""
    const, copies = layer_of(view.decoder.consts, b), crop_copies(view.copies, length)
    route = crop(of_block(view.route, b), length)
    along = lambda x, p, m: run_block(view.decoder, block, const, x, p, m, route, copies)[0]
    return jax.vmap(along)(x, view.batch.position[:, :length], view.batch.mask[:, :length])


def _column(view: View, b: int, i: Array, block: Tree, x: Array) -> Array:
    """`[B, D]` at position i after block b."""
    const = layer_of(view.decoder.consts, b)
    row = rows_of(of_block(view.route, b), i, x.shape[1])
    along = lambda x, p, m: run_column(view.decoder, block, const, x, i, p, m, row, view.copies)
    return jax.vmap(along)(x, view.batch.position, view.batch.mask)


def _over_rows(fn, *xs, at_once: int) -> Tree:
    """`fn` over the leading axis, `at_once` rows batched at a time."""
    if jax.tree.leaves(xs)[0].shape[0] <= at_once:
        return jax.vmap(fn)(*xs)
    return jax.lax.map(lambda a: fn(*a), xs, batch_size=at_once if at_once > 1 else None)


def _deal(flowing: list[list[Array]], plan: Plan, rows: slice, moved: Array) -> None:
    """Hand each chunk its share of `[rows, B, T, D]`, cut to its columns."""
    for c, chunk in enumerate(plan.chunks):
        mine = [n - rows.start for n in chunk.index if rows.start <= n < rows.stop]
        if mine:
            flowing[c].append(moved[mine[0] : mine[-1] + 1, :, : chunk.length])


def _gather(flowing: list[Array], plan: Plan, rows: slice, layer: int, length: int) -> Array:
    """The chunks' movements of a layer's rows, padded with zeros to all columns."""
    found = []
    for c, chunk in enumerate(plan.chunks):
        # the rows of a chunk that still flow are its first ones: those at or above this layer
        mine = [m for m, n in enumerate(chunk.index) if rows.start <= n < rows.stop]
        if mine:
            part = flowing[c][mine[0] : mine[-1] + 1]
            found.append(jnp.pad(part, ((0, 0), (0, 0), (0, length - chunk.length), (0, 0))))
    return jnp.concatenate(found)
