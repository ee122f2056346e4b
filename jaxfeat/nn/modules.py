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


def gelu_tanh(x: Array) -> Array:
    """GELU by the tanh approximation (`gelu_new`)."""
    return nn.gelu(x, approximate=True)


def normal_init(deviation: float) -> Callable:
    """N(0, deviation^2)."""
    return nn.initializers.normal(deviation)
