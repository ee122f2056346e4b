"""Are the top contexts those of the whole corpus, whatever the batch, and no near copies?"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from jaxfeat.features.contexts import context_text, top_contexts
from jaxfeat.features.stream import fold_batches, read_layer
from jaxfeat.nn.blocks import forward
from jaxfeat.types import UserError, make_batch

SIZE, LENGTH, VOCAB, FEATURES = 23, 12, 40, 5
RNG = np.random.default_rng(0)
TOKENS = RNG.integers(1, VOCAB, (SIZE, LENGTH))
TOKENS[:, 0] = 0  # a marker
TABLE = np.round(RNG.normal(size=(VOCAB, FEATURES)), 1).astype(np.float32)  # with ties
TABLE[0] = 9  # what is special would always be the most active
TABLE[:, 4] = -1  # never active
OPTIONS = {"count": 6, "span": 4, "distance": 0, "window": (3, 3)}


def look_up(table, tokens):
    """Activations by token."""
    return table[tokens]


def brute(tokens, special, table, keep, span):
    """By feature: (sequence, position, activation) of each sequence's best position, sorted."""
    found = []
    for m in range(table.shape[1]):
        best = []
        for s, row in enumerate(tokens):
            places = [i for i in range(len(row) - span + 1) if not special[s, i]]
            i = max(places, key=lambda i: (table[row[i], m], -i))
            if table[row[i], m] > 0:
                best.append((s, i, float(table[row[i], m])))
        found.append(sorted(best, key=lambda x: (-x[2], x[0]))[:keep])
    return found


def kept(contexts, m):
    """The valid contexts of a feature as tuples."""
    n = contexts.valid[m].sum()
    assert contexts.valid[m, :n].all()
    parts = (contexts.sequence, contexts.position, contexts.activation)
    return [(int(s), int(i), float(a)) for s, i, a in zip(*(x[m, :n] for x in parts))]


def test_equals_the_whole():
    """Against a loop over the whole corpus, for batches that do and do not divide it."""
    special = TOKENS == 0
    special[5, 3] = True
    expected = brute(TOKENS, special, TABLE, OPTIONS["count"], OPTIONS["span"])
    f = np.where(special[..., None], 0, np.maximum(TABLE[TOKENS], 0))
    for batch in (1, 4, 30):
        got = top_contexts(look_up, TABLE, TOKENS, special, batch=batch, keep=SIZE, **OPTIONS)
        assert [kept(got, m) for m in range(FEATURES)] == expected
        np.testing.assert_array_equal(got.fired, (f > 0).sum((0, 1)))
        np.testing.assert_array_equal(got.maximum, f.max((0, 1)))
        np.testing.assert_allclose(got.mean[:4], f.sum((0, 1))[:4] / got.fired[:4], rtol=1e-6)
        assert got.positions == (~special).sum()
    assert not got.valid[4].any() and np.isnan(got.mean[4]) and got.fired[4] == 0
    few = top_contexts(look_up, TABLE, TOKENS, special, batch=4, keep=6, **OPTIONS)
    assert [kept(few, m) for m in range(FEATURES)] == expected  # what is left of fewer candidates


def test_ties_take_the_lower():
    """Equal activations: the first position of the first sequences, across batches."""
    tokens = np.arange(1, 37).reshape(6, 6)
    tokens[:, 2:5] = 1
    table = np.zeros((37, 1), np.float32)
    table[1] = 2
    options = {**OPTIONS, "count": 3, "span": 1}
    for batch in (2, 4):
        got = top_contexts(look_up, table, tokens, tokens < 0, batch=batch, **options)
        assert kept(got, 0) == [(0, 0, 2.0), (1, 2, 2.0), (2, 2, 2.0)]


