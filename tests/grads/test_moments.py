"""Do the attributed steps make up the update, for every rule and training variant? (float64)

The components come from their definition by stop-gradients; moments and steps are redone in NumPy.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiny
from tiny import LENGTH, QUICK, close

from jaxfeat import tree
from jaxfeat.grads.moments import (
    StepRule,
    decay_terms,
    make_optimizer,
    spread,
    step_scale,
    step_sizes,
)
from jaxfeat.grads.plan import make_plan
from jaxfeat.grads.split import split_by_definition
from jaxfeat.grads.sweep import zero_parts
from jaxfeat.grads.track import Tracker, component_steps
from jaxfeat.nn.decoder import layer_of
from jaxfeat.train.step import init_state, make_update
from jaxfeat.types import UserError

NODES, UPDATES, RATE = [(1, 3), (0, 2)], 3, 0.01
# eps is large enough that the rounding in a key bias's zero gradient stays rounding
RULES = {
    "adam": StepRule("adam", 0.8, 0.95, 1e-3),
    "sgd": StepRule("sgd"),
    "momentum": StepRule("momentum", 0.7),
}
VARIANTS = {
    "tied": ("full", None),
    "myopic": ("myopic", None),
    "untied": ("full", (0, 3)),
    "both": ("myopic", (0, 3)),
    "fully_untied": ("full", tuple(range(LENGTH))),
}
VARIANT_CASES = [
    pytest.param(name, marks=pytest.mark.slow if name in ("both", "fully_untied") else ())
    for name in VARIANTS
]
DECODER = tiny.gpt2(1, dtype="float64")


class Seen(NamedTuple):
    """One update under a rule: parameters, components, what the library keeps of them."""

    before: Any
    after: Any
    state: Any
    parts: Any  # Split of trees, leading axis over the nodes
    moments: Any
    steps: Any
    sizes: Any
    scale: Any


@functools.lru_cache
def program(copies, name):
    """One update under a rule, on a route that is an argument; its components by definition."""
    plan, rule = make_plan(NODES, layers=1, length=LENGTH, chunks=1, at_once=9), RULES[name]

    def run(state, moments, route, batch):
        before, rate = state.params, jnp.array(RATE)
        graph = {"route": route, "copies": copies}
        new, _ = make_update(DECODER, rule, **graph)(state, batch, rate)
        tracker = Tracker(DECODER, plan, rule, **graph)
        kept, steps = component_steps(tracker, moments, before, new.opt_state, batch, rate)
        both = jax.tree.map(lambda *x: jnp.stack(x), kept, steps)
        both = jax.vmap(lambda x: spread(x, plan, before))(both)
        return (
            new,
            kept,
            Seen(
                before=before,
                after=new.params,
                state=new.opt_state,
                parts=split_by_definition(DECODER, before, batch, NODES, **graph),
                moments=tree.index(both, 0),
                steps=tree.index(both, 1),
                sizes=step_sizes(steps, plan, before, tree.dot(before, before)),
                scale=step_scale(rule, rate, new.opt_state, before),
            ),
        )

    return plan, jax.jit(run, compiler_options=QUICK)


@functools.lru_cache
def seen(variant, name="adam"):
    """UPDATES updates of a variant."""
    route, copies = VARIANTS[variant]
    route = jnp.eye(LENGTH, dtype=bool) if route == "myopic" else jnp.ones((LENGTH,) * 2, bool)
    found = []
    with jax.enable_x64(True):
        plan, run = program(copies, name)
        params = tiny.to64(tiny.params_of(DECODER, copies=len(copies or ())))
        state, moments = init_state(RULES[name], params), zero_parts(params, plan)
        for t in range(UPDATES):
            batch = tiny.batch_of(3, pads=1, seed=t)
            state, moments, here = run(state, moments, route, batch)
            found.append(jax.tree.map(np.asarray, here))
    return plan, found


def adam_by_hand(rule, grads):
    """The first moment after a sequence of gradients."""
    mu = jax.tree.map(np.zeros_like, grads[0])
    for g in grads:
        mu = jax.tree.map(lambda m, x: rule.b1 * m + (1 - rule.b1) * x, mu, g)
    return mu


def minus(a, b):
    """`a - b` of NumPy leaves."""
    return jax.tree.map(np.subtract, a, b)


@pytest.mark.parametrize("variant", VARIANT_CASES)
def test_adam(variant):
    """After each update: moments sum to Adam's mu, steps to the parameters' change."""
    rule, (_, found) = RULES["adam"], seen(variant)
    for t, adam in enumerate(found):
        history = [found[s].parts for s in range(t + 1)]
        moments = [adam_by_hand(rule, [p[c] for p in history]) for c in range(3)]
        first, second = 1 - rule.b1 ** (t + 1), 1 - rule.b2 ** (t + 1)
        scale = jax.tree.map(
            lambda v, first=first, second=second: RATE / first / (np.sqrt(v / second) + rule.eps),
            adam.state.nu,
        )
        close(adam.scale, scale, 1e-12)
        mu, change = adam.state.mu, minus(adam.before, adam.after)
        for n in range(len(NODES)):
            parts = [tree.index(m, n) for m in moments]
            for c in range(2):
                close(tree.index(adam.moments[c], n), parts[c], 1e-12, size_of=mu)
                step = jax.tree.map(np.multiply, parts[c], scale)
                close(tree.index(adam.steps[c], n), step, 1e-12, size_of=change)
            total = jax.tree.map(lambda *x: sum(x), *parts)
            close(total, mu, 1e-12)
            close(jax.tree.map(np.multiply, total, scale), change, 1e-12)


@pytest.mark.parametrize("variant", ["tied", "myopic"])
def test_sgd(variant):
    """Each component's step is its gradient times the learning rate."""
    for sgd in seen(variant, "sgd")[1]:
        change = minus(sgd.before, sgd.after)
        for n in range(len(NODES)):
            parts = [tree.index(g, n) for g in sgd.parts]
            for c in range(2):
                step = jax.tree.map(lambda x: RATE * x, parts[c])
                close(tree.index(sgd.steps[c], n), step, 1e-12, size_of=change)
                close(tree.index(sgd.moments[c], n), parts[c], 1e-12, size_of=change)
            close(jax.tree.map(lambda *x: RATE * sum(x), *parts), change, 1e-12)


