"""The linen modules that model families share. None has a position axis: callers `vmap`."""

from collections.abc import Callable

import flax.linen as nn

from jaxfeat.types import Array


class LayerNorm(nn.Module):
    """`(x - mean) / sqrt(var + eps) * scale + bias` over `[D]`; the two-pass variance."""

    eps: float = 1e-5

    @nn.compact
    def __call__(self, x: Array) -> Array:
        norm = nn.LayerNorm(epsilon=self.eps, use_fast_variance=False, param_dtype=x.dtype)
        return norm(x)


class ToHeads(nn.Module):
    """`[D] -> [heads, size]`; kernel `[D, heads, size]`, bias `[heads, size]`."""

    heads: int
    size: int
    init: Callable

    @nn.compact
    def __call__(self, x: Array) -> Array:
        features = (self.heads, self.size)
        return nn.DenseGeneral(features, kernel_init=self.init, param_dtype=x.dtype)(x)


class FromHeads(nn.Module):
    """`[heads, size] -> [D]`; kernel `[heads, size, D]`, bias `[D]`."""

    width: int
    init: Callable

    @nn.compact
    def __call__(self, x: Array) -> Array:
        dense = nn.DenseGeneral(
            self.width, axis=(-2, -1), kernel_init=self.init, param_dtype=x.dtype
        )
        return dense(x)


class Mlp(nn.Module):
    """`[D] -> [F] -> act -> [D]`."""

    width: int
    hidden: int
    act: Callable[[Array], Array]
    init_in: Callable
    init_out: Callable

    @nn.compact
    def __call__(self, x: Array) -> Array:
        hidden = nn.Dense(self.hidden, kernel_init=self.init_in, param_dtype=x.dtype, name="fc")
        out = nn.Dense(self.width, kernel_init=self.init_out, param_dtype=x.dtype, name="proj")
        return out(self.act(hidden(x)))


def gelu_tanh(x: Array) -> Array:
    """GELU by the tanh approximation (`gelu_new`)."""
    return nn.gelu(x, approximate=True)


def normal_init(deviation: float) -> Callable:
    """N(0, deviation^2)."""
    return nn.initializers.normal(deviation)
