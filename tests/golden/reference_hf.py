"""Reading a folder of Hugging Face's numbers: config, tensors, expected arrays.

The tensors are read here by the format's description alone (a JSON header, then bytes), so that
the reading is independent of the library's.
"""

import json

import numpy as np

from jaxfeat.types import Batch


def read_json(path):
    """A parsed config."""
    return json.loads(path.read_text())


def read_tensors(path):
    """`{name: array}` of a float32 safetensors file."""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        assert entry["dtype"] == "F32", name
        low, high = entry["data_offsets"]
        flat = np.frombuffer(data[start + low : start + high], "<f4")
        tensors[name] = flat.reshape(entry["shape"])
    return tensors


def read_expected(folder):
    """The strict float64 arrays, with the inputs."""
    with np.load(folder / "expected.npz") as z:
        inputs = {n: z[n] for n in ("input_ids", "attention_mask", "labels") if n in z}
    with np.load(folder / "expected_strict.npz") as z:
        return inputs | dict(z)


def batch_of(ids, mask, labels=None):
    """Next-token targets, or those of masked tokens where `labels` are given (not shifted)."""
    mask = np.asarray(mask, bool)
    position = np.maximum(np.cumsum(mask, axis=1, dtype=np.int32) - 1, 0)
    if labels is not None:
        weight = labels != -100
        return Batch(ids, np.where(weight, labels, 0).astype(np.int32), mask, weight, position)
    weight = np.zeros_like(mask)
    weight[:, :-1] = mask[:, :-1] & mask[:, 1:]
    return Batch(ids, np.roll(ids, -1, axis=1), mask, weight, position)
