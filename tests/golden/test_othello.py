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


def test_sampler(golden):
    """Legal sets, boards and feature types are equal at every step up to the end of each game.

    The reference goes on with passes after the end of a game; here that is padding.
    """
    z = np.load(golden)
    tokens = z["token_ids"].astype(np.int32)
    boards = boards_of(jnp.asarray(tokens), 8)
    allowed = np.asarray(legal_ids(boards, 8))
    over = allowed[..., 0]
    playing = ~over
    assert playing[:, 0].all()
    legal = np.unpackbits(z["legal"], axis=-1)[..., : allowed.shape[-1]].astype(bool)
    steps = legal.shape[1]
    here = playing[:, :steps]
    np.testing.assert_array_equal(allowed[:, :steps][here], legal[here])
    cells, types = np.asarray(board_features(boards, 8)), np.asarray(feature_types(boards, 8))
    after = playing[:, 1:] | playing[:, :-1]  # the final board too
    np.testing.assert_array_equal(cells[:, 1:][after], z["features"][:, 1:][after])
    np.testing.assert_array_equal(types[:, 1:][after], z["features_type"][:, 1:][after])
    passed = ((tokens[:, 1:] == PASS) & playing[:, :-1]).any(axis=1)
    print(f"{len(tokens)} games, {int(passed.sum())} with a pass before the end")
    assert passed.any() and (tokens[:, 1] >= FIRST).all()
