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

from jaxfeat import tree
from jaxfeat.grads.plan import Chunk, Plan
from jaxfeat.nn.blocks import run_block, run_column
from jaxfeat.nn.copies import Copies, crop_copies, over_positions
from jaxfeat.nn.decoder import Decoder, layer_of
from jaxfeat.nn.route import Resolved, crop, rows_of
from jaxfeat.types import Array, Batch, Tree


class Parts(NamedTuple):
    """Parameter-shaped values of a chunk's rows.

    `outer` has leaves `[R, ...]`; `blocks[b]` has leaves `[R_b, ...]` for the R_b first rows, those
    whose node lies above block b. What is not held is exactly 0.
    """

    outer: Tree
    blocks: tuple[Tree, ...]


def pull(
    decoder: Decoder,
    params: Tree,
    batch: Batch,
    resid: Array,
    cotangents: Array,
    plan: Plan,
    *,
    route: Resolved = None,
    copies: Copies = None,
) -> tuple[Parts, ...]:
    """`J^T d` for every row: gradients of `sum_b <d[b], r[k, i][b]>`.

    Args:
        batch: the sequences that `resid` was computed on.
        resid: `[B, N+1, T, D]`, the residuals of a forward pass.
        cotangents: `[R, B, D]`, one for each of `plan.rows`.
        route: of the graph that training uses, resolved.

    Returns:
        A `Parts` for each chunk.
    """
    parts, start = [], 0
    for chunk in plan.chunks:
        cots = cotangents[start : start + len(chunk.rows)]
        start += len(chunk.rows)
        view = _View(decoder, params, batch, resid, chunk, route, copies, plan.at_once)
        parts.append(_pull_chunk(view, cots))
    return tuple(parts)


def push(
    decoder: Decoder,
    params: Tree,
    batch: Batch,
    resid: Array,
    steps: tuple[Parts, ...],
    plan: Plan,
    *,
    copies: Copies = None,
) -> Array:
    """`J G` for every row's parameter step G, in the full graph: `[R, B, D]`."""
    moved = []
    for chunk, step in zip(plan.chunks, steps, strict=True):
        view = _View(decoder, params, batch, resid, chunk, None, copies, plan.at_once)
        moved.append(_push_chunk(view, step))
    return jnp.concatenate(moved)


class _View:
    """A chunk's slice of a batch: its columns, blocks and maps as functions of the parameters."""

    def __init__(self, decoder, params, batch, resid, chunk: Chunk, route, copies, at_once):
        self.decoder, self.params, self.chunk = decoder, params, chunk
        self.length = chunk.length
        self.token = batch.token[:, : chunk.length]
        self.mask = batch.mask[:, : chunk.length]
        self.position = batch.position[:, : chunk.length]
        self.resid = resid
        self.route = crop(route, chunk.length)
        self.copies = crop_copies(copies, chunk.length)
        self.map = partial(_map_rows, at_once=at_once)
        self.positions = np.array([r.position for r in chunk.rows])

    def at(self, b: int) -> tuple[Tree, Array]:
        """The parameters of block b and its input `[B, length, D]`."""
        return layer_of(self.params["blocks"], b), self.resid[:, b, : self.length]

    def embed(self, outer: Tree) -> Array:
        """`[B, length, D]` embeddings."""
        return jax.vmap(
            lambda t, p: over_positions(self.decoder.embed, outer, self.copies, t, p)
        )(self.token, self.position)

    def block(self, b: int, block: Tree, x: Array) -> Array:
        """`[B, length, D]` through block b."""
        const = layer_of(self.decoder.consts, b)
        return jax.vmap(
            lambda x, p, m: run_block(
                self.decoder, block, const, x, p, m, self.route, self.copies
            )[0]
        )(x, self.position, self.mask)

    def column(self, b: int, i: Array, block: Tree, x: Array) -> Array:
        """`[B, D]` at position i after block b."""
        const, row = layer_of(self.decoder.consts, b), rows_of(self.route, i, self.length)
        return jax.vmap(
            lambda x, p, m: run_column(
                self.decoder, block, const, x, i, p, m, row, self.copies
            )
        )(x, self.position, self.mask)


def _map_rows(fn, *xs, at_once: int):
    """`fn` over the leading axis, `at_once` rows batched at a time."""
    rows = jax.tree.leaves(xs)[0].shape[0]
    if rows <= at_once:
        return jax.vmap(fn)(*xs)
    return jax.lax.map(lambda a: fn(*a), xs, batch_size=at_once if at_once > 1 else None)


def _pull_chunk(view: _View, cots: Array) -> Parts:
    """Gradients of a chunk's rows, from the highest layer down."""
    chunk, top = view.chunk, max(r.layer for r in view.chunk.rows)
    blocks, flowing = [], None
    for b in reversed(range(top)):
        above, here = chunk.from_layer(b + 2), chunk.from_layer(b + 1)
        params, x = view.at(b)
        found = []
        if above:
            _, back = jax.vjp(partial(view.block, b), params, x)
            found.append(view.map(back, flowing))
        if here > above:

            def back_column(i, cot, b=b, params=params, x=x):
                return jax.vjp(partial(view.column, b, i), params, x)[1](cot)

            rows = slice(above, here)
            found.append(view.map(back_column, jnp.array(view.positions[rows]), cots[rows]))
        grads, flowing = tree.concat(found)
        blocks.append(grads)
    base = chunk.from_layer(1)
    if base < len(chunk.rows):
        own = jnp.arange(view.length) == jnp.array(view.positions[base:])[:, None]
        injected = own[:, None, :, None] * cots[base:, :, None, :]
        flowing = injected if flowing is None else jnp.concatenate([flowing, injected])
    _, back = jax.vjp(view.embed, view.params["outer"])
    (outer,) = view.map(back, flowing)
    return Parts(outer, tuple(reversed(blocks)))


def _push_chunk(view: _View, steps: Parts) -> Array:
    """Movements of a chunk's rows, from the embedding up."""
    chunk = view.chunk
    _, along = jax.linearize(view.embed, view.params["outer"])
    flowing = view.map(along, steps.outer)
    arrived = []
    base = chunk.from_layer(1)
    if base < len(chunk.rows):
        own = jnp.array(view.positions[base:])
        arrived.append(jax.vmap(lambda f, i: f[:, i])(flowing[base:], own))
    for b, step in enumerate(steps.blocks):
        above, here = chunk.from_layer(b + 2), chunk.from_layer(b + 1)
        params, x = view.at(b)
        if here > above:

            def along_column(i, p, f, b=b, params=params, x=x):
                return jax.jvp(partial(view.column, b, i), (params, x), (p, f))[1]

            rows = slice(above, here)
            own = jnp.array(view.positions[rows])
            arrived.append(
                view.map(along_column, own, tree.index(step, rows), flowing[rows])
            )
        if above:
            _, along = jax.linearize(partial(view.block, b), params, x)
            flowing = view.map(along, tree.index(step, slice(0, above)), flowing[:above])
    return jnp.concatenate(arrived[::-1])
