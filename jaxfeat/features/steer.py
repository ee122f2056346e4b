"""What does a model write while a direction is added to its residual stream?"""

import jax
import jax.numpy as jnp
import numpy as np

from jaxfeat.nn.decoder import Decoder
from jaxfeat.nn.generate import generate
from jaxfeat.types import Array, Tree, UserError, check_tokens, check_whole


def steer(
    decoder: Decoder,
    params: Tree,
    key: Array,
    prompt: Array,
    direction: Array,
    layer: int,
    coef: float | Array,
    count: int = 20,
    temperature: float = 1.0,
    *,
    together: int = 1,
) -> Array:
    """Prompts continued while `coef * direction` is added to the residual at layer k.

        r[k, i] <- r[k, i] + coef w_dec[f]   at every position i, of the prompt and of what follows

    The coefficient counts once: it neither multiplies the feature's activation nor is applied
    again when a later token is drawn. Every direction sees the same random numbers, as does
    coef 0, which changes nothing: samples are paired by prompt.

    Args:
        prompt: `[B, P]` token ids. direction: `[F, D]`, or `[D]` for one, such as rows of w_dec.
        layer: k, 0..N; `resid_post` of 0-based block b is b + 1. coef: one number, or `[F]`.
        count: tokens drawn. temperature: of the draw; 0 takes the most likely token.
        together: directions worked on at once; the others follow in the same program.

    Returns:
        `[F, B, P + count]` int32, or `[B, P + count]` for one direction.

    Raises:
        UserError: shapes that do not fit, values that are not finite, what `generate` refuses.
    """
    check_whole("layer", layer, 0, decoder.layers)
    check_whole("together", together, 1)
    rows, sizes = np.asarray(direction), np.asarray(coef)
    one = rows.ndim == 1
    rows = rows[None] if one else rows
    if rows.ndim != 2 or not len(rows) or rows.shape[1] != decoder.width:
        raise UserError(f"direction: shape {rows.shape} given, [F, {decoder.width}] needed")
    if sizes.ndim > 1 or sizes.shape not in ((), (len(rows),)):
        raise UserError(f"coef: shape {sizes.shape} given, one number or {len(rows)} needed")
    if not np.isfinite(rows).all() or not np.isfinite(sizes).all():
        raise UserError("direction and coef: finite numbers needed")
    prompt = jnp.asarray(prompt)
    if prompt.size and jnp.issubdtype(prompt.dtype, jnp.integer):
        check_tokens(prompt, decoder.vocab, "prompt")  # as values, before they are traced

    @jax.jit
    def every(params: Tree, key: Array, prompt: Array, rows: Array, sizes: Array) -> Array:
        def each(pair: tuple[Array, Array]) -> Array:
            row, size = pair
            edit = lambda resid: resid + (size * row).astype(resid.dtype)
            return generate(
                decoder, params, key, prompt, count, temperature=temperature, edits={layer: edit}
            )

        return jax.lax.map(each, (rows, sizes), batch_size=together)

    told = every(params, key, prompt, jnp.asarray(rows), jnp.full(len(rows), sizes, rows.dtype))
    return told[0] if one else told
