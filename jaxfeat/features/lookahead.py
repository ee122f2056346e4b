"""Which directions of the residual does a linear look into the next tokens read most?

For s = 1, 2, .. a mapper turns the residual at layer k into one that the model's own head reads the
token s places on from (arXiv 2603.14087). If a feature is pre-cached, its direction should be read.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxfeat.data.order import epoch_rows
from jaxfeat.features.stream import check_corpus, fold_batches, read_layer
from jaxfeat.nn.decoder import Decoder
from jaxfeat.nn.loss import ENTRIES, batch_loss
from jaxfeat.stats import Correlation, spearman
from jaxfeat.tree import widen
from jaxfeat.types import Array, Batch, Tree, UserError, check_tokens, check_whole, whole_batch


class Mappers(NamedTuple):
    """Linear maps for s = 1..S: w `[S, D, D]`, b `[S, D]`; the head reads `w h + b`."""

    w: Array
    b: Array


class Fit(NamedTuple):
    """Trained mappers with losses in nats per target.

    before, after `[S]`: held-out losses of the identity and of the mappers; targets `[S]`: how
    many held-out targets count; trace `[updates, S]`: losses of the training batches.
    """

    mappers: Mappers
    before: np.ndarray
    after: np.ndarray
    targets: np.ndarray
    trace: np.ndarray


def identity_mappers(width: int, ahead: int, dtype: Any = jnp.float32) -> Mappers:
    """Where training begins: w = 1, b = 0, the head read at layer k as it stands."""
    w = jnp.broadcast_to(jnp.eye(width, dtype=dtype), (ahead, width, width))
    return Mappers(w, jnp.zeros((ahead, width), dtype))


def ahead_batch(tokens: Array, special: Array, s: Array | int) -> Batch:
    """Tokens `[B, T]` with the tokens s places on as targets.

    A target counts where it exists and neither it nor the position that predicts it is special.

    >>> b = ahead_batch(jnp.array([[0, 5, 6, 7]]), jnp.array([[True, False, False, False]]), 2)
    >>> b.target[0, 1].tolist(), b.weight.tolist()
    (7, [[False, True, False, False]])
    """
    batch, text = whole_batch(tokens), ~special
    weight = text & jnp.roll(text, -s, axis=1) & (batch.position + s < tokens.shape[1])
    return batch._replace(target=jnp.roll(batch.token, -s, axis=1), weight=weight)


def mapper_losses(
    decoder: Decoder,
    outer: Tree,
    mappers: Mappers,
    resid: Array,
    tokens: Array,
    special: Array,
    *,
    entries: int = ENTRIES,
) -> tuple[Array, Array]:
    """Sums of the losses of `head(norm(w_s h + b_s))` on token t + s, in nats, and their counts.

    Args:
        outer: the model's parameters outside of blocks, fixed. resid: `[B, T, D]`, h at layer k.
        tokens, special: `[B, T]`. entries: logits that are held together.

    Returns:
        `[S]` sums and `[S]` counts.
    """

    def one(x: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        w, b, s = x
        batch = ahead_batch(tokens, special, s)
        mapped = jnp.einsum("BTD,ED->BTE", resid.astype(w.dtype), w, precision="highest") + b
        unit = jnp.ones((), jnp.int32)
        total = batch_loss(
            decoder, outer, mapped.astype(resid.dtype), batch, count=unit, entries=entries
        )
        return total, batch.weight.sum(dtype=jnp.int32)

    steps = jnp.arange(1, mappers.b.shape[0] + 1, dtype=jnp.int32)
    return jax.lax.map(one, (*mappers, steps))


def fit_mappers(
    decoder: Decoder,
    params: Tree,
    layer: int,
    train: tuple[Any, Any],
    held: tuple[Any, Any],
    key: Array,
    *,
    ahead: int = 5,
    updates: int = 1000,
    batch: int = 8,
    rate: float = 0.05,
    entries: int = ENTRIES,
    watch: Callable[[int, Array], None] | None = None,
) -> Fit:
    """Mappers of layer k for s = 1..ahead, trained by Adam on cross-entropy from the identity.

    The model is fixed. All s share the residuals of a batch but no parameter. An entry of w changes
    by about `rate / D` an update at first, its spectral norm by `rate` at most; the rate falls
    linearly to 0.

    Args:
        layer: k, 0..N: the residual that the SAE reads (`resid_post` of 0-based block k - 1).
        train, held: (tokens `[n, T]`, special `[n, T]`) of different documents.
        key: of the order in which windows are seen. updates, batch: their number and windows each.
        watch: told (update, losses `[S]` on the device) after each update.

    Returns:
        A `Fit`.

    Raises:
        UserError: shapes that do not fit, a window that stands on both sides, S of T or more.
    """
    tokens, special = check_corpus(*train)
    others, masked = check_corpus(*held)
    for name, ids in (("train", tokens), ("held", others)):
        check_tokens(ids, decoder.vocab, name)
    check_whole("ahead", ahead, 1, min(tokens.shape[1], others.shape[1]) - 1)
    check_whole("updates", updates, 1)
    if not 0 < rate < np.inf:
        raise UserError(f"rate: {rate} given, a number above 0 needed")
    both = {row.tobytes() for row in tokens} & {row.tobytes() for row in others}
    if both:
        raise UserError(f"held: {len(both)} windows also stand in train")
    read = read_layer(decoder, layer)
    wide = widen(jnp.zeros((), jax.tree.leaves(params["outer"])[0].dtype)).dtype
    mappers = identity_mappers(decoder.width, ahead, wide)
    rule = optax.adam(optax.linear_schedule(rate / decoder.width, 0.0, updates))

    def update(params: Tree, data: tuple[Array, Array], state: tuple, step: Array):
        mappers, moments = state
        rows = epoch_rows(key, step, batch, len(tokens))
        some, mask = (x[rows] for x in data)
        resid = read(params, some)

        def loss(mappers: Mappers) -> tuple[Array, Array]:
            total, count = mapper_losses(
                decoder, params["outer"], mappers, resid, some, mask, entries=entries
            )
            each = total / jnp.maximum(count, 1).astype(total.dtype)
            return each.sum(), each

        grads, each = jax.grad(loss, has_aux=True)(mappers)
        change, moments = rule.update(grads, moments)
        return (optax.apply_updates(mappers, change), moments), each

    def total(given: tuple[Tree, Mappers], sums: tuple, rows: tuple, real: Array) -> tuple:
        params, mappers = given
        more = mapper_losses(
            decoder, params["outer"], mappers, read(params, rows[0]), rows[0],
            rows[1] | ~real[:, None], entries=entries,
        )  # fmt: skip
        return jax.tree.map(jnp.add, sums, more)

    def held_out(mappers: Mappers) -> tuple[np.ndarray, np.ndarray]:
        zero = jnp.zeros(ahead, wide), jnp.zeros(ahead, jnp.int32)
        sums, count = fold_batches(total, zero, (params, mappers), (others, masked), batch)
        return np.asarray(sums, np.float64) / np.maximum(count, 1), np.asarray(count)

    before, targets = held_out(mappers)
    run, data = jax.jit(update, donate_argnums=2), jax.device_put((tokens, special))
    state, trace = (mappers, rule.init(mappers)), []
    for n in range(updates):
        state, losses = run(params, data, state, np.int32(n))
        trace.append(losses)
        if watch is not None:
            watch(n, losses)
    after, _ = held_out(state[0])
    return Fit(state[0], before, after, targets, np.asarray(jnp.stack(trace)))


def projection_cosines(w: Array, directions: Array) -> Array:
    """How much of each direction lies in what a mapper reads most, for every rank at once.

        cos_r(e) = |V_r^T e| / |e|,   w = U S V^T,   V_r: the first r columns of V

    V_r are right singular vectors of w itself, not of w - 1: they are the input directions by which
    `w h` changes most, and the mapper has no path around w. (The identity is where training began;
    of what training changed, `projection_cosines(w - eye, e)` tells.) Where singular values are
    equal, as all are before training, their order is arbitrary.

    Args:
        w: `[D, D]`, of one s. directions: `[M, D]`, such as the rows of an SAE's w_dec.

    Returns:
        `[M, D]`: column r - 1 has rank r; the last is 1. A direction of zeros gives NaN.

    Raises:
        UserError: shapes that do not fit.

    >>> w = jnp.diag(jnp.array([1.0, 3.0]))
    >>> projection_cosines(w, jnp.array([[3.0, 4.0]])).round(3).tolist()
    [[0.800000011920929, 1.0]]
    """
    w, directions = jnp.asarray(w), jnp.asarray(directions)
    if w.ndim != 2 or directions.ndim != 2 or directions.shape[1] != w.shape[1]:
        raise UserError(f"w {w.shape} and directions {directions.shape}: [E, D] and [M, D] needed")
    size = jnp.linalg.norm(directions, axis=1, keepdims=True)
    right = jnp.linalg.svd(w, full_matrices=True)[2]
    along = jnp.matmul(directions / size, right.T, precision="highest")
    return jnp.minimum(jnp.sqrt(jnp.cumsum(along**2, axis=1)), 1)


def correlate_cosines(cosines: Any, q: Any, ranks: Sequence[int]) -> list[Correlation]:
    """Spearman's correlation of cos_r with Q over the features where both are known, by rank r.

    Args:
        cosines: `[M, D]`. q: `[M]`, NaN where unknown. ranks: r, 1..D.

    Raises:
        UserError: lengths differ, a rank is out of range, no feature is known.

    >>> correlate_cosines([[0.1, 1.0], [0.2, 1.0], [0.3, 1.0]], [9.0, 5.0, 4.0], [1])[0].r
    -1.0
    """
    cosines, q = np.asarray(cosines, np.float64), np.asarray(q, np.float64)
    if cosines.ndim != 2 or q.shape != cosines.shape[:1]:
        raise UserError(f"cosines {cosines.shape} and q {q.shape}: [M, D] and [M] needed")
    known = np.isfinite(q) & np.isfinite(cosines).all(axis=1)
    columns = [check_whole("ranks", r, 1, cosines.shape[1]) - 1 for r in ranks]
    return [spearman(cosines[known, r], q[known]) for r in columns]
