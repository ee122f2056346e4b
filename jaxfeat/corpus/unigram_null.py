"""How much of a map do the tokens' frequencies alone explain?

Frequent tokens have large rows and columns in every statistic. The null is what the leading terms
are when tokens are independent draws of the unigram distribution; a cosine is told beside the one
that is left when the null is projected out of both sides.
"""

from typing import Any

import numpy as np

from jaxfeat.corpus.closed_form import Weights, remove_projection
from jaxfeat.corpus.statistics import Statistics


def null_terms(statistics: Statistics) -> Weights:
    """The maps of independent tokens, of one block, up to the terms' constants.

    With p the share of inputs and r = p' - 1/V that of targets less 1/V: B = p r^T, Phi = r p^T,
    Phi^T B^T = |r|^2 p p^T, H = |p|^2 |r|^2 r p^T. Q is the expectation of its sums (see
    `_attention`); that of Delta is 0.
    """
    s = statistics
    p, r = s.unigram, s.target - 1 / s.vocab
    gain = np.vdot(p, p) * np.vdot(r, r) * np.vdot(s.target, r)
    return Weights(
        output=np.outer(p, r),
        value=np.vdot(r, r) * np.outer(p, p),
        attention=gain * _attention(p, s.length),
        position=np.zeros(s.length),
    )


def project_out(x: Any, null: Any) -> np.ndarray:
    """`x` less its Frobenius projection on the null; a null of zeros takes nothing away."""
    return remove_projection(x, null)


def _attention(p: np.ndarray, length: int) -> np.ndarray:
    """The mean over t of sum_j E[1{x_t=i} 1{x_j=k} (p[x_j] - mean_{m<=t} p[x_m])] / t, `[V, V]`.

    Keys j < t give p_i p_k (p_k (t-1) - p_i - (t-2) b) / t each, b = sum p^2; the key j = t gives
    p_i (p_i - b) (t-1) / t on the diagonal.
    """
    t = np.arange(1, length + 1)
    b = np.vdot(p, p)
    mean = lambda weight: float(np.mean(weight * (t - 1) / t**2))
    key, own, rest, self = mean(t - 1), mean(1), mean(t - 2), mean(1)
    pairs = key * p[None, :] - own * p[:, None] - rest * b
    return np.outer(p, p) * pairs + np.diag(self * p * (p - b))
