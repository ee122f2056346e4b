"""Are streamed residuals those of one whole pass, special positions left out, rows seen once?"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from tiny import LENGTH, VOCAB, WIDTH

from jaxfeat.features.activations import (
    chunks_of,
    from_rows,
    kept_places,
    layer_activations,
    load_activations,
    shuffled_places,
    split_activations,
    stream_activations,
    take_rows,
)
from jaxfeat.nn.blocks import residuals
from jaxfeat.types import UserError

DECODER = tiny.gpt2(2)
BATCH = tiny.batch_of(5, pads=1, side="left")
TOKENS, MASK = np.asarray(BATCH.token), np.asarray(BATCH.mask)
SPECIAL = np.arange(LENGTH) == np.argmax(MASK, axis=1)[:, None]  # the first real one of each
PARAMS = tiny.params_of(DECODER)
REAL = np.asarray(residuals(DECODER, PARAMS, BATCH)[0])


def test_streamed():
    """Sequences in threes, the last chunk padded, one program; as in one pass over the whole."""
    traces = []

    def embed(*given):
        traces.append(0)
        return DECODER.embed(*given)

    counted = DECODER._replace(embed=embed)
    parts = list(stream_activations(counted, PARAMS, TOKENS, 1, MASK, at_once=3))
    assert [len(part) for part in parts] == [3, 2] and len(traces) == 1
    found = np.concatenate(parts)
    np.testing.assert_allclose(found[MASK], REAL[:, 1][MASK], atol=1e-6)
    assert MASK.sum() < MASK.size


def test_no_block_above_runs():
    """Blocks above the layer may hold anything."""
    spoilt = jax.tree.map(lambda x: x.copy(), PARAMS)
    for leaf in jax.tree.leaves(spoilt["blocks"]):
        leaf[1:] = np.nan
    found = layer_activations(DECODER, spoilt, TOKENS, 1, mask=MASK)
    np.testing.assert_allclose(found.resid[MASK], REAL[:, 1][MASK], atol=1e-6)
    with pytest.raises(UserError, match="the residual at layer 2 is not finite as float32"):
        layer_activations(DECODER, spoilt, TOKENS, 2, mask=MASK)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_folder(tmp_path, dtype):
    """On disk as in memory; special positions are left out wherever they stand."""
    given = (DECODER, PARAMS, TOKENS, 2, SPECIAL)
    inside = layer_activations(*given, mask=MASK, dtype=dtype)
    out = layer_activations(*given, mask=MASK, dtype=dtype, folder=tmp_path / "a", at_once=2)
    back = load_activations(tmp_path / "a")
    np.testing.assert_array_equal(out.kept, MASK & ~SPECIAL)
    assert isinstance(back.resid, np.memmap) and back.layer == inside.layer == 2
    for found in (inside, out, back):
        np.testing.assert_array_equal(found.kept, out.kept)
        rows = take_rows(found, kept_places(found)).astype(np.float32)
        tolerance = {"float32": 1e-6, "bfloat16": 2e-2, "float16": 2e-3}[dtype]
        np.testing.assert_allclose(rows, REAL[:, 2][out.kept], rtol=tolerance, atol=tolerance)
    bytes_each = 4 if dtype == "float32" else 2
    assert (tmp_path / "a" / "resid.bin").stat().st_size == REAL[:, 2].size * bytes_each


def test_chunks():
    """Every row that counts once; the last chunk is filled with what is not real."""
    found = layer_activations(DECODER, PARAMS, TOKENS, 0, SPECIAL, mask=MASK)
    chunks = list(chunks_of(found, 4))
    assert {rows.shape for rows, _ in chunks} == {(4, WIDTH)}
    joined = np.concatenate([rows[real] for rows, real in chunks])
    np.testing.assert_array_equal(joined, found.resid[found.kept])
    assert sum(real.sum() for _, real in chunks) == (MASK & ~SPECIAL).sum() == 15


def test_order():
    """Each row once an epoch, another order in the next."""
    places = np.asarray(shuffled_places(jax.random.key(0), jnp.arange(12), 5, 20)).reshape(3, 20)
    for epoch in places:
        assert sorted(epoch.tolist()) == list(range(20))
    assert (places[0] != places[1]).any()


def test_split():
    """Whole sequences: the last go out."""
    found = layer_activations(DECODER, PARAMS, TOKENS, 1, mask=MASK)
    train, held = split_activations(found, 0.4)
    assert (len(train.resid), len(held.resid)) == (3, 2)
    np.testing.assert_array_equal(np.concatenate([train.resid, held.resid]), found.resid)
    assert len(split_activations(found, 0.01)[1].resid) == 1
    assert len(split_activations(found, 0.99)[0].resid) == 1
    for share in (0, 1, -0.1, np.nan):
        with pytest.raises(UserError, match=r"held_out: .* a share in 0..1"):
            split_activations(found, share)
    with pytest.raises(UserError, match="held_out: 1 sequences are too few"):
        split_activations(from_rows(np.ones((1, 2)), 0), 0.5)


def test_refused(tmp_path):
    def of(tokens=TOKENS, layer=1, special=None, **more):
        return lambda: layer_activations(DECODER, PARAMS, tokens, layer, special, **more)

    (tmp_path / "file").write_text("")
    big = jax.tree.map(lambda x: 1e6 * x, PARAMS)
    wrong = np.where(np.arange(LENGTH) == 2, VOCAB, TOKENS)
    for call, told in (
        (of(layer=3), r"layer: 3 given, .* 0\.\.2"),
        (of(wrong), rf"tokens: ids 0\.\.{VOCAB} given, valid are 0\.\.{VOCAB - 1}"),
        (of(TOKENS[0]), r"tokens: .* whole numbers \[n, T\] needed"),
        (of(TOKENS * 1.0), r"tokens: float64 .* whole numbers"),
        (of(np.zeros((2, LENGTH + 1), int)), "7 positions given, the model has 6"),
        (of(special=SPECIAL[0]), r"special: shape \(6,\) given, \(5, 6\) needed"),
        (of(mask=MASK[0]), r"mask: shape \(6,\) given, \(5, 6\) needed"),
        (of(special=SPECIAL | True), "special: no position is left"),
        (of(dtype="int8"), "'int8' given; valid: float32, bfloat16, float16"),
        (of(at_once=0), "at_once: 0 given"),
        (of(folder=tmp_path / "file" / "a"), "cannot be written"),
        (lambda: layer_activations(DECODER, big, TOKENS, 0, dtype="float16"), "finite as float16"),
        (lambda: from_rows(np.ones(3), 0), r"rows: shape \(3,\) given"),
    ):
        with pytest.raises(UserError, match=told):
            call()


def test_refused_folders(tmp_path):
    """An interrupted or damaged folder is never read."""
    layer_activations(DECODER, PARAMS, TOKENS, 1, folder=tmp_path)
    (tmp_path / "resid.bin").write_bytes((tmp_path / "resid.bin").read_bytes()[:-4])
    with pytest.raises(UserError, match="are damaged"):
        load_activations(tmp_path)
    parts = stream_activations(DECODER, PARAMS, TOKENS, 1)
    assert next(parts).shape == (5, LENGTH, WIDTH)
    spoilt = jax.tree.map(lambda x: x * np.nan, PARAMS)
    with pytest.raises(UserError, match="not finite"):
        layer_activations(DECODER, spoilt, TOKENS, 1, folder=tmp_path)
    with pytest.raises(UserError, match=r"no whole activations in .*activations\.json is missing"):
        load_activations(tmp_path)
    (tmp_path / "activations.json").write_text('{"shape": 3}')
    with pytest.raises(UserError, match="are damaged"):
        load_activations(tmp_path)
