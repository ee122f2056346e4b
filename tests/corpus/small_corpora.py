"""Two small corpora, and plain full-batch descent of the one-hot model on them in float64."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from jaxfeat.corpus.closed_form import weights_of
from jaxfeat.corpus.statistics import corpus_statistics
from jaxfeat.models.onehot import OneHotConfig, make_onehot
from jaxfeat.nn.blocks import forward
from jaxfeat.nn.loss import mean_loss
from jaxfeat.types import make_batch

V, T, N = 20, 8, 400


def markov(seed=0):
    """`[N, T+1]` of a random transition matrix."""
    rng = np.random.default_rng(seed)
    step = rng.dirichlet(np.full(V, 0.3), size=V)
    rows = [rng.integers(V, size=N)]
    for _ in range(T):
        rows.append(np.array([rng.choice(V, p=step[i]) for i in rows[-1]]))
    return np.stack(rows, axis=1)


def topics(seed=0):
    """`[N, T+1]`: each sequence draws one of three topics, and repeats a token one time in four.

    Without repetition order would mean nothing: Delta, and with it P, were sampling noise (P then
    reaches a cosine of .9995 at s eta = 1, all other weights the same figures as here).
    """
    rng = np.random.default_rng(seed)
    share = rng.dirichlet(np.full(V, 0.3), size=3)
    rows = np.stack([rng.choice(V, size=T + 1, p=share[rng.integers(3)]) for _ in range(N)])
    for t in range(1, T + 1):
        rows[:, t] = np.where(rng.random(N) < 0.25, rows[:, t - 1], rows[:, t])
    return rows


CORPORA = {"markov": markov, "topics": topics}


@functools.cache
def statistics_of(name):
    """Statistics of one of the corpora."""
    return corpus_statistics(CORPORA[name](), V)


@functools.cache
def descent(layers):
    """`(tokens, rate, steps) -> params`: one compiled program for every rate and count."""
    decoder = make_onehot(OneHotConfig(V, T, layers, dtype="float64"))

    @jax.jit
    def run(tokens, rate, steps):
        batch = make_batch(tokens)
        loss = lambda params: mean_loss(forward(decoder, params, batch).logits, batch)
        down = lambda _, w: jax.tree.map(lambda x, g: x - rate * g, w, jax.grad(loss)(w))
        return jax.lax.fori_loop(0, steps, down, decoder.init(jax.random.key(0)))

    return run


@functools.cache
def learned(name, layers, steps, rate):
    """Weights after so many updates from zero."""
    with jax.enable_x64(True):
        return weights_of(descent(layers)(jnp.asarray(CORPORA[name]()), rate, steps))
