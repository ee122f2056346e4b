"""How good is a sparse autoencoder on given activations, and what does the model lose by it?"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfeat.features.activations import Activations, chunks_of
from jaxfeat.features.sae import SAE, check_sae, decode, encode
from jaxfeat.nn.blocks import residuals, run_blocks
from jaxfeat.nn.decoder import Decoder
from jaxfeat.nn.loss import token_losses
from jaxfeat.types import Array, Batch, Tree, UserError, check_whole


class Facts(NamedTuple):
    """What an SAE does to rows of activations."""

    explained: float  # 1 - mean |x - decode(encode(x))|^2 / mean |x - mean x|^2
    l0: float  # active features at a position, on average
    dead: float  # share of the features that are active at none of the rows
    rows: int  # positions that were measured
    rate: np.ndarray  # [M] share of the rows at which a feature is active


class Recovered(NamedTuple):
    """Losses of the model in nats per target, with what stands in the place of the residual."""

    share: float  # (loss_zero - loss_sae) / (loss_zero - loss)
    loss: float  # the residual itself
    loss_sae: float  # its reconstruction
    loss_zero: float  # zeros
    targets: int  # targets of each mean


def sae_facts(sae: SAE, found: Activations, *, at_once: int = 4096) -> Facts:
    """Explained variance, L0 and dead features on every row that counts.

    Args:
        at_once: rows that are held together.

    Raises:
        UserError: activations of another width or layer.
    """
    width = found.resid.shape[-1]
    if width != sae.w_enc.shape[0] or found.layer != sae.layer:
        raise UserError(
            f"sae: of width {sae.w_enc.shape[0]} at layer {sae.layer}, the activations are of "
            f"width {width} at layer {found.layer}"
        )
    parts = [_sums(sae, rows, real) for rows, real in chunks_of(found, at_once)]
    # added up in float64, whatever the type in a chunk
    missed, square, shift, active, count = (
        np.sum([np.asarray(part[n], np.float64) for part in parts], axis=0) for n in range(5)
    )
    variance = square / count - np.sum((shift / count) ** 2)
    rate = active / count
    return Facts(
        float(1 - missed / count / variance), float(rate.sum()), float(np.mean(active == 0)),
        int(count), rate,
    )  # fmt: skip


@jax.jit
def _sums(sae: SAE, rows: Array, real: Array) -> tuple[Array, ...]:
    """Of a chunk: missed squares, squares and sum about `b_dec`, active rows of each feature."""
    x = rows.astype(sae.w_enc.dtype)
    f = encode(sae, x)
    square = lambda y: jnp.sum(jnp.where(real, jnp.sum(y * y, axis=-1), 0))
    away = jnp.where(real[:, None], x - sae.b_dec[None], 0)
    active = jnp.sum((f > 0) & real[:, None], axis=0)
    return square(x - decode(sae, f)), square(away), away.sum(axis=0), active, real.sum()


def recovered_loss(
    decoder: Decoder,
    params: Tree,
    batch: Batch,
    sae: SAE,
    special: Array | None = None,
    *,
    at_once: int = 8,
) -> Recovered:
    """How much of the loss that the layer's residual saves does the reconstruction save?

        (L(zeros) - L(reconstruction)) / (L(zeros) - L)        means over all real targets

    At real positions the residual at the SAE's layer is replaced; special ones keep their own.

    Args:
        special: `[B, T]`, true at real positions that keep their residual (a beginning marker).
        at_once: sequences that run together; logits are held in groups (`jaxfeat.nn.loss`).

    Raises:
        UserError: an SAE of another width or layer, no target, a mask of another shape.
    """
    check_sae(sae, decoder)
    keep = jnp.zeros(batch.mask.shape, bool) if special is None else jnp.asarray(special, bool)
    if keep.shape != batch.mask.shape:
        raise UserError(f"special: shape {keep.shape} given, {batch.mask.shape} needed")
    size, targets = len(batch.token), int(np.sum(batch.weight))
    if not targets:
        raise UserError("batch: no target counts")
    at_once = min(check_whole("at_once", at_once, 1), size)
    groups, sums = -(-size // at_once), np.zeros(3)
    spread = lambda x: np.pad(np.asarray(x), ((0, groups * at_once - size), (0, 0)))
    padded, keep = jax.tree.map(spread, batch), spread(keep)  # rows without a target
    run = jax.jit(lambda *xs: _three_losses(decoder, *xs))
    for g in range(groups):
        rows = slice(g * at_once, (g + 1) * at_once)
        part = Batch(*(x[rows] for x in padded))
        sums += np.asarray(run(params, part, sae, keep[rows]), np.float64)
    loss, loss_sae, loss_zero = (sums / targets).tolist()
    share = (loss_zero - loss_sae) / (loss_zero - loss) if loss_zero != loss else np.nan
    return Recovered(float(share), loss, loss_sae, loss_zero, targets)


def _three_losses(decoder: Decoder, params: Tree, batch: Batch, sae: SAE, keep: Array) -> Array:
    """Summed losses `[3]`: with the residual, its reconstruction, zeros."""
    resid = residuals(decoder, params, batch, hi=sae.layer)[0][:, -1]
    keep = (keep | ~batch.mask)[..., None]
    rebuilt = jnp.where(keep, resid, decode(sae, encode(sae, resid)).astype(resid.dtype))

    def loss(resid: Array) -> Array:
        def rest(x: Array, position: Array, mask: Array) -> Array:
            return run_blocks(decoder, params, x, position, lo=sae.layer, mask=mask)[0][-1]

        last = jax.vmap(rest)(resid, batch.position, batch.mask)
        return jnp.sum(token_losses(decoder, params["outer"], last, batch))

    return jax.lax.map(loss, jnp.stack([resid, rebuilt, jnp.where(keep, resid, 0)]))


def told_facts(facts: Facts, recovered: Recovered | None = None) -> str:
    """The facts in a line.

    >>> told_facts(Facts(0.8, 31.5, 0.02, 1000, np.zeros(4)))
    'explained variance 0.800, L0 31.5, dead features 2.0 % on 1000 positions'
    """
    line = (
        f"explained variance {facts.explained:.3f}, L0 {facts.l0:.1f}, dead features "
        f"{100 * facts.dead:.1f} % on {facts.rows} positions"
    )
    if recovered is None:
        return line
    return (
        f"{line}; recovered loss {recovered.share:.3f} (model {recovered.loss:.3f}, reconstruction "
        f"{recovered.loss_sae:.3f}, zeros {recovered.loss_zero:.3f} nats on {recovered.targets} "
        "targets)"
    )
