"""Are columns that read cached keys and values those of a pass over everything?"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from jaxfeat.nn.blocks import Cache, forward, residuals, run_blocks
from jaxfeat.nn.generate import generate
from jaxfeat.nn.route import myopic, resolve
from jaxfeat.types import UserError

CUT = 3  # positions before it are cached


def cached(decoder, params, batch, sees=None, **options):
    """Residuals of the positions from CUT on, out of the keys and values of those before."""
    resid, acts = residuals(decoder, params, batch, want=("k", "v"))
    new = batch.token.shape[1] - CUT
    sees = np.ones((new, CUT + new), bool) if sees is None else sees

    def one(resid, k, v, mask, position):
        sees_real = jnp.asarray(sees).at[:, :CUT].set(mask[:CUT])
        cache = Cache(k[:, :CUT], v[:, :CUT], position[:CUT], sees_real)
        return run_blocks(
            decoder, params, resid[0, CUT:], position[CUT:], cache=cache, mask=mask[CUT:],
            **options,
        )[0]  # fmt: skip

    return jax.vmap(one)(resid, acts["k"], acts["v"], batch.mask, batch.position), resid


@pytest.mark.parametrize(
    "decoder", [tiny.gpt2(2), tiny.windowed(5), tiny.windowed(3, as_tuple=True)]
)
def test_equal_to_the_whole_pass(decoder):
    """Scanned, unrolled or a tuple of blocks; windows; padding on the left."""
    batch = tiny.batch_of(3, pads=1, side="left")
    with jax.enable_x64(True):
        params = tiny.to64(tiny.params_of(decoder))
        found, whole = jax.jit(partial(cached, decoder))(params, batch)
    tiny.close(found, whole[:, :, CUT:], 1e-12)


def test_myopic_route():
    """The gradient of a cached pass under the myopic route: none between new columns."""
    decoder, batch = tiny.gpt2(2), tiny.batch_of(1)
    with jax.enable_x64(True):
        params = tiny.to64(tiny.params_of(decoder))

        def top(taps, route):
            return cached(decoder, params, batch, taps=taps, route=route)[0][0, -1]

        def both(taps, route):
            pull = jax.vmap(jax.vjp(partial(top, route=route), taps)[1])
            basis = jnp.eye(taps[0].size).reshape(-1, *taps[0].shape)
            return top(taps, route), pull(basis)[0].reshape(*taps[0].shape, *taps.shape)

        taps = jnp.zeros((3, tiny.LENGTH - CUT, tiny.WIDTH))
        route = resolve(myopic(), tiny.LENGTH)
        crossing, values = {}, []
        for name, r in (("full", None), ("myopic", route)):
            value, found = jax.jit(partial(both, route=r))(taps)
            values.append(value)
            found = np.asarray(found)  # [t, D, layer, s, D]
            size = np.abs(found).max(axis=(1, 4))
            crossing[name] = [size[t, 1, s] for t in range(3) for s in range(3) if t != s]
        tiny.same(*values)
        assert np.max(crossing["myopic"]) == 0 and np.max(crossing["full"]) > 1e-3


def test_refusals():
    """A cache of another size, of a bidirectional model or beside copies is refused."""
    decoder, batch = tiny.gpt2(2), tiny.batch_of(1)
    params = jax.tree.map(jnp.asarray, tiny.params_of(decoder))
    with pytest.raises(UserError, match=r"cache: keys .* needed"):
        jax.eval_shape(partial(cached, decoder, sees=np.ones((2, 5), bool), lo=1), params, batch)
    both = tiny.windowed(2, causal=False)
    with pytest.raises(UserError, match="cache: only a causal model"):
        jax.eval_shape(partial(cached, both), tiny.params_of(both), batch)


def test_generation_with_edits():
    """An edit acts on the prompt and on every token that is written, as in a pass over all."""
    decoder = tiny.windowed(3)
    params = jax.tree.map(jnp.asarray, tiny.params_of(decoder))
    prompt = jnp.array([[1, 2, 3], [4, 5, 6]])
    push = jax.random.normal(jax.random.key(1), (tiny.WIDTH,))
    written = []
    for layers in ((0, 3), (1,)):
        edits = dict.fromkeys(layers, lambda x: x + push)
        write = partial(generate, decoder, count=4, temperature=0.0, edits=edits)
        told = jax.jit(write)(params, jax.random.key(0), prompt)
        batch = tiny.batch_of(2, length=7)._replace(token=told)
        whole = jax.jit(partial(forward, decoder, edits=edits))(params, batch)
        np.testing.assert_array_equal(whole.logits[:, 2:-1].argmax(-1), told[:, 3:])
        written.append(np.asarray(told))
    assert (written[0] != written[1]).any()
