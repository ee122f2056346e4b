"""Which score does a feature have whose effects are known, because the model was built by hand?

Two blocks. Block 1 writes two numbers of each token into the residual stream: `now`, which the
unembedding turns into the logit of one token, and `later`, which block 2's attention carries to
other positions, with fixed weights by distance, where it becomes the logit of another token.
A direction between the two is direct, pre-cached or both by construction: its Q follows from the
logits in a few lines of NumPy (`known_effects`).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfeat.features.effects import Effects, Jobs, make_effects
from jaxfeat.features.sampled import all_features, make_sampler
from jaxfeat.features.score import precaching_scores
from jaxfeat.nn.decoder import Decoder
from jaxfeat.types import Array, Batch, Tree, make_batch

VOCAB, LENGTH, WIDTH = 24, 20, 4
TOKEN, NOW, LATER, CARRIED = range(WIDTH)  # coordinates of the residual stream
LAYER = 1  # where features are ablated: after block 1
ANGLES = np.concatenate([[0.0], np.geomspace(0.02, 1.0, 6), np.pi / 2 - np.geomspace(0.5, 0.02, 4),
                         [np.pi / 2]])  # fmt: skip


class Planted(NamedTuple):
    """The model, sequences `[B, T]` and directions `[F, D]` from direct to pre-cached."""

    decoder: Decoder
    params: Tree
    batch: Batch
    directions: np.ndarray


class Known(NamedTuple):
    """Q of every planted direction, `[F]`: known, measured, estimated from gradients."""

    known: np.ndarray
    measured: np.ndarray
    estimated: np.ndarray


def measure_planted(seed: int, sequences: int, span: int = 10, draws: int = 64) -> Known:
    """Every direction ablated in every sequence, by the library and by the construction."""
    planted = plant(seed, sequences)
    count = len(planted.directions)
    s, f = np.divmod(np.arange(sequences * count), count)
    place = 3 + s % (LENGTH - span - 3)
    w = jnp.asarray(planted.directions, jnp.float32)
    run = make_effects(planted.decoder, LAYER, lambda w, f, resid: -w[f], span=span)
    found = run(planted.params, planted.batch, Jobs(s, place, f), w)
    tokens = np.asarray(planted.batch.token)
    truth = np.array([
        known_effects(planted.params, tokens[s], i, -planted.directions[f], span)
        for s, i, f in zip(s, place, f)
    ])  # fmt: skip
    known = precaching_scores(Effects(truth, found.counted), f, count).q
    where = np.arange(sequences), 3 + np.arange(sequences) % (LENGTH - span - 3)
    sampler = make_sampler(planted.decoder, LAYER, span=span, draws=draws)
    sampled = sampler(planted.params, planted.batch, *where, jax.random.key(seed))
    guess = all_features(sampled, jnp.ones((sequences, count)), w)
    estimated = np.asarray(guess.later) / np.maximum(np.asarray(guess.own), 1e-30)
    return Known(known, precaching_scores(found, f, count).q, estimated)


def plant(seed: int = 0, sequences: int = 16) -> Planted:
    """The hand-built model with random tokens."""
    decoder = make_planted()
    rng = np.random.default_rng(seed)
    batch = make_batch(jnp.asarray(rng.integers(0, VOCAB, (sequences, LENGTH + 1), np.int32)))
    directions = np.zeros((len(ANGLES), WIDTH))
    directions[:, NOW], directions[:, LATER] = np.cos(ANGLES), np.sin(ANGLES)
    return Planted(decoder, decoder.init(jax.random.key(seed)), batch, directions)


def make_planted() -> Decoder:
    """The model as a `Decoder`: a head whose scores depend on the distance alone."""
    distance = np.arange(LENGTH)[:, None] - np.arange(LENGTH)[None, :]
    # hardly anything of a token's own `later` comes back to it
    kernel = np.where(distance == 0, np.log(0.005), -0.15 * distance)
    pick = lambda resid, *coordinates: jnp.stack([resid[c] for c in coordinates])

    def init(key: Array) -> Tree:
        table = jax.random.normal(key, (VOCAB, 2))
        zero = jnp.zeros((LENGTH, LENGTH))
        blocks = (
            {"table": table, "kernel": zero},
            {"table": jnp.zeros((VOCAB, 2)), "kernel": jnp.asarray(kernel, table.dtype)},
        )
        return {"outer": {"scale": jnp.full(2, 3.0)}, "blocks": blocks}

    def mlp_out(block: Tree, const: Tree, resid: Array, attn: Array) -> Array:
        """Block 1's table of the token; block 2's is zero."""
        row = block["table"][resid[TOKEN].astype(jnp.int32)]
        return jnp.zeros_like(resid).at[jnp.array([NOW, LATER])].set(row.astype(resid.dtype))

    def unembed(outer: Tree, normed: Array, ids: Array | None = None) -> Array:
        logits = jnp.zeros(VOCAB, normed.dtype)
        read = outer["scale"] * pick(normed, NOW, CARRIED)
        logits = logits.at[:2].set(read.astype(normed.dtype))
        return logits if ids is None else logits[ids]

    return Decoder(
        layers=2,
        width=WIDTH,
        vocab=VOCAB,
        length=LENGTH,
        init=init,
        embed=lambda outer, token, position: (
            jnp.zeros(WIDTH, outer["scale"].dtype).at[TOKEN].set(token)
        ),
        query=lambda block, const, resid, position: block["kernel"][position][None],
        memory=lambda block, const, resid, position: (
            jax.nn.one_hot(position, LENGTH, dtype=resid.dtype)[None], resid[LATER][None, None],
        ),
        attn_out=lambda block, const, mixed: (
            jnp.zeros(WIDTH, mixed.dtype)
            .at[CARRIED]
            .set(jnp.where(block["kernel"][0, 1] != 0, mixed[0, 0], 0))
        ),
        mlp_out=mlp_out,
        unembed=unembed,
    )  # fmt: skip


def known_effects(
    params: Tree, tokens: np.ndarray, i: int, delta: np.ndarray, span: int
) -> np.ndarray:
    """KL of the predictions at i .. i + span - 1 of one sequence after adding `delta` at i.

    Told from the construction alone, in float64: no forward pass of the library is used.
    """
    table = np.asarray(params["blocks"][0]["table"], np.float64)[tokens]
    kernel = np.asarray(params["blocks"][1]["kernel"], np.float64)
    scale = np.asarray(params["outer"]["scale"], np.float64)

    def log_p(values: np.ndarray) -> np.ndarray:
        weights = np.exp(kernel[: len(values), : len(values)])
        weights = np.tril(weights) / np.tril(weights).sum(1, keepdims=True)
        logits = np.zeros((len(values), VOCAB))
        logits[:, 0], logits[:, 1] = scale[0] * values[:, 0], scale[1] * (weights @ values[:, 1])
        return logits - np.log(np.exp(logits).sum(1, keepdims=True))

    edited = table.copy()
    edited[i] += delta[[NOW, LATER]]
    base, other = log_p(table), log_p(edited)
    return (np.exp(base) * (base - other)).sum(1)[i : i + span]
