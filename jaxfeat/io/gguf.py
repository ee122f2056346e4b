"""What does a GGUF file hold: its metadata, and its tensors out of their quantised blocks?

The package `gguf` reads the file and knows the block formats; it is imported on first use.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxfeat.io.tensors import Tensors, numpy_type
from jaxfeat.types import UserError

MAGIC = b"GGUF"
ENTRIES = 2**22  # values that are taken out of their blocks together
INSTALL = "pip install gguf"


class Gguf(NamedTuple):
    """A file: `metadata` by key, as Python values and lists, and `tensors` by GGUF's names."""

    metadata: dict[str, Any]
    tensors: Tensors


def open_gguf(path: str | os.PathLike, dtype: str = "float32") -> Gguf:
    """The metadata of a file, and its tensors, each dequantised when it is asked for.

    Args:
        path: the file. dtype: of the tensors, one of float32, float64, bfloat16, float16.

    Returns:
        Tensors have the axes `[out, in]`, as NumPy orders them (GGUF names them the other way
        round). They are computed in float32, as the block formats define them.

    Raises:
        UserError: no such file, one of another kind or cut short; later, a tensor in a block
            format that the package cannot take apart.
    """
    path, wanted = Path(path).expanduser(), numpy_type(dtype)
    try:
        with open(path, "rb") as handle:
            if (start := handle.read(4)) != MAGIC:
                raise UserError(f"{path} is no GGUF file: it starts with {start!r}, not {MAGIC!r}")
    except FileNotFoundError:
        raise UserError(f"no file at {path}") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    try:
        import gguf
    except ImportError:
        raise UserError(f"{path.name}: reading GGUF needs the package gguf ({INSTALL})") from None
    try:
        reader = gguf.GGUFReader(path)
        metadata = {key: field.contents() for key, field in reader.fields.items()}
    except (ValueError, IndexError, KeyError, OSError, OverflowError):
        raise UserError(f"{path} is cut short or damaged") from None
    size = path.stat().st_size
    readers = {}
    for tensor in reader.tensors:
        if tensor.data_offset + tensor.n_bytes > size:
            raise UserError(f"{path} is cut short: {tensor.name} ends after the file")
        readers[tensor.name] = _reader(path, tensor, wanted)
    return Gguf(metadata, Tensors(readers, str(path)))


def _reader(path: Path, tensor: Any, dtype: np.dtype) -> Callable[[], np.ndarray]:
    """What reads one tensor; it keeps the file's name and a place in it, not the whole reader."""
    name, kind, begin = tensor.name, tensor.tensor_type, tensor.data_offset
    shape, stored = tuple(int(n) for n in reversed(tensor.shape)), tensor.data.dtype
    row_bytes = tensor.n_bytes // max(1, int(np.prod(shape[:-1])))

    def read() -> np.ndarray:
        from gguf.quants import dequantize

        out = np.empty((int(np.prod(shape[:-1])), shape[-1]), dtype)
        rows = max(1, ENTRIES // shape[-1])
        with open(path, "rb") as handle:
            handle.seek(begin)
            for start in range(0, len(out), rows):
                part = out[start : start + rows]
                raw = handle.read(row_bytes * len(part))
                if len(raw) != row_bytes * len(part):
                    raise UserError(f"{path} is cut short: {name} ends after the file")
                blocks = np.frombuffer(raw, stored).reshape(len(part), -1)
                try:
                    part[:] = dequantize(blocks, kind)
                except (NotImplementedError, ValueError, KeyError):
                    known = f"{path}: tensor {name} has the type {kind.name}"
                    raise UserError(f"{known}, which the package gguf cannot read") from None
        return out.reshape(shape)

    return read
