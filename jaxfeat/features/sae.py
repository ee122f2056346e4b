"""Which features does a sparse autoencoder see in a residual, and what is left without one?

`x ~ f W_dec + b_dec` with `f = act(x W_enc + b_enc) >= 0` for the residual x of one position, in
the units of the model: whatever a file or a training did to its inputs is folded into the arrays.
JumpReLU after arXiv 2407.14435, top-k after arXiv 2406.04093. Names as in SAELens.
"""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxfeat.nn.decoder import Decoder
from jaxfeat.tree import widen
from jaxfeat.types import Array, UserError, check_whole

KINDS = ("jumprelu", "relu", "topk")


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["w_enc", "b_enc", "w_dec", "b_dec", "threshold", "scale"],
    meta_fields=["kind", "k", "layer"],
)
@dataclasses.dataclass(frozen=True)
class SAE:
    """A sparse autoencoder of one layer's residual: a pytree whose kind, k and layer are static."""

    w_enc: Array  # [D, M]
    b_enc: Array  # [M]
    w_dec: Array  # [M, D], row m is what feature m writes
    b_dec: Array  # [D]
    threshold: Array  # [M], what a pre-activation must exceed; 0 unless kind is jumprelu
    kind: str  # one of KINDS
    k: int  # features that stay at a position; 0 unless kind is topk
    layer: int  # public: the residual after block `layer`, 0 the embedding
    scale: Any = 1.0  # told only: what inputs were multiplied by before it was folded in


def encode(sae: SAE, resid: Array) -> Array:
    """Activations `f [..., M]`, none negative, of residuals `[..., D]`.

        pre = x W_enc + b_enc
        jumprelu: f = pre where pre > max(threshold, 0), else 0      relu: f = max(pre, 0)
        topk:     f = max(pre, 0) where pre is among the k largest of its position, else 0

    Pre-activations that equal the k-th largest all stay.

    >>> two = SAE(jnp.eye(2), jnp.zeros(2), jnp.eye(2), jnp.zeros(2), jnp.zeros(2), "topk", 1, 0)
    >>> encode(two, jnp.array([[3.0, 2.0], [-1.0, -2.0]])).tolist()
    [[3.0, 0.0], [0.0, 0.0]]
    """
    return activate(sae, _pre(sae, resid, sae.w_enc, sae.b_enc), sae.threshold)


def activate(sae: SAE, pre: Array, threshold: Array) -> Array:
    """`f` out of pre-activations; for topk those of all features are needed."""
    if sae.kind == "jumprelu":
        return jnp.where(pre > jnp.maximum(threshold, 0), pre, 0)
    if sae.kind == "topk":
        return jnp.where(among_largest(pre, sae.k), jnp.maximum(pre, 0), 0)
    return jnp.maximum(pre, 0)


def decode(sae: SAE, f: Array) -> Array:
    """The reconstruction `f W_dec + b_dec`, `[..., D]` out of `[..., M]`."""
    return jnp.matmul(f, sae.w_dec, precision="highest") + _row(sae.b_dec, f)


def encode_some(sae: SAE, resid: Array, ids) -> Array:
    """Activations `[..., n]` of the chosen features alone; of relu and jumprelu nothing else is
    computed.

    Raises:
        UserError: an id outside 0..M-1.
    """
    ids = check_features(sae, ids)
    if sae.kind == "topk":
        return encode(sae, resid)[..., ids]
    w_enc, b_enc, threshold = map(jnp.asarray, (sae.w_enc, sae.b_enc, sae.threshold))
    return activate(sae, _pre(sae, resid, w_enc[:, ids], b_enc[ids]), threshold[ids])


def feature_column(sae: SAE, ids) -> Array:
    """What features write: rows of `w_dec`, `[D]` for one id, `[n, D]` for several.

    Raises:
        UserError: an id outside 0..M-1.
    """
    rows = jnp.asarray(sae.w_dec)[check_features(sae, ids)]
    return rows[0] if np.ndim(ids) == 0 else rows


