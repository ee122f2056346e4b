"""Which part of an optimiser step does each component of the gradient make?

SGD: `G_c = lr g_c`. Adam: each component keeps its own first moment, the second moment is the
real one: `m_c <- b1 m_c + (1 - b1) g_c`, `G_c = lr m_c / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps)`.
Parameters move by -G, and the G_c of the three components sum to the change that the optimiser
makes (arXiv 2603.14087, Def. 3.3).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxfeat import tree
from jaxfeat.grads.plan import Plan
from jaxfeat.grads.sweep import Parts
from jaxfeat.nn.decoder import layer_of
from jaxfeat.types import Array, Tree, UserError


class StepRule(NamedTuple):
    """How gradients become parameter steps: "adam" or "sgd" (then b1, b2, eps are not read)."""

    name: str = "adam"
    b1: float = 0.9
    b2: float = 0.999
    eps: float = 1e-8


class OptState(NamedTuple):
    """Adam's moments and the number of updates done; for SGD the moments are empty trees."""

    count: Array
    mu: Tree
    nu: Tree


def make_optimizer(rule: StepRule) -> optax.GradientTransformation:
    """The rule as an optax transformation that leaves out the learning rate.

    Raises:
        UserError: an optimiser whose steps have no exact split.
    """
    if rule.name == "adam":
        return optax.scale_by_adam(rule.b1, rule.b2, rule.eps)
    if rule.name == "sgd":
        return optax.identity()
    raise UserError(f"optimizer: {rule.name!r} is unknown; valid: adam, sgd")


def zero_parts(params: Tree, plan: Plan, dtype=None) -> tuple[Parts, ...]:
    """Zeros for every row of the plan: moments before the first update."""

    def rows(count: int, like: Tree) -> Tree:
        return jax.tree.map(lambda x: jnp.zeros((count, *x.shape), dtype or x.dtype), like)

    return tuple(
        Parts(
            rows(len(chunk.rows), params["outer"]),
            tuple(
                rows(chunk.from_layer(b + 1), layer_of(params["blocks"], b))
                for b in range(max(r.layer for r in chunk.rows))
            ),
        )
        for chunk in plan.chunks
    )


def advance_moments(rule: StepRule, moments: tuple, grads: tuple) -> tuple:
    """`m_c <- b1 m_c + (1 - b1) g_c`; under SGD the gradients themselves."""
    if rule.name == "sgd":
        return grads
    return jax.tree.map(lambda m, g: rule.b1 * m + (1 - rule.b1) * g, moments, grads)


def step_scale(rule: StepRule, learning_rate: Array, state, params: Tree) -> Tree:
    """What a first moment is multiplied by to give a step, shaped like the parameters.

    Args:
        state: the optimiser's state AFTER the update (for SGD it is not read).
    """
    if rule.name == "sgd":
        return jax.tree.map(lambda x: jnp.full_like(x, learning_rate), params)
    count = state.count
    first = learning_rate / (1 - rule.b1**count)
    second = 1 - rule.b2**count
    return jax.tree.map(
        lambda v: (first / (jnp.sqrt(v / second) + rule.eps)).astype(v.dtype), state.nu
    )


def scale_parts(parts: tuple[Parts, ...], scale: Tree) -> tuple[Parts, ...]:
    """Every row's values times a parameter-shaped scale: `G_c` from `m_c`."""
    times = lambda a, b: jax.tree.map(lambda x, y: x * y, a, b)
    return tuple(
        Parts(
            times(part.outer, scale["outer"]),
            tuple(times(x, layer_of(scale["blocks"], b)) for b, x in enumerate(part.blocks)),
        )
        for part in parts
    )


def squared_norms(parts: tuple[Parts, ...], plan: Plan) -> Array:
    """`|G_c|^2` of every row, `[R]`."""
    found = []
    for chunk, part in zip(plan.chunks, parts, strict=True):
        total = _rows_squared(part.outer)
        for b, x in enumerate(part.blocks):
            count = chunk.from_layer(b + 1)
            total = total.at[:count].add(_rows_squared(x))
        found.append(total)
    return jnp.concatenate(found)


def _rows_squared(rows: Tree) -> Array:
    """Sum of squares over all but the leading axis."""
    sums = [
        jnp.sum(jnp.square(tree.widen(x)), axis=tuple(range(1, x.ndim)))
        for x in jax.tree.leaves(rows)
    ]
    return sum(sums[1:], start=sums[0])
