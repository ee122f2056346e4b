"""Small tracked runs, kept for the tests of ledger and tally."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tiny
from tiny import QUICK

from jaxfeat.grads.ledger import Ledger, add_movement, make_ledger, open_ledger
from jaxfeat.grads.moments import StepRule, spread
from jaxfeat.grads.plan import make_plan
from jaxfeat.grads.track import Movement, Tracker, advance, measure, node_resid, start_window
from jaxfeat.nn.blocks import at_nodes, residuals
from jaxfeat.nn.decoder import Decoder
from jaxfeat.train.step import init_state, make_update
from jaxfeat.types import Batch

RULE, RATE = StepRule("adam"), 1e-3
NODES, EXAMPLES, STEPS = [(1, 2), (2, 4), (0, 3)], 16, 6
LADDER = (0, 2, 3, 6)


class Programs(NamedTuple):
    """A model, E, and what runs on it."""

    decoder: Decoder
    held: Batch
    tracker: Tracker
    step: Any  # (state, window, batch) -> state, window
    close: Any  # (window, params) -> Movement
    begin: Any  # params -> window


class Trace(NamedTuple):
    """Of every update: parameters before and after, the component steps, their movement on E."""

    params: list
    steps: list  # (direct, precached), leading axis over the nodes
    movements: list[Movement]
    mask: np.ndarray  # [n, E]


def held_batch():
    """E: right padding, so that a node's position is real in some examples only."""
    held = tiny.batch_of(EXAMPLES, seed=5)
    real = np.arange(tiny.LENGTH)[None, :] < np.array([6, 3, 6, 5] * (EXAMPLES // 4))[:, None]
    return held._replace(mask=jnp.asarray(real), weight=jnp.asarray(real))


def batch_at(t):
    """The training batch of update t."""
    return tiny.batch_of(4, pads=1, seed=100 + t)


@functools.lru_cache
def programs(dtype="float64", layers=2):
    """Call inside `enable_x64` for float64."""
    decoder = tiny.gpt2(layers, dtype=dtype)
    nodes = [(k, i) for k, i in NODES if k <= layers]
    plan = make_plan(
        nodes, layers=layers, length=tiny.LENGTH, chunks=2
    )  # fmt: skip
    tracker = Tracker(decoder, plan, RULE, ends="both")
    update, held = make_update(decoder, RULE), held_batch()

    def step(state, window, batch):
        rate = jnp.asarray(RATE)
        new, _ = update(state, batch, rate)
        return new, advance(tracker, window, state.params, new.opt_state, batch, rate)

    make = functools.partial(jax.jit, compiler_options=QUICK)
    return Programs(
        decoder, held, tracker, make(step),
        make(lambda window, params: measure(tracker, window, params, held)),
        make(functools.partial(start_window, tracker)),
    )  # fmt: skip


def start_state(p, dtype):
    params = tiny.params_of(p.decoder, dtype=dtype)
    return init_state(RULE, jax.tree.map(jnp.asarray, params))


@functools.lru_cache
def trace(dtype="float64", layers=2) -> Trace:
    """STEPS updates, a window each."""
    with jax.enable_x64(dtype == "float64"):
        p = programs(dtype, layers)
        state = start_state(p, dtype)
        window = p.begin(state.params)
        spreading = jax.jit(functools.partial(spread, plan=p.tracker.plan), compiler_options=QUICK)
        params, steps, movements = [state.params], [], []
        for t in range(STEPS):
            state, window = p.step(state, p.begin(state.params, window.moments), batch_at(t))
            params.append(state.params)
            movements.append(jax.tree.map(np.asarray, p.close(window, state.params)))
            steps.append(spreading(window.steps, params=state.params))
        at = [i for _, i in p.tracker.plan.nodes]
        return Trace(params, steps, movements, np.asarray(p.held.mask)[:, at].T)


def first_of(found: Trace):
    return jnp.asarray(found.movements[0].before)


def copy_of(sums, resid):
    """What a step of the ladder keeps."""
    return sums._asdict() | {"resid": resid}


@functools.lru_cache
def ledger(dtype="float64", layers=2) -> Ledger:
    """The ledger of `trace`, copied at the steps of LADDER."""
    with jax.enable_x64(dtype == "float64"):
        found = trace(dtype, layers)
        add = jax.jit(add_movement)
        sums = open_ledger(first_of(found))
        copies = [copy_of(sums, sums.first)]
        for t, movement in enumerate(found.movements, start=1):
            sums = add(sums, jax.tree.map(jnp.asarray, movement), jnp.asarray(found.mask))
            if t in LADDER:
                copies.append(copy_of(sums, movement.after))
        nodes = programs(dtype, layers).tracker.plan.nodes
        return make_ledger(nodes, LADDER, found.mask, copies)


@functools.lru_cache
def pusher(dtype="float64", layers=2):
    """`(params, direct, precached, whole) -> [n, 3, E, D]` by forward mode along whole trees."""
    p = programs(dtype, layers)
    nodes = p.tracker.plan.nodes

    def along(params, direct, precached, whole):
        _, move = jax.linearize(
            lambda q: residuals(p.decoder, q, p.held)[0], params
        )  # fmt: skip
        own = jnp.arange(len(nodes))
        each = jax.vmap(lambda step, n: at_nodes(move(step), nodes)[n])
        d, c = each(direct, own), each(precached, own)
        return jnp.stack([d, c, at_nodes(move(whole), nodes) - d - c], axis=1)

    return jax.jit(along, compiler_options=QUICK)


@functools.lru_cache
def reader(dtype="float64", layers=2):
    """Residuals at the nodes on E, `[n, E, D]`."""
    p = programs(dtype, layers)
    return jax.jit(lambda params: node_resid(p.tracker, params, p.held), compiler_options=QUICK)


def two_run(found: Trace, w, goal, start, stop, *, centred=True, weight=None):
    """`sum_t Cov_b(w . (rbar - r*), w . rdot_c)` (or plain means), `[3, n, F]`, in float64."""
    keep = found.mask.astype(np.float64)
    keep = keep if weight is None else keep * weight
    keep = keep / keep.sum(1, keepdims=True)
    total = 0.0
    for movement in found.movements[start:stop]:
        before, after, along = (np.asarray(x, np.float64) for x in movement[:3])
        error = np.einsum("nfd,ned->nfe", w, (before + after) / 2 - goal)
        moved = np.einsum("nfd,nced->cnfe", w, along)
        mean = lambda x: np.einsum("...nfe,ne->...nf", x, keep)
        total = total + mean(error * moved) - (mean(error) * mean(moved) if centred else 0)
    return total


def risk_of(w, gap, mask, centred=True):
    """`1/2 Var_b(w . gap)` or half the mean square, `[n, F]`."""
    error = np.einsum("nfd,ned->nfe", w, gap)
    found = np.zeros(error.shape[:2])
    for n, keep in enumerate(mask):
        for f in range(error.shape[1]):
            here = error[n, f, keep]
            found[n, f] = 0.5 * (here.var() if centred else np.mean(here**2))
    return found
