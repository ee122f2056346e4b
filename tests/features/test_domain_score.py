"""Is a feature's side where its activation was planted, and is the interval what it says?"""

import numpy as np
import pytest

from jaxfeat.features.domain_score import domain_scores, is_formal, spread_of_log
from jaxfeat.types import UserError

RNG = np.random.default_rng(0)
DOCUMENT = np.repeat(np.arange(12), 3)  # three windows of each
DOMAIN = np.repeat([0, 1, 2], [9, 9, 18])
TOKENS = RNG.integers(0, 50, (36, 7))
SPECIAL = RNG.random((36, 7)) < 0.2
# activations by token and domain: only formal, only prose, three times as much, code alone, nothing
RATE = np.array([[1, 0, 3, 1, 0], [1, 0, 3, 0, 0], [0, 1, 1, 0, -1]], np.float32)


def planted(given, tokens):
    """The rate of the domain that the first token tells."""
    rate = given[tokens[:, 0] // 50]
    return (1 + (tokens % 50 % 3)[..., None]) * rate[:, None]


def scores_of(batch=8, domain=DOMAIN, document=DOCUMENT, special=SPECIAL, **options):
    tokens = TOKENS + 50 * domain[:, None]
    return domain_scores(planted, RATE, tokens, special, domain, document, batch=batch, **options)


def test_planted():
    """Scores against sums in NumPy; sides and labels as planted; batches change nothing."""
    found = scores_of()
    f = (1 + TOKENS % 3)[..., None] * np.maximum(RATE, 0)[DOMAIN][:, None]
    f[SPECIAL] = 0
    mass = np.array([f[d == DOMAIN].sum((0, 1)) / (~SPECIAL[d == DOMAIN]).sum() for d in range(3)])
    np.testing.assert_allclose(found.mass, mass, rtol=1e-6)
    np.testing.assert_array_equal(found.tokens, [(~SPECIAL[d == DOMAIN]).sum() for d in range(3)])
    formal = f[DOMAIN < 2].sum((0, 1)) / (~SPECIAL[DOMAIN < 2]).sum()
    formal, prose = formal[:4], mass[2, :4]
    np.testing.assert_allclose(found.score[:4], formal / (formal + prose), rtol=1e-6)
    assert found.score[0] == 1 and found.score[1] == 0 and np.isnan(found.score[4])
    assert (found.low[:4] <= found.score[:4]).all() and (found.score[:4] <= found.high[:4]).all()
    assert found.low[2] < found.score[2] < found.high[2]
    assert found.low[0] == found.high[0] == 1 and np.isnan(found.low[4])
    assert is_formal(found).tolist() == [True, False, True, True, False]
    assert is_formal(found, found.score[2]).tolist() == [True, False, False, True, False]
    assert not is_formal(found, (found.low[2] + found.score[2]) / 2, sure=True)[2]
    for batch in (5, 40):
        again = scores_of(batch)
        for a, b in zip(again, found):
            np.testing.assert_allclose(a, b, rtol=1e-5)


def test_interval_is_a_bootstrap_over_documents():
    """Against resampled documents in NumPy; drawing windows instead is told apart."""
    rng = np.random.default_rng(5)
    loud = (1 + (np.arange(12) % 4))[DOCUMENT]  # whole documents are loud: windows are not free
    tokens = np.repeat(loud[:, None], 7, 1)
    clean = np.zeros(tokens.shape, bool)

    def by_token(given, tokens):
        return given * tokens[..., None]

    args = (by_token, np.float32(1), tokens, clean, DOMAIN)
    found = domain_scores(*args, DOCUMENT, draws=4000)
    loose = domain_scores(*args, np.arange(36), draws=4000)
    draws = []
    for _ in range(4000):
        rates = []
        for groups in ((0, 1), (2,)):
            drawn = [np.unique(DOCUMENT[d == DOMAIN]) for d in groups]
            picked = [rng.choice(numbers, len(numbers)) for numbers in drawn]
            rates.append(np.mean([loud[n == DOCUMENT][0] for n in np.concatenate(picked)]))
        draws.append(rates[0] / sum(rates))
    expected = np.quantile(draws, [0.025, 0.975])
    np.testing.assert_allclose([found.low[0], found.high[0]], expected, atol=0.02)
    width, narrow = found.high[0] - found.low[0], loose.high[0] - loose.low[0]
    assert 1.3 < width / narrow < 2.2  # sqrt 3 in theory


def test_spread():
    """Planted spreads are found; unknown Q are left out; the label's interval holds the truth."""
    rng = np.random.default_rng(2)
    group = np.arange(4000) % 2 == 0
    q = np.exp(rng.normal(0, np.where(group, 1.63, 1.23)))
    q[:10] = np.nan
    found = spread_of_log(q, group)
    assert list(found) == [False, True] and found[True].n == 1995
    for label, truth in ((True, 1.63), (False, 1.23)):
        assert found[label].low < truth < found[label].high
        assert found[label].high - found[label].low < 0.11


def test_refusals():
    """What does not fit is named."""
    for options, words in (
        ({"domain": np.zeros(36, int)}, "code or maths and of prose are both needed"),
        ({"domain": DOMAIN + 1}, r"domain: numbers 0\.\.2 needed, of code, maths, prose"),
        ({"document": DOCUMENT[:5]}, r"document: shape \(5,\)"),
        ({"draws": 0}, "draws: 0"),
        ({"level": 1}, "level: 1"),
        ({"special": SPECIAL[:, :2]}, "special: shape"),
    ):
        with pytest.raises(UserError, match=words):
            scores_of(**options)
    with pytest.raises(UserError, match="threshold: 2"):
        is_formal(scores_of(draws=1), 2)
    for q, group, words in (
        ([1.0, 0.0], [0, 1], "q: finite values above 0"),
        ([1.0, np.inf], [0, 1], "q: finite values above 0"),
        ([1.0], [0, 1], r"q \(1,\) and group \(2,\)"),
        ([1.0, np.nan], [0, 1], "values: no values"),
    ):
        with pytest.raises(UserError, match=words):
            spread_of_log(q, group)
