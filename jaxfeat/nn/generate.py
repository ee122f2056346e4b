"""What does a model write after a prompt?"""

import jax
import jax.numpy as jnp
from jax.core import Tracer

from jaxfeat.nn.blocks import Cache, Edits, residuals, run_blocks
from jaxfeat.nn.decoder import Decoder
from jaxfeat.types import Array, Tree, UserError, check_tokens, check_whole, whole_batch


def generate(
    decoder: Decoder,
    params: Tree,
    key: Array,
    prompt: Array,
    count: int,
    *,
    temperature: float = 1.0,
    edits: Edits | None = None,
) -> Array:
    """Prompts `[B, P]` with `count` further tokens each, `[B, P + count]` int32.

    Every token is drawn from `softmax(logits / temperature)`; temperature 0 takes the most likely.
    Keys and values of all earlier positions are kept, so that each token costs one column.

    Args:
        edits: `{layer k: function of the residual [T, D]}`, applied at layer k to every position,
            of the prompt (T = P) and of what is written (T = 1).

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
    given = prompt.shape[1]
    length = given + count
    if decoder.length is not None and length - 1 > decoder.length:
        raise UserError(
            f"count: {count} tokens after {given} given, the model has {decoder.length} positions"
        )
    if not temperature >= 0:
        raise UserError(f"temperature: {temperature} given, 0 or more needed")
    if not decoder.causal:
        raise UserError("a bidirectional model does not continue a prompt")
    prompt, outer = prompt.astype(jnp.int32), params["outer"]
    batch = whole_batch(prompt)
    resid, acts = residuals(decoder, params, batch, edits=edits, want=("k", "v"))
    room = ((0, 0), (0, 0), (0, count - 1), (0, 0), (0, 0))
    keys, values = (jnp.pad(acts[name], room) for name in ("k", "v"))  # [B, N, S, G, ..]
    sources = jnp.arange(length - 1, dtype=jnp.int32)

    def draw(t: Array, top: Array) -> Array:
        """The token at t out of the residual streams `[B, D]` at layer N before it."""
        logits = jax.vmap(lambda x: decoder.unembed(outer, decoder.norm(outer, x)))(top)
        if temperature:
            drawn = jax.random.categorical(jax.random.fold_in(key, t), logits / temperature)
        else:
            drawn = jnp.argmax(logits, axis=-1)
        return drawn.astype(jnp.int32)

    def column(t: Array, token: Array, k: Array, v: Array) -> tuple[Array, Array, Array]:
        """The residual stream at layer N of the token at t, and its keys and values."""
        resid = decoder.embed(outer, token, t)[None]
        resid = edits[0](resid) if edits and 0 in edits else resid
        sees = jnp.append(sources < t, True)[None]
        cache = Cache(k, v, sources, sees)
        stack, found = run_blocks(
            decoder, params, resid, t[None], cache=cache, edits=edits, want=("k", "v")
        )
        return stack[-1, 0], found["k"], found["v"]

    def step(t: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        tokens, keys, values = carry
        top, k, v = jax.vmap(column, in_axes=(None, 0, 0, 0))(t - 1, tokens[:, t - 1], keys, values)
        write = lambda old, new: jax.lax.dynamic_update_slice_in_dim(old, new, t - 1, axis=2)
        return tokens.at[:, t].set(draw(t, top)), write(keys, k), write(values, v)

    tokens = jnp.pad(prompt, ((0, 0), (0, count)))
    tokens = tokens.at[:, given].set(draw(jnp.int32(given), resid[:, -1, -1]))
    return jax.lax.fori_loop(given + 1, length, step, (tokens, keys, values))[0]
