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


def zero_parts(params: Tree, plan: Plan) -> Parts:
    """Zeros for every row of the plan: moments before the first update."""

    def rows(count: int, like: Tree) -> Tree:
        return jax.tree.map(lambda x: jnp.zeros((count, *x.shape), x.dtype), like)

    def block(count: int, b: int) -> Tree:
        return rows(count, layer_of(params["blocks"], b)) if count else ()

    at_end = [plan.ending(b + 1) for b in range(plan.top)]
    return Parts(
        tuple(rows(len(chunk.index), params["outer"]) for chunk in plan.chunks),
        tuple(block(rows.stop - rows.start, b) for b, rows in enumerate(at_end)),
        tuple(
            tuple(block(plan.above(chunk, b + 1), b) for chunk in plan.chunks)
            for b in range(plan.top)
        ),
    )


def pull(view: View, cotangents: Array, plan: Plan, onto: Parts) -> Parts:
    """`onto + J^T d` for every row: gradients of `sum_b <d[b], r[k, i][b]>` are added.

    Args:
        view: with the route of the graph that training uses.
        cotangents: `[R, B, D]`, one for each of `plan.rows`.
        onto: zeros, or what is summed up: row by row, so that the gradients of all rows are never
            held beside it.
    """
    over = partial(_add_rows, at_once=plan.at_once)
    positions = np.array([r.position for r in plan.rows])
    flowing: list[list[Array]] = [[] for _ in plan.chunks]  # [rows, B, length, D] at one layer
    ending, through = [], []
    for b in reversed(range(plan.top)):
        passed = []
        for c, chunk in enumerate(plan.chunks):
            if flowing[c]:
                block = partial(_block, view, b, chunk.length)
                _, back = jax.vjp(block, _params(view, b), view.resid[:, b, : chunk.length])
                grads, moved = over(back, onto.through[b][c], jnp.concatenate(flowing[c]))
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

        at, start = jnp.array(positions[rows]), onto.ending[b]
        grads, moved = over(back, start, at, cotangents[rows])
        ending.append(grads)
        _deal(flowing, plan, rows, moved)
    base = plan.ending(0)
    if base.stop > base.start:
        here = jnp.arange(view.resid.shape[2]) == jnp.array(positions[base])[:, None]
        _deal(flowing, plan, base, here[:, None, :, None] * cotangents[base, :, None, :])
    outer = []
    for c, chunk in enumerate(plan.chunks):
        _, back = jax.vjp(partial(_embed, view, chunk.length), view.params["outer"])
        add = lambda cot, back=back: (*back(cot), ())
        outer.append(over(add, onto.outer[c], jnp.concatenate(flowing[c]))[0])
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


def _add_rows(fn, onto: Tree, *xs, at_once: int) -> tuple[Tree, Tree]:
    """`fn` over the leading axis gives (what is added to `onto`'s row, what is stacked)."""
    count = jax.tree.leaves(xs)[0].shape[0]

    def add(total: Tree, group: tuple) -> tuple[Tree, Tree]:
        first, xs = group
        more, out = jax.vmap(fn)(*xs)
        put = lambda t, m: jax.lax.dynamic_update_slice_in_dim(
            t, jax.lax.dynamic_slice_in_dim(t, first, m.shape[0]) + m, first, 0
        )
        return jax.tree.map(put, total, more), out

    size = min(at_once, count)
    whole = count - count % size
    split = lambda x: x[:whole].reshape(-1, size, *x.shape[1:])
    groups = jnp.arange(0, whole, size), jax.tree.map(split, xs)
    onto, out = jax.lax.scan(add, onto, groups)
    out = jax.tree.map(lambda x: x.reshape(whole, *x.shape[2:]), out)
    if whole < count:
        onto, rest = add(onto, (whole, jax.tree.map(lambda x: x[whole:], xs)))
        out = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), out, rest)
    return onto, out


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
