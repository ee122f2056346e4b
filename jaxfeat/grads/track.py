"""What does each component of the updates do to the representation, measured as training runs?

After every update `advance` takes the components of its gradient into their first moments and adds
their steps up; at the end of a window of updates `measure` asks how these steps move the residual
stream on a fixed set of sequences E. Both only read the model: the update itself is made elsewhere,
by the same program with and without tracking.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfeat import tree
from jaxfeat.grads.moments import StepRule, advance_moments, scale_parts, step_scale, zero_parts
from jaxfeat.grads.plan import Plan, row_index
from jaxfeat.grads.split import cotangents, row_cotangents
from jaxfeat.grads.sweep import Parts, View, pull, push
from jaxfeat.nn.blocks import at_nodes, residuals
from jaxfeat.nn.copies import Copies
from jaxfeat.nn.decoder import Decoder
from jaxfeat.nn.route import resolve
from jaxfeat.types import Array, Batch, Tree, UserError


class Tracker(NamedTuple):
    """What is tracked and how.

    `route` and `copies` are those of training. `ends` is "start" (movements along the steps are
    taken at the window's start) or "both" (the mean of both ends: second order in the step).
    `examples_at_once` sequences of E are worked on together; memory grows with it, results do not
    depend on it.
    """

    decoder: Decoder
    plan: Plan
    rule: StepRule
    route: object = None
    copies: Copies = None
    ends: str = "start"
    examples_at_once: int = 256


class Window(NamedTuple):
    """The updates of a window: component moments, component steps so far, parameters before."""

    moments: Parts
    steps: Parts
    start: Tree


class Movement(NamedTuple):
    """What a window did at the nodes, on E.

    `before`, `after` `[nodes, E, D]`: residuals at both ends. `along` `[nodes, 3, E, D]`:
    `rdot_c = J G_c` of direct, precached, shared; parameters move by -G.
    """

    before: Array
    after: Array
    along: Array


def start_window(tracker: Tracker, params: Tree, moments: Parts | None = None) -> Window:
    """A window that begins at these parameters, with moments carried over or zero."""
    zero = zero_parts(params, tracker.plan)
    return Window(zero if moments is None else moments, zero, params)


def advance(
    tracker: Tracker,
    window: Window,
    params: Tree,
    opt_state: Tree,
    batch: Batch,
    learning_rate: Array,
) -> Window:
    """Take one update into the window.

    Args:
        params: before the update. opt_state: after it. batch: what it was computed on.
    """
    moments, step = component_steps(
        tracker, window.moments, params, opt_state, batch, learning_rate
    )
    return Window(moments, tree.add(window.steps, step), window.start)


def component_steps(
    tracker: Tracker,
    moments: Parts,
    params: Tree,
    opt_state: Tree,
    batch: Batch,
    learning_rate: Array,
) -> tuple[Parts, Parts]:
    """The moments after one update and the steps `G_c` that it consists of."""
    t = tracker
    route = resolve(t.route, batch.token.shape[1])
    with jax.default_matmul_precision("highest"):
        found = cotangents(t.decoder, params, batch, route=route, copies=t.copies)
        view = View(t.decoder, params, batch, found.resid, route, t.copies)
        grads = pull(view, row_cotangents(found, t.plan), t.plan)
        moments = advance_moments(t.rule, moments, grads)
        scale = step_scale(t.rule, learning_rate, opt_state, params)
        return moments, scale_parts(moments, scale)


def measure(tracker: Tracker, window: Window, params: Tree, held: Batch) -> Movement:
    """How the window's component steps move the residual stream on E.

    The whole step is the difference of the parameters, so that the three movements sum to that of
    the real change. All Jacobians are those of the full graph, also for myopic training.

    Args:
        params: after the window's last update.
        held: E.
    """
    whole = tree.sub(window.start, params)
    count = held.token.shape[0]
    size = min(tracker.examples_at_once, count)
    if count % size:
        raise UserError(f"examples_at_once: {size} does not divide the {count} sequences of E")
    parts = jax.tree.map(lambda x: x.reshape(count // size, size, *x.shape[1:]), held)

    def part(held: Batch) -> Movement:
        with jax.default_matmul_precision("highest"):
            here = _movement(tracker, window.start, window.steps, whole, held)
            after = at_nodes(_resid(tracker, params, held), tracker.plan.nodes)
            if tracker.ends == "both":
                there = _movement(tracker, params, window.steps, whole, held)
                here = here._replace(along=(here.along + there.along) / 2)
            return here._replace(after=after)

    if count == size:
        return part(held)
    found = jax.lax.map(part, parts)
    join = lambda x: jnp.moveaxis(x, 0, -3).reshape(*x.shape[1:-2], count, x.shape[-1])
    return jax.tree.map(join, found)


def _movement(tracker: Tracker, params: Tree, steps: Parts, whole: Tree, held: Batch) -> Movement:
    """The movements at one end of the window, in the full graph there."""
    plan = tracker.plan
    resid, moved = jax.jvp(lambda p: _resid(tracker, p, held), (params,), (whole,))
    view = View(tracker.decoder, params, held, resid, None, tracker.copies)
    rows = push(view, steps, plan)
    index = row_index(plan)
    direct = rows[index[:, 0]]
    missing = jnp.array(index[:, 1] < 0)[:, None, None]
    precached = jnp.where(missing, 0, rows[np.maximum(index[:, 1], 0)])
    full = at_nodes(moved, plan.nodes)
    along = jnp.stack([direct, precached, full - direct - precached], axis=1)
    before = at_nodes(resid, plan.nodes)
    return Movement(before, before, along)


def _resid(tracker: Tracker, params: Tree, held: Batch) -> Array:
    """Residuals `[E, layers, T, D]` up to the highest node."""
    return residuals(tracker.decoder, params, held, hi=tracker.plan.top, copies=tracker.copies)[0]


def node_resid(tracker: Tracker, params: Tree, held: Batch) -> Array:
    """Residuals at the tracked nodes on E, `[nodes, E, D]`."""
    return at_nodes(_resid(tracker, params, held), tracker.plan.nodes)