def test_planted_tops_and_near_copies():
    """Planted tops come out in order; copies up to ten edits are dropped, eleven are kept."""
    rng = np.random.default_rng(1)
    tokens = rng.integers(2, 500, (30, 60))
    edits = {10: 0, 11: 10, 12: 11}  # sequence: tokens in which it differs from sequence 7
    for s, n in edits.items():
        tokens[s] = tokens[7]
        tokens[s, 20 : 20 + n] += 500
    tokens[25] = np.roll(tokens[7], 1)  # one place on: two edits, not sixty
    strength = {7: 5.0, 10: 4.9, 11: 4.8, 25: 4.7, 12: 4.6, 3: 4.5, 29: 4.4}
    given = np.zeros((30, 60), np.float32)
    for s, value in strength.items():
        given[s, 40] = value
    given[14, 55] = 9.0  # too near to the end for ten columns

    def planted(given, tokens):
        row = (tokens[:, :1] == given["first"][None]).argmax(1)
        return given["f"][row][..., None]

    data = {"f": given, "first": np.append(tokens[:, 0], -1)[:-1]}
    for s in (10, 11, 12, 25):  # rows are told apart by their first token, outside the window
        tokens[s, 0] = data["first"][s] = 2000 + s
    options = {"count": 4, "window": (25, 9)}
    got = top_contexts(planted, data, tokens, tokens < 0, batch=7, **options)
    assert [s for s, _, _ in kept(got, 0)] == [7, 12, 3, 29]
    assert [i for _, i, _ in kept(got, 0)] == [40] * 4
    assert got.maximum[0] == 9 and got.fired[0] == 8
    loose = top_contexts(planted, data, tokens, tokens < 0, batch=7, distance=0, **options)
    assert [s for s, _, _ in kept(loose, 0)] == [7, 11, 25, 12]  # 10 is an exact copy


def test_one_program_and_given_state():
    """A fold compiles once; its sums do not see the padding."""
    traces = []

    def step(given, state, rows, real):
        traces.append(1)
        return state + given * jnp.sum(rows[0] + 1, where=real)

    total = fold_batches(step, jnp.zeros(()), 2.0, [np.arange(7)], 3)
    assert float(total) == 2 * 28 and len(traces) == 1
    for sizes, words in (((0,), r"\[0\] rows"), ((2, 3), r"\[2, 3\]")):
        with pytest.raises(UserError, match=words):
            fold_batches(step, jnp.zeros(()), 2.0, [np.zeros(n) for n in sizes], 3)


def test_reads_the_layer():
    """The residual that a feature reads is that of `forward` at layer k."""
    decoder = tiny.gpt2()
    params, tokens = tiny.params_of(decoder), np.arange(14).reshape(2, 7) % tiny.VOCAB
    whole = jax.jit(lambda p: forward(decoder, p, make_batch(tokens)).resid)(params)
    read = jax.jit(read_layer(decoder, 1))(params, tokens[:, :-1])
    np.testing.assert_allclose(read, whole[:, 1], rtol=1e-5, atol=1e-6)
    with pytest.raises(UserError, match=r"layer: 3 given, a whole number, 0\.\.2"):
        read_layer(decoder, 3)


def test_text_of_a_context():
    """Pieces put together are the text; parts of a character are one piece, highlighted as one."""
    text = "né 平!"
    ids = list(text.encode())
    decode = lambda ids: bytes(ids).decode(errors="replace")
    values = np.arange(len(ids)) / 2
    at = ids.index("平".encode()[1], 4)
    told = context_text(ids, at, decode, 99, 99, values)
    assert [piece for piece, _ in told.pieces] == list(text)
    assert told.pieces[told.at] == ("平", values[6]) and told.at == 3
    assert told.pieces[1] == ("é", values[2])
    cut = context_text(ids, 0, decode, 3, 1)
    assert [p for p, _ in cut.pieces] == ["n", "\ufffd"] and cut.at == 0
    assert {a for _, a in cut.pieces} == {0.0}


def test_refusals():
    """What does not fit is named."""
    good = {"tokens": TOKENS, "special": TOKENS == 0}
    for change, words in (
        ({"tokens": TOKENS[0]}, "tokens: int64"),
        ({"tokens": TOKENS + 0.5}, "tokens: float64"),
        ({"special": TOKENS[:2] == 0}, r"special: shape \(2, 12\)"),
        ({"span": 13}, r"span: 13 given, a whole number, 1\.\.12"),
        ({"count": 0}, "count: 0"),
        ({"keep": 2}, "keep: 2 given, a whole number, 6 or more"),
        ({"window": (5, 5), "distance": 11}, r"window: \(5, 5\)"),
        ({"distance": -1}, "distance: -1"),
        ({"batch": 0}, "batch: 0"),
    ):
        options = {**good, **OPTIONS, **change}
        with pytest.raises(UserError, match=words):
            top_contexts(look_up, TABLE, options.pop("tokens"), options.pop("special"), **options)