@pytest.mark.slow
def test_momentum():
    """Each component keeps a trace of its own; the steps sum to the parameters' change."""
    found, decay = seen("tied", "momentum")[1], RULES["momentum"].b1
    for t, now in enumerate(found):
        change = minus(now.before, now.after)
        history = [found[s].parts for s in range(t + 1)]
        for n in range(len(NODES)):
            total = jax.tree.map(np.zeros_like, change)
            for c in range(3):
                trace = jax.tree.map(np.zeros_like, change)
                for parts in history:
                    trace = jax.tree.map(lambda m, g, n=n: decay * m + g[n], trace, parts[c])
                if c < 2:
                    close(tree.index(now.moments[c], n), trace, 1e-12, size_of=change)
                total = jax.tree.map(lambda x, m: x + RATE * m, total, trace)
            close(total, change, 1e-12)


@pytest.mark.parametrize("variant", VARIANTS)
def test_norms(variant):
    """`step_sizes` are the norms of the spread trees; any tree may stand for the whole step."""
    _, found = seen(variant)
    last = found[-1]
    for n, sizes in enumerate(last.sizes):
        flat = lambda x: np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(x)])
        direct, precached = (flat(tree.index(last.steps[c], n)) for c in (0, 1))
        whole = flat(last.before)
        expected = [
            np.linalg.norm(x) for x in (direct, precached, whole - direct - precached, whole)
        ]
        np.testing.assert_allclose(sizes, expected, rtol=1e-12)


@pytest.mark.parametrize("variant", ["myopic", "both"])
def test_myopic_has_no_precached(variant):
    """A route that is an array leaves rounding, the named one (`make_plan`) no row at all."""
    last = seen(variant)[1][-1]
    size = max(np.abs(x).max() for x in jax.tree.leaves(last.moments[0]))
    assert all(np.abs(x).max() < 1e-15 * size for x in jax.tree.leaves(last.moments[1]))


def test_optimizers():
    """The named rules are optax's; another is refused. Without a learning rate in them."""
    grads = {"x": jnp.array([3.0, -2.0])}
    for rule, theirs in {
        StepRule(): optax.scale_by_adam(0.9, 0.999, 1e-8),
        StepRule("sgd"): optax.identity(),
        StepRule("momentum", 0.5): optax.trace(0.5),
    }.items():
        ours = make_optimizer(rule)
        tiny.same(ours.update(grads, ours.init(grads)), theirs.update(grads, theirs.init(grads)))
    for rule, words in {
        StepRule("adamw"): "'adamw' is unknown; valid: adam, momentum, sgd",
        StepRule(clip=1.0): "clipping is refused: its factor depends on the whole gradient's norm",
        StepRule(decay=-0.1): "decay -0.1 given, finite and at least 0",
        StepRule(b1=1.0): "b1 1.0 given, at least 0 and below 1",
        StepRule(eps=float("nan")): "eps nan given",
        StepRule(decay=0.1, decay_on="("): "decay_on '\\('",
    }.items():
        with pytest.raises(UserError, match=words):
            make_optimizer(rule)


def test_decay_is_optax_adamw():
    """Decoupled decay: the same update as optax's AdamW."""
    rule = StepRule(decay=0.1)
    with jax.enable_x64(True):
        params = tiny.to64(tiny.params_of(DECODER))
        batch = tiny.batch_of(3)
        step = jax.jit(make_update(DECODER, rule), compiler_options=QUICK)
        ours, _ = step(init_state(rule, params), batch, jnp.array(RATE))
        plain, _ = step(init_state(rule, params), batch, jnp.array(0.0))
        theirs = optax.adamw(RATE, weight_decay=0.1)
        # the gradient out of Adam's first moment after one update
        grads = jax.tree.map(lambda m: m / (1 - rule.b1), ours.opt_state.mu)
        updates, _ = theirs.update(grads, theirs.init(params), params)
        close(ours.params, optax.apply_updates(params, updates), 1e-12)
    tiny.same(plain.params, params)


def test_decay_by_path():
    """Chosen by parameter path, alike for stacked blocks and blocks in a tuple."""
    rule = StepRule(decay=0.5, decay_on="mlp/.*kernel$")
    decoder = tiny.gpt2(2)
    params = tiny.params_of(decoder)
    stacked = decay_terms(rule, params)
    apart = decay_terms(rule, tiny.as_tuple(params, 2))
    for b in range(2):
        tiny.same(layer_of(stacked["blocks"], b), apart["blocks"][b])
    for path, x in jax.tree_util.tree_leaves_with_path(stacked):
        name = jax.tree_util.keystr(path)
        assert bool(np.any(x)) == ("mlp" in name and "kernel" in name), name
    with pytest.raises(UserError, match="decay_on 'conv' finds none of blocks/"):
        decay_terms(StepRule(decay=0.1, decay_on="conv"), params)
