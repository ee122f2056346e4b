"""Is a continuation what the model's own probabilities say?"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from jaxfeat.nn.blocks import forward
from jaxfeat.nn.generate import generate
from jaxfeat.types import UserError, make_batch

DECODER = tiny.gpt2(1)
PARAMS = jax.tree.map(jnp.asarray, tiny.params_of(DECODER))
FORWARD = jax.jit(lambda batch: forward(DECODER, PARAMS, batch))
PROMPT = jnp.array([[1, 2], [4, 7], [1, 2]])


def logits_of(tokens):
    """The last logits of a sequence, by the plain forward pass."""
    batch = make_batch(jnp.asarray(np.pad(tokens, (0, tiny.LENGTH + 1 - len(tokens))))[None])
    return np.asarray(FORWARD(batch).logits[0, len(tokens) - 1])


def test_most_likely():
    """Temperature 0: each token is the arg-max after all before it; the prompt stays."""
    told = np.asarray(generate(DECODER, PARAMS, jax.random.key(0), PROMPT, 4, temperature=0.0))
    np.testing.assert_array_equal(told[:, :2], PROMPT)
    for row in told[:2]:
        for t in range(2, 6):
            assert logits_of(row[:t]).argmax() == row[t]
    np.testing.assert_array_equal(told[0], told[2])


def test_frequencies():
    """Drawn first tokens follow the softmax; a high temperature flattens it."""
    many = jnp.tile(PROMPT[:1], (4000, 1))
    for temperature in (1.0, 5.0):
        drawn = generate(DECODER, PARAMS, jax.random.key(1), many, 1, temperature=temperature)[:, 2]
        share = np.bincount(np.asarray(drawn), minlength=tiny.VOCAB) / len(many)
        logits = logits_of([1, 2]) / temperature
        expected = np.exp(logits) / np.exp(logits).sum()
        np.testing.assert_allclose(share, expected, atol=4 * np.sqrt(0.25 / len(many)))


def test_refusals():
    """What cannot be continued is named."""
    key = jax.random.key(0)
    for prompt, count, kind, words in (
        (PROMPT, 6, 1.0, "the model has 6 positions"),
        (PROMPT, 1, -1.0, "temperature: -1.0"),
        (PROMPT, 1, float("nan"), "temperature: nan"),
        (PROMPT[0], 1, 1.0, "prompt: shape"),
        (PROMPT, 0, 1.0, "count: 0"),
        (PROMPT + tiny.VOCAB, 1, 1.0, "prompt: ids"),
        (PROMPT + 0.5, 1, 1.0, "integer ids needed"),
    ):
        with pytest.raises(UserError, match=words):
            generate(DECODER, PARAMS, key, prompt, count, temperature=kind)
    assert generate(DECODER, PARAMS, key, PROMPT, 5).shape == (3, 7)
