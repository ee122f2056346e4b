"""Are heads turned by their positions? (the reference is complex multiplication in NumPy)"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxfeat.nn.rotary import Rope, rotary_frequencies, rotate
from jaxfeat.types import UserError


@pytest.mark.parametrize("rotated", [8, 4])
def test_rotate(rotated):
    """Pairs (i, i + R/2) are complex numbers times exp(i angle); the rest of a head is kept."""
    x = np.random.default_rng(0).standard_normal((3, 8))
    frequency = rotary_frequencies(rotated, Rope(100.0))
    half = rotated // 2
    z = (x[:, :half] + 1j * x[:, half:rotated]) * np.exp(7j * frequency)
    with jax.enable_x64(True):
        ours = rotate(jnp.asarray(x), jnp.array(7), frequency)
        np.testing.assert_allclose(ours[:, :half], z.real, atol=1e-14)
        np.testing.assert_allclose(ours[:, half:rotated], z.imag, atol=1e-14)
        np.testing.assert_array_equal(ours[:, rotated:], x[:, rotated:])


def test_relative():
    """Products of two turned heads depend on their distance alone."""
    q, k = np.random.default_rng(1).standard_normal((2, 1, 8))
    frequency = rotary_frequencies(8, Rope())
    with jax.enable_x64(True):
        score = lambda t, s: float(jnp.vdot(rotate(q, t, frequency), rotate(k, s, frequency)))
        np.testing.assert_allclose(score(9, 4), score(105, 100), rtol=1e-12)
        assert abs(score(9, 4) - score(9, 5)) > 1e-3


def test_angles_are_wide():
    """In bfloat16 the angle of a far position is still right: position 1001 is none in bfloat16."""
    x = jnp.array([[1.0, 0.0]], jnp.bfloat16)
    ours = rotate(x, jnp.array(1001), np.array([1.0]))
    assert ours.dtype == jnp.bfloat16
    np.testing.assert_allclose(ours[0].astype(np.float32), [np.cos(1001), np.sin(1001)], atol=4e-3)


def test_scalings():
    """Linear divides all; llama3 keeps fast frequencies, divides slow ones, blends between."""
    plain = rotary_frequencies(128, Rope(500000.0))
    np.testing.assert_allclose(plain, 500000.0 ** (-np.arange(64) / 64))
    linear = rotary_frequencies(128, Rope(500000.0, "linear", 8.0))
    np.testing.assert_allclose(linear, plain / 8)
    ours = rotary_frequencies(128, Rope(500000.0, "llama3", 8.0, 1.0, 4.0, 8192))
    for one, theirs in zip(plain, ours):
        length = 2 * np.pi / one
        share = (8192 / length - 1.0) / (4.0 - 1.0)
        if length < 8192 / 4.0:
            truth = one
        elif length > 8192 / 1.0:
            truth = one / 8
        else:
            truth = (1 - share) * one / 8 + share * one
        np.testing.assert_allclose(theirs, truth, rtol=1e-12)
    assert (ours == plain).any() and (ours == plain / 8).any()


@pytest.mark.parametrize(
    ("size", "rope", "words"),
    [
        (3, Rope(), "rotary size: 3 given"),
        (0, Rope(), "rotary size: 0 given"),
        (4, Rope(kind="yarn"), "rope kind 'yarn' is unknown; valid: default, linear, llama3"),
        (4, Rope(theta=0.0), "rope theta: 0.0 given, a positive number"),
        (4, Rope(kind="linear", factor=float("nan")), "rope factor: nan"),
        (4, Rope(kind="llama3", low=4.0), "rope high: 4.0 given, more than low"),
    ],
)
def test_refused(size, rope, words):
    """What gives no angles."""
    with pytest.raises(UserError, match=words):
        rotary_frequencies(size, rope)
