"""How are named arrays kept in one file? As `.npz` of plain arrays, never pickled."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from jaxfeat.io.atomic import replacing
from jaxfeat.types import UserError


def save_arrays(path: str | os.PathLike, arrays: Mapping[str, Any]) -> Path:
    """Write named arrays, whole or not at all.

    Raises:
        UserError: the file cannot be written there.
    """
    path, plain = Path(path), {name: np.asarray(x) for name, x in arrays.items()}
    try:
        with replacing(path) as temporary, open(temporary, "wb") as handle:
            np.savez(handle, **plain)  # pyright: ignore[reportArgumentType]
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}") from None
    return path


def load_arrays(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """Every array of a file that `save_arrays` wrote; its checksums are verified.

    Raises:
        UserError: no such file, one that is damaged or holds other things.
    """
    try:
        with open(path, "rb") as handle, np.load(handle, allow_pickle=False) as z:
            if not hasattr(z, "files"):
                raise ValueError("one array alone")
            return {name: z[name] for name in z.files}
    except FileNotFoundError:
        raise UserError(f"no file at {path}") from None
    except (ValueError, KeyError, TypeError, OSError, EOFError, AttributeError, BadZipFile):
        raise UserError(f"{path} is damaged or no file of arrays (.npz)") from None
