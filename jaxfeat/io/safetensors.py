"""How are the arrays of a model read from safetensors, one at a time, and written whole?

One file, or several with a `.safetensors.index.json` that says which tensor is in which. No other
format is read: `.bin`, `.pt` and `.ckpt` files are pickles, which can run code. The library
`safetensors` is imported on first use.
"""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxfeat.io.atomic import replacing
from jaxfeat.io.tensors import Tensors, as_float, numpy_type
from jaxfeat.types import UserError

WHOLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.msgpack", "*.h5")
SHARD = 2**28  # bytes that are held together while many arrays are written
READ = ("F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U8", "U64", "U32", "U16", "BOOL")


def tensor_files(path: str | os.PathLike) -> dict[str, Path]:
    """Which file holds which tensor: name -> file, in order.

    Args:
        path: a `.safetensors` file, an index, or a folder that holds one of the two.

    Raises:
        UserError: nothing of that kind is there, a file is missing or damaged, or the index names
            a tensor that its file does not hold.
    """
    path = Path(path).expanduser()
    file = path
    if path.is_dir():
        file = path / WHOLE if (path / WHOLE).is_file() else path / INDEX
        if not file.is_file():
            raise UserError(_what_lacks(path))
    if file.suffix != ".json":
        return dict.fromkeys(_open(file, list), file)
    try:
        named = json.loads(file.read_text(encoding="utf-8"))["weight_map"]
        found = {str(name): file.parent / Path(shard).name for name, shard in named.items()}
    except FileNotFoundError:
        raise UserError(f"no file at {file}") from None
    except (ValueError, KeyError, TypeError, AttributeError, OSError):
        raise UserError(f"{file} is damaged or no index of safetensors files") from None
    for shard in dict.fromkeys(found.values()):
        if not shard.is_file():
            raise UserError(f"{shard} is missing: {file.name} names it")
        held = set(_open(shard, list))
        if lost := [name for name, place in found.items() if place == shard and name not in held]:
            raise UserError(f"{shard} holds no tensor {lost[0]}, which {file.name} expects there")
    return found


def open_tensors(path: str | os.PathLike, dtype: str = "float32") -> Tensors:
    """The tensors of a file or folder, each read when it is asked for.

    Args:
        path: as in `tensor_files`.
        dtype: what floating tensors are turned into, one of float32, float64, bfloat16, float16;
            tensors of whole numbers stay as they are.

    Raises:
        UserError: as `tensor_files`; later, a name that no file holds, or a type that NumPy lacks.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "model.safetensors"
    >>> _ = save_tensors(file, {"w": np.arange(4.0).reshape(2, 2).T})
    >>> open_tensors(file)["w"].tolist()
    [[0.0, 2.0], [1.0, 3.0]]
    """
    wanted = numpy_type(dtype)

    def reader(name: str, file: Path) -> Callable[[], np.ndarray]:
        return lambda: as_float(_open(file, lambda held: _tensor(held, name, file)), wanted)

    files = tensor_files(path)
    return Tensors({name: reader(name, file) for name, file in files.items()}, str(path))


def save_tensors(path: str | os.PathLike, arrays: Mapping[str, Any]) -> Path:
    """Write named arrays as one file, whole or not at all, after reading them back.

    A transposed or strided array is laid out anew first: its bytes alone would be read back in
    another order.

    Raises:
        UserError: no array, or the file cannot be written there.
    """
    from safetensors.numpy import save_file

    path = Path(path).expanduser()
    if not arrays:
        raise UserError(f"{path.name}: give at least one array")
    plain = {name: np.asarray(array) for name, array in arrays.items()}
    # not for all: `ascontiguousarray` gives a scalar an axis
    plain = {n: a if a.flags.c_contiguous else np.ascontiguousarray(a) for n, a in plain.items()}
    try:
        with replacing(path) as temporary:
            save_file(plain, temporary, metadata={"format": "np"})
            temporary.chmod(0o644)  # the library lets nobody else read
            for name, array in plain.items():
                back = _open(temporary, lambda held, name=name: _tensor(held, name, path))
                if back.shape != array.shape or back.dtype != array.dtype or not _same(back, array):
                    raise OSError(f"tensor {name} was read back changed")
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}") from None
    return path


def save_shards(folder: str | os.PathLike, tensors: Mapping[str, np.ndarray]) -> Path:
    """Write arrays one after the other into several files and an index, in an existing folder.

    No more than `SHARD` bytes, or one array, are held at a time.

    Returns:
        The index; `open_tensors` reads it, or the folder.

    Raises:
        UserError: as `save_tensors`.
    """
    folder, named, held = Path(folder), {}, {}

    def write() -> None:
        file = save_tensors(folder / f"model-{len(set(named.values())) + 1:05d}.safetensors", held)
        named.update(dict.fromkeys(held, file.name))
        held.clear()

    for name in tensors:
        held[name] = np.asarray(tensors[name])
        if sum(array.nbytes for array in held.values()) >= SHARD:
            write()
    if held or not named:
        write()
    with replacing(folder / INDEX) as temporary:
        temporary.write_text(json.dumps({"weight_map": named}, indent=1), encoding="utf-8")
    return folder / INDEX


def _open(file: Path, use: Callable[[Any], Any]) -> Any:
    """What `use` gives for the opened file; `list` gives the names. Closed again at once."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="np") as held:
            return list(held.keys()) if use is list else use(held)
    except FileNotFoundError:
        raise UserError(f"no file at {file}") from None
    except (SafetensorError, OSError) as error:
        told = str(error).removeprefix("Error while deserializing header: ")
        raise UserError(f"{file} is damaged or no safetensors file ({told[:80]})") from None


def _tensor(held: Any, name: str, file: Path) -> np.ndarray:
    """One tensor of an opened file as an array of its own."""
    kind = held.get_slice(name).get_dtype()
    if kind not in READ:
        raise UserError(f"{file}: tensor {name} has the type {kind}; read are {', '.join(READ)}")
    return held.get_tensor(name)


def _same(one: np.ndarray, two: np.ndarray) -> bool:
    """Whether two arrays of one shape and type have the same bits."""
    bits = lambda array: array.reshape(-1).view(np.uint8)
    return bool(np.array_equal(bits(one), bits(two)))


def _what_lacks(folder: Path) -> str:
    """Why a folder gives no tensors."""
    found = sorted(file.name for kind in PICKLES for file in folder.glob(kind))
    if found:
        return (
            f"{folder} holds {found[0]} but no {WHOLE}: other formats are not read, convert it to "
            "safetensors"
        )
    return f"no {WHOLE} or {INDEX} in {folder}"
