"""How is the gradient at a node divided into direct, precached and shared?

For `sg(k, i)` a stop-gradient on the residual at layer k and position i, and `L_j` the loss of
position j with the denominator of the whole:

    direct    = grad( L_i - L_i^sg )
    precached = grad( sum_{j>i} (L_j - L_j^sg) )
    shared    = grad( sum_j L_j^sg )

(arXiv 2603.14087, Prop. 3.1.) `split_by_definition` computes this as it stands, a backward pass
each. `split_gradient` uses that every path which `sg` removes runs through the node: with
`d_total = dL / dr[k, i]` and `d_direct` the same in the myopic graph, direct is the pull-back of
d_direct and precached that of their difference; two backward passes give both for all nodes.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxfeat import tree
from jaxfeat.grads.moments import spread
from jaxfeat.grads.plan import Plan, make_plan
from jaxfeat.grads.sweep import View, pull, zero_parts
from jaxfeat.nn.blocks import forward, residuals
from jaxfeat.nn.copies import Copies, check_copies
from jaxfeat.nn.decoder import Decoder
from jaxfeat.nn.loss import batch_loss, count_targets, loss_terms
from jaxfeat.nn.route import Resolved, own_column, resolve
from jaxfeat.types import Array, Batch, Split, Tree, UserError, check_nodes


class Cotangents(NamedTuple):
    """Gradients of the loss at every node of every example, `[B, N+1, T, D]`, and residuals.

    `gradient` is `grad L` with respect to the parameters, where it was asked for.
    """

    total: Array
    direct: Array
    resid: Array
    gradient: Tree | None = None


def cotangents(
    decoder: Decoder,
    params: Tree,
    batch: Batch,
    *,
    route=None,
    copies: Copies = None,
    count: Array | int | None = None,
    gradient: bool = False,
) -> Cotangents:
    """`dL / dr[k, i]` at all nodes at once, in the whole graph and in each own column.

    Args:
        route: the graph that training uses; the direct part keeps its diagonal alone.
        count: the denominator of L; by default the number of real targets of this batch. Give
            the whole number to add up chunks of a batch.
        gradient: give the parameters' gradient too, out of the same backward pass.

    Raises:
        UserError: a model that is not causal: there `r[k, i]` reaches `L_i` through other columns.
    """
    check_causal(decoder)
    route = resolve(route, batch.token.shape[1])
    count = _denominator(batch, count)

    def stream(taps: Array, params: Tree, route: Resolved) -> Array:
        return residuals(decoder, params, batch, route=route, taps=taps, copies=copies)[0]

    def loss(outer: Tree, top: Array) -> Array:
        return batch_loss(decoder, outer, top, batch, count=count, copies=copies)

    like = jax.eval_shape(lambda p: residuals(decoder, p, batch, copies=copies)[0], params)
    taps = jnp.zeros(like.shape, like.dtype)
    resid, back = jax.vjp(partial(stream, route=route), taps, params)
    # both graphs end in the same readout, so that its gradient is taken once
    d_outer, d_top = jax.grad(loss, (0, 1))(params["outer"], resid[:, -1])
    seed = jnp.zeros_like(resid).at[:, -1].set(d_top)
    total, whole = back(seed)
    _, back_own = jax.vjp(lambda taps: stream(taps, params, own_column(route)), taps)
    (direct,) = back_own(seed)
    if gradient:
        whole = whole | {"outer": tree.add(whole["outer"], d_outer)}
    return Cotangents(total, direct, resid, whole if gradient else None)


def row_cotangents(found: Cotangents, plan: Plan) -> Array:
    """The cotangents that the plan's rows pull back, `[R, B, D]`."""
    rows = plan.rows
    k = jnp.array([r.layer for r in rows])
    i = jnp.array([r.position for r in rows])
    precached = jnp.array([bool(r.component) for r in rows])[:, None, None]
    direct = jnp.moveaxis(found.direct[:, k, i], 0, 1)
    total = jnp.moveaxis(found.total[:, k, i], 0, 1)
    return jnp.where(precached, total - direct, direct)


