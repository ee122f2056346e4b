"""Does the compiler that is installed sum right? jaxlib 0.10.2 does not, on a CPU."""

import jax
import jax.numpy as jnp
import numpy as np


def test_sums_of_broadcast_products():
    """The reverse derivative of a standardised array for many cotangents (jax issue 39103)."""
    rng = np.random.default_rng(0)
    x, c = rng.standard_normal((6, 16)), rng.standard_normal((1000, 6, 16)).astype(np.float32)

    def standardize(x):
        centred = x - x.mean(-1, keepdims=True)
        return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True))

    @jax.jit
    def pull(x, c):
        return jax.vmap(lambda one: jax.vjp(standardize, x)[1](one)[0])(c)

    y = (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True)
    along = (c * y).mean(-1, keepdims=True)
    expected = (c - c.mean(-1, keepdims=True) - y * along) / x.std(-1, keepdims=True)
    np.testing.assert_allclose(pull(jnp.asarray(x, jnp.float32), c), expected, atol=1e-5)
