"""Is code told from punctuation and words, and a difference paired by prompt?"""

import numpy as np
import pytest

from jaxfeat.features.text_shares import compare_shares, text_shares
from jaxfeat.types import UserError


def test_tokens_are_told_apart():
    """Token by token: what is code, what punctuation, what neither; no token is both."""
    code = ["def", "elif", "self", "max_len", "_x", "camelCase", "x1", "{", "]", "=", "\\", "_"]
    signs = list(".,;:!?()'—“-")
    words = ["if", "for", "and", "The", "word", "Paris", "42", "é", "€", "None", "as_"]
    shares = text_shares([*code, *signs, *words, "", "   "])
    kind = np.repeat([0, 1, 2, 3], [len(code), len(signs), len(words), 2])
    np.testing.assert_array_equal(shares.code, kind == 0)
    np.testing.assert_array_equal(shares.punctuation, kind == 1)
    np.testing.assert_array_equal(shares.tokens, kind < 3)
    mixed = text_shares(["for x_1 in y: return len(y)"])
    assert mixed.tokens[0] == 10 and mixed.code[0] == 0.2 and mixed.punctuation[0] == 0.3


def test_code_is_above_prose():
    """Lines of either kind lie on their side."""
    code = text_shares([
        "x = [i * 2 for i in range(10) if i % 3]",
        "class A(B):\n    def __init__(self, n_max=3):\n        self.n_max = n_max",
        "\\frac{a}{b} = x^2 + 3x",
    ])  # fmt: skip
    prose = text_shares([
        "It was late, and nobody had come in; she waited.",
        "“Return to the class,” he said (with a smile), “if you like.”",
    ])  # fmt: skip
    assert code.code.min() > 0.25 and prose.code.max() == 0
    assert prose.punctuation.min() > 0.1


def test_pairs_by_prompt():
    """What differs between prompts drops out of the interval; what differs within does not."""
    rng = np.random.default_rng(0)
    prompt = rng.uniform(0, 0.6, 50)
    steered = prompt + 0.2 + rng.normal(0, 0.02, (4, 50))
    found = compare_shares(steered, prompt)
    assert found.low < 0.2 < found.high and found.n == 50
    assert 0.003 < found.high - found.low < 0.01  # unpaired: 0.1 and more
    np.testing.assert_allclose(found.mean, (steered - prompt).mean())
    alone = compare_shares(steered[0], prompt)
    assert alone.high - alone.low > found.high - found.low


def test_refusals():
    with pytest.raises(UserError, match="texts: a list"):
        text_shares("one text")
    for steered in (np.ones((2, 3)), np.ones((0, 2)), np.ones((1, 2, 2))):
        with pytest.raises(UserError, match=r"\[F, B\] and \[B\] needed"):
            compare_shares(steered, [0.0, 1.0])
