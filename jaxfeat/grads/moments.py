"""Which part of an optimiser step does each component of the gradient make?

SGD: `G_c = lr g_c`. Momentum: each component keeps its own trace, `m_c <- b1 m_c + g_c` and
`G_c = lr m_c`. Adam: each component keeps its own first moment, the second moment is the real one:
`m_c <- b1 m_c + (1 - b1) g_c` and `G_c = lr m_c / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps)`.
Parameters move by -G, and the G_c of the three components sum to the change that the optimiser
makes (arXiv 2603.14087, Def. 3.3). Decoupled weight decay moves them by `-lr decay theta` besides:
that belongs to no component and is a part of its own.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxfeat import tree
from jaxfeat.grads.plan import Plan, row_index
from jaxfeat.grads.sweep import Parts
from jaxfeat.nn.decoder import layer_of
from jaxfeat.types import Array, Tree, UserError


class StepRule(NamedTuple):
    """How gradients become parameter steps: "adam", "momentum" or "sgd".

    `b1` is Adam's or the momentum; `b2` and `eps` are Adam's. `decay` is decoupled weight decay
    (AdamW; Loshchilov, Hutter 2019), times the learning rate, of the parameters whose path, such as
    "blocks/mlp/fc/kernel", the regular expression `decay_on` finds (all by default). `clip` is
    refused.
    """

    name: str = "adam"
    b1: float = 0.9
    b2: float = 0.999
    eps: float = 1e-8
    decay: float = 0.0
    decay_on: str = ""
    clip: float = 0.0


RULES = ("adam", "momentum", "sgd")


def check_rule(rule: StepRule) -> StepRule:
    """The rule, if its steps split by component.

    Raises:
        UserError: an unknown optimiser, a value out of range, clipping.

    >>> check_rule(StepRule("momentum", b1=0.5)).b1
    0.5
    """
    if rule.name not in RULES:
        raise UserError(f"optimizer: {rule.name!r} is unknown; valid: {', '.join(RULES)}")
    if rule.decay_on and not rule.decay:
        raise UserError(f"optimizer: decay_on {rule.decay_on!r} given without a decay")
    for name, top in (("b1", 1.0), ("b2", 1.0), ("eps", np.inf), ("decay", np.inf)):
        value = getattr(rule, name)
        if not isinstance(value, float | int) or not 0 <= value < top:
            told = f"at least 0 and below {top:g}" if top == 1 else "finite and at least 0"
            raise UserError(f"optimizer: {name} {value!r} given, {told} needed")
    try:
        re.compile(rule.decay_on)
    except (TypeError, re.error) as error:
        raise UserError(f"optimizer: decay_on {rule.decay_on!r}: {error}") from None
    if rule.clip:
        raise UserError(
            "optimizer: clipping is refused: its factor depends on the whole gradient's norm, so "
            "that a component's step would change with the others and influence could not add up"
        )
    return rule


def decay_terms(rule: StepRule, params: Tree) -> Tree:
    """`decay * theta` of the parameters that decay, 0 of the others.

    Paths leave out a block's number: blocks stacked on one axis or in a tuple decay alike.

    Raises:
        UserError: no parameter has such a path.
    """
    path_of = lambda path: "/".join(str(k.key) for k in path if hasattr(k, "key"))
    found = [path_of(path) for path, _ in jax.tree_util.tree_leaves_with_path(params)]
    if not any(re.search(rule.decay_on, name) for name in found):
        told = ", ".join(sorted(set(found)))
        raise UserError(f"optimizer: decay_on {rule.decay_on!r} finds none of {told}")

    def term(path, w: Array) -> Array:
        decays = re.search(rule.decay_on, path_of(path))
        return rule.decay * w if decays else jnp.zeros_like(w)

    return jax.tree_util.tree_map_with_path(term, params)


def make_optimizer(rule: StepRule) -> optax.GradientTransformation:
    """The rule as an optax transformation that leaves out the learning rate and the decay.

    Raises:
        UserError: as `check_rule`.
    """
    check_rule(rule)
    if rule.name == "adam":
        return optax.scale_by_adam(rule.b1, rule.b2, rule.eps)
    return optax.trace(rule.b1) if rule.name == "momentum" else optax.identity()


def advance_moments(rule: StepRule, moments: Tree, grads: Tree) -> Tree:
    """`m_c <- b1 m_c + (1 - b1) g_c`, under momentum `b1 m_c + g_c`, under SGD the gradients."""
    keep, new = moment_weights(rule)
    return jax.tree.map(lambda m, g: keep * m + new * g, moments, grads)


def moment_weights(rule: StepRule) -> tuple[float, float]:
    """What the old first moment and the gradient are multiplied by."""
    return {"adam": (rule.b1, 1 - rule.b1), "momentum": (rule.b1, 1.0), "sgd": (0.0, 1.0)}[
        rule.name
    ]


def step_scale(rule: StepRule, learning_rate: Array, state, params: Tree) -> Tree:
    """What a first moment is multiplied by to give a step, shaped like the parameters.

    Args:
        state: the optimiser's state AFTER the update (read for Adam only).
    """
    held = {"adam": "nu", "momentum": "trace"}.get(rule.name)
    if held is not None and not hasattr(state, held):
        raise UserError(
            f"opt_state: {type(state).__name__} given, the state of {rule.name!r} needed: track "
            "with the rule of training"
        )
    if rule.name != "adam":
        return jax.tree.map(lambda x: jnp.full_like(x, learning_rate), params)
    count = state.count
    first = learning_rate / (1 - rule.b1**count)
    second = 1 - rule.b2**count
    return jax.tree.map(
        lambda v: (first / (jnp.sqrt(v / second) + rule.eps)).astype(v.dtype), state.nu
    )


def scale_parts(parts: Parts, scale: Tree) -> Parts:
    """Every row's values times a parameter-shaped scale: `G_c` from `m_c`."""

    def times(rows: Tree, like: Tree) -> Tree:
        return jax.tree.map(lambda x, y: x * y, rows, like) if jax.tree.leaves(rows) else rows

    block = lambda b: layer_of(scale["blocks"], b)
    return Parts(
        tuple(times(x, scale["outer"]) for x in parts.outer),
        tuple(times(x, block(b)) for b, x in enumerate(parts.ending)),
        tuple(tuple(times(x, block(b)) for x in chunks) for b, chunks in enumerate(parts.through)),
    )


