"""What does each component of the updates do to the representation, measured as training runs?

After every update `advance` takes the components of its gradient into their first moments and adds
their steps up; at the end of a window of updates `measure` asks how these steps move the residual
stream on a fixed set of sequences E. Both only read the model: the update itself is made elsewhere,
by the same program with and without tracking.

*By parameter copy* (`by_copy`): seen as if each segment of positions had parameters of its own, a
component's step is the sum over copies q of `G_q`, applied to every copy p alike: influence is
`sum_{p,q} <grad_p R, G_q>`. Its part with p = q (the same copy) is what the component would do in
the model untied there; the rest comes by tying. So everything by copy is this file's own work on
the untied model with equal parameters.
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
    check_rule,
    decay_terms,
    moment_weights,
    scale_parts,
    step_scale,
    step_sizes,
)
from jaxfeat.grads.occurring import cut_tables, renumber
from jaxfeat.grads.plan import Plan, row_index
from jaxfeat.grads.split import check_causal, cotangents, row_cotangents
from jaxfeat.grads.sweep import Parts, View, pull, push, zero_parts
from jaxfeat.nn.blocks import at_nodes, residuals
from jaxfeat.nn.copies import Copies, check_copies, refine_copies
from jaxfeat.nn.decoder import Decoder
from jaxfeat.nn.route import check_route, resolve
from jaxfeat.types import Array, Batch, Tree, UserError


class Tracker(NamedTuple):
    """What is tracked and how.

    `route` and `copies` are those of training. `also_sgd` adds the movements along the plain
    gradient steps `lr g_c` on the same trajectory: Adam's component steps can cancel far above the
    real step, theirs do not. `by_copy` names segments of positions, at least as fine as `copies`,
    and adds each component's part by the same copy. `ends` is "start" (movements along the steps
    are taken at the window's start) or "both" (the mean of both ends: second order in the step).
    `occurring` `[K]` lists every token of training and of E, where moments and steps of other
    tokens' embedding rows, which are 0, are not to be held (`jaxfeat.grads.occurring`).
    """

    decoder: Decoder
    plan: Plan
    rule: StepRule
    route: object = None
    copies: Copies = None
    ends: str = "start"
    also_sgd: bool = False
    by_copy: Copies = None
    occurring: np.ndarray | None = None

    @property
    def parts(self) -> int:
        """How many parts a movement has: the components, and the decay where there is one."""
        return 4 if self.rule.decay else 3

    @property
    def also(self) -> tuple[str, ...]:
        """What is measured beside the optimiser's components, by name."""
        asked = {"sgd": self.also_sgd, "same_copy": self.by_copy is not None}
        return tuple(name for name, wanted in asked.items() if wanted)


class Steps(NamedTuple):
    """Gradients, moments or steps of a plan's rows, and of the whole that they are parts of."""

    rows: Parts
    whole: Tree


class Moments(NamedTuple):
    """First moments of the rows; `by_copy`: of rows and whole by parameter copy, where asked."""

    rows: Parts
    by_copy: Steps | None = None


class Window(NamedTuple):
    """The updates of a window: moments, component steps so far, parameters before.

    `also`: the steps of what is measured beside (`Tracker.also`). `decay`: what decoupled decay
    has taken from the parameters, where there is any.
    """

    moments: Moments
    steps: Parts
    start: Tree
    also: dict[str, Steps] = {}  # noqa: RUF012 (no one writes into it)
    decay: Tree | None = None


class Movement(NamedTuple):
    """What a window did at the nodes, on E.

    `before`, `after` `[nodes, E, D]`: residuals at both ends. `along` `[nodes, parts, E, D]`:
    `rdot_c = J G_c` of direct, precached, shared and, where there is any, decay; parameters move by
    -G. `sizes` `[nodes, 4]`: `|G_c|` and `|G|` of what the gradient moved. `also`: by name
    `[nodes, 3, E, D]`, along plain gradient steps ("sgd") and along each component's steps acting
    through the same parameter copy alone ("same_copy").
    """

    before: Array
    after: Array
    along: Array
    sizes: Array
    also: dict[str, Array] = {}  # noqa: RUF012 (no one writes into it)


def check_tracker(tracker: Tracker) -> None:
    """Refuse what cannot be tracked before anything runs.

    Raises:
        UserError: a bidirectional model, an optimiser that cannot be split, an unknown `ends`.
    """
    check_causal(tracker.decoder)
    check_rule(tracker.rule)
    check_route(tracker.route)
    if tracker.ends not in ("start", "both"):
        raise UserError(f"ends: {tracker.ends!r} given; valid are start and both")


