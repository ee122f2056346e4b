"""Is a component's part by the same copy the brute-force sum over copies? (float64)"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from tiny import LENGTH, QUICK

from jaxfeat import tree
from jaxfeat.grads.by_copy import influence_by_copy
from jaxfeat.grads.influence import step_influence
from jaxfeat.grads.ledger import add_movement, make_ledger, open_ledger
from jaxfeat.grads.moments import StepRule
from jaxfeat.grads.plan import make_plan
from jaxfeat.grads.split import split_by_definition
from jaxfeat.grads.track import Tracker, advance, measure, node_resid, start_window
from jaxfeat.nn.copies import refine_copies
from jaxfeat.train.step import init_state, make_update
from jaxfeat.types import UserError

ALL = tuple(range(LENGTH))
NODES, RATE, UPDATES = [(1, 2), (0, 4)], 0.01, 2
DECODER = tiny.gpt2(1, dtype="float64")
RULES = {"adam": StepRule("adam", 0.8, 0.95, 1e-3), "sgd": StepRule("sgd"),
         "decayed": StepRule("sgd", decay=0.3)}  # fmt: skip
HELD = tiny.batch_of(6, seed=3)


def run(rule, copies, by_copy):
    """UPDATES updates in one window; what happened at each, and the movement."""
    plan = make_plan(NODES, layers=1, length=LENGTH, chunks=1, at_once=9)
    tracker = Tracker(DECODER, plan, RULES[rule], copies=copies, by_copy=by_copy)

    @functools.partial(jax.jit, compiler_options=QUICK)
    def step(state, window, batch):
        rate = jnp.array(RATE)
        new, _ = make_update(DECODER, RULES[rule], copies=copies)(state, batch, rate)
        return new, advance(tracker, window, state.params, new.opt_state, batch, rate)

    params = tiny.to64(tiny.params_of(DECODER, copies=len(copies or ())))
    state, window, seen = init_state(RULES[rule], params), start_window(tracker, params), []
    for t in range(UPDATES):
        before = state.params
        state, window = step(state, window, tiny.batch_of(3, pads=1, seed=t))
        seen.append((before, state.opt_state))
    close = jax.jit(lambda w, p: measure(tracker, w, p, HELD), compiler_options=QUICK)
    return tracker, params, seen, close(window, state.params)


def steps_by_copy(rule, copies, by_copy, seen):
    """Each component's summed step by copy, from the definition and NumPy: `[n, .., C, ..]`."""
    split = jax.jit(
        lambda p, b: split_by_definition(DECODER, p, b, NODES, copies=by_copy),
        compiler_options=QUICK,
    )
    r, total, moments = RULES[rule], None, None
    for t, (params, state) in enumerate(seen):
        batch = tiny.batch_of(3, pads=1, seed=t)
        parts = split(refine_copies(params, copies, by_copy), batch)
        if rule == "adam":
            old = moments or tree.zeros(parts)
            moments = jax.tree.map(lambda m, g: r.b1 * m + (1 - r.b1) * g, old, parts)
            first, second = 1 - r.b1 ** (t + 1), 1 - r.b2 ** (t + 1)
            root = lambda v, a=first, b=second: RATE / a / (jnp.sqrt(v / b) + r.eps)
            scale = refine_copies(jax.tree.map(root, state.nu), copies, by_copy)
            here = [jax.tree.map(lambda m, s: m * s[None], part, scale) for part in moments]
        else:
            here = [tree.scale(RATE, part) for part in parts]
        total = here if total is None else [tree.add(a, b) for a, b in zip(total, here)]
    return total


def double_sum(risk_grad, step, blocks_axis=1):
    """`[C, C]`: `<grad_p R, G_q>` for every pair of copies."""
    found = 0.0
    for name, axis in (("outer", 0), ("blocks", blocks_axis)):
        for g, s in zip(jax.tree.leaves(risk_grad[name]), jax.tree.leaves(step[name])):
            g, s = (np.moveaxis(np.asarray(x), axis, 0).reshape(x.shape[axis], -1) for x in (g, s))
            found = found + g @ s.T
    return found