def ablated(sae: SAE, resid: Array, ids, *, error_term: bool = True) -> Array:
    """Residuals `[..., D]` without what one or several features write there.

        x - sum_m f_m w_dec[m]        all else stays, what the SAE cannot tell (the error) too
        decode(f with f_m = 0)        with `error_term=False`: the form of arXiv 2603.14087's code,
                                      which changes x even where no feature is active

    In the first form a position where none of the features is active comes back bit by bit.

    Args:
        resid: `[..., D]`. ids: a feature, or several that are taken out together.

    Raises:
        UserError: an id outside 0..M-1, or one that stands twice.
    """
    ids = check_features(sae, ids)
    if not isinstance(ids, Tracer) and len(set(ids.tolist())) != len(ids):
        raise UserError("features: each id may stand only once")
    if not error_term:
        return decode(sae, encode(sae, resid).at[..., ids].set(0)).astype(resid.dtype)
    f = encode_some(sae, resid, ids)
    taken = jnp.matmul(f, jnp.asarray(sae.w_dec)[ids], precision="highest")
    less = (resid - taken).astype(resid.dtype)
    return jnp.where((f > 0).any(axis=-1, keepdims=True), less, resid)


def ablation(sae: SAE, feature: Array, resid: Array, *, error_term: bool = True) -> Array:
    """What taking out one feature (its id may be traced) adds to a residual `[D]`.

    `-f w_dec`; with `error_term=False` what the authors' exchange of x adds. The form that
    `jaxfeat.features.effects.make_effects` reads as `delta_of`.
    """
    if not error_term:
        return ablated(sae, resid, feature, error_term=False) - resid
    return -encode_some(sae, resid, feature)[0] * jnp.asarray(sae.w_dec)[feature]


def fold_scale(sae: SAE, scale: float | Array) -> SAE:
    """The SAE that reads x where this one reads `scale x`: the same f, x in its own units.

    `W_enc scale`, `W_dec / scale`, `b_dec / scale`; `scale` is kept in the field of this name.
    """
    return dataclasses.replace(
        sae, w_enc=sae.w_enc * scale, w_dec=sae.w_dec / scale, b_dec=sae.b_dec / scale,
        scale=sae.scale * scale,
    )  # fmt: skip


def fold_centre(sae: SAE, centre: Array) -> SAE:
    """The SAE that encodes x as this one encodes `x - centre`; what it decodes stays."""
    shift = jnp.matmul(centre, sae.w_enc, precision="highest")
    return dataclasses.replace(sae, b_enc=sae.b_enc - shift)


def fold_norms(sae: SAE) -> SAE:
    """The SAE whose decoder rows have norm 1 and whose f are as much larger: the same output.

    A topk SAE then chooses by `pre |w_dec|` (`rescale_acts_by_decoder_norm` in SAELens). Rows of
    zeros stay.
    """
    norm = jnp.linalg.norm(sae.w_dec, axis=1)
    norm = jnp.where(norm > 0, norm, 1)
    return dataclasses.replace(
        sae, w_enc=sae.w_enc * norm[None], b_enc=sae.b_enc * norm, w_dec=sae.w_dec / norm[:, None],
        threshold=sae.threshold * norm,
    )  # fmt: skip


def check_features(sae: SAE, ids) -> Any:
    """Feature ids as `[n]`, or a `UserError` that names the valid range; traced ids pass."""
    if isinstance(ids, Tracer):
        return jnp.atleast_1d(ids)
    count, given = sae.w_enc.shape[1], np.atleast_1d(np.asarray(ids))
    if given.dtype.kind not in "iu" or given.ndim != 1 or not given.size:
        raise UserError(f"features: {ids!r} given, whole numbers in 0..{count - 1} needed")
    if given.min() < 0 or given.max() >= count:
        wrong = given[(given < 0) | (given >= count)][0]
        raise UserError(f"features: id {wrong} is out of range: valid ids are 0..{count - 1}")
    return given


