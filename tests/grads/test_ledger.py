"""Does one run's ledger answer what two runs would, for any direction and any later target?"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
import tracked
from tiny import QUICK, VOCAB, same
from tracked import EXAMPLES, LADDER, STEPS, copy_of, risk_of, two_run

from jaxfeat import tree
from jaxfeat.grads.influence import Influence, step_influence
from jaxfeat.grads.ledger import (
    Ledger,
    add_movement,
    half_weights,
    influence,
    make_ledger,
    matrices,
    open_ledger,
)
from jaxfeat.grads.moments import StepRule, spread
from jaxfeat.grads.plan import make_plan
from jaxfeat.grads.track import Movement, Tracker, advance, measure, node_resid, start_window
from jaxfeat.nn.decoder import Decoder
from jaxfeat.train.step import init_state, make_update
from jaxfeat.types import COMPONENTS, UserError

FEATURES = 4
# start, stop, target as places of the ladder
STRETCHES = [(0, -1, None), (0, 2, None), (1, 3, 3), (0, 2, -1), (1, 2, 3), (0, -1, 1), (2, 2, 3)]


def directions(nodes, width=tiny.WIDTH):
    return np.random.default_rng(9).standard_normal((nodes, FEATURES, width))


def close(ours, theirs, relative):
    """Against the largest number of the array."""
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    assert ours.shape == theirs.shape
    atol = relative * np.abs(theirs).max(initial=0) + 1e-15
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=atol)


def weight_of(half):
    """`[E]`, which examples count."""
    first = np.arange(EXAMPLES) < EXAMPLES // 2
    return {None: np.ones(EXAMPLES, bool), 0: first, 1: ~first}[half]


@pytest.mark.parametrize("half", [None, 0, 1])
@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("stretch", STRETCHES, ids=str)
def test_equals_two_runs(stretch, centred, half):
    """Influence, risks and remainder of any stretch, target, half, in float64."""
    found, ledger, (start, stop, target) = tracked.trace(), tracked.ledger(), stretch
    w = directions(len(ledger.nodes))
    told = influence(ledger, w, start=start, stop=stop, target=target, centred=centred, half=half)
    target = stop if target is None else target
    a, b, c = (LADDER[place] for place in (start, stop, target))
    resid = [m.before for m in found.movements] + [found.movements[-1].after]
    expected = two_run(found, w, resid[c], a, b, centred=centred, weight=weight_of(half))
    if a == b:
        expected = np.zeros((3, *w.shape[:2]))
    close(told[:3], expected, 1e-10)
    mask = found.mask & weight_of(half)
    for name, t in {"risk_start": a, "risk_stop": b, "scale": 0}.items():
        close(getattr(told, name), risk_of(w, resid[t] - resid[c], mask, centred), 1e-10)
    close(told.remainder, told.risk_start - told.risk_stop - sum(told[:3]), 1e-12)


@pytest.mark.slow
def test_float32():
    """The same in float32, the definition in float64 on what it saw."""
    found, ledger = tracked.trace("float32", 1), tracked.ledger("float32", 1)
    w = directions(len(ledger.nodes))
    assert ledger.cross.dtype == np.float32
    for centred in (True, False):
        goal = np.asarray(found.movements[-1].after, np.float64)
        expected = two_run(found, w, goal, 0, STEPS, centred=centred)
        close(influence(ledger, w, centred=centred)[:3], expected, 1e-4)


def test_movements_by_forward_mode():
    """Each component's movement is the Jacobian on its step, at both ends; they sum to the whole.

    And summed over training they are the representation's change, up to second order.
    """
    found, ledger = tracked.trace(), tracked.ledger()
    with jax.enable_x64(True):
        push = tracked.pusher()
        for t in (0, STEPS - 1):
            whole = tree.sub(found.params[t], found.params[t + 1])
            ends = [push(p, *found.steps[t], whole) for p in found.params[t : t + 2]]
            close(found.movements[t].along, (ends[0] + ends[1]) / 2, 1e-11)
    before, after = found.movements[0].before, found.movements[-1].after
    close(ledger.moved[-1].sum(1), before - after, 1e-3)
    close(ledger.moved[-1], sum(m.along for m in found.movements), 1e-12)
    for movement in found.movements:
        close(movement.along.sum(1), movement.before - movement.after, 1e-3)
    share = np.abs(
        influence(ledger, directions(3)).remainder / influence(ledger, directions(3)).fall
    )
    assert share.max() < 1e-3


@pytest.mark.slow
def test_grouping_and_left_end():
    """Rows and examples at once change nothing; ends="start" takes the left end alone."""
    with jax.enable_x64(True):
        found, p = tracked.trace(), tracked.programs()
        plan = p.tracker.plan._replace(at_once=4, examples=4)
        tracker = p.tracker._replace(plan=plan, ends="start")
        state = tracked.start_state(p, "float64")
        new, window = p.step(state, p.begin(state.params), tracked.batch_at(0))
        run = jax.jit(lambda w, params: measure(tracker, w, params, p.held), compiler_options=QUICK)
        movement = run(window, new.params)
        close(movement.before, found.movements[0].before, 1e-12)
        close(movement.after, found.movements[0].after, 1e-12)
        whole = tree.sub(state.params, new.params)
        along = tracked.pusher()(state.params, *found.steps[0], whole)
        close(movement.along, along, 1e-11)
        batch, rate = tracked.batch_at(0), jnp.asarray(tracked.RATE)
        again = jax.jit(
            lambda w, s, o: advance(tracker, w, s.params, o, batch, rate), compiler_options=QUICK
        )(p.begin(state.params), state, new.opt_state)
        flat = lambda moments: np.concatenate([x.ravel() for x in jax.tree.leaves(moments)])
        close(flat(again.moments), flat(window.moments), 1e-12)


def test_stride():
    """Four updates in one window: Jacobians at its ends on the sum of their steps."""
    found = tracked.trace()
    with jax.enable_x64(True):
        p = tracked.programs()
        state = tracked.start_state(p, "float64")
        window = p.begin(state.params)
        for t in range(4):
            state, window = p.step(state, window, tracked.batch_at(t))
        same(state.params, found.params[4])
        movement = p.close(window, state.params)
        total = found.steps[0]
        for steps in found.steps[1:4]:
            total = tree.add(total, steps)
        whole = tree.sub(found.params[0], found.params[4])
        ends = [tracked.pusher()(found.params[t], *total, whole) for t in (0, 4)]
        close(movement.along, (ends[0] + ends[1]) / 2, 1e-11)
        close(movement.before, found.movements[0].before, 1e-12)
        close(movement.after, found.movements[3].after, 1e-12)
        sums = add_movement(open_ledger(movement.before), movement, jnp.asarray(found.mask))
        ledger = make_ledger(
            p.tracker.plan.nodes, (0, 4), found.mask,
            [copy_of(open_ledger(sums.first), sums.first), copy_of(sums, movement.after)],
        )  # fmt: skip
    w = directions(3)
    one = found._replace(movements=[jax.tree.map(np.asarray, movement)])
    close(influence(ledger, w)[:3], two_run(one, w, np.asarray(movement.after), 0, 1), 1e-10)


def test_windows_add_up():
    """A window is a difference of copies: stretches with one target add up."""
    ledger, w = tracked.ledger(), directions(3)
    whole = influence(ledger, w, start=0, stop=3, target=3)
    parts = [influence(ledger, w, start=a, stop=a + 1, target=3) for a in range(3)]
    close(sum(np.array(p[:3]) for p in parts), whole[:3], 1e-12)
    close(sum(p.remainder for p in parts), whole.remainder, 1e-9)
    assert (whole.risk_stop == 0).all()
    np.testing.assert_array_equal(whole.combined, whole.direct + whole.precached + whole.shared)


def test_halves():
    """Uncentred, E is the weighted sum of its halves; centred it is not."""
    ledger = tracked.ledger()
    count = np.array([ledger.mask[:, :8].sum(1), ledger.mask[:, 8:].sum(1)], float)
    count = (count / count.sum(0))[..., None, None, None]
    for centred, equal in {False: True, True: False}.items():
        halves = np.array([matrices(ledger, centred=centred, half=h) for h in (0, 1)])
        whole = matrices(ledger, centred=centred)
        summed = (count * halves).sum(0)
        assert np.allclose(summed, whole, rtol=0, atol=1e-12 * np.abs(whole).max()) == equal
        np.testing.assert_array_equal(whole, whole.swapaxes(-1, -2))


def test_half_weights():
    """Means over real examples of each half and of all; an empty half has weight 0, not NaN."""
    mask = jnp.array([[True, False, True, True], [False, False, True, False]])
    expected = [[[1, 0, 0, 0], [0, 0, 0, 0]], [[0, 0, 0.5, 0.5], [0, 0, 1, 0]]]
    expected.append([[1 / 3, 0, 1 / 3, 1 / 3], [0, 0, 1, 0]])
    np.testing.assert_allclose(half_weights(mask, jnp.float32), expected, rtol=1e-6)


def synthetic(garbage=0.0):
    """A ledger of random movements of one node; examples that are masked hold garbage."""
    rng = np.random.default_rng(2)
    mask = np.array([[True, False, True, True, True, True, False, True]])
    off = (~mask)[..., None] * garbage
    first = rng.standard_normal((1, 8, 3))
    sums = open_ledger(jnp.asarray(first + off))
    copies = [copy_of(sums, sums.first)]
    for _ in range(3):
        before, after = rng.standard_normal((2, 1, 8, 3)) + off
        along = rng.standard_normal((1, 3, 8, 3)) + off[:, None]
        movement = Movement(*map(jnp.asarray, (before, after, along, np.zeros((len(before), 4)))))
        sums = add_movement(sums, movement, jnp.asarray(mask))
        copies.append(copy_of(sums, movement.after))
    return make_ledger([(1, 4)], range(4), mask, copies)


def test_padding_changes_nothing():
    """Whatever stands in an example where the node is padding."""
    with jax.enable_x64(True):
        clean, dirty = synthetic(), synthetic(1e3)
    assert not np.array_equal(clean.moved, dirty.moved)
    w = directions(1, 3)
    for centred in (True, False):
        for half in (None, 0, 1):
            told, other = (influence(x, w, centred=centred, half=half) for x in (clean, dirty))
            close(other, told, 1e-9)


def test_shared_directions():
    """`[F, D]` stands for every node."""
    ledger = tracked.ledger()
    w = directions(1)[0]
    same(influence(ledger, w), influence(ledger, np.stack([w] * 3)))


@pytest.mark.parametrize(
    ("w", "options", "words"),
    [
        (np.ones((3, 2, 5)), {}, r"w: shape \(3, 2, 5\) given, \(3 nodes, features, 8\) needed"),
        (np.ones((2, 2, 8)), {}, r"\(3 nodes, features, 8\) needed"),
        (np.ones(8), {}, r"w: shape \(8,\)"),
        (np.ones((1, 8)), {"stop": 4}, r"ladder place: 4 given, a whole number, -4\.\.3"),
        (np.ones((1, 8)), {"start": -5}, "ladder place: -5 given"),
        (np.ones((1, 8)), {"target": 9}, "ladder place: 9 given"),
        (np.ones((1, 8)), {"start": 2, "stop": 1}, "stop 1 lies before start 2"),
        (np.ones((1, 8)), {"half": 2}, r"half: 2 given, a whole number, 0\.\.1"),
    ],
)
def test_refused(w, options, words):
    with pytest.raises(UserError, match=words):
        influence(tracked.ledger(), w, **options)


def test_odd_examples():
    with pytest.raises(UserError, match="E has 3 sequences; an even number"):
        open_ledger(jnp.zeros((1, 3, 2)))


def test_shares():
    """Parts over R(theta_0); NaN where that is 0; the flag above 5 % of the fall."""
    one = np.array([1.0, 1.0])
    told = Influence(one, 2 * one, 3 * one, 10 * one, 3.5 * one, np.array([10.0, 0.0]))
    np.testing.assert_allclose(told.remainder, 0.5)
    assert told.flagged.all() and not told._replace(risk_stop=3.9 * one).flagged.any()
    np.testing.assert_allclose(told.share("shared"), [0.3, np.nan])
    np.testing.assert_allclose(told.share("remainder"), [0.05, np.nan])


def test_conventions():
    """The authors' unit is twice the uncentred; an unknown name is refused."""
    rng = np.random.default_rng(0)
    resid, goal = rng.standard_normal((2, 1, 4, 3))
    given = (resid, goal, rng.standard_normal((1, 3, 4, 3)), rng.standard_normal((1, 2, 3)))
    theirs = step_influence(*map(jnp.asarray, given), conventions="authors")
    ours = step_influence(*map(jnp.asarray, given), centred=False)
    np.testing.assert_allclose(theirs, 2 * ours, rtol=1e-6)
    with pytest.raises(UserError, match="valid: ours, authors"):
        step_influence(*map(jnp.asarray, given), conventions="theirs")


