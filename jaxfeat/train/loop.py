"""How does a run go from its initialisation to its end?

The updates between two logs are ONE compiled `lax.scan`: batches are made on the device from
(seed key, step), and the ledger grows inside the scan. Seeds run side by side under `vmap`
(or in groups, `over_seeds`), each with its own initialisation and data: a sweep is one program.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfeat.grads.ledger import Ledger, LedgerSums, add_movement, make_ledger, open_ledger
from jaxfeat.grads.tally import Tally, add_to_tally
from jaxfeat.grads.track import (
    Moments,
    Movement,
    Tracker,
    advance,
    measure,
    node_resid,
    start_window,
)
from jaxfeat.nn.copies import check_copies
from jaxfeat.train.step import TrainState, Update, init_state
from jaxfeat.types import Array, Batch, Tree, UserError, check_whole

Sample = Callable[[Array, Array], Batch]  # (the run's key, the number of the update) to a batch


class Tracked(NamedTuple):
    """What tracking carries along: component moments, ledger sums, tallies (or None).

    `also`: ledgers of what is measured beside on the same trajectory (`Tracker.also`), by name;
    `also_tally`: its tallies, where there is one.
    """

    moments: Moments
    sums: LedgerSums
    tally: Tally | None = None
    also: dict[str, LedgerSums] = {}  # noqa: RUF012 (no one writes into it)
    also_tally: dict[str, Tally] = {}  # noqa: RUF012


class Run(NamedTuple):
    """All that a run needs to go on: a value that is saved and restored as it is.

    `tracked` is None where nothing is tracked. With seeds every leaf has a leading axis S.
    """

    state: TrainState
    tracked: Tracked | None = None


class Watch(NamedTuple):
    """What to track on which held-out sequences, every `stride` updates."""

    tracker: Tracker
    held: Batch
    stride: int = 1


def step_key(key: Array, step: Array) -> Array:
    """The key of the batch of one update: a function of (seed key, step) alone."""
    return jax.random.fold_in(key, step)


def fresh(draw: Callable[[Array], Batch]) -> Sample:
    """A `Sample` that draws every batch anew: `draw` is given another key at each update.

    Over a corpus of given examples take `jaxfeat.data.order.epoch_rows` instead.
    """
    return lambda key, step: draw(step_key(key, step))


def start_run(rule, params: Tree, watch: Watch | None = None, tally_of=None) -> Run:
    """A run before its first update (vmap over parameters for seeds).

    Args:
        tally_of: residuals at the nodes `[n, E, D]` to an open `Tally`, to tally given features.
    """
    state = init_state(rule, params)
    return Run(state, None if watch is None else start_tracking(params, watch, tally_of))


def start_tracking(params: Tree, watch: Watch, tally_of=None) -> Tracked:
    """Tracking that begins at these parameters; `tally_of` as in `start_run`."""
    check_copies(watch.tracker.by_copy, watch.held.token.shape[1])
    first = node_resid(watch.tracker, params, watch.held)
    moments = start_window(watch.tracker, params).moments
    also = {name: open_ledger(first) for name in watch.tracker.also}
    tally = None if tally_of is None else tally_of(first)
    also_tally = {} if tally is None else {name: tally for name in also}  # noqa: C420 (its type)
    return Tracked(moments, open_ledger(first, watch.tracker.parts), tally, also, also_tally)


def make_interval(
    update: Update,
    sample: Sample,
    steps: int,
    *,
    watch: Watch | None = None,
) -> Callable[[Run, Array, Array], tuple[Run, Array]]:
    """The program of the updates between two logs: `(run, key, learning_rate) -> (run, losses)`.

    Args:
        update: of `jaxfeat.train.step`.
        sample: makes the batch of an update on the device, from (the run's key, its number): a
            run that goes on sees what it would have seen. `fresh` makes one out of random draws.
        steps: updates an interval; with a watch a multiple of its stride.

    Returns:
        A pure function for one seed; losses are `[steps]` in nats, each before its update.

    Raises:
        UserError: steps that the stride does not divide; a watch, but a run that tracks nothing.
    """
    stride = 1 if watch is None else check_whole("stride", watch.stride, 1)
    check_whole("steps", steps, 1)
    if stride < 1 or steps % stride:
        raise UserError(f"stride: {stride} does not divide the {steps} updates between logs")

    def interval(run: Run, key: Array, learning_rate: Array) -> tuple[Run, Array]:
        if watch is None and run.tracked is not None:
            raise UserError("the run is tracked: give its watch to the interval")

        def one(state: TrainState) -> tuple[TrainState, Batch, Array]:
            batch = sample(key, state.step)
            new, loss = update(state, batch, learning_rate)
            return new, batch, loss

        def plain(run: Run, _) -> tuple[Run, Array]:
            state, _, loss = one(run.state)
            return Run(state), loss[None]

        body = plain if watch is None else _watched(one, watch, learning_rate)
        run, losses = jax.lax.scan(body, run, None, length=steps // stride)
        return run, losses.reshape(steps)

    return interval


def make_stretch(
    update: Update, sample: Sample, most: int, *, watch: Watch | None = None
) -> Callable[[Run, Array, Array, Array], tuple[Run, Array]]:
    """The program of one window of any length: `(run, key, learning_rate, count) -> (run, losses)`.

    One program leads from each step of a ladder to the next; with a watch the window ends in one
    movement, whatever the watch's stride.

    Args:
        update, sample, watch: as in `make_interval`. most: updates that a window may have.

    Returns:
        A pure function for one seed; of its losses `[most]` the first `count` are set.
    """
    check_whole("most", most, 1)

    def stretch(run: Run, key: Array, learning_rate: Array, count: Array) -> tuple[Run, Array]:
        if (watch is None) != (run.tracked is None):
            raise UserError("the run is tracked with a watch, or without one is not")
        window = None
        if watch is not None and run.tracked is not None:
            window = start_window(watch.tracker, run.state.params, run.tracked.moments)

        def one(n: Array, carry: tuple) -> tuple:
            state, window, losses = carry
            batch = sample(key, state.step)
            new, loss = update(state, batch, learning_rate)
            if watch is not None:
                window = advance(
                    watch.tracker, window, state.params, new.opt_state, batch, learning_rate
                )
            return new, window, losses.at[n].set(loss.astype(losses.dtype))

        carry = run.state, window, jnp.zeros(most, jnp.float32)
        state, window, losses = jax.lax.fori_loop(0, count, one, carry)
        if watch is None or run.tracked is None:
            return Run(state), losses
        movement = measure(watch.tracker, window, state.params, watch.held)
        tracked = take_in(run.tracked, window.moments, movement, watch)
        return Run(state, tracked), losses

    return stretch


def _watched(
    one: Callable[[TrainState], tuple[TrainState, Batch, Array]], watch: Watch, learning_rate: Array
) -> Callable[[Run, None], tuple[Run, Array]]:
    """A window of `stride` updates and its movement, as the body of a scan over windows."""
    tracker, held, stride = watch

    def inner(carry, _):
        state, window = carry
        new, batch, loss = one(state)
        window = advance(tracker, window, state.params, new.opt_state, batch, learning_rate)
        return (new, window), loss

    def body(run: Run, _) -> tuple[Run, Array]:
        state, tracked = run
        if tracked is None:
            raise UserError("the run tracks nothing: start it with the watch of its interval")
        carry = state, start_window(tracker, state.params, tracked.moments)
        if stride == 1:
            (state, window), loss = inner(carry, None)
            losses = loss[None]
        else:
            (state, window), losses = jax.lax.scan(inner, carry, None, length=stride)
        movement = measure(tracker, window, state.params, held)
        return Run(state, take_in(tracked, window.moments, movement, watch)), losses

    return body


def over_seeds(interval: Callable, at_once: int = 0) -> Callable:
    """The interval (or stretch) of all seeds as one program: `(run [S], key [S], ...)`.

    Args:
        at_once: seeds that run side by side under `vmap`, the groups one after another; 0 means
            all. Memory grows with it, results do not depend on it beyond rounding.
    """

    def all_seeds(run: Run, key: Array, *others: Array) -> tuple[Run, Array]:
        one = lambda pair: interval(*pair, *others)
        if at_once == 0 or at_once >= key.shape[0]:
            return jax.vmap(one)((run, key))
        return jax.lax.map(one, (run, key), batch_size=at_once if at_once > 1 else None)

    return all_seeds


def take_in(tracked: Tracked, moments: Moments, movement: Movement, watch: Watch) -> Tracked:
    """Tracking after a window: its movement in the ledger and the tallies."""
    positions = jnp.array([i for _, i in watch.tracker.plan.nodes])
    mask = watch.held.mask[:, positions].T
    tally = None if tracked.tally is None else add_to_tally(tracked.tally, movement)
    beside = {name: movement._replace(along=along) for name, along in movement.also.items()}
    also = {name: add_movement(sums, beside[name], mask) for name, sums in tracked.also.items()}
    also_tally = {name: add_to_tally(t, beside[name]) for name, t in tracked.also_tally.items()}
    return Tracked(moments, add_movement(tracked.sums, movement, mask), tally, also, also_tally)


def finish_ledger(watch: Watch, runs: Sequence[Run], also: str | None = None) -> Ledger:
    """The ledger of a run out of its values at the steps of a ladder.

    Args:
        watch: of the run's interval.
        runs: the run before its first update, then later ones, ascending (of one seed: for seeds
            take `jaxfeat.tree.index(run, s)`).
        also: the name of a ledger kept beside (`Tracker.also`), such as "same_copy".

    Raises:
        UserError: a run that tracks nothing, or nothing of that name.
    """
    if isinstance(runs, Run) or not isinstance(runs, Sequence) or len(runs) < 2:
        raise UserError("runs: a list of the run before its first update and later ones needed")
    positions = [i for _, i in watch.tracker.plan.nodes]
    copies = []
    for run in runs:
        if run.tracked is None or also not in (None, *run.tracked.also):
            kept = () if run.tracked is None else tuple(run.tracked.also)
            raise UserError(f"also: {also!r} given; the run keeps {', '.join(kept) or 'no such'}")
        sums = run.tracked.sums if also is None else run.tracked.also[also]
        resid = node_resid(watch.tracker, run.state.params, watch.held)
        copies.append(sums._asdict() | {"resid": resid})
        begun, first = np.asarray(sums.first), np.asarray(copies[0]["resid"])
        if begun.shape != first.shape or not np.allclose(
            begun, first, rtol=0, atol=1e-4 * np.abs(begun).max()
        ):
            raise UserError(
                "runs: the first must be this run before its update 1, on the watch's E"
            )
    steps = [int(run.state.step) for run in runs]
    mask = np.asarray(watch.held.mask)[:, positions].T
    return make_ledger(watch.tracker.plan.nodes, steps, mask, copies)
