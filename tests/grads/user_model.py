"""A model that a user might bring: one attention head and a ReLU MLP, in plain JAX."""

import jax

from jaxfeat.nn.decoder import Decoder

LAYERS, WIDTH, HIDDEN, VOCAB, LENGTH = 2, 8, 16, 11, 16


def make_decoder():
    """The maps of one position; positions meet in the default mixer only."""

    def init(key):
        keys = iter(jax.random.split(key, 64))
        draw = lambda *shape: jax.random.normal(next(keys), shape) / shape[-1] ** 0.5
        rows = {"token": VOCAB, "place": LENGTH, "out": VOCAB}
        outer = {name: draw(count, WIDTH) for name, count in rows.items()}
        shapes = dict.fromkeys(("q", "k", "v", "o"), (WIDTH, WIDTH))
        shapes |= {"up": (HIDDEN, WIDTH), "down": (WIDTH, HIDDEN)}
        block = lambda: {name: draw(*shape) for name, shape in shapes.items()}
        return {"outer": outer, "blocks": tuple(block() for _ in range(LAYERS))}

    def embed(outer, token, position):
        return outer["token"][token] + outer["place"][position]

    def query(block, const, resid, position):
        return (block["q"] @ resid)[None] / WIDTH**0.5

    def memory(block, const, resid, position):
        return (block["k"] @ resid)[None], (block["v"] @ resid)[None]

    def attn_out(block, const, mixed):
        return block["o"] @ mixed[0]

    def mlp_out(block, const, resid, attn):
        return block["down"] @ jax.nn.relu(block["up"] @ (resid + attn))

    def unembed(outer, normed, ids=None):
        return (outer["out"] if ids is None else outer["out"][ids]) @ normed

    return Decoder(
        layers=LAYERS,
        width=WIDTH,
        vocab=VOCAB,
        init=init,
        embed=embed,
        query=query,
        memory=memory,
        attn_out=attn_out,
        mlp_out=mlp_out,
        unembed=unembed,
    )