def linear_model():
    """The residual at layer 1 is linear in the parameters of block 0: `x + V mean(x) + W x`."""
    width = VOCAB

    def init(key):
        draw = lambda *shape: 0.3 * jax.random.normal(key, shape)
        block = {"v": draw(width, width), "w": draw(width, width)}
        return {"outer": {"out": draw(VOCAB, width)}, "blocks": (block, block)}

    return Decoder(
        layers=2,
        width=width,
        vocab=VOCAB,
        init=init,
        embed=lambda outer, token, position: jax.nn.one_hot(token, width),
        query=lambda b, const, x, position: jnp.zeros((1, 1), x.dtype),
        memory=lambda b, const, x, position: (jnp.zeros((1, 1), x.dtype), (b["v"] @ x)[None]),
        attn_out=lambda b, const, mixed: mixed[0],
        mlp_out=lambda b, const, x, attn: b["w"] @ x,
        unembed=lambda outer, x, ids=None: outer["out"] @ x,
    )


def test_sign_is_that_of_ablation():
    """Leaving a component out of an update raises the mismatch by its influence, to first order."""
    decoder, held, rate = linear_model(), tiny.batch_of(8, seed=1), 1e-4
    nodes = [(1, 2), (1, 4)]
    plan = make_plan(nodes, layers=2, length=tiny.LENGTH, chunks=1, at_once=8)
    tracker = Tracker(decoder, plan, StepRule("sgd"))
    w, batch = directions(2, VOCAB), tiny.batch_of(4, seed=2)

    @functools.partial(jax.jit, compiler_options=QUICK)
    def run(key):
        state = init_state(tracker.rule, decoder.init(key))
        new, _ = make_update(decoder, tracker.rule)(state, batch, jnp.array(rate))
        window = start_window(tracker, state.params)
        window = advance(tracker, window, state.params, new.opt_state, batch, jnp.array(rate))
        movement = measure(tracker, window, new.params, held)
        read = lambda params: node_resid(tracker, params, held)
        goal = read(decoder.init(jax.random.key(7)))
        whole = tree.sub(state.params, new.params)
        direct, precached = spread(window.steps, plan, state.params)
        ablated = []
        for n in range(len(nodes)):
            d, p = tree.index(direct, n), tree.index(precached, n)
            parts = d, p, tree.sub(whole, tree.add(d, p))
            ablated.append(jnp.stack([read(tree.add(new.params, part))[n] for part in parts]))
        return movement, goal, jnp.stack(ablated)

    with jax.enable_x64(True):
        movement, goal, ablated = run(jax.random.key(0))
        mask = np.ones((2, 8), bool)
        sums = add_movement(open_ledger(movement.before), movement, jnp.asarray(mask))
        copies = [copy_of(open_ledger(movement.before), movement.before)]
        copies += [copy_of(sums, movement.after), copy_of(sums, goal)]
        ledger = make_ledger(nodes, (0, 1, 2), mask, copies)
        told = influence(ledger, w, start=0, stop=1, target=2)
        with_all = risk_of(w, np.asarray(movement.after - goal), mask)
        for c, name in enumerate(COMPONENTS):
            effect = risk_of(w, np.asarray(ablated[:, c] - goal), mask) - with_all
            ours = getattr(told, name)
            assert np.abs(ours).max() > 0
            np.testing.assert_allclose(ours, effect, rtol=0, atol=1e-3 * np.abs(effect).max())
            large = np.abs(effect) > 0.01 * np.abs(effect).max()
            assert (np.sign(ours) == np.sign(effect))[large].all()
        assert isinstance(ledger, Ledger) and np.abs(told.remainder).max() < 1e-9