def split_gradient(
    decoder: Decoder,
    params: Tree,
    batch: Batch,
    nodes,
    *,
    route=None,
    copies: Copies = None,
    count: Array | int | None = None,
    chunks: int = 4,
    at_once: int = 1,
) -> Split:
    """The split at a set of nodes, in the fast form.

    Args:
        nodes: pairs (layer 0..N, position 0..T-1).
        route, copies: of the graph that training uses.
        count: as in `cotangents`.
        chunks, at_once: how the work is grouped (`jaxfeat.grads.plan`); results do not depend
            on them.

    Returns:
        A `Split` of trees like the parameters with a leading axis over nodes; its parts sum to
        the gradient.

    Raises:
        UserError: a node out of range, a route or copies that do not fit, a bidirectional model.
    """
    length = batch.token.shape[1]
    route, copies = resolve(route, length), check_copies(copies, length)
    plan = make_plan(
        nodes, layers=decoder.layers, length=length, chunks=chunks, at_once=at_once,
        precached=not isinstance(route, str),
    )  # fmt: skip
    found = cotangents(
        decoder, params, batch, route=route, copies=copies, count=count, gradient=True
    )
    view = View(decoder, params, batch, found.resid, route, copies)
    parts = pull(view, row_cotangents(found, plan), plan, zero_parts(params, plan))
    direct, precached = spread(parts, plan, params)
    shared = jax.tree.map(lambda w, d, p: w[None] - d - p, found.gradient, direct, precached)
    return Split(direct, precached, shared)


def split_by_definition(
    decoder: Decoder,
    params: Tree,
    batch: Batch,
    nodes,
    *,
    route=None,
    copies: Copies = None,
    count: Array | int | None = None,
) -> Split:
    """The split at a set of nodes by stop-gradients, as it is defined: slow, for comparison."""
    check_causal(decoder)
    length = batch.token.shape[1]
    nodes = check_nodes(nodes, decoder.layers, length)
    count = _denominator(batch, count)

    def position_losses(params, layer=None, i=None):
        def stop(resid):
            here = jnp.arange(length)[:, None] == i
            return jnp.where(here, jax.lax.stop_gradient(resid), resid)

        edits = None if layer is None else {layer: stop}
        out = forward(decoder, params, batch, route=route, copies=copies, edits=edits)
        terms = loss_terms(out.logits, batch)
        return jnp.sum(terms, axis=0) / count.astype(terms.dtype)

    def parts(layer, i):
        own, later = jnp.arange(length) == i, jnp.arange(length) > i
        losses = lambda p: (position_losses(p), position_losses(p, layer, i))
        (whole, _), back = jax.vjp(losses, params)
        # gradients of sum_j a_j L_j + b_j L_j^sg for the three pairs (a, b)
        cut = jnp.stack([own, later]).astype(whole.dtype)
        a = jnp.concatenate([cut, jnp.zeros_like(whole)[None]])
        b = jnp.concatenate([-cut, jnp.ones_like(whole)[None]])
        (found,) = jax.vmap(back)((a, b))
        return Split(*(tree.index(found, c) for c in range(3)))

    by_layer = {k: [i for layer, i in nodes if layer == k] for k, _ in nodes}
    found = [
        jax.lax.map(partial(parts, k), jnp.array(positions)) for k, positions in by_layer.items()
    ]
    order = [(k, i) for k, positions in by_layer.items() for i in positions]
    back = jnp.array([order.index(node) for node in nodes])
    return jax.tree.map(lambda x: x[back], tree.concat(found))


def check_causal(decoder: Decoder) -> None:
    """Refuse a model in which a position's own loss is reached through later columns."""
    if not decoder.causal:
        raise UserError("the gradient split needs a causal model; this one is bidirectional")


def _denominator(batch: Batch, count: Array | int | None) -> Array:
    """What the losses are divided by."""
    if count is None:
        return count_targets(batch)
    if not isinstance(count, Tracer) and not (np.isfinite(count) and count > 0):
        raise UserError(f"count: {count} given, a number of targets above 0 needed")
    return jnp.asarray(count)
