"""What is one update? A pure function of parameters, optimiser state, batch and learning rate."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxfeat import tree
from jaxfeat.grads.moments import StepRule, decay_terms, make_optimizer
from jaxfeat.nn.blocks import residuals
from jaxfeat.nn.copies import Copies
from jaxfeat.nn.decoder import Decoder
from jaxfeat.nn.loss import batch_loss
from jaxfeat.nn.route import check_route
from jaxfeat.types import Array, Batch, Tree, UserError


class TrainState(NamedTuple):
    """Parameters, optimiser state and the number of updates done (0 is the initialisation)."""

    params: Tree
    opt_state: Tree
    step: Array


Update = Callable[[TrainState, Batch, Array], tuple[TrainState, Array]]


def init_state(rule: StepRule, params: Tree) -> TrainState:
    """The state before the first update. Optimiser moments are kept in at least float32."""
    opt_state = make_optimizer(rule).init(jax.tree.map(tree.widen, params))
    return TrainState(params, opt_state, jnp.zeros((), jnp.int32))


def make_update(decoder: Decoder, rule: StepRule, *, route=None, copies: Copies = None) -> Update:
    """The update `(state, batch, learning_rate) -> (state, loss before it in nats)`.

    Args:
        route: what gradient crosses positions in training; copies: segments of untied parameters.
    """
    optimizer = make_optimizer(rule)
    check_route(route)

    def update(state: TrainState, batch: Batch, learning_rate: Array):
        made = jax.eval_shape(optimizer.init, state.params)
        if type(made) is not type(state.opt_state):
            given = type(state.opt_state).__name__
            raise UserError(f"state: {given} of another optimiser given, {rule.name!r} is trained")

        def loss(params: Tree) -> Array:
            resid = residuals(decoder, params, batch, route=route, copies=copies)[0]
            return batch_loss(decoder, params["outer"], resid[:, -1], batch, copies=copies)

        value, grads = jax.value_and_grad(loss)(state.params)
        wide = jax.tree.map(tree.widen, grads)
        steps, opt_state = optimizer.update(wide, state.opt_state)
        if rule.decay:
            steps = tree.add(steps, decay_terms(rule, state.params))
        params = jax.tree.map(
            lambda p, u: p - (learning_rate * u).astype(p.dtype), state.params, steps
        )
        return TrainState(params, opt_state, state.step + 1), value

    return update
