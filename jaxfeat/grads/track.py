"""What does each component of the updates do to the representation, measured as training runs?

After every update `advance` takes the components of its gradient into their first moments and adds
their steps up; at the end of a window of updates `measure` asks how these steps move the residual
stream on a fixed set of sequences E. Both only read the model: the update itself is made elsewhere,
by the same program with and without tracking.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfeat import tree
from jaxfeat.grads.moments import (
    StepRule,
    advance_moments,
    scale_parts,
    step_scale,
    step_sizes,
    zero_parts,
)
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

    `route` and `copies` are those of training. `also_sgd` adds the movements along the plain
    gradient steps `lr g_c` on the same trajectory: Adam's component steps can cancel far above the
    real step, theirs do not. `ends` is "start" (movements along the steps are
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
    also_sgd: bool = False


class Window(NamedTuple):
    """The updates of a window: component moments, component steps so far, parameters before.

    `sgd` and `sgd_whole`: the components and the whole of the plain gradient steps, where asked.
    """

    moments: Parts
    steps: Parts
    start: Tree
    sgd: Parts | None = None
    sgd_whole: Tree | None = None


class Movement(NamedTuple):
    """What a window did at the nodes, on E.

    `before`, `after` `[nodes, E, D]`: residuals at both ends. `along` `[nodes, 3, E, D]`:
    `rdot_c = J G_c` of direct, precached, shared; parameters move by -G. `sizes` `[nodes, 4]`:
    `|G_c|` and `|G|`. `sgd`: as `along`, for the plain gradient steps, where asked.
    """

    before: Array
    after: Array
    along: Array
    sizes: Array
    sgd: Array | None = None


def start_window(tracker: Tracker, params: Tree, moments: Parts | None = None) -> Window:
    """A window that begins at these parameters, with moments carried over or zero."""
    zero = zero_parts(params, tracker.plan)
    window = Window(zero if moments is None else moments, zero, params)
    if tracker.also_sgd:
        window = window._replace(sgd=zero, sgd_whole=tree.zeros(params))
    return window


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
    grads, whole = _component_gradients(tracker, params, batch)
    moments, step = _steps(tracker, window.moments, grads, params, opt_state, learning_rate)
    window = window._replace(moments=moments, steps=tree.add(window.steps, step))
    if not tracker.also_sgd:
        return window
    grow = lambda total, g: jax.tree.map(lambda x, y: x + learning_rate * y, total, g)
    return window._replace(sgd=grow(window.sgd, grads), sgd_whole=grow(window.sgd_whole, whole))


def component_steps(
    tracker: Tracker,
    moments: Parts,
    params: Tree,
    opt_state: Tree,
    batch: Batch,
    learning_rate: Array,
) -> tuple[Parts, Parts]:
    """The moments after one update and the steps `G_c` that it consists of; as `advance`."""
    grads, _ = _component_gradients(tracker, params, batch)
    return _steps(tracker, moments, grads, params, opt_state, learning_rate)


def _component_gradients(tracker: Tracker, params: Tree, batch: Batch) -> tuple[Parts, Tree | None]:
    """Every row's gradient in the graph of training, and the whole one where SGD is asked for."""
    t, route = tracker, resolve(tracker.route, batch.token.shape[1])
    with jax.default_matmul_precision("highest"):
        found = cotangents(
            t.decoder, params, batch, route=route, copies=t.copies, gradient=t.also_sgd
        )
        view = View(t.decoder, params, batch, found.resid, route, t.copies)
        return pull(view, row_cotangents(found, t.plan), t.plan), found.gradient


def _steps(tracker, moments, grads, params, opt_state, learning_rate) -> tuple[Parts, Parts]:
    """Moments and steps out of the rows' gradients."""
    moments = advance_moments(tracker.rule, moments, grads)
    scale = step_scale(tracker.rule, learning_rate, opt_state, params)
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
    steps = [(window.steps, whole)]
    if window.sgd is not None:
        steps.append((window.sgd, window.sgd_whole))
    ends = [window.start] if tracker.ends == "start" else [window.start, params]

    def part(held: Batch) -> tuple[Array, Array, Array]:
        with jax.default_matmul_precision("highest"):
            resid, along = _over_list(lambda p: _along(tracker, p, steps, held), ends)
            after = resid[1] if len(ends) == 2 else node_resid(tracker, params, held)
            return resid[0], after, jnp.mean(along, axis=0)

    if count == size:
        before, after, along = part(held)
    else:
        join = lambda x: jnp.moveaxis(x, 0, -3).reshape(*x.shape[1:-2], count, x.shape[-1])
        before, after, along = jax.tree.map(join, jax.lax.map(part, parts))
    sizes = step_sizes(window.steps, tracker.plan, whole)
    return Movement(before, after, along[0], sizes, along[1] if len(steps) == 2 else None)


def _along(
    tracker: Tracker, params: Tree, steps: list[tuple[Parts, Tree]], held: Batch
) -> tuple[Array, Array]:
    """Residuals `[n, E, D]` and movements along each set of steps `[sets, n, 3, E, D]`."""
    plan = tracker.plan
    resid, move = jax.linearize(lambda p: _resid(tracker, p, held), params)
    view = View(tracker.decoder, params, held, resid, None, tracker.copies)
    index = row_index(plan)
    missing = jnp.array(index[:, 1] < 0)[:, None, None]

    def one(step: tuple[Parts, Tree]) -> Array:
        rows = push(view, step[0], plan)
        direct = rows[index[:, 0]]
        precached = jnp.where(missing, 0, rows[np.maximum(index[:, 1], 0)])
        full = at_nodes(move(step[1]), plan.nodes)
        return jnp.stack([direct, precached, full - direct - precached], axis=1)

    return at_nodes(resid, plan.nodes), _over_list(one, steps)


def _over_list(fn: Callable[[Tree], Tree], values: list[Tree]) -> Tree:
    """`fn` of each value, stacked: one compiled body however many there are."""
    if len(values) == 1:
        return jax.tree.map(lambda x: x[None], fn(values[0]))
    return jax.lax.map(fn, jax.tree.map(lambda *x: jnp.stack(x), *values))


def _resid(tracker: Tracker, params: Tree, held: Batch) -> Array:
    """Residuals `[E, layers, T, D]` up to the highest node."""
    return residuals(tracker.decoder, params, held, hi=tracker.plan.top, copies=tracker.copies)[0]


def node_resid(tracker: Tracker, params: Tree, held: Batch) -> Array:
    """Residuals at the tracked nodes on E, `[nodes, E, D]`."""
    return at_nodes(_resid(tracker, params, held), tracker.plan.nodes)