def start_window(tracker: Tracker, params: Tree, moments: Moments | None = None) -> Window:
    """A window that begins at these parameters, with moments carried over or zero.

    Raises:
        UserError: as `check_tracker`; segments by copy that do not fit.
    """
    check_tracker(tracker)
    zero, also = zero_parts(_cut(tracker, params), tracker.plan), {}
    by_copy = None
    if tracker.also_sgd:
        also["sgd"] = Steps(zero, tree.zeros(params))
    if tracker.by_copy not in (None, tracker.copies):
        untied, fine = _untied(tracker, params)
        zero_fine = zero_parts(_cut(untied, fine), tracker.plan)
        by_copy = also["same_copy"] = Steps(zero_fine, tree.zeros(fine))
    decay = tree.zeros(params) if tracker.rule.decay else None
    moments = Moments(zero, by_copy) if moments is None else moments
    return Window(moments, zero, params, also, decay)


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
    rule, also = tracker.rule, dict(window.also)
    scale = step_scale(rule, learning_rate, opt_state, params)
    if tracker.also_sgd:
        grads = Steps(*_gradients(tracker, params, batch, whole=True))
        rows = advance_moments(rule, window.moments.rows, grads.rows)
    else:
        rows = _take_in(tracker, window.moments.rows, params, batch)
    steps = tree.add(window.steps, scale_parts(rows, _cut(tracker, scale)))
    if tracker.also_sgd:
        grow = lambda total, g: jax.tree.map(lambda x, y: x + learning_rate * y, total, g)
        also["sgd"] = grow(also["sgd"], grads)
    by_copy = window.moments.by_copy
    if by_copy is not None:
        untied, fine = _untied(tracker, params)
        found = Steps(*_gradients(untied, fine, batch, whole=True))
        by_copy = advance_moments(rule, by_copy, found)
        fine_scale = refine_copies(scale, tracker.copies, tracker.by_copy)
        step = Steps(
            scale_parts(by_copy.rows, _cut(untied, fine_scale)),
            jax.tree.map(lambda m, s: m * s, by_copy.whole, fine_scale),
        )
        also["same_copy"] = tree.add(also["same_copy"], step)
    decay = window.decay
    if decay is not None:
        taken = lambda total, term: total + learning_rate * term
        decay = jax.tree.map(taken, decay, decay_terms(rule, params))
    return Window(Moments(rows, by_copy), steps, window.start, also, decay)


def component_steps(
    tracker: Tracker,
    moments: Parts,
    params: Tree,
    opt_state: Tree,
    batch: Batch,
    learning_rate: Array,
) -> tuple[Parts, Parts]:
    """The rows' moments after one update and the steps `G_c` that it consists of; as `advance`."""
    moments = _take_in(tracker, moments, params, batch)
    scale = step_scale(tracker.rule, learning_rate, opt_state, params)
    return moments, scale_parts(moments, _cut(tracker, scale))


def measure(tracker: Tracker, window: Window, params: Tree, held: Batch) -> Movement:
    """How the window's component steps move the residual stream on E.

    The whole step is the difference of the parameters, so that the movements sum to that of the
    real change. All Jacobians are those of the full graph, also for myopic training.

    Args:
        params: after the window's last update.
        held: E.
    """
    whole = tree.sub(window.start, params)
    whole = whole if window.decay is None else tree.sub(whole, window.decay)
    own = [Steps(window.steps, whole), *(window.also[n] for n in ("sgd",) if n in window.also)]
    ends = [window.start] if tracker.ends == "start" else [window.start, params]

    def at(params: Tree, held: Batch) -> tuple[Array, list[Array]]:
        resid, along, decayed = _along(tracker, params, own, held, window.decay)
        found = [along[0] if decayed is None else jnp.concatenate([along[0], decayed], axis=1)]
        found += list(along[1:])
        if "same_copy" in window.also:
            untied, fine = _untied(tracker, params)
            found += list(_along(untied, fine, [window.also["same_copy"]], held)[1])
        elif "same_copy" in tracker.also:
            found.append(found[0][:, :3])  # nothing is tied: no other copy is moved
        return resid, found

    def part(held: Batch) -> tuple[Array, Array, list[Array]]:
        with jax.default_matmul_precision("highest"):
            resid, along = _over_list(lambda p: at(p, held), ends)
            after = resid[1] if len(ends) == 2 else node_resid(tracker, params, held)
            return resid[0], after, [jnp.mean(x, axis=0) for x in along]

    groups = _in_groups(held, tracker.plan.examples)
    join = lambda x: jnp.moveaxis(x, 0, -3).reshape(*x.shape[1:-2], -1, x.shape[-1])
    before, after, along = jax.tree.map(join, jax.lax.map(part, groups))
    cut = _cut(tracker, whole)
    sizes = step_sizes(window.steps, tracker.plan, cut, tree.dot(whole, whole))
    return Movement(before, after, along[0], sizes, dict(zip(tracker.also, along[1:], strict=True)))


