"""The linen modules that model families share. None has a position axis: callers `vmap`."""

import math
from collections.abc import Callable
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxfeat.tree import widen
from jaxfeat.types import Array, UserError


class LayerNorm(nn.Module):
    """`(x - mean) / sqrt(var + eps) * scale + bias` over `[D]`; both parameters are optional."""

    eps: float = 1e-5
    scale: bool = True
    bias: bool = True

    @nn.compact
    def __call__(self, x: Array) -> Array:
        y = standardize(x, self.eps)
        if self.scale:
            y = y * self.param("scale", nn.initializers.ones, x.shape[-1:], x.dtype)
        if self.bias:
            y = y + self.param("bias", nn.initializers.zeros, x.shape[-1:], x.dtype)
        return y


class RMSNorm(nn.Module):
    """`x / sqrt(mean x^2 + eps) * (offset + scale)` over the last axis, in at least float32.

    The offset is 0, or 1 in Gemma, whose checkpoints hold the scale minus 1.
    """

    eps: float = 1e-6
    offset: float = 0.0

    @nn.compact
    def __call__(self, x: Array) -> Array:
        make = nn.initializers.zeros if self.offset else nn.initializers.ones
        scale = self.param("scale", make, x.shape[-1:], x.dtype)
        y = standardize(widen(x), self.eps, False) * (self.offset + widen(scale))
        return y.astype(x.dtype)


class Linear(nn.Module):
    """`[in] -> [out]`; kernel `[out, in]`, bias `[out]` unless it is left out.

    The kernel's layout is that in which reverse mode gives its gradient: stored the other way
    round, every weight gradient would be transposed (on a CPU that costs more than the product).
    """

    out: int
    make: Callable  # draws the weights
    bias: bool = True

    @nn.compact
    def __call__(self, x: Array) -> Array:
        kernel = self.param("kernel", self.make, (self.out, x.shape[-1]), x.dtype)
        y = x @ kernel.T
        if self.bias:
            y = y + self.param("bias", nn.initializers.zeros, (self.out,), x.dtype)
        return y


class Table(nn.Module):
    """Rows `[V, D]` that are read by token, also where the table is cut to tokens that occur.

    (`nn.Embed` refuses a table that has another number of rows.)
    """

    rows: int
    width: int
    make: Callable  # draws the weights
    dtype: str = "float32"

    @nn.compact
    def __call__(self, ids: Array | None = None) -> Array:
        if self.has_variable("params", "embedding"):
            table = self.get_variable("params", "embedding")
        else:
            shape = (self.rows, self.width)
            table = self.param("embedding", self.make, shape, jnp.dtype(self.dtype))
        return table if ids is None else jnp.take(table, ids, axis=0)


class Mlp(nn.Module):
    """`[D] -> [F] -> act -> [D]`."""

    width: int
    hidden: int
    act: Callable[[Array], Array]
    init_in: Callable
    init_out: Callable

    @nn.compact
    def __call__(self, x: Array) -> Array:
        hidden = self.act(Linear(self.hidden, self.init_in, name="fc")(x))
        return Linear(self.width, self.init_out, name="proj")(hidden)


class GatedMlp(nn.Module):
    """`[D] -> act(gate x) * up x [F] -> [D]` (Shazeer 2020, arXiv 2002.05202)."""

    width: int
    hidden: int
    act: Callable[[Array], Array]
    make: Callable  # draws the weights
    bias: bool = False

    @nn.compact
    def __call__(self, x: Array) -> Array:
        gate = Linear(self.hidden, self.make, self.bias, name="gate")(x)
        up = Linear(self.hidden, self.make, self.bias, name="up")(x)
        return Linear(self.width, self.make, self.bias, name="down")(self.act(gate) * up)


@partial(jax.custom_jvp, nondiff_argnums=(1, 2))
def standardize(x: Array, eps: float, centre: bool = True) -> Array:
    """`(x - mean) / sqrt(var + eps)` over the last axis; statistics in at least float32.

    Without `centre` the mean is taken as 0.
    """
    return _standardize(x, eps, centre)[0].astype(x.dtype)


@standardize.defjvp
def _(eps, centre, primals, tangents):
    # the rule keeps two arrays for any later product, where the chain of operations keeps six
    (x,), (dx,) = primals, tangents
    y, inverse = _standardize(x, eps, centre)
    dx = widen(dx)
    along = jnp.mean(dx * y, axis=-1, keepdims=True)
    dx = dx - jnp.mean(dx, axis=-1, keepdims=True) if centre else dx
    dy = inverse * (dx - y * along)
    return y.astype(x.dtype), dy.astype(x.dtype)


def _standardize(x: Array, eps: float, centre: bool) -> tuple[Array, Array]:
    """The standardised value and `1 / sqrt(var + eps)`; the variance in two passes."""
    x = widen(x)
    centred = x - jnp.mean(x, axis=-1, keepdims=True) if centre else x
    inverse = jax.lax.rsqrt(jnp.mean(jnp.square(centred), axis=-1, keepdims=True) + eps)
    return centred * inverse, inverse


@jax.custom_jvp
def gelu_tanh(x: Array) -> Array:
    """GELU by the tanh approximation (`gelu_new`)."""
    return _gelu_tanh(x)[0]


@gelu_tanh.defjvp
def _(primals, tangents):
    # the slope alone is kept for any later product
    value, slope = _gelu_tanh(primals[0])
    return value, slope * tangents[0]


def _gelu_tanh(x: Array) -> tuple[Array, Array]:
    """Value and slope of `x/2 (1 + tanh(c (x + a x^3)))`."""
    c, a = math.sqrt(2 / math.pi), 0.044715
    squared = jnp.square(x)
    t = jnp.tanh(c * x * (1 + a * squared))
    slope = 0.5 * (1 + t) + 0.5 * c * x * (1 - jnp.square(t)) * (1 + 3 * a * squared)
    return 0.5 * x * (1 + t), slope


def gelu(x: Array) -> Array:
    """GELU with the exact error function."""
    return jax.nn.gelu(x, approximate=False)


# names as Hugging Face's config.json has them
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "gelu": gelu,
    "gelu_new": gelu_tanh,
    "gelu_pytorch_tanh": gelu_tanh,
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
}


def activation(name: str) -> Callable[[Array], Array]:
    """The function of a name.

    Raises:
        UserError: a name that is not in `ACTIVATIONS`.

    >>> float(activation("relu")(jnp.array(-1.0)))
    0.0
    """
    if name not in ACTIVATIONS:
        raise UserError(f"activation {name!r} is unknown; valid: {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def normal_init(deviation: float) -> Callable:
    """N(0, deviation^2)."""
    return nn.initializers.normal(deviation)
