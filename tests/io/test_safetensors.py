"""Do arrays come back from safetensors as they went in, and are bad files named?"""

import json

import ml_dtypes
import numpy as np
import pytest

from jaxfeat.io import safetensors
from jaxfeat.io.safetensors import open_tensors, save_shards, save_tensors, tensor_files
from jaxfeat.io.tensors import FLOATS, numpy_type
from jaxfeat.types import UserError

RNG = np.random.default_rng(0)
W = RNG.normal(size=(3, 5)).astype(np.float32)


def test_any_layout_comes_back_right(tmp_path):
    """A transposed, a strided and a broadcast array, a scalar, an empty one, whole numbers."""
    given = {
        "transposed": W.T,
        "strided": np.arange(24.0).reshape(4, 6)[::2, ::-3],
        "spread": np.broadcast_to(W[0], (4, 5)),
        "scalar": np.float64(2.5),
        "empty": np.zeros((0, 3), np.float32),
        "whole": np.arange(6).reshape(2, 3).T,
        "half": W.astype(ml_dtypes.bfloat16).T,
    }
    file = save_tensors(tmp_path / "a b" / "x.safetensors", given)
    assert [path.name for path in file.parent.iterdir()] == ["x.safetensors"]
    for name, array in given.items():
        back = open_tensors(file, "float64")[name]
        assert back.shape == np.shape(array)
        np.testing.assert_array_equal(back, np.asarray(array).astype(back.dtype))
    assert open_tensors(file)["whole"].dtype == np.int64  # whole numbers stay


def test_every_pair_of_floating_types(tmp_path):
    for stored in FLOATS:
        file = save_tensors(tmp_path / f"{stored}.safetensors", {"w": W.astype(numpy_type(stored))})
        for dtype in FLOATS:
            back = open_tensors(file, dtype)["w"]
            assert back.dtype == numpy_type(dtype)
            wanted = W.astype(numpy_type(stored)).astype(numpy_type(dtype))
            np.testing.assert_array_equal(back, wanted)


def test_bfloat16_is_the_upper_half_of_float32(tmp_path):
    """Read by hand: the bits of the file itself, shifted."""
    file = save_tensors(tmp_path / "x.safetensors", {"w": W.astype(ml_dtypes.bfloat16)})
    data = file.read_bytes()
    head = int.from_bytes(data[:8], "little")
    begin, end = json.loads(data[8 : 8 + head])["w"]["data_offsets"]
    bits = np.frombuffer(data[8 + head :][begin:end], np.uint16).astype(np.uint32) << 16
    np.testing.assert_array_equal(open_tensors(file)["w"].ravel(), bits.view(np.float32))


def test_shards_are_written_one_by_one_and_read_as_one(tmp_path, monkeypatch):
    monkeypatch.setattr(safetensors, "SHARD", 100)
    given = {f"w{n}": RNG.normal(size=(n + 1, 4)) for n in range(6)}
    index = save_shards(tmp_path, given)
    files = tensor_files(tmp_path)
    assert list(files) == list(given) and len(set(files.values())) == 4
    for place in (tmp_path, index):
        found = open_tensors(place, "float64")
        assert set(found) == set(given) and len(found) == 6 and "w7" not in found
        for name, array in given.items():
            np.testing.assert_array_equal(found[name], array)
    with pytest.raises(UserError, match=f"{index} holds no tensor w7"):
        found["w7"]
    assert found.get("w7", 3) == 3


def test_values_are_read_when_they_are_asked_for(tmp_path):
    file = save_tensors(tmp_path / "x.safetensors", {"a": W, "b": W})
    found = open_tensors(file)
    save_tensors(file, {"a": W + 1, "b": W + 2})
    np.testing.assert_array_equal(found["b"], W + 2)


def test_missing_and_damaged_files_are_named(tmp_path):
    whole = save_tensors(tmp_path / "x.safetensors", {"w": W})
    data = whole.read_bytes()
    for size in (0, 5, 40, len(data) - 3):
        whole.write_bytes(data[:size])
        with pytest.raises(UserError, match=r"x\.safetensors is damaged or no safetensors file"):
            open_tensors(whole)
    with pytest.raises(UserError, match=r"no file at .*absent\.safetensors"):
        open_tensors(tmp_path / "absent.safetensors")
    with pytest.raises(UserError, match=r"no file at .*absent\.json"):
        open_tensors(tmp_path / "absent.json")
    with pytest.raises(UserError, match=r"no model\.safetensors or model\.safetensors\.index"):
        open_tensors(tmp_path)
    with pytest.raises(UserError, match="dtype: 'int8' given; valid: float32"):
        open_tensors(whole, "int8")


def test_a_shard_that_lacks_and_an_index_that_lies(tmp_path, monkeypatch):
    monkeypatch.setattr(safetensors, "SHARD", 1)
    index = save_shards(tmp_path, {"a": W, "b": W})
    named = json.loads(index.read_text())["weight_map"]
    (tmp_path / named["b"]).rename(tmp_path / "elsewhere")
    with pytest.raises(UserError, match=r"model-00002\.safetensors is missing: model.safetensors"):
        open_tensors(tmp_path)
    index.write_text(json.dumps({"weight_map": {"a": named["a"], "b": named["a"]}}))
    with pytest.raises(UserError, match=r"model-00001\.safetensors holds no tensor b, which"):
        open_tensors(tmp_path)
    # a path in the index leads nowhere else
    index.write_text(json.dumps({"weight_map": {"a": "../" + named["a"]}}))
    assert list(open_tensors(tmp_path)) == ["a"]
    for text in ("{", "[]", '{"weight_map": 3}', "{}"):
        index.write_text(text)
        with pytest.raises(UserError, match="is damaged or no index of safetensors files"):
            open_tensors(tmp_path)


def test_pickles_are_refused_with_the_way_out(tmp_path):
    (tmp_path / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(UserError, match=r"holds pytorch_model\.bin but .* convert it to\s+safet"):
        open_tensors(tmp_path)


def test_types_that_numpy_lacks_are_named(tmp_path):
    head = json.dumps({"w": {"dtype": "F8_E4M3", "shape": [4], "data_offsets": [0, 4]}}).encode()
    (tmp_path / "x.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + b"\0" * 4)
    with pytest.raises(UserError, match="tensor w has the type F8_E4M3; read are F64"):
        open_tensors(tmp_path / "x.safetensors")["w"]


def test_what_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        save_tensors(tmp_path / "file" / "x.safetensors", {"w": W})
    with pytest.raises(UserError, match="give at least one array"):
        save_tensors(tmp_path / "x.safetensors", {})
