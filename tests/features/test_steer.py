"""Does steering add the direction once at every position, and nothing at coefficient 0?"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from jaxfeat.features.steer import steer
from jaxfeat.nn.blocks import forward
from jaxfeat.nn.generate import generate
from jaxfeat.types import Batch, UserError

DECODER = tiny.windowed(2)
PARAMS = DECODER.init(jax.random.key(0))
PROMPT = jnp.array([[1, 2], [4, 7], [3, 3]])
KEY = jax.random.key(1)
DIRECTION = np.random.default_rng(0).normal(size=(2, tiny.WIDTH)).astype(np.float32)


def test_nothing_at_zero():
    """Coefficient 0 is the unsteered sample bit for bit, with another direction or none."""
    plain = generate(DECODER, PARAMS, KEY, PROMPT, 5)
    for direction, coef in ((DIRECTION, 0.0), (DIRECTION, [0.0, 0.0]), (0 * DIRECTION, 9.0)):
        told = steer(DECODER, PARAMS, KEY, PROMPT, direction, 1, coef, 5)
        tiny.same(told, jnp.stack([plain, plain]))


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_added_once_everywhere(layer):
    """The most likely tokens under a plain forward pass whose every residual has `coef d` added."""
    count, coefs = 4, [0.5, -1.5]
    told = steer(DECODER, PARAMS, KEY, PROMPT, DIRECTION, layer, coefs, count, 0.0)
    assert told.shape == (2, 3, 6)
    assert (told[:, :, :2] == PROMPT).all() and (told[0] != told[1]).any()

    @jax.jit
    def logits_of(tokens, push):
        real = jnp.ones(tokens.shape, bool)
        place = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
        batch = Batch(tokens, tokens, real, real, place)
        return forward(DECODER, PARAMS, batch, edits={layer: lambda x: x + push}).logits

    for f, coef in enumerate(coefs):
        logits = np.asarray(logits_of(told[f, :, :-1], coef * DIRECTION[f]))[:, 1:]
        np.testing.assert_array_equal(logits.argmax(-1), told[f, :, 2:])


def test_unembedding_row_makes_its_token_appear():
    """The longest row of the unembedding, far enough along, is all that is written."""
    out = PARAMS["outer"]["out"]
    token = int(jnp.linalg.norm(out, axis=1).argmax())
    told = steer(DECODER, PARAMS, KEY, PROMPT, out[token], DECODER.layers, 200.0, 6)
    assert told.shape == (3, 8) and (told[:, 2:] == token).all()
    away = steer(DECODER, PARAMS, KEY, PROMPT, out[token], DECODER.layers, -200.0, 6)
    assert (away[:, 2:] != token).all()


def test_together_or_one_by_one():
    """Directions on one batch axis give what they give one after the other."""
    many = np.concatenate([DIRECTION, -DIRECTION])[:3]
    apart = steer(DECODER, PARAMS, KEY, PROMPT, many, 1, 2.0, 3)
    tiny.same(steer(DECODER, PARAMS, KEY, PROMPT, many, 1, 2.0, 3, together=2), apart)
    tiny.same(steer(DECODER, PARAMS, KEY, PROMPT, many[1], 1, 2.0, 3), apart[1])


def test_refusals():
    """What does not fit is named."""
    for change, words in (
        ({"layer": 3}, r"layer: 3 given, a whole number, 0\.\.2"),
        ({"direction": DIRECTION[:, :3]}, r"direction: shape \(2, 3\) given, \[F, 8\]"),
        ({"direction": DIRECTION[:0]}, r"direction: shape \(0, 8\)"),
        ({"direction": DIRECTION * np.nan}, "finite numbers needed"),
        ({"coef": np.inf}, "finite numbers needed"),
        ({"coef": [1.0]}, r"coef: shape \(1,\) given, one number or 2 needed"),
        ({"prompt": PROMPT + tiny.VOCAB}, "prompt: ids"),
        ({"prompt": PROMPT[0]}, "prompt: shape"),
        ({"together": 0}, "together: 0"),
        ({"count": 0}, "count: 0"),
    ):
        given = {"prompt": PROMPT, "direction": DIRECTION, "layer": 1, "coef": 1.0, **change}
        with pytest.raises(UserError, match=words):
            steer(DECODER, PARAMS, KEY, **given)
