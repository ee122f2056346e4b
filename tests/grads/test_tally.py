"""Are a tally's sums what each step gives, feature type by feature type?"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
import tracked
from tracked import EXAMPLES, STEPS

from jaxfeat.grads.influence import step_influence, type_weights
from jaxfeat.grads.ledger import influence
from jaxfeat.grads.tally import add_to_tally, open_tally, tally_influence
from jaxfeat.types import UserError

KINDS, FEATURES = 3, 2
RNG = np.random.default_rng(4)
W = RNG.standard_normal((3, FEATURES, tiny.WIDTH))
TYPES = RNG.integers(0, KINDS, (3, EXAMPLES, FEATURES))
TYPES[1, :, 0] = np.where(TYPES[1, :, 0] == 2, 0, TYPES[1, :, 0])  # kind 2 is empty here


def run(types, kinds=KINDS):
    """The tally of the tracked run."""
    found = tracked.trace()
    wide = lambda x: jnp.asarray(np.asarray(x))
    types = None if types is None else jnp.asarray(types)
    tally = open_tally(wide(found.movements[0].before), jnp.asarray(W), types, kinds)
    add = jax.jit(add_to_tally)
    for movement in found.movements:
        tally = add(tally, jax.tree.map(wide, movement))
    return tally


def told(types, centred, kinds=KINDS):
    with jax.enable_x64(True):
        last = tracked.trace().movements[-1].after
        return tally_influence(run(types, kinds), last, last, centred=centred)


def by_hand(centred):
    """Step by step from the definition, `[3, n, F, kinds]`; risks at the start."""
    found = tracked.trace()
    goal = found.movements[-1].after
    total, risk = np.zeros((3, 3, FEATURES, KINDS)), np.zeros((3, FEATURES, KINDS))
    for n, f, t in np.ndindex(3, FEATURES, KINDS):
        mine = TYPES[n, :, f] == t
        if not mine.any():
            continue
        for m in found.movements:
            e = ((m.before[n] + m.after[n]) / 2 - goal[n])[mine] @ W[n, f]
            for c in range(3):
                moved = m.along[n, c][mine] @ W[n, f]
                mean = e.mean() * moved.mean() if centred else 0
                total[c, n, f, t] += (e * moved).mean() - mean
        e = (found.movements[0].before[n] - goal[n])[mine] @ W[n, f]
        risk[n, f, t] = 0.5 * (e.var() if centred else (e**2).mean())
    return total, risk


def close(ours, theirs, relative=1e-10):
    atol = relative * np.abs(theirs).max() + 1e-15
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=atol)


@pytest.mark.parametrize("centred", [True, False])
def test_by_hand(centred):
    """Every type's influence, its risks and remainder; an empty type gives 0, never NaN."""
    ours, (total, risk) = told(TYPES, centred), by_hand(centred)
    close(ours[:3], total)
    close(ours.risk_start, risk)
    close(ours.scale, risk)
    assert np.abs(ours.risk_stop).max() < 1e-20
    close(ours.remainder, risk - total.sum(0), 1e-9)
    for values in ours:
        assert np.isfinite(values).all() and not values[1, 0, 2].any()
    assert np.isnan(ours.share("direct")[1, 0, 2])


def test_types_sum_by_their_shares():
    """Uncentred: `sum n_type / n I_type = I`. Centred they do not sum."""
    share = np.stack([np.equal(TYPES, t).mean(1) for t in range(KINDS)], -1)
    for centred, equal in {False: True, True: False}.items():
        parts, whole = told(TYPES, centred), told(None, centred, 1)
        for ours, theirs in zip(parts[:3], whole[:3]):
            summed, theirs = (share * ours).sum(-1), theirs[..., 0]
            assert np.allclose(summed, theirs, rtol=0, atol=1e-11 * np.abs(theirs).max()) == equal


@pytest.mark.parametrize("centred", [True, False])
def test_one_type_is_the_ledger(centred):
    """With all examples of one type, where the node is real in every example."""
    assert tracked.trace().mask[0].all()
    theirs = influence(tracked.ledger(), W, centred=centred)
    for ours, expected in zip(told(None, centred, 1), theirs):
        close(ours[0, :, 0], expected[0])
    # masked examples count nowhere when their type is none of the kinds
    types = np.where(tracked.trace().mask[..., None], 0, -1) * np.ones_like(TYPES)
    for ours, expected in zip(told(types, centred, 1), theirs):
        close(ours[..., 0], expected)


def test_steps_add_up():
    """Summed `step_influence` at the midpoints is the tally."""
    found = tracked.trace()
    for centred in (True, False):
        with jax.enable_x64(True):
            step = lambda m, centred=centred: step_influence(
                jnp.asarray((m.before + m.after) / 2), jnp.asarray(found.movements[-1].after),
                jnp.asarray(m.along), jnp.asarray(W), types=jnp.asarray(TYPES), kinds=KINDS,
                centred=centred,
            )  # fmt: skip
            total = sum(np.asarray(step(m)) for m in found.movements)
        close(told(TYPES, centred)[:3], total)
    assert len(found.movements) == STEPS


def test_type_weights():
    """Means over each type's examples; unknown types count nowhere, an empty type is 0."""
    types = jnp.array([[[0], [2], [0], [-1]]])
    found = type_weights(types, 3, (1, 4, 1), jnp.float32)
    np.testing.assert_array_equal(found[0, :, 0], [[0.5, 0, 0], [0, 0, 1], [0.5, 0, 0], [0, 0, 0]])
    np.testing.assert_array_equal(type_weights(None, 1, (1, 4, 1), jnp.float32), 0.25)


def test_refused():
    first = jnp.zeros((3, 4, 8))
    with pytest.raises(UserError, match=r"w: shape \(3, 2, 5\) given, \(3 nodes, features, 8\)"):
        open_tally(first, jnp.zeros((3, 2, 5)))
    with pytest.raises(UserError, match=r"types: shape \(3, 4, 1\) given, \(3, 4, 2\) needed"):
        open_tally(first, jnp.zeros((3, 2, 8)), jnp.zeros((3, 4, 1), int))
