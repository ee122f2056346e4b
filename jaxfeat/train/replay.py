"""How does one measure a run against features of its own end?

Run 1 trains to theta* and its probes are fitted; run 2 trains again from the same seed and tracks
(arXiv 2603.14087). Both dispatch the SAME compiled update; the tracking program only reads. Run 2
must end in theta* bit for bit, else its numbers would belong to another run.
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


def replay(
    update: Update,
    sample: Sample,
    rule,
    params: Tree,
    key: Array,
    *,
    steps: int,
    learning_rate: float,
    watch: Watch,
    fit_probes: Callable[[Tree], Any],
    tally_of: Callable[[Any, Array], Any] | None = None,
    spans: tuple[tuple[int, int], ...] | None = None,
    burn_in: int = 40,
    on_step: Callable[[int, int, Array], None] = lambda run, step, loss: None,
) -> Replay:
    """Train twice with the same seed; track the second run.

    Args:
        update, sample, rule, params, key: of one run, as for `jaxfeat.train.loop`.
        fit_probes: theta* to anything; called once, between the runs.
        tally_of: (probes, residuals at the nodes at the start of the first span) to a `Tally`.
        spans: measured stretches of updates `(first, last + 1)`; by default the whole run. Before
            each the component moments run for `burn_in` updates (Adam needs consecutive ones).
        on_step: called after each update with (run 1 or 2, updates done, loss on the device).

    Raises:
        UserError: no spans, or spans that overlap, leave the run, or are no multiple of the stride.
        RuntimeError: run 2 did not end in theta*.
    """
    spans = ((0, steps),) if spans is None else tuple(spans)
    _check_spans(spans, steps, watch.stride)
    rate = jnp.asarray(learning_rate, jnp.float32)

    @jax.jit
    def step(state: TrainState) -> tuple[TrainState, Array]:
        return update(state, sample(key, state.step), rate)

    @jax.jit
    def track(window, state: TrainState, opt_state: Tree):
        batch = sample(key, state.step)
        return advance(watch.tracker, window, state.params, opt_state, batch, rate)

    @jax.jit
    def close(tracked: Tracked, window, params: Tree) -> Tracked:
        movement = measure(watch.tracker, window, params, watch.held)
        return take_in(tracked, window.moments, movement, watch)

    first = init_state(rule, params)
    state, losses = first, []
    for at in range(steps):
        state, loss = step(state)
        losses.append(loss)
        on_step(1, at + 1, loss)
    goal = state.params
    probes = fit_probes(goal)

    state, tracked, window, end = first, None, None, first.params
    for at in range(steps):
        new, loss = step(state)
        on_step(2, at + 1, loss)
        span = next((s for s in spans if s[0] - burn_in <= at < s[1]), None)
        if span is None:
            state, window = new, None
            continue
        if window is None:
            window = start_window(watch.tracker, state.params)
        if at == span[0]:
            window = start_window(watch.tracker, state.params, window.moments)
            if tracked is None:
                maker = None if tally_of is None else lambda r: tally_of(probes, r)
                tracked = start_tracking(state.params, watch, maker)
        window = track(window, state, new.opt_state)
        state = new
        done = at + 1 - span[0]
        if tracked is not None and done > 0 and done % watch.stride == 0:
            tracked, end = close(tracked, window, state.params), state.params
            window = start_window(watch.tracker, state.params, window.moments)
    assert tracked is not None  # there is a span and it lies within the run
    if not _same(state.params, goal):
        raise RuntimeError(
            "the replayed run did not reach the first run's parameters bit for bit: its numbers "
            "would belong to another run (on a GPU, ask for deterministic kernels)"
        )
    covered = sum(b - a for a, b in spans) / steps
    stop = jax.jit(lambda p: node_resid(watch.tracker, p, watch.held))(end)
    return Replay(goal, probes, tracked, covered, np.asarray(jnp.stack(losses)), stop)


def _same(a: Tree, b: Tree) -> bool:
    """Equal bit for bit."""
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(np.asarray(x).tobytes() == np.asarray(y).tobytes() for x, y in pairs)


def _check_spans(spans: tuple[tuple[int, int], ...], steps: int, stride: int) -> None:
    """Refuse spans that cannot be measured."""
    if not spans:
        raise UserError("spans: give at least one (first, last + 1)")
    last = 0
    for a, b in spans:
        if not last <= a < b <= steps:
            raise UserError(f"span {a}..{b}: spans must follow each other within 0..{steps}")
        if (b - a) % stride:
            raise UserError(f"span {a}..{b}: its length is no multiple of the stride {stride}")
        last = b