@pytest.mark.parametrize(
    ("rule", "copies", "by_copy"),
    [
        pytest.param("adam", None, (0, 3), id="adam"),
        pytest.param("sgd", None, ALL, id="sgd", marks=pytest.mark.slow),
        pytest.param("adam", (0, 3), ALL, id="untied", marks=pytest.mark.slow),
    ],
)
def test_brute_force(rule, copies, by_copy):
    """Same copy = the diagonal of the double sum; the rest = what tied copies add; both sum up."""
    with jax.enable_x64(True):
        tracker, params, seen, movement = run(rule, copies, by_copy)
        steps = steps_by_copy(rule, copies, by_copy, seen)
        w = np.random.default_rng(0).standard_normal((len(NODES), 1, tiny.WIDTH))
        goal = movement.before + np.random.default_rng(1).standard_normal(movement.before.shape)
        read = functools.partial(step_influence, movement.before, goal, w=w, centred=False)
        whole, same = (np.asarray(read(x)) for x in (movement.along, movement.also["same_copy"]))
        fine = refine_copies(params, copies, by_copy)
        untied = tracker._replace(copies=by_copy, by_copy=None)

        def risk(p, n):
            error = jnp.einsum("d,ed->e", w[n, 0], node_resid(untied, p, HELD)[n] - goal[n])
            return 0.5 * jnp.mean(error**2)

        tied = np.searchsorted(np.array(copies or (0,)), np.array(by_copy), side="right")
        together = tied[:, None] == tied[None, :]
        for n in range(len(NODES)):
            grad = jax.jit(jax.grad(lambda p, n=n: risk(p, n)), compiler_options=QUICK)(fine)
            for c in range(3):
                pairs = double_sum(grad, tree.index(steps[c], n))
                size = 1e-10 * np.abs(pairs).max() + 1e-16
                np.testing.assert_allclose(same[c, n, 0, 0], np.trace(pairs), rtol=0, atol=size)
                expected = pairs[together].sum()
                np.testing.assert_allclose(whole[c, n, 0, 0], expected, rtol=0, atol=size)
        assert np.abs(whole - same).max() > 1e-3 * np.abs(whole).max()


@pytest.mark.parametrize("rule", ["adam", pytest.param("decayed", marks=pytest.mark.slow)])
def test_untied_has_no_other_copy(rule):
    """Where every position has parameters of its own, other copies get exactly nothing."""
    with jax.enable_x64(True):
        tracker, _, _, movement = run(rule, ALL, ALL)
        assert np.array_equal(movement.also["same_copy"], movement.along[:, :3])
        mask = jnp.ones((len(NODES), 6), bool)
        sums = {"ledger": open_ledger(movement.before, tracker.parts),
                "same": open_ledger(movement.before)}  # fmt: skip
        same = movement._replace(along=movement.also["same_copy"])
        made = {}
        for name, moved in {"ledger": movement, "same": same}.items():
            copies = [
                total._asdict() | {"resid": resid}
                for total, resid in (
                    (sums[name], movement.before),
                    (add_movement(sums[name], moved, mask), movement.after),
                )
            ]
            made[name] = make_ledger(NODES, (0, UPDATES), mask, copies)
        told = influence_by_copy(made["ledger"], made["same"], np.eye(tiny.WIDTH))
        assert np.abs(told.same).max() > 0 and not told.other.any()
        with pytest.raises(UserError, match="the same nodes and ladder"):
            influence_by_copy(made["ledger"], made["same"]._replace(steps=(0, 9)), np.eye(8))
        other = made["same"]._replace(resid=made["same"].resid + 1e-3)
        with pytest.raises(UserError, match="of the same run on the same examples"):
            influence_by_copy(made["ledger"], other, np.eye(8))


@pytest.mark.slow
def test_decay_is_a_part_of_its_own():
    """Its movement is the Jacobian on what decay took; the four parts sum to the real change."""
    with jax.enable_x64(True):
        tracker, params, seen, movement = run("decayed", None, None)
        taken = tree.zeros(params)
        for before, _ in seen:
            taken = jax.tree.map(lambda t, w: t + RATE * RULES["decayed"].decay * w, taken, before)
        read = lambda p: node_resid(tracker, p, HELD)
        _, moved = jax.jvp(read, (params,), (taken,))
        np.testing.assert_allclose(movement.along[:, 3], moved, rtol=1e-9, atol=1e-15)
        change = movement.before - movement.after
        gap = np.abs(movement.along.sum(1) - change).max()
        assert gap < 0.02 * np.abs(change).max()
        assert np.abs(movement.along[:, 3]).max() > 10 * gap


@pytest.mark.slow
def test_by_copy_changes_nothing_else():
    """The main ledger is the same with and without the parts by copy."""
    with jax.enable_x64(True):
        plain, parted = (run("adam", None, by_copy)[3] for by_copy in (None, (0, 3)))
        np.testing.assert_allclose(parted.along, plain.along, rtol=0, atol=1e-15)
        np.testing.assert_array_equal(parted.before, plain.before)


def test_refused():
    """A copy that is no position, segments that are coarser than the model's."""
    with jax.enable_x64(True):
        with pytest.raises(UserError, match=r"a segment starts at 9, outside 0\.\.5"):
            run("sgd", None, (0, 9))
        with pytest.raises(UserError, match=r"\(0, 2\) must begin segments wherever \(0, 3\) does"):
            run("sgd", (0, 3), (0, 2))
