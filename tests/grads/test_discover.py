"""Are planted directions found, and are random ones not?"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import QUICK

from jaxfeat.grads.discover import discover, principal_angles, readouts
from jaxfeat.grads.ledger import influence, make_ledger, matrices
from jaxfeat.grads.moments import StepRule
from jaxfeat.grads.plan import make_plan
from jaxfeat.grads.track import Tracker, node_resid
from jaxfeat.nn.decoder import Decoder
from jaxfeat.train.loop import Watch, fresh, make_interval, start_run
from jaxfeat.train.step import make_update
from jaxfeat.types import UserError, make_batch

WIDTH, EACH, LENGTH, NODE, STEPS = 6, 48, 4, (1, 1), 60
VOCAB = EACH * LENGTH  # each position has tokens of its own, so that nothing at the node is shared
NEXT, LATER = 0, 1  # the directions that the next token and later positions alone read
RULE = StepRule("sgd")


def planted():
    """One table is trained. Logits read all of a position but LATER; attention all but NEXT."""
    rng = np.random.default_rng(0)
    here = 0.5 * rng.standard_normal((VOCAB, WIDTH))
    there = 0.5 * rng.standard_normal((VOCAB, WIDTH))
    here[:, LATER], there[:, NEXT] = 0, 0
    read = jnp.array(np.concatenate([here, there], axis=1), jnp.float32)

    return Decoder(
        layers=2, width=2 * WIDTH, vocab=VOCAB,
        init=lambda key: {
            "outer": 0.3 * jax.random.normal(key, (VOCAB, WIDTH)), "blocks": jnp.zeros(2),
        },
        # the second half of the residual is what attention writes; block 2 reads the first half
        embed=lambda outer, token, position: jnp.concatenate([outer[token], jnp.zeros(WIDTH)]),
        query=lambda block, const, resid, position: jnp.zeros((1, 1)),
        memory=lambda block, const, resid, position: (jnp.zeros((1, 1)), resid[None, :WIDTH]),
        attn_out=lambda block, const, mixed: jnp.concatenate(
            [jnp.zeros(WIDTH), const * mixed[0]]
        ),
        mlp_out=lambda block, const, resid, attn: jnp.zeros(2 * WIDTH),
        visible=lambda const, t, s: t[:, None] > s[None, :],
        unembed=lambda outer, x, ids=None: read @ x,
        consts=jnp.array([0.0, 2.0]),
    )  # fmt: skip


def sample(key, size=256):
    """Random tokens; the target is a fixed function of the token and of the one before."""
    place = EACH * jnp.minimum(jnp.arange(LENGTH + 1), LENGTH - 1)
    batch = make_batch(place + jax.random.randint(key, (size, LENGTH + 1), 0, EACH))
    before = jnp.pad(batch.token, ((0, 0), (1, 0)))[:, :-1]
    return batch._replace(target=(3 * batch.token + 5 * before) % VOCAB)


@functools.lru_cache
def ledger(seed=0, size=512):
    decoder = planted()
    held = sample(jax.random.key(99), size)
    plan = make_plan([NODE], layers=2, length=LENGTH, chunks=1, at_once=9, examples=size)
    watch = Watch(Tracker(decoder, plan, RULE, ends="both"), held)
    interval = jax.jit(
        make_interval(make_update(decoder, RULE), fresh(sample), STEPS, watch=watch),
        compiler_options=QUICK,
    )
    first = start_run(RULE, decoder.init(jax.random.key(seed)), watch)
    last, _ = interval(first, jax.random.key(seed + 10), jnp.float32(2.0))
    copy = lambda run: (
        run.tracked.sums._asdict() | {"resid": node_resid(watch.tracker, run.state.params, held)}
    )
    return make_ledger([NODE], (0, STEPS), np.ones((1, size), bool), [copy(first), copy(last)])


def cosine(w, axis):
    return np.abs(w[..., axis]) / np.linalg.norm(w, axis=-1)


@pytest.mark.parametrize(
    ("part", "without", "axis"),
    [("precached", ("direct",), LATER), ("direct", ("precached",), NEXT)],
)
def test_planted(part, without, axis):
    """The leading direction is the planted one and holds on the other half; random ones do not."""
    found = discover(ledger(), part, without=without)
    assert cosine(found.w[0, 0], axis) > 0.9
    assert found.rank[0] == WIDTH
    pure = lambda told: told.share(part)[0] - 2 * np.abs(told.share(without[0])[0])
    assert pure(found.tested)[0] > 0.8
    assert np.mean(pure(found.control) < pure(found.tested)[0]) > 0.95
    assert np.mean(cosine(found.control_w[0], axis) > 0.9) < 0.15


def test_eigenproblem():
    """The directions have R = 1 and stand by influence on their half; it is the eigenvalue."""
    book = ledger()
    found = discover(book, "combined", count=3)
    np.testing.assert_allclose(found.fitted.scale, 1, rtol=1e-9)
    values = found.fitted.combined[0]
    assert (np.diff(values) <= 1e-12).all()
    gap = book.resid[0, 0, :256].astype(float) - book.resid[-1, 0, :256]
    gap = gap - gap.mean(0)
    half_c = gap.T @ gap / len(gap) / 2
    whole = matrices(book, half=0)[0].sum(0)
    for w, value in zip(found.w[0], values):
        np.testing.assert_allclose(
            whole @ w, value * half_c @ w, atol=1e-6 * np.abs(whole @ w).max()
        )
    back = influence(book, found.w, half=1)
    np.testing.assert_array_equal(found.tested.direct, back.direct)


def test_principal_angles():
    """A run agrees with itself; the first angle of two runs is that of the best correlated pair."""
    book, other = ledger(), ledger(seed=1)
    mine = readouts(book, discover(book, "combined", count=2).w)[0]
    theirs = readouts(other, discover(other, "combined", count=2).w)[0]
    assert principal_angles(mine, mine).max() < 1e-6
    assert np.abs(mine.mean(0)).max() < 1e-9 * np.abs(mine).max()
    angles = principal_angles(mine, theirs)
    assert angles.shape == (2,) and (np.diff(angles) >= 0).all()
    for a, b, words in (
        (mine, theirs[:-1], "of the same examples"),
        (mine, 0 * theirs, "constant or follows"),
        (mine, np.c_[theirs, theirs], "constant or follows"),
        (mine, theirs * np.nan, "finite"),
    ):
        with pytest.raises(UserError, match=words):
            principal_angles(a, b)


def test_refused():
    book = ledger()
    with pytest.raises(UserError, match="'precahed' is unknown; valid: direct"):
        discover(book, "precahed")
    for options, words in (
        ({"half": 2}, "half: 2 given"),
        ({"half": True}, "half: True given"),
        ({"count": 2.5}, "count: 2.5 given"),
        ({"controls": 0}, "controls: 0 given"),
        ({"without": ("direct",)}, "'direct' is the part that is asked for"),
        ({"start": 1, "stop": 1, "target": 0}, "nothing was built"),
    ):
        with pytest.raises(UserError, match=words):
            discover(book, "direct", **options)
    with pytest.raises(UserError, match="place: 7 given"):
        readouts(book, np.eye(2 * WIDTH), place=7)
    with pytest.raises(UserError, match=r"\(1 nodes, features, 12\) needed"):
        readouts(book, np.eye(5))
    with pytest.raises(UserError, match="this run had no decay"):
        discover(book, "decay")
    with pytest.raises(UserError, match=r"E: 24 sequences give 12 .* at least 26 sequences"):
        discover(ledger(size=24), "direct")
    with pytest.raises(UserError, match=r"1\.\.12"):
        discover(book, "direct", count=13)