def spread(parts: Parts, plan: Plan, params: Tree) -> tuple[Tree, Tree]:
    """Direct and precached parts as trees like the parameters, leading axis over the nodes."""
    rows = len(plan.rows)
    empty = lambda like: jax.tree.map(lambda x: jnp.zeros((rows, *x.shape), x.dtype), like)
    outer = empty(params["outer"])
    blocks = [empty(layer_of(params["blocks"], b)) for b in range(_depth(params))]
    for held, at, b in _pieces(parts, plan):
        put = lambda total, x, at=at: total.at[np.array(at)].set(x)
        if b is None:
            outer = jax.tree.map(put, outer, held)
        else:
            blocks[b] = jax.tree.map(put, blocks[b], held)
    stacked = not isinstance(params["blocks"], tuple)
    made = jax.tree.map(lambda *x: jnp.stack(x, 1), *blocks) if stacked else tuple(blocks)
    whole = {"outer": outer, "blocks": made}
    index = row_index(plan)

    def component(c: int) -> Tree:
        at = jnp.array(index[:, c])
        missing = lambda x: at.reshape(-1, *[1] * (x.ndim - 1)) < 0
        return jax.tree.map(lambda x: jnp.where(missing(x), 0, x[at]), whole)

    return component(0), component(1)


def step_sizes(parts: Parts, plan: Plan, whole: Tree, total: Array) -> Array:
    """`|G_c|` of direct, precached and shared and `|G|` of the whole step, `[nodes, 4]`.

    Where a component is far larger than the whole, components cancel.

    Args:
        whole: the whole step, cut as the parts are. total: its square, uncut.
    """
    rows = len(plan.rows)
    square, along, paired = (jnp.zeros(rows) for _ in range(3))
    for held, at, b in _pieces(parts, plan):
        like = whole["outer"] if b is None else layer_of(whole["blocks"], b)

        where = np.array(at)

        def sums(n: Array, held=held, like=like, last=where.size - 1) -> tuple[Array, ...]:
            # a node's precached row follows its direct one
            own, following = (tree.index(held, m) for m in (n, jnp.minimum(n + 1, last)))
            return tree.dot(own, own), tree.dot(own, like), tree.dot(own, following)

        # row by row: nothing of the size of all rows is made
        more = jax.lax.map(sums, jnp.arange(where.size))
        square, along, paired = (
            total.at[where].add(x) for total, x in zip((square, along, paired), more, strict=True)
        )
    index = row_index(plan)
    both = jnp.array(index[:, 1] >= 0)
    direct, precached = index[:, 0], np.maximum(index[:, 1], 0)
    rest = total + square[direct] - 2 * along[direct]
    rest += jnp.where(both, square[precached] - 2 * along[precached] + 2 * paired[direct], 0)
    before = jnp.where(both, square[precached], 0)
    sizes = (square[direct], before, rest, jnp.full(len(both), total))
    return jnp.sqrt(jnp.maximum(jnp.stack(sizes, axis=1), 0))


def _pieces(parts: Parts, plan: Plan) -> Iterator[tuple[Tree, Sequence[int], int | None]]:
    """Every held tree with the rows that it belongs to and its block (None for `outer`)."""
    for held, chunk in zip(parts.outer, plan.chunks, strict=True):
        yield held, chunk.index, None
    for b in range(plan.top):
        rows = plan.ending(b + 1)
        if rows.stop > rows.start:
            yield parts.ending[b], range(rows.start, rows.stop), b
        for held, chunk in zip(parts.through[b], plan.chunks, strict=True):
            if count := plan.above(chunk, b + 1):
                yield held, chunk.index[:count], b


def _depth(params: Tree) -> int:
    """N, from the parameters."""
    blocks = params["blocks"]
    return len(blocks) if isinstance(blocks, tuple) else jax.tree.leaves(blocks)[0].shape[0]
