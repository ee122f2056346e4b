"""What does a model write after a prompt?"""

import jax
import jax.numpy as jnp
from jax.core import Tracer

from jaxfeat.nn.blocks import residuals
from jaxfeat.nn.decoder import Decoder
from jaxfeat.types import Array, Batch, Tree, UserError, check_tokens, check_whole


def generate(
    decoder: Decoder,
    params: Tree,
    key: Array,
    prompt: Array,
    count: int,
    *,
    temperature: float = 1.0,
) -> Array:
    """Prompts `[B, P]` with `count` further tokens each, `[B, P + count]` int32.

    Every token is drawn from `softmax(logits / temperature)`; temperature 0 takes the most likely.
    The whole sequence is read again for each (its length is fixed, so that one program does it).

    Raises:
        UserError: more positions than the model has, a negative temperature, no prompt.

    >>> from jaxfeat.models.gpt2 import GPT2Config, make_gpt2
    >>> decoder = make_gpt2(GPT2Config(vocab=5, length=6, width=8, heads=2))
    >>> params = decoder.init(jax.random.key(0))
    >>> generate(decoder, params, jax.random.key(1), jnp.array([[1, 2]]), 3).shape
    (1, 5)
    """
    check_whole("count", count, 1)
    prompt = jnp.asarray(prompt)
    if prompt.ndim != 2 or not prompt.size:
        raise UserError(f"prompt: shape {prompt.shape} given, [B, P] with P >= 1 needed")
    if not jnp.issubdtype(prompt.dtype, jnp.integer):
        raise UserError(f"prompt: type {prompt.dtype} given, integer ids needed")
    if not isinstance(prompt, Tracer):
        check_tokens(prompt, decoder.vocab, "prompt")
    size, given = prompt.shape
    length = given + count
    if decoder.length is not None and length - 1 > decoder.length:
        raise UserError(
            f"count: {count} tokens after {given} given, the model has {decoder.length} positions"
        )
    if not temperature >= 0:
        raise UserError(f"temperature: {temperature} given, 0 or more needed")
    if not decoder.causal:
        raise UserError("a bidirectional model does not continue a prompt")
    real = jnp.ones((size, length - 1), bool)
    place = jnp.broadcast_to(jnp.arange(length - 1, dtype=jnp.int32), real.shape)

    def step(t: Array, tokens: Array) -> Array:
        batch = Batch(tokens[:, :-1], tokens[:, 1:], real, real, place)
        top = residuals(decoder, params, batch)[0][:, -1, t - 1]
        read = lambda x: decoder.unembed(params["outer"], decoder.norm(params["outer"], x))
        logits = jax.vmap(read)(top)
        if temperature:
            drawn = jax.random.categorical(jax.random.fold_in(key, t), logits / temperature)
        else:
            drawn = jnp.argmax(logits, axis=-1)
        return tokens.at[:, t].set(drawn.astype(jnp.int32))

    tokens = jnp.pad(prompt.astype(jnp.int32), ((0, 0), (0, count)))
    return jax.lax.fori_loop(given, length, step, tokens)
