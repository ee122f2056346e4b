"""How are the pre-caching scores of all features at a place estimated at once?

At the unablated point the KL has zero gradient: no estimate linear in cotangents exists. But with
J_j = d logits_j / d r[k, i] and F_j = diag p_j - p_j p_j^T the second order of the KL is
`KL_j(-f w) = 1/2 f^2 w^T J_j^T F_j J_j w + O(f^3)`. Draw a label y_j from the model's own p_j,
independently over j: z_j = onehot(y_j) - p_j has E z_j z_j^T = F_j. The cotangents of
S = sum_j log p_j(y_j) at the node,

    c_dir = J_i^T z_i (the myopic graph),    c_pre = sum_{j>i} J_j^T z_j (the whole graph less it),

give E (w . c_dir)^2 = w^T G_i w and E (w . c_pre)^2 = sum_{j>i} w^T G_j w (cross terms vanish), so
that 2 M backward passes and one product with the decoder serve every feature:

    Qhat(w) = sum_{x,m} f^2 (w . c_pre)^2 / sum_{x,m} f^2 (w . c_dir)^2.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfeat.features.columns import Base, check_layer, of_columns, over, rerun, run_base
from jaxfeat.features.effects import Jobs, check_jobs, grouped, make_packs
from jaxfeat.nn.decoder import Decoder
from jaxfeat.nn.loss import ENTRIES
from jaxfeat.tree import index, widen
from jaxfeat.types import Array, Batch, Tree, check_whole


class Sampled(NamedTuple):
    """Cotangents at n places, M draws each: `[n, M, D]`."""

    direct: np.ndarray
    precached: np.ndarray


class Quadratic(NamedTuple):
    """Estimated second-order KL in nats: of the edited token's prediction, and of later ones."""

    own: np.ndarray
    later: np.ndarray


def make_sampler(
    decoder: Decoder,
    layer: int,
    *,
    span: int = 10,
    draws: int = 16,
    pack: int = 4,
    at_once: int = 16,
    entries: int = ENTRIES,
) -> Callable[[Tree, Batch, np.ndarray, np.ndarray, Array], Sampled]:
    """`(params, batch, sequence [n], position [n], key) -> Sampled`, compiled once.

    Args:
        layer, span, pack, at_once, entries: as in `jaxfeat.features.effects.make_effects`.
        draws: M, labels drawn for each prediction.
    """
    check_layer(decoder, layer)
    for name, value in (("span", span), ("draws", draws), ("pack", pack), ("at_once", at_once)):
        check_whole(name, value, 1)

    def scores(outer: Tree, key: Array, top: Array, counted: Array) -> Array:
        """`[M, rows, D]`: gradient of `log p(y)` in each residual, 0 where it does not count."""
        read = lambda x: decoder.unembed(outer, decoder.norm(outer, x))
        logits, pull = jax.vjp(over(read, 1), top)
        p = jax.nn.softmax(widen(logits), axis=-1)
        (mean,) = pull(p.astype(logits.dtype))
        uniform = jax.random.uniform(key, (top.shape[0], draws), p.dtype)
        labels = jax.vmap(jnp.searchsorted)(jnp.cumsum(p, axis=-1), uniform)
        labels = jnp.minimum(labels, decoder.vocab - 1)
        one = lambda x, y: decoder.unembed(outer, decoder.norm(outer, x), y[None])[0]
        found = jax.vmap(lambda x, ys: jax.vmap(lambda y: jax.grad(one)(x, y))(ys))(top, labels)
        return jnp.where(counted[:, None, None], found - mean[:, None], 0).swapaxes(0, 1)

    @jax.jit
    def run(params: Tree, key: Array, base: Base, sequence: Array, i: Array):
        def both(sequence: Array, i: Array, key: Array):
            mine = index(base, sequence)
            zero = jnp.zeros((*i.shape, 1, decoder.width), base.resid.dtype)
            far, pull = jax.vjp(lambda d: rerun(decoder, params, mine, i, d, span), zero)
            _, pull_own = jax.vjp(lambda d: rerun(decoder, params, mine, i, d, 1), zero)
            counted = of_columns(mine, i, span)[1].reshape(-1)
            drawn = scores(params["outer"], key, far.reshape(-1, decoder.width), counted)
            drawn = drawn.reshape(draws, *far.shape)
            total = jax.vmap(lambda c: pull(c)[0])(drawn)[:, :, 0]
            own = jax.vmap(lambda c: pull_own(c)[0])(drawn[:, :, :, :1])[:, :, 0]
            return own.swapaxes(0, 1), (total - own).swapaxes(0, 1)  # [P, M, D]

        keys = jax.random.split(key, sequence.shape[0])
        rows = i.shape[1] * span
        return jax.lax.map(
            lambda one: both(*one), (sequence, i, keys),
            batch_size=max(1, min(at_once, entries // (rows * decoder.vocab))),
        )  # fmt: skip

    base_of = jax.jit(partial(run_base, decoder, layer=layer))

    def sample(params: Tree, batch: Batch, sequence, position, key: Array) -> Sampled:
        places, back = np.unique(np.stack([sequence, position], 1), axis=0, return_inverse=True)
        jobs = check_jobs(Jobs(*places.T, np.zeros(len(places), int)), batch)
        out = [np.zeros((len(places), draws, decoder.width), np.float32) for _ in range(2)]
        for n, (rows, packs) in enumerate(grouped(make_packs(jobs, pack), at_once)):
            base = base_of(params, index(batch, rows))
            for m, mine in enumerate(packs):
                here = jax.random.fold_in(jax.random.fold_in(key, n), m)
                found = jax.device_get(run(params, here, base, mine.sequence, mine.position))
                asked = mine.job[..., 0] >= 0
                for whole, part in zip(out, found):
                    whole[mine.job[asked, 0]] = part[asked]
        return Sampled(*(x[back.reshape(-1)] for x in out))

    return sample


@jax.jit
def all_features(sampled: Sampled, activation: Array, directions: Array) -> Quadratic:
    """Sums over places for every feature at once, `[F]`.

    Args:
        activation: `[n, F]`, how strongly each feature is active at each place (0: not at all).
        directions: `[F, D]`, what an activation of 1 adds to the residual (`w_dec`).
    """
    squared = jnp.square(activation)

    def total(cotangent: Array) -> Array:
        along = jnp.einsum("nmd,fd->nmf", cotangent, directions)
        return jnp.sum(squared * jnp.mean(jnp.square(along), axis=1), axis=0) / 2

    return Quadratic(*(total(c) for c in sampled))


@jax.jit
def of_jobs(sampled: Sampled, place: Array, delta: Array) -> Quadratic:
    """One value for each of n' edits `delta [n', D]` at the places of these indices `[n']`."""
    along = lambda c: jnp.einsum("nmd,nd->nm", c[place], delta)
    return Quadratic(*(jnp.mean(jnp.square(along(c)), axis=1) / 2 for c in sampled))
