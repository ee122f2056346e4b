"""Do tensors come out of a GGUF's blocks right, in pieces, and are bad files named?"""

import numpy as np
import pretrained_files as files
import pytest

from jaxfeat.io import gguf
from jaxfeat.io.gguf import open_gguf
from jaxfeat.types import UserError

package = pytest.importorskip("gguf", reason="the package gguf is not installed")
KINDS = package.GGMLQuantizationType
RNG = np.random.default_rng(1)
X = RNG.normal(size=(9, 64)).astype(np.float32)
META = {"general.architecture": "llama", "llama.block_count": 2, "llama.rope": 0.5,
        "some.words": ["a", "é"], "some.numbers": [1, 2], "some.truth": True}  # fmt: skip


def test_metadata_are_python_values(tmp_path):
    held = open_gguf(files.write_gguf(tmp_path / "m.gguf", META, {"w": X}))
    assert {key: held.metadata[key] for key in META} == META


def test_tensors_come_out_of_their_blocks(tmp_path, monkeypatch):
    """Q8_0 and Q4_0 by hand: 32 values share a scale in float16; and any number of rows at once."""
    types = {"q8": KINDS.Q8_0, "q4": KINDS.Q4_0}
    tensors = {"plain": X, "half": X.astype(np.float16), "q8": X, "q4": X, "flat": X[0]}
    path = files.write_gguf(tmp_path / "m.gguf", META, tensors, types)
    for entries in (1, 200, 2**22):
        monkeypatch.setattr(gguf, "ENTRIES", entries)
        held = open_gguf(path).tensors
        np.testing.assert_array_equal(held["plain"], X)
        np.testing.assert_array_equal(held["flat"], X[0])
        np.testing.assert_array_equal(held["half"], X.astype(np.float16).astype(np.float32))
        for name, size, signed in (("q8", 34, True), ("q4", 18, False)):
            raw = package.quants.quantize(X, types[name]).reshape(-1, size)
            scale = raw[:, :2].copy().view(np.float16).astype(np.float32)
            if signed:
                number = raw[:, 2:].view(np.int8)
            else:  # 4 bits: the low halves of the bytes first, then the high ones, minus 8
                number = np.hstack([raw[:, 2:] & 15, raw[:, 2:] >> 4]).astype(np.int32) - 8
            np.testing.assert_array_equal(held[name], (scale * number).reshape(X.shape))
            assert np.abs(held[name] - X).max() < (0.02 if signed else 0.4)
    wide = open_gguf(path, "float64").tensors["q8"]
    assert wide.dtype == np.float64
    np.testing.assert_array_equal(wide, held["q8"])
    assert open_gguf(path, "bfloat16").tensors["q8"].dtype.name == "bfloat16"


def test_bad_files_are_named(tmp_path):
    path = files.write_gguf(tmp_path / "m.gguf", META, {"w": X, "v": X}, {"v": KINDS.Q8_0})
    data = path.read_bytes()
    for size in (4, 20, 60, 200, len(data) // 2, len(data) - 40):
        (tmp_path / "cut.gguf").write_bytes(data[:size])
        with pytest.raises(UserError, match=r"cut\.gguf is cut short"):
            open_gguf(tmp_path / "cut.gguf")
    (tmp_path / "other.gguf").write_bytes(b"PK\3\4" + data)
    with pytest.raises(UserError, match=r"other\.gguf is no GGUF file: it starts with b'PK"):
        open_gguf(tmp_path / "other.gguf")
    with pytest.raises(UserError, match=r"no file at .*absent\.gguf"):
        open_gguf(tmp_path / "absent.gguf")
    with pytest.raises(UserError, match="cannot be read: Is a directory"):
        open_gguf(tmp_path)
    held = open_gguf(path)
    with pytest.raises(UserError, match=r"m\.gguf holds no tensor x"):
        held.tensors["x"]
    path.write_bytes(data[: len(data) - 40])  # cut after it was opened
    with pytest.raises(UserError, match=r"m\.gguf is cut short: v ends after the file"):
        held.tensors["v"]


def test_a_type_that_the_package_cannot_read(tmp_path):
    path = files.write_gguf(tmp_path / "m.gguf", META, {"w": np.arange(32, dtype=np.int32)})
    with pytest.raises(UserError, match="tensor w has the type I32, which"):
        open_gguf(path).tensors["w"]
