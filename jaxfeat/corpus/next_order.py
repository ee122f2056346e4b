"""What does the next order in s eta add to the leading terms?

Our derivation, beside arXiv 2601.19208: W_O and V by one order more, where blocks first differ.
"""

import math

import numpy as np

from jaxfeat.corpus.closed_form import Weights, check_descent, fourth
from jaxfeat.corpus.statistics import Statistics, product


def next_order(statistics: Statistics, steps: int, rate: float, layers: int) -> Weights:
    """Corrections to be added to `leading_terms`; 0 for W and P, whose next order is not derived.

        W_O: - C(s,2) eta^2 D B / V + L C(s,3) eta^3 B Phi Phi^T
        V_l: - (eta^3 / V) [(s-1) s (2s-1) / 6 Cur B B^T + C(s,3) Phi^T B^T D]
             + eta^4 {L C(s,4) Phi^T Phi Phi^T B^T
                      + c4 [(L-l) Phi2^T S_B Phi + (l-1) B Phi Phi2^T B^T]}

    with D = diag P(i), l = 1..L; arguments as in `jaxfeat.corpus.closed_form.leading_terms`.
    """
    steps, rate = check_descent(steps, rate, layers)
    s, share, vocab = statistics, statistics.unigram, statistics.vocab
    pairs, triples = math.comb(steps, 2), math.comb(steps, 3)
    foretold = product(s.context.T, s.bigram.T)  # Phi^T B^T
    ahead = product(s.bigram, s.context)  # B Phi
    output = (
        -pairs * rate**2 / vocab * share[:, None] * s.bigram
        + layers * triples * rate**3 * product(ahead, s.context.T)
    )
    squares = (steps - 1) * steps * (2 * steps - 1) / 6
    current = product(s.current, product(s.bigram, s.bigram.T))
    same = -(rate**3) / vocab * (squares * current + triples * foretold * share)
    if steps >= 4:
        deep = product(product(s.context.T, s.context), foretold)
        same = same + layers * math.comb(steps, 4) * rate**4 * deep
    later, earlier = layer_parts(s)
    high = fourth(steps) * rate**4
    value = [same + high * ((layers - l) * later + (l - 1) * earlier) for l in range(1, layers + 1)]
    zero = np.zeros((layers, vocab, vocab)), np.zeros((layers, s.length))
    return Weights(output, np.stack(value), *zero)


def layer_parts(statistics: Statistics) -> tuple[np.ndarray, np.ndarray]:
    """Phi2^T S_B Phi and B Phi Phi2^T B^T: V_1 - V_L = (L-1) c4 eta^4 (first - second)."""
    s = statistics
    second = product(s.context2.T, s.bigram.T)  # Phi2^T B^T
    ahead = product(s.bigram, s.context)  # B Phi
    return product(second, ahead), product(ahead, second)
