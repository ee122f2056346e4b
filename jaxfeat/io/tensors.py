"""How do the arrays of a model go from one file into another without all being held at once?"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from jaxfeat.types import UserError

FLOATS = ("float32", "float64", "bfloat16", "float16")


class Tensors(Mapping[str, np.ndarray]):
    """Arrays by name; each is read when it is asked for, and is not kept.

    Args:
        readers: name -> what reads the array. source: where they come from, for messages.

    >>> one = Tensors({"w": lambda: np.ones(2)}, "model.safetensors")
    >>> list(one), one["w"].tolist(), one.get("b") is None
    (['w'], [1.0, 1.0], True)
    """

    def __init__(self, readers: Mapping[str, Callable[[], np.ndarray]], source: str):
        self.readers, self.source = dict(readers), source

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self.readers:
            raise UserError(f"{self.source} holds no tensor {name}")
        return self.readers[name]()

    def __contains__(self, name: Any) -> bool:
        return name in self.readers

    def get(self, name: str, default: Any = None) -> Any:
        if name not in self:
            return default
        return self[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.readers)

    def __len__(self) -> int:
        return len(self.readers)


def numpy_type(dtype: Any) -> np.dtype:
    """The NumPy type of a floating type's name, bfloat16 included.

    Raises:
        UserError: it is none of `FLOATS`.

    >>> numpy_type("bfloat16").itemsize
    2
    """
    import ml_dtypes

    if dtype not in FLOATS:
        raise UserError(f"dtype: {dtype!r} given; valid: {', '.join(FLOATS)}")
    return np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def as_float(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """A floating array in another floating type; arrays of other kinds as they are."""
    return array.astype(dtype, copy=False) if array.dtype.kind in "fV" else array
