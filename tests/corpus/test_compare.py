"""Do comparisons find a weight that follows its map, and one that does not?"""

import numpy as np
import pytest
from corpus.small_corpora import N, T, V, learned, markov, statistics_of

from jaxfeat.corpus.closed_form import NAMES, leading_terms
from jaxfeat.corpus.compare import (
    SHUFFLED,
    compare_weights,
    control_cosines,
    cosine,
    relative_error,
    wrong_maps,
)
from jaxfeat.corpus.statistics import corpus_statistics
from jaxfeat.corpus.unigram_null import null_terms, project_out
from jaxfeat.types import UserError

STEPS, RATE, LAYERS = 20, 0.05, 3


@pytest.fixture(scope="module")
def found():
    """Learned weights, their statistics, those of shuffled text."""
    flat = np.random.default_rng(0).permutation(markov().ravel())
    control = corpus_statistics(flat.reshape(N, T + 1), V)
    return learned("markov", LAYERS, STEPS, RATE), statistics_of("markov"), control


def test_against_prediction(found):
    """A row a weight and block; the numbers are those of the definitions."""
    weights, statistics, _ = found
    terms = leading_terms(statistics, STEPS, RATE, LAYERS)
    null = null_terms(statistics)
    rows = compare_weights(weights, terms, null)
    assert [(r.weight, r.block) for r in rows] == [
        ("output", 0), *((n, b) for n in NAMES[1:] for b in (1, 2, 3))
    ]  # fmt: skip
    assert all(r.cosine > 0.9999 for r in rows)  # the specification's table is above .99994
    row = rows[2]
    a, b = weights.value[1], terms.value[1]
    assert row.cosine == pytest.approx(np.vdot(a, b) / np.linalg.norm(a) / np.linalg.norm(b))
    assert row.error == pytest.approx(np.linalg.norm(a - b) / np.linalg.norm(b))
    left = [x - np.vdot(x, null.value) / np.vdot(null.value, null.value) * null.value
            for x in (a, b)]  # fmt: skip
    assert row.beyond == pytest.approx(cosine(*left), rel=1e-9)


def test_against_wrong_maps(found):
    """Every weight is further from the others' maps and from shuffled text's than from its own."""
    weights, statistics, control = found
    wrong = wrong_maps(statistics, control)
    assert set(wrong["output"]) == {"value", "attention", SHUFFLED}
    assert set(wrong["position"]) == {SHUFFLED}
    rows = control_cosines(weights, wrong, null_terms(statistics))
    assert len(rows) == 3 + 3 * (3 + 3 + 1)
    own = compare_weights(weights, leading_terms(statistics, STEPS, RATE, LAYERS),
                          null_terms(statistics))  # fmt: skip
    nearest = {(r.weight, r.block): r.beyond for r in own}
    assert all(abs(r.beyond) < nearest[r.weight, r.block] for r in rows)
    assert all(np.isnan(r.error) for r in rows)
    # the null itself is not beyond the null
    null = null_terms(statistics)
    rest = project_out(weights.output + 5 * null.output, null.output)
    assert abs(np.vdot(rest, null.output)) < 1e-12


def test_definitions():
    """Zeros have no cosine, shapes must agree."""
    assert np.isnan(cosine(np.zeros(2), np.ones(2))) and np.isnan(relative_error([1.0], [0.0]))
    assert cosine([1.0, 2.0], [-2.0, -4.0]) == pytest.approx(-1)
    with pytest.raises(UserError, match="shapes"):
        cosine(np.ones(2), np.ones(3))
