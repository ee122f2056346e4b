"""The linen modules that model families share. None has a position axis: callers `vmap`."""

import math
from collections.abc import Callable
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxfeat.tree import widen
from jaxfeat.types import Array


class LayerNorm(nn.Module):
    """`(x - mean) / sqrt(var + eps) * scale + bias` over `[D]`."""

    eps: float = 1e-5

    @nn.compact
    def __call__(self, x: Array) -> Array:
        scale = self.param("scale", nn.initializers.ones, x.shape[-1:], x.dtype)
        bias = self.param("bias", nn.initializers.zeros, x.shape[-1:], x.dtype)
        return standardize(x, self.eps) * scale + bias


class Linear(nn.Module):
    """`[in] -> [out]`; kernel `[out, in]`, bias `[out]`.

    The kernel's layout is that in which reverse mode gives its gradient: stored the other way
    round, every weight gradient would be transposed (on a CPU that costs more than the product).
    """

    out: int
    init: Callable

    @nn.compact
    def __call__(self, x: Array) -> Array:
        kernel = self.param("kernel", self.init, (self.out, x.shape[-1]), x.dtype)
        bias = self.param("bias", nn.initializers.zeros, (self.out,), x.dtype)
        return x @ kernel.T + bias


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


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def standardize(x: Array, eps: float) -> Array:
    """`(x - mean) / sqrt(var + eps)` over the last axis; statistics in at least float32."""
    return _standardize(x, eps)[0].astype(x.dtype)


@standardize.defjvp
def _(eps, primals, tangents):
    # the rule keeps two arrays for any later product, where the chain of operations keeps six
    (x,), (dx,) = primals, tangents
    y, inverse = _standardize(x, eps)
    dx = widen(dx)
    along = jnp.mean(dx * y, axis=-1, keepdims=True)
    dy = inverse * (dx - jnp.mean(dx, axis=-1, keepdims=True) - y * along)
    return y.astype(x.dtype), dy.astype(x.dtype)


def _standardize(x: Array, eps: float) -> tuple[Array, Array]:
    """The standardised value and `1 / sqrt(var + eps)`; the variance in two passes."""
    x = widen(x)
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
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


def normal_init(deviation: float) -> Callable:
    """N(0, deviation^2)."""
    return nn.initializers.normal(deviation)
