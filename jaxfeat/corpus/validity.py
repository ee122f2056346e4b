"""Until when does the closed form hold, and which of its assumptions breaks first?

The leading terms follow from three that are exact at zero weights only: predictions are uniform,
attention is uniform, and the residual is still the one-hot input. How far a model has left each
says why its weights leave their closed form.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfeat.corpus.sequences import check_sequences
from jaxfeat.models.onehot import attention_scores
from jaxfeat.nn.attention import masked_softmax
from jaxfeat.types import Array, Tree

ENTRIES = 1 << 24  # numbers of the residual that are held together
ASSUMPTIONS = {
    "prediction": "uniform predictions",
    "attention": "uniform attention",
    "residual": "a residual that is still the input",
}


class Departures(NamedTuple):
    """Relative Frobenius distances from what the theory assumes, over all positions.

    prediction: |p - 1/V| / |Y - 1/V|, the change of R = Y - p against R0
    attention: the largest over blocks of |A - A0| / |A0|
    residual: |h_N - X| / |X|
    """

    prediction: float
    attention: float
    residual: float


def departures(params: Tree, tokens: Any) -> Departures:
    """How far a one-hot model has left the assumptions of the closed form; 0 at zero weights.

    Args:
        params: of `jaxfeat.models.onehot`. tokens: `[N, T+1]`.

    >>> from jaxfeat.models.onehot import OneHotConfig, make_onehot
    >>> params = make_onehot(OneHotConfig(3, 2)).init(jax.random.key(0))
    >>> departures(params, [[0, 1, 2]])
    Departures(prediction=0.0, attention=0.0, residual=0.0)
    """
    vocab = params["outer"]["output"].shape[0]
    tokens = check_sequences(tokens, vocab)
    length = tokens.shape[1] - 1
    size = max(1, ENTRIES // (vocab * length))
    with jax.enable_x64(True):
        chunks = [jnp.asarray(tokens[at : at + size]) for at in range(0, len(tokens), size)]
        sums = np.sum([np.asarray(_squares(params, some)) for some in chunks], axis=0)
    places = tokens.shape[0] * length
    uniform = len(tokens) * float(np.sum(1 / np.arange(1, length + 1)))  # |A0|^2
    sizes = [places * (1 - 1 / vocab), places] + [uniform] * (len(sums) - 2)
    found = np.sqrt(sums / np.array(sizes))
    return Departures(float(found[0]), float(found[2:].max()), float(found[1]))


@jax.jit
def _squares(params: Tree, tokens: Array) -> Array:
    """Squared distances summed over positions: prediction, residual, each block's attention."""
    token = tokens[:, :-1]
    scores, last = attention_scores(params, token)
    vocab, length = params["outer"]["output"].shape[0], token.shape[1]
    total = lambda x: jnp.sum(jnp.square(x), dtype=jnp.float64)
    p = jax.nn.softmax(last @ params["outer"]["output"], axis=-1)
    seen = np.tril(np.ones((length, length), bool))
    uniform = jnp.asarray(seen / np.arange(1, length + 1)[:, None], last.dtype)
    moved = [total(masked_softmax(s, jnp.asarray(seen)) - uniform) for s in scores]
    onehot = jax.nn.one_hot(token, vocab, dtype=last.dtype)
    return jnp.stack([total(p - 1 / vocab), total(last - onehot), *moved])
