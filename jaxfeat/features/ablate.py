"""What does the model lose when a direction is taken out at one node?"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfeat.nn.blocks import forward, residuals
from jaxfeat.nn.copies import Copies
from jaxfeat.nn.decoder import Decoder
from jaxfeat.nn.loss import loss_terms
from jaxfeat.types import Array, Batch, Tree, UserError, check_directions, check_nodes


class Rise(NamedTuple):
    """By how much losses rise, `[n, F]` in nats: of the node's own token, and summed over later."""

    own: Array
    later: Array


def ablation_rise(
    decoder: Decoder,
    params: Tree,
    batch: Batch,
    nodes,
    w: Array,
    *,
    along: str = "pattern",
    copies: Copies = None,
) -> Rise:
    """Losses after taking directions out of the residual at one position, minus those before.

        r[k, i] <- r[k, i] - (w . (r[k, i] - mean_b r[k, i])) v

    "pattern": `v = Cov_b(r, w . r) / Var_b(w . r)`, so that all goes that the readout explains of
    the residual (the pattern of Haufe et al. 2014). "w": `v = w / |w|^2`, which for a probe that
    reads directions of little variance takes next to nothing out.

    Args:
        nodes: n pairs (layer, position). w: `[n, F, D]`, or `[F, D]` for all nodes; a direction of
            zeros takes nothing out. along: "pattern" or "w".

    Returns:
        A `Rise`: means over the examples whose position i is real.

    Raises:
        UserError: a node out of range, w of another width or number of nodes, an unknown `along`.
    """
    if along not in ("pattern", "w"):
        raise UserError(f"along: {along!r} given; valid are pattern and w")
    nodes = check_nodes(nodes, decoder.layers, batch.token.shape[1])
    w = jnp.asarray(check_directions(w, len(nodes), decoder.width), jnp.float32)
    w = w / jnp.maximum(jnp.abs(w).max(axis=-1, keepdims=True), jnp.finfo(w.dtype).tiny)
    resid = residuals(decoder, params, batch, copies=copies)[0]
    base = loss_terms(forward(decoder, params, batch, copies=copies).logits, batch)
    time = jnp.arange(batch.token.shape[1])

    def losses(layer: int, i: Array, direction: Array) -> tuple[Array, Array]:
        real = batch.mask[:, i].astype(base.dtype)
        count = jnp.maximum(real.sum(), 1)
        mean = real @ resid[:, layer, i] / count
        carrier, size = direction, direction @ direction
        if along == "pattern":
            read = ((resid[:, layer, i] - mean) @ direction) * real
            carrier, size = read @ (resid[:, layer, i] - mean), read @ read
        carrier = carrier / jnp.maximum(size, jnp.finfo(base.dtype).tiny)

        def edit(x: Array) -> Array:
            taken = (x - mean) @ direction
            return jnp.where((time == i)[:, None], x - taken[:, None] * carrier, x)

        out = forward(decoder, params, batch, copies=copies, edits={layer: edit})
        rise = (loss_terms(out.logits, batch) - base) * real[:, None]
        return rise[:, i].sum() / count, (rise * (time > i)).sum() / count

    found = {}
    for layer in sorted({k for k, _ in nodes}):
        mine = np.array([n for n, (k, _) in enumerate(nodes) if k == layer])
        at = jnp.array([nodes[n][1] for n in mine])
        each = lambda pair, layer=layer: jax.vmap(lambda d: losses(layer, pair[0], d))(pair[1])
        own, later = jax.lax.map(each, (at, w[mine]))
        found |= {int(n): (own[m], later[m]) for m, n in enumerate(mine)}
    rows = [found[n] for n in range(len(nodes))]
    return Rise(jnp.stack([own for own, _ in rows]), jnp.stack([later for _, later in rows]))