def check_sae(sae: SAE, decoder: Decoder, layer: int | None = None) -> SAE:
    """The SAE, if it belongs to this model's width and to this layer (by default its own).

    Raises:
        UserError: another width, a layer that the model has not, or another one than is asked for.
    """
    width, layer = sae.w_enc.shape[0], sae.layer if layer is None else layer
    if width != decoder.width:
        raise UserError(f"sae: of width {width}, the model's residual has {decoder.width}")
    check_whole("layer", layer, 0, decoder.layers)
    if layer != sae.layer:
        raise UserError(
            f"sae: of layer {sae.layer}, layer {layer} asked for (k is the residual after block k)"
        )
    return sae


def check_arrays(sae: SAE) -> SAE:
    """The SAE, if kind, k, layer and shapes fit together and every number is finite.

    Raises:
        UserError: what does not fit.
    """
    if sae.kind not in KINDS:
        raise UserError(f"kind: {sae.kind!r} given; valid: {', '.join(KINDS)}")
    if np.ndim(sae.w_enc) != 2:
        raise UserError(f"sae: w_enc has shape {np.shape(sae.w_enc)}, [D, M] needed")
    width, count = np.shape(sae.w_enc)
    if not width or not count:
        raise UserError(f"sae: w_enc has shape {(width, count)}, at least [1, 1] needed")
    check_whole("k", sae.k, int(sae.kind == "topk"), count if sae.kind == "topk" else 0)
    check_whole("layer", sae.layer, 0)
    wanted = {"b_enc": (count,), "w_dec": (count, width), "b_dec": (width,), "threshold": (count,)}
    for name, shape in wanted.items():
        if np.shape(getattr(sae, name)) != shape:
            found = np.shape(getattr(sae, name))
            raise UserError(f"sae: {name} has shape {found}, {shape} needed with w_enc [D, M]")
    for name in ("w_enc", *wanted):
        if not np.isfinite(np.asarray(getattr(sae, name))).all():
            raise UserError(f"sae: {name} holds numbers that are not finite")
    return sae


def among_largest(pre: Array, k: int) -> Array:
    """Which entries of the last axis are at least the k-th largest, or not negative if fewer are.

    The k-th value is found exactly, by bisection on the bits of the numbers, which for those of
    one sign are in the order of the numbers: no sorting, a few passes over the array.
    """
    pre = widen(jax.lax.stop_gradient(pre))
    whole = jnp.int64 if pre.dtype == jnp.float64 else jnp.int32
    largest = jnp.maximum(pre.max(axis=-1), 0)
    high = jax.lax.bitcast_convert_type(largest, whole) + 1

    def halve(_, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = low + (high - low) // 2
        value = jax.lax.bitcast_convert_type(middle, pre.dtype)
        # counted in floats, exact up to 2^24 features: twice as fast on a CPU
        enough = jnp.sum((pre >= value[..., None]).astype(pre.dtype), axis=-1) >= k
        return jnp.where(enough, middle, low), jnp.where(enough, high, middle)

    low, _ = jax.lax.fori_loop(0, jnp.iinfo(whole).bits - 1, halve, (jnp.zeros_like(high), high))
    return pre >= jax.lax.bitcast_convert_type(low, pre.dtype)[..., None]


def _pre(sae: SAE, resid: Array, w_enc: Array, b_enc: Array) -> Array:
    """`x W_enc + b_enc`."""
    if jnp.shape(resid)[-1:] != w_enc.shape[:1]:
        given = jnp.shape(resid)[-1:]
        raise UserError(f"sae: of width {w_enc.shape[0]}, the residual has {given}")
    return jnp.matmul(resid, w_enc, precision="highest") + _row(b_enc, resid)


def _row(bias: Array, like: Array) -> Array:
    """A bias with as many axes as `like`."""
    return jnp.reshape(bias, (1,) * (jnp.ndim(like) - 1) + (-1,))
