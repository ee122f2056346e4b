"""How are the pre-caching scores of all features at a place estimated at once?

At the unablated point the KL has zero gradient: no estimate linear in cotangents exists. But with
J_j = d logits_j / d r[k, i] and F_j = diag p_j - p_j p_j^T the second order of the KL is
`KL_j(-f w) = 1/2 f^2 w^T J_j^T F_j J_j w + O(f^3)`. Draw z_j with E z_j z_j^T = F_j, independently
over j: the cotangents of S = sum_j <z_j, logits_j> at the node,

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

from jaxfeat.features.columns import (
    LOGITS,
    Base,
    check_layer,
    divisor,
    of_columns,
    over,
    rerun,
    run_base,
)
from jaxfeat.features.effects import Jobs, check_jobs, grouped, make_packs, of_packs, picked
from jaxfeat.nn.decoder import Decoder
from jaxfeat.nn.loss import ENTRIES
from jaxfeat.tree import widen
from jaxfeat.types import Array, Batch, Tree, UserError, check_whole

KINDS = ("signs", "labels")


class Sampled(NamedTuple):
    """Cotangents at n places, M draws each: `[n, M, D]`."""

    direct: Array | np.ndarray
    precached: Array | np.ndarray


class Quadratic(NamedTuple):
    """Estimated second-order KL in nats: of the edited token's prediction, and of later ones."""

    own: Array | np.ndarray
    later: Array | np.ndarray


def make_sampler(
    decoder: Decoder,
    layer: int,
    *,
    span: int = 10,
    draws: int = 16,
    kind: str = "signs",
    pack: int = 4,
    at_once: int = 16,
    entries: int = LOGITS,
) -> Callable[[Tree, Batch, np.ndarray, np.ndarray, Array], Sampled]:
    """`(params, batch, sequence [n], position [n], key) -> Sampled`, compiled once.

    Args:
        layer, span, pack, at_once, entries: as in `jaxfeat.features.effects.make_effects`.
        draws: M, vectors z drawn for each prediction.
        kind: "signs" draws e in {-1, 1}^V, `z = sqrt(p) e - p (sqrt(p) . e)`; "labels" a token y
            from the model's own p, `z = onehot(y) - p`. A label costs no product with the
            vocabulary, but rare labels make its tails heavy: more draws are needed.

    Raises:
        UserError: an unknown kind, a layer out of range, a bidirectional model.
    """
    check_layer(decoder, layer)
    if kind not in KINDS:
        raise UserError(f"kind: {kind!r} given; valid: {', '.join(KINDS)}")
    for name, value in (("span", span), ("draws", draws), ("pack", pack), ("at_once", at_once)):
        check_whole(name, value, 1)

    def scores(outer: Tree, key: Array, top: Array, counted: Array, together: int) -> Array:
        """`[M, rows, D]`: `J^T z` up to each residual at layer N, 0 where it does not count."""
        read = lambda x: decoder.unembed(outer, decoder.norm(outer, x))
        logits, pull = jax.vjp(over(read, 1), top)
        p = jax.nn.softmax(widen(logits), axis=-1)
        back = lambda z: widen(pull(z.astype(logits.dtype))[0])

        def by_signs(key: Array) -> Array:
            e = jax.random.rademacher(key, p.shape, p.dtype) * jnp.sqrt(p)
            return back(e - p * jnp.sum(e, axis=-1, keepdims=True))

        def by_labels(key: Array) -> Array:
            uniform = jax.random.uniform(key, p.shape[:1], p.dtype)
            labels = jnp.minimum(jax.vmap(jnp.searchsorted)(total, uniform), decoder.vocab - 1)
            one = lambda x, y: decoder.unembed(outer, decoder.norm(outer, x), y[None])[0]
            return widen(jax.vmap(jax.grad(one))(top, labels)) - mean

        draw = by_signs
        if kind == "labels":
            draw, mean, total = by_labels, back(p), jnp.cumsum(p, axis=-1)
        found = jax.lax.map(draw, jax.random.split(key, draws), batch_size=together)
        return jnp.where(counted[:, None], found, 0).astype(top.dtype)

    @jax.jit
    def run(params: Tree, key: Array, turn: tuple[int, int], base: Base, i: Array):
        def both(mine: Base, i: Array, key: Array):
            zero = jnp.zeros((*i.shape, 1, decoder.width), base.resid.dtype)
            far, pull = jax.vjp(lambda d: rerun(decoder, params, mine, i, d, span), zero)
            _, pull_own = jax.vjp(lambda d: rerun(decoder, params, mine, i, d, 1), zero)
            counted = of_columns(mine, i, span)[1].reshape(-1)
            top = far.reshape(-1, decoder.width)
            drawn = scores(params["outer"], key, top, counted, divisor(draws, entries // held))
            drawn = drawn.reshape(draws, *far.shape)
            total = jax.vmap(lambda c: pull(c)[0])(drawn)[:, :, 0]
            own = jax.vmap(lambda c: pull_own(c)[0])(drawn[:, :, :, :1])[:, :, 0]
            return own.swapaxes(0, 1), (total - own).swapaxes(0, 1)  # [P, M, D]

        for n in turn:
            key = jax.random.fold_in(key, n)
        keys = jax.random.split(key, i.shape[0])
        logits = i.shape[1] * span * decoder.vocab  # of a pack
        packs = divisor(at_once, entries // logits)
        held = packs * logits  # for each draw
        return jax.lax.map(lambda one: both(*one), (base, i, keys), batch_size=packs)

    base_of = jax.jit(partial(run_base, decoder, layer=layer))

    def sample(params: Tree, batch: Batch, sequence, position, key: Array) -> Sampled:
        places, back = np.unique(np.stack([sequence, position], 1), axis=0, return_inverse=True)
        jobs = check_jobs(Jobs(places[:, 0], places[:, 1], np.zeros(len(places), int)), batch)
        out = [np.zeros((len(places), draws, decoder.width), np.float32) for _ in range(2)]
        for n, (rows, packs) in enumerate(grouped(make_packs(jobs, pack), at_once)):
            base = base_of(params, picked(batch, rows))
            for m, mine in enumerate(packs):
                found = run(params, key, (n, m), of_packs(base, mine), mine.position)
                found = jax.device_get(found)
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
    size = max(1, ENTRIES // (sampled.direct.shape[1] * directions.shape[0]))

    def total(cotangent: Array | np.ndarray) -> Array:
        def one(place: tuple[Array, Array]) -> Array:
            along = place[0] @ directions.T  # [M, F]
            return place[1] * jnp.mean(jnp.square(along), axis=0)

        return jnp.sum(jax.lax.map(one, (cotangent, squared), batch_size=size), axis=0) / 2

    return Quadratic(*(total(c) for c in sampled))


@jax.jit
def of_jobs(sampled: Sampled, place: Array, delta: Array) -> Quadratic:
    """One value for each of n' edits `delta [n', D]` at the places of these indices `[n']`."""
    along = lambda c: jnp.einsum("nmd,nd->nm", c[place], delta)
    return Quadratic(*(jnp.mean(jnp.square(along(c)), axis=1) / 2 for c in sampled))
