"""Does a route hold on the weights at hand? Checked, not assumed."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfeat import tree
from jaxfeat.grads.split import check_causal, split_by_definition, split_gradient
from jaxfeat.nn.blocks import forward, run_blocks
from jaxfeat.nn.copies import Copies, check_copies
from jaxfeat.nn.decoder import Decoder
from jaxfeat.nn.route import resolve
from jaxfeat.types import Array, Batch, Tree


class RouteCheck(NamedTuple):
    """What `verify_routes` found, over all blocks and pairs of positions of the first example.

    `blocked`: the largest gradient on a path that the route blocks or that lies in the future
    (must be 0). `open`: the smallest on a visible open path (must not be 0). `same`: whether the
    logits are bit-equal with and without the route.
    """

    blocked: float
    open: float
    same: bool

    @property
    def holds(self) -> bool:
        """Whether every stop holds and nothing else is stopped."""
        return self.blocked == 0 and self.open > 0 and self.same


def verify_routes(
    decoder: Decoder, params: Tree, batch: Batch, *, route=None, copies: Copies = None
) -> RouteCheck:
    """Prove on these parameters that a route stops what it should and nothing else.

    For every block and every pair (t, s) of real positions, the gradient from the block's output at
    t to its input at s is computed along a fixed random direction.

    Raises:
        UserError: a bidirectional model, a route or copies that do not fit.
    """
    check_causal(decoder)
    length = batch.token.shape[1]
    resolved, copies = resolve(route, length), check_copies(copies, length)
    sizes = jax.jit(lambda p: _path_sizes(decoder, p, batch, resolved, copies))(params)
    gate = np.asarray(_gate(resolved, length))  # [T, S], or [N, T, S] by block
    real = np.asarray(batch.mask[0])
    pairs = real[:, None] & real[None, :]
    earlier = np.tril(np.ones((length, length), bool)) & pairs
    visible = np.asarray(sizes[1]) & earlier
    own = np.eye(length, dtype=bool)
    values = np.asarray(sizes[0])
    shut = values[np.broadcast_to(pairs & ~own & ~(earlier & (gate > 0)), values.shape)]
    let = values[visible & ((gate > 0) | own)]
    plain = _logits(decoder, params, batch, None, copies)
    routed = _logits(decoder, params, batch, route, copies)
    same = np.asarray(plain).tobytes() == np.asarray(routed).tobytes()
    return RouteCheck(float(shut.max(initial=0)), float(let.min(initial=np.inf)), same)


def split_residual(decoder: Decoder, params: Tree, batch: Batch, nodes) -> float:
    """The worst difference of the fast split from its definition on these weights.

    Returns:
        `max |fast - definition|` over all components, parameters and nodes, relative to the
        largest entry of any component.
    """

    def gap(params: Tree) -> Array:
        fast = split_gradient(decoder, params, batch, nodes)
        slow = split_by_definition(decoder, params, batch, nodes)
        worst = lambda t: jnp.max(jnp.stack([jnp.max(jnp.abs(x)) for x in jax.tree.leaves(t)]))
        return worst(tree.sub(fast, slow)) / worst(slow)

    with jax.default_matmul_precision("highest"):
        return float(jax.jit(gap)(params))


def _logits(decoder, params, batch, route, copies) -> Array:
    """Logits of the compiled program with a route."""
    return jax.jit(lambda p: forward(decoder, p, batch, route=route, copies=copies).logits)(params)


def _path_sizes(decoder, params, batch: Batch, route, copies) -> tuple[Array, Array]:
    """Gradient sizes `[N, T, S]` through each block, and which paths are visible `[N, T, S]`."""
    first = jax.tree.map(lambda x: x[:1], batch)
    resid = forward(decoder, params, first, copies=copies).resid[0]
    position, mask = first.position[0], first.mask[0]
    length, width = resid.shape[1:]
    direction = jax.random.normal(jax.random.key(0), (width,), resid.dtype)

    def sizes(b: int, route) -> Array:
        def block(x: Array) -> Array:
            stack, _ = run_blocks(
                decoder, params, x, position, lo=b, hi=b + 1, mask=mask, route=route, copies=copies
            )
            return stack[-1]

        _, back = jax.vjp(block, resid[b])
        one = lambda t: back(jnp.zeros_like(resid[b]).at[t].set(direction))[0]
        return jnp.abs(jax.vmap(one)(jnp.arange(length))).max(axis=-1)

    routed = jnp.stack([sizes(b, route) for b in range(decoder.layers)])
    whole = jnp.stack([sizes(b, None) for b in range(decoder.layers)])
    return routed, whole > 0


def _gate(route, length: int) -> Array:
    """The route as an array of weights."""
    if route is None:
        return jnp.ones((length, length))
    return jnp.eye(length) if isinstance(route, str) else jnp.asarray(route, float)
