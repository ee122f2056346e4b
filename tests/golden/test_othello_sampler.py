"""Does Othello follow the reference sampler? (numbers: the authors' sampler)"""

import jax.numpy as jnp
import numpy as np

from jaxfeat.data.othello import (
    FIRST,
    PASS,
    board_features,
    boards_of,
    feature_types,
    legal_ids,
)

GOLDEN = ("samplers/sampler_othello8.npz",)


def mirrored(squares):
    """Squares by row and column `[..., 64]`, columns from the other side.

    The reference starts with the first player on the falling diagonal, recorded games (and this
    package) on the rising one: the same game seen in a mirror.
    """
    return squares.reshape(*squares.shape[:-1], 8, 8)[..., ::-1].reshape(squares.shape)


def test_sampler(golden):
    """Legal sets, boards and feature types are equal at every step up to the end of each game.

    The reference goes on with passes after the end of a game; here that is padding.
    """
    z = np.load(golden)
    ids = z["token_ids"].astype(np.int32)
    row, column = np.divmod(np.maximum(ids - FIRST, 0), 8)
    tokens = np.where(ids >= FIRST, FIRST + 8 * row + 7 - column, ids)
    boards = boards_of(jnp.asarray(tokens), 8)
    allowed = np.asarray(legal_ids(boards, 8))
    playing = ~allowed[..., 0]
    assert playing[:, 0].all()
    legal = np.unpackbits(z["legal"], axis=-1)[..., : allowed.shape[-1]].astype(bool)
    here = playing[:, : legal.shape[1]]
    ours = np.concatenate([allowed[..., :FIRST], mirrored(allowed[..., FIRST:])], axis=-1)
    np.testing.assert_array_equal(ours[:, : legal.shape[1]][here], legal[here])
    cells = mirrored(np.asarray(board_features(boards, 8)))
    types = mirrored(np.asarray(feature_types(boards, 8)))
    after = playing[:, :-1]  # every token that was played, the last one too
    np.testing.assert_array_equal(cells[:, 1:][after], z["features"][:, 1:][after])
    np.testing.assert_array_equal(types[:, 1:][after], z["features_type"][:, 1:][after])
    passed = ((tokens[:, 1:] == PASS) & after).any(axis=1)
    assert passed.any() and (tokens[:, 1] >= FIRST).all()
