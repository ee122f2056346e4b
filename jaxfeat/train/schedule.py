"""Where does a run stop to log and to be kept, and how does it go on after an interruption?"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxfeat.train.checkpoint import restore_checkpoint, save_checkpoint, saved_steps
from jaxfeat.train.loop import Run
from jaxfeat.types import Array, UserError, check_whole


def train(
    interval: Callable[..., tuple[Run, Array]],
    run: Run,
    key: Array,
    learning_rate: float,
    *,
    steps: int,
    every: int,
    checkpoints: Path | None = None,
    on_log: Callable[[int, Run, Array], None] = lambda step, run, losses: None,
    ladder: Sequence[int] = (),
    stretch: int = 0,
) -> Run:
    """Run intervals of `every` updates until `steps` are done; go on where a checkpoint stands.

    Args:
        interval: a compiled program of `make_interval`, over seeds if `run` has them.
        ladder: further steps to stop at (`ladder_steps`), with a program of `make_stretch` alone.
        stretch: where `interval` is such a program, the updates that it may make (its `most`):
            windows end at multiples of it and at every stop.
        run: before the first update (also the shape of what a checkpoint holds).
        checkpoints: folder in which a checkpoint is written after every `every` updates; None for
            none.
        on_log: called with (updates done, run, losses since the last call) at every stop, before
            its checkpoint is written: what it writes is there whenever the checkpoint is.

    Raises:
        UserError: `every` does not divide `steps`, a checkpoint of another config, a loss that is
            not finite (the last checkpoint stands).
    """
    check_whole("steps", steps, 0)
    if check_whole("log_every", every, 1) and steps % every:
        raise UserError(f"log_every: {every} does not divide the {steps} steps")
    done = 0
    if checkpoints is not None and (saved := saved_steps(checkpoints)):
        done = saved[-1]
        if done % every or done > steps:
            raise UserError(
                f"{checkpoints} holds step {done}, which is no multiple of log_every {every} up to "
                f"{steps}: it belongs to another run"
            )
        run = jax.tree.map(jnp.asarray, restore_checkpoint(checkpoints, run))
    rate = jnp.asarray(_finite("learning_rate", learning_rate), jnp.float32)
    stops = sorted({*range(every, steps + 1, every), *(s for s in ladder if 0 < s <= steps)})
    if not stretch and any(s % every for s in stops):
        raise UserError(f"ladder: {ladder} given, without a stretch only multiples of {every}")
    for step in (s for s in stops if s > done):
        if stretch:
            run, losses = _stretches(interval, run, key, rate, range(done, step), stretch)
        else:
            run, losses = interval(run, key, rate)
        if not np.isfinite(losses).all():
            raise UserError(
                f"the loss is not finite within updates {done}..{step}: a lower learning_rate "
                f"than {learning_rate:g} is needed"
            )
        done = step
        on_log(step, run, losses)
        if checkpoints is not None and step % every == 0:
            save_checkpoint(checkpoints, step, run)
    return run


def _stretches(program, run: Run, key: Array, rate: Array, updates: range, most: int):
    """These updates in windows that end at multiples of `most`; the run and all losses."""
    at, losses = updates.start, []
    while at < updates.stop:
        end = min(updates.stop, (at // most + 1) * most)
        run, more = program(run, key, rate, jnp.int32(end - at))
        losses.append(more[..., : end - at])
        at = end
    return run, jnp.concatenate(losses, axis=-1)


def ladder_steps(steps: int, every: int) -> tuple[int, ...]:
    """The steps whose parameters are kept: 0, powers of two, multiples of `every`, and the last.

    >>> ladder_steps(20, 8)
    (0, 1, 2, 4, 8, 16, 20)
    """
    check_whole("steps", steps, 1)
    check_whole("every", every, 1)
    powers = (2**n for n in range(steps.bit_length()))
    return tuple(sorted({0, steps, *powers, *range(0, steps, every)}))


def _finite(name: str, value: Any) -> float:
    """A finite number, whatever type it comes in."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise UserError(f"{name}: {value!r} given, a finite number needed")
    return number
