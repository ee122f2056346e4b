"""By how much does ablating a feature at a token change each of the next predictions?

    KL_j = KL( p(. | x_<=j) || p_ablated(. | x_<=j) ),   j = i .. i + span - 1

with p the model's next-token distribution (arXiv 2603.14087, Prop. 5.1). Thousands of (sequence,
position, feature) jobs share base runs, programs and logits (`jaxfeat.features.columns`).
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfeat.features.columns import (
    LOGITS,
    Base,
    check_layer,
    divisor,
    of_columns,
    over,
    rerun,
    run_base,
)
from jaxfeat.features.sae import SAE, check_features, check_sae
from jaxfeat.nn.decoder import Decoder
from jaxfeat.nn.loss import kl_divergence
from jaxfeat.tree import index, widen
from jaxfeat.types import Array, Batch, Tree, UserError, check_whole

PLACE = 0.25  # what a place costs beside its edits, in edits: reading its unedited predictions

# delta_of(given, feature [], resid [D]) -> what is added to the residual [D]
DeltaOf = Callable[[Any, Array, Array], Array]


class Jobs(NamedTuple):
    """Which feature is ablated where; every field `[n]` whole numbers."""

    sequence: np.ndarray  # row of the batch
    position: np.ndarray  # i, a column of it
    feature: np.ndarray  # what `delta_of` reads


class Effects(NamedTuple):
    """What ablations do to predictions, `[n, span]`."""

    kl: np.ndarray  # nats; 0 where the column does not count
    counted: np.ndarray  # whether the column lies inside the sequence and is real


class Pack(NamedTuple):
    """Jobs of one sequence that are computed together: P places, J features at each."""

    sequence: np.ndarray  # [packs]
    position: np.ndarray  # [packs, P]
    feature: np.ndarray  # [packs, P, J]
    job: np.ndarray  # [packs, P, J]; -1 where nothing is asked


def make_effects(
    decoder: Decoder,
    layer: int,
    delta_of: DeltaOf,
    *,
    span: int = 10,
    quadratic: bool = False,
    pack: int = 8,
    at_once: int = 16,
    entries: int = LOGITS,
) -> Callable[[Tree, Batch, Jobs, Any], Effects]:
    """`(params, batch, jobs, given) -> Effects`: the KL of every job's next predictions.

    The programs are compiled once for sequences of one length.

    Args:
        layer: 0..N, where the residual is edited (resid_post of 0-based block b is b + 1).
        delta_of: `(given, feature [], resid [D]) -> [D]`, what is added to the residual at the
            job's position (`jaxfeat.features.sae` gives `-f w_dec`); `given` is a tree of arrays.
        span: predictions that are looked at, the edited position's included.
        quadratic: the second-order form instead, `1/2 Var_p(d logits)` with `d logits` the
            derivative of the logits along the edit: the limit of the KL for small edits.
        pack: ablations of a sequence that run side by side. at_once: sequences, and packs, that a
            program works on. entries: logits that are held together, at least those of a pack.
            Only speed and memory depend on the three: on a CPU what is worked on should stay in
            its caches, on other devices more may go together.

    Raises:
        UserError: a layer out of range, a bidirectional model; when called, a job out of range.
    """
    check_layer(decoder, layer)
    for name, value in (("span", span), ("pack", pack), ("at_once", at_once), ("entries", entries)):
        check_whole(name, value, 1)

    def divergence(outer: Tree, base_top: Array, top: Array, moved: Array) -> Array:
        """`[P, J, span]` of one pack."""
        read = over(lambda x: decoder.unembed(outer, decoder.norm(outer, x)), 3)
        if not quadratic:
            return kl_divergence(read(base_top[:, None]), read(top))
        logits, change = jax.jvp(read, (top,), (moved,))
        p, change = jax.nn.softmax(widen(logits), axis=-1), widen(change)
        change -= jnp.sum(p * change, axis=-1, keepdims=True)
        return jnp.sum(p * jnp.square(change), axis=-1) / 2

    def edited(params: Tree, given: Any, base: Base, i: Array, feature: Array):
        """Columns of one pack: unedited, edited, their derivative, and which count."""
        held, counted = of_columns(base, i, span)
        delta = jax.vmap(lambda resid, ids: jax.vmap(lambda one: delta_of(given, one, resid))(ids))(
            base.resid[i], feature
        )
        delta = delta.astype(base.resid.dtype)
        columns = lambda delta: rerun(decoder, params, base, i, delta, span)
        if not quadratic:
            top = columns(delta)
            return base.top[held], top, top, counted
        top, moved = jax.jvp(columns, (jnp.zeros_like(delta),), (delta,))
        return base.top[held], top, moved, counted

    @jax.jit
    def run(params: Tree, given: Any, base: Base, i: Array, feature: Array):
        mine = lambda base, i, feature: edited(params, given, base, i, feature)
        *tops, counted = jax.vmap(mine)(base, i, feature)
        rows = int(np.prod(tops[1].shape[1:-1])) + int(np.prod(tops[0].shape[1:-1]))
        kl = jax.lax.map(
            lambda one: divergence(params["outer"], *one),
            tuple(tops),
            batch_size=divisor(at_once, entries // (rows * decoder.vocab)),
        )
        return jnp.where(counted[:, :, None], kl, 0), counted

    base_of = jax.jit(partial(run_base, decoder, layer=layer))

    def effects(params: Tree, batch: Batch, jobs: Jobs, given: Any) -> Effects:
        jobs = check_jobs(jobs, batch)
        if isinstance(given, SAE):
            check_features(check_sae(given, decoder, layer), jobs.feature)
        kl = np.zeros((len(jobs.sequence), span))
        counted = np.zeros((len(jobs.sequence), span), bool)
        for rows, packs in grouped(make_packs(jobs, pack), at_once):
            base = base_of(params, picked(batch, rows))
            for mine in packs:
                found = run(params, given, of_packs(base, mine), mine.position, mine.feature)
                some, inside = jax.device_get(found)
                asked = mine.job >= 0
                kl[mine.job[asked]] = some[asked]
                inside = np.broadcast_to(inside[:, :, None], some.shape)
                counted[mine.job[asked]] = inside[asked]
        return Effects(kl, counted)

    return effects


def check_jobs(jobs: Jobs, batch: Batch) -> Jobs:
    """The jobs as NumPy arrays.

    Raises:
        UserError: none, other than whole numbers, fields of different lengths, a job whose
            position is out of range or padding.
    """
    jobs = Jobs(*map(np.asarray, jobs))
    size = jobs.sequence.shape
    if not jobs.sequence.size or any(x.shape != size or x.ndim != 1 for x in jobs):
        raise UserError(f"jobs: shapes {[x.shape for x in jobs]} given, [n >= 1] for each needed")
    if any(x.dtype.kind not in "iu" for x in jobs):
        raise UserError("jobs: sequence, position and feature must be whole numbers")
    mask = np.asarray(batch.mask)
    for name, values, most in zip(("sequence", "position"), jobs, mask.shape):
        if values.min() < 0 or values.max() >= most:
            raise UserError(f"jobs: {name} {values.min()}..{values.max()}, valid are 0..{most - 1}")
    if not mask[jobs.sequence, jobs.position].all():
        raise UserError("jobs: a position is padding")
    return jobs


def make_packs(jobs: Jobs, pack: int) -> Pack:
    """Jobs dealt into packs of one shape, sorted by sequence.

    A place's features stand together, up to J a pack; J and P are powers of two that leave little
    to be computed in vain.

    >>> made = make_packs(Jobs(np.array([0, 0, 1]), np.array([4, 4, 2]), np.array([7, 8, 9])), 2)
    >>> made.sequence.tolist(), made.position.tolist(), made.feature.tolist()
    ([0, 1], [[4, 4], [2, 2]], [[[7], [8]], [[9], [9]]])
    """
    order = np.lexsort((jobs.feature, jobs.position, jobs.sequence))
    place = np.stack([jobs.sequence, jobs.position], 1)[order]
    starts = np.flatnonzero(np.any(place != np.roll(place, 1, 0), 1) | (np.arange(len(place)) == 0))
    counts = np.diff(starts, append=len(order))
    powers = [2**n for n in range(pack.bit_length())]
    edits = min(powers, key=lambda n: np.sum(-(-counts // n)) * (n + PLACE))
    slots = [
        chunk
        for group in np.split(order, starts[1:])
        for chunk in np.split(group, np.arange(edits, len(group), edits))
    ]
    of_slot = np.array([jobs.sequence[slot[0]] for slot in slots])
    firsts = np.flatnonzero(np.diff(of_slot, prepend=-1))
    places = _power_below(len(slots) / len(firsts), max(1, pack // edits))
    made = []
    for first, end in zip(firsts, [*firsts[1:], len(slots)]):
        for start in range(first, end, places):
            made.append(slots[start : min(start + places, end)])
    job = np.full((len(made), places, edits), -1)
    for n, slot_list in enumerate(made):
        for p, slot in enumerate(slot_list):
            job[n, p, : len(slot)] = slot
    # what is not asked repeats the first job of its place, or of its pack
    filled = np.where(job >= 0, job, np.where(job[..., :1] >= 0, job[..., :1], job[:, :1, :1]))
    return Pack(
        jobs.sequence[filled[:, 0, 0]], jobs.position[filled[:, :, 0]], jobs.feature[filled], job
    )


def grouped(packs: Pack, at_once: int) -> Iterator[tuple[np.ndarray, list[Pack]]]:
    """Rows of the batch, `at_once` at a time, with their packs, `at_once` at a time.

    A pack's `sequence` is renumbered to the rows; a short group is filled up with its first. The
    first packs of all rows stand together, then the second ones, as long as every row has one: such
    a group reads the rows' base run as it lies (`of_packs`).
    """
    rows, starts, counts = np.unique(packs.sequence, return_index=True, return_counts=True)
    turn = np.arange(len(packs.sequence)) - np.repeat(starts, counts)
    for start in range(0, len(rows), at_once):
        mine = rows[start : start + at_once]
        low, high = np.searchsorted(packs.sequence, [mine[0], mine[-1] + 1])
        order = low + np.argsort(turn[low:high], kind="stable")
        groups = []
        for n in range(0, len(order), at_once):
            chosen = order[n : n + at_once]
            full = np.pad(chosen, (0, at_once - len(chosen)), constant_values=chosen[0])
            taken = Pack(*(x[full] for x in packs))
            taken.job[len(chosen) :] = -1
            groups.append(taken._replace(sequence=np.searchsorted(mine, taken.sequence)))
        yield np.pad(mine, (0, at_once - len(mine)), constant_values=mine[0]), groups


def of_packs(base: Base, packs: Pack) -> Base:
    """The base run of each pack's sequence; copied only where it does not lie in this order."""
    if np.array_equal(packs.sequence, np.arange(len(packs.sequence))):
        return base
    return picked(base, packs.sequence)


picked = jax.jit(index)


def _power_below(ratio: float, most: int) -> int:
    """The power of two nearest to a ratio, from 1 to `most`."""
    return 2 ** int(np.clip(np.round(np.log2(max(1.0, ratio))), 0, np.log2(most)))