def _cut(tracker: Tracker, params: Tree) -> Tree:
    """Parameters, or values like them, without the rows of tokens that do not occur."""
    return cut_tables(tracker.decoder, params, tracker.occurring, tracker.copies)


def _untied(tracker: Tracker, params: Tree) -> tuple[Tracker, Tree]:
    """The model as if each segment of `by_copy` had parameters of its own."""
    untied = tracker._replace(copies=tracker.by_copy, by_copy=None, also_sgd=False)
    return untied, refine_copies(params, tracker.copies, tracker.by_copy)


def _take_in(tracker: Tracker, moments: Parts, params: Tree, batch: Batch) -> Parts:
    """The rows' moments after a batch: as `advance_moments`, gradients never held beside them."""
    keep, new = moment_weights(tracker.rule)
    kept = jax.tree.map(lambda m: keep * m, moments)
    return _gradients(tracker, params, batch, onto=kept, weight=new)[0]


def _gradients(
    tracker: Tracker,
    params: Tree,
    batch: Batch,
    *,
    onto: Parts | None = None,
    weight: float = 1.0,
    whole: bool = False,
) -> tuple[Parts, Tree | None]:
    """Every row's gradient in the graph of training, times `weight`, added to `onto` if given.

    And the whole gradient where it is asked for.
    """
    t, length = tracker, batch.token.shape[1]
    route, copies = resolve(t.route, length), check_copies(t.copies, length)
    onto = zero_parts(_cut(t, params), t.plan) if onto is None else onto
    with jax.default_matmul_precision("highest"):
        found = cotangents(t.decoder, params, batch, route=route, copies=copies, gradient=whole)
        rows = weight * jnp.moveaxis(row_cotangents(found, t.plan), 1, 0)
        held, listed = renumber(batch, t.occurring, t.decoder.vocab)
        rows = jnp.where(listed, rows, jnp.nan)  # else an unlisted token's part would be lost

        def add(onto: Parts, group: tuple[Batch, Array, Array]) -> tuple[Parts, None]:
            batch, resid, rows = group
            view = View(t.decoder, _cut(t, params), batch, resid, route, copies)
            return pull(view, jnp.moveaxis(rows, 0, 1), t.plan, onto), None

        groups = _in_groups((held, found.resid, rows), t.plan.examples)
        return jax.lax.scan(add, onto, groups)[0], found.gradient


def _in_groups(examples: Tree, most: int) -> Tree:
    """Leaves `[B, ..]` as `[groups, size, ..]`, of the largest size up to `most` that divides B."""
    count = jax.tree.leaves(examples)[0].shape[0]
    size = max(d for d in range(1, min(most, count) + 1) if count % d == 0)
    return jax.tree.map(lambda x: x.reshape(count // size, size, *x.shape[1:]), examples)


def _along(
    tracker: Tracker, params: Tree, steps: list[Steps], held: Batch, alone: Tree | None = None
) -> tuple[Array, Array, Array | None]:
    """Residuals `[n, E, D]`; movements along each set of steps `[sets, n, 3, E, D]`.

    And along a step that is no component's, `[n, 1, E, D]`, where one is given.
    """
    plan = tracker.plan
    resid, move = jax.linearize(lambda p: _resid(tracker, p, held), params)
    numbered, listed = renumber(held, tracker.occurring, tracker.decoder.vocab)
    seen = jnp.where(listed, resid, jnp.nan)
    view = View(tracker.decoder, _cut(tracker, params), numbered, seen, None, tracker.copies)
    index = row_index(plan)
    missing = jnp.array(index[:, 1] < 0)[:, None, None]
    nodes = lambda step: at_nodes(move(step), plan.nodes)

    def one(step: Steps) -> Array:
        rows = push(view, step.rows, plan)
        direct = rows[index[:, 0]]
        precached = jnp.where(missing, 0, rows[np.maximum(index[:, 1], 0)])
        return jnp.stack([direct, precached, nodes(step.whole) - direct - precached], axis=1)

    alone = None if alone is None else nodes(alone)[:, None]
    return at_nodes(resid, plan.nodes), _over_list(one, steps), alone


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
