"""How does one measure a run against features of its own end?

Run 1 trains to theta* and its probes are fitted; run 2 trains again from the same seed and tracks
(arXiv 2603.14087). Both dispatch the SAME compiled program of `stride` updates, which hands out the
state after each; the tracking program only reads them. Run 2 must end in theta* bit for bit, else
its numbers would belong to another run.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfeat.grads.track import advance, measure, node_resid, start_window
from jaxfeat.train.loop import Sample, Tracked, Watch, start_tracking, take_in
from jaxfeat.train.step import TrainState, Update, init_state
from jaxfeat.types import Array, Tree, UserError


class Replay(NamedTuple):
    """What a replay gives: theta*, what `fit_probes` made of it, and what was tracked.

    `covered` is the share of updates that lie in measured windows; `losses` are run 1's; `stop`
    `[n, E, D]` are the residuals at the nodes after the last measured window.
    """

    params: Tree
    probes: Any
    tracked: Tracked
    covered: float
    losses: np.ndarray
    stop: Array


class Programs(NamedTuple):
    """The compiled programs of a replay; one set serves every seed.

    `block(state, key, rate) -> (state, (states before, optimiser states after, losses))` makes
    `stride` updates; `track(window, before, after, key, rate)` takes them into a window;
    `close(tracked, window, params)` measures it.
    """

    block: Callable
    track: Callable
    close: Callable
    watch: Watch


def replay_programs(update: Update, sample: Sample, watch: Watch) -> Programs:
    """What a replay of this update on this data dispatches, with this watch."""

    @jax.jit
    def block(state: TrainState, key: Array, rate: Array):
        def one(state: TrainState, _):
            new, loss = update(state, sample(key, state.step), rate)
            return new, (state, new.opt_state, loss)

        return jax.lax.scan(one, state, None, length=watch.stride)

    @jax.jit
    def track(window, before: TrainState, after: Tree, key: Array, rate: Array):
        def one(window, seen: tuple[TrainState, Tree]):
            state, opt_state = seen
            batch = sample(key, state.step)
            return advance(watch.tracker, window, state.params, opt_state, batch, rate), None

        return jax.lax.scan(one, window, (before, after))[0]

    @jax.jit
    def close(tracked: Tracked, window, params: Tree) -> Tracked:
        movement = measure(watch.tracker, window, params, watch.held)
        return take_in(tracked, window.moments, movement, watch)

    return Programs(block, track, close, watch)


def replay(
    programs: Programs,
    rule,
    params: Tree,
    key: Array,
    *,
    steps: int,
    learning_rate: float,
    fit_probes: Callable[[Tree], Any],
    tally_of: Callable[[Any, Array], Any] | None = None,
    spans: tuple[tuple[int, int], ...] | None = None,
    burn_in: int = 40,
    on_block: Callable[[int, int, Array], None] = lambda run, done, losses: None,
) -> Replay:
    """Train twice with the same seed; track the second run.

    Args:
        programs: of `replay_programs`. rule, params, key: of one run, as for `jaxfeat.train.loop`.
        fit_probes: theta* to anything; called once, between the runs.
        tally_of: (probes, residuals at the nodes at the start of the first span) to a `Tally`.
        spans: measured stretches of updates `(first, last + 1)`; by default the whole run. Before
            each the component moments run for `burn_in` updates (Adam needs consecutive ones), or
            up to the next multiple of the stride.
        on_block: called after each `stride` updates with (run 1 or 2, updates done, their losses
            on the device).

    Raises:
        UserError: no spans, or spans that overlap, leave the run, or do not begin and end, as the
            run, at multiples of the stride.
        RuntimeError: run 2 did not end in theta*.
    """
    watch, stride = programs.watch, programs.watch.stride
    spans = ((0, steps),) if spans is None else tuple(spans)
    _check_spans(spans, steps, stride)
    rate = jnp.asarray(learning_rate, jnp.float32)

    first = init_state(rule, params)
    state, losses = first, []
    for at in range(0, steps, stride):
        state, (_, _, loss) = programs.block(state, key, rate)
        losses.append(loss)
        on_block(1, at + stride, loss)
    goal = state.params
    probes = fit_probes(goal)

    burn_in = -(-burn_in // stride) * stride
    state, tracked, moments, end = first, None, None, first.params
    for at in range(0, steps, stride):
        new, (before, after, loss) = programs.block(state, key, rate)
        on_block(2, at + stride, loss)
        span = next((s for s in spans if s[0] - burn_in <= at < s[1]), None)
        if span is None:
            state, moments = new, None
            continue
        if tracked is None and at == span[0]:
            maker = None if tally_of is None else lambda r: tally_of(probes, r)
            tracked = start_tracking(state.params, watch, maker)
        window = start_window(watch.tracker, state.params, moments)
        window = programs.track(window, before, after, key, rate)
        state, moments = new, window.moments
        if tracked is not None and at >= span[0]:
            tracked, end = programs.close(tracked, window, state.params), state.params
    assert tracked is not None  # there is a span and it lies within the run
    if not _same(state.params, goal):
        raise RuntimeError(
            "the replayed run did not reach the first run's parameters bit for bit: its numbers "
            "would belong to another run (on a GPU, ask for deterministic kernels)"
        )
    covered = sum(b - a for a, b in spans) / steps
    stop = node_resid(watch.tracker, end, watch.held)
    return Replay(goal, probes, tracked, covered, np.asarray(jnp.concatenate(losses)), stop)


def _same(a: Tree, b: Tree) -> bool:
    """Equal bit for bit."""
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(np.asarray(x).tobytes() == np.asarray(y).tobytes() for x, y in pairs)


def _check_spans(spans: tuple[tuple[int, int], ...], steps: int, stride: int) -> None:
    """Refuse spans that cannot be measured."""
    if not spans:
        raise UserError("spans: give at least one (first, last + 1)")
    if steps % stride:
        raise UserError(f"steps: {steps} given, a multiple of the stride {stride} needed")
    last = 0
    for a, b in spans:
        if not last <= a < b <= steps:
            raise UserError(f"span {a}..{b}: spans must follow each other within 0..{steps}")
        if a % stride or b % stride:
            raise UserError(f"span {a}..{b}: both ends must be multiples of the stride {stride}")
        last = b
