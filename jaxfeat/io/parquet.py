"""How does a table with named columns and units reach the disk and come back unchanged?

A table is a dict of equally long 1-D columns. Units and descriptions travel in the metadata of each
field, so the file explains itself. pyarrow is imported on first use.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxfeat.io.atomic import replacing
from jaxfeat.types import UserError


def write_table(
    path: str | os.PathLike,
    columns: Mapping[str, Any],
    units: Mapping[str, str] | None = None,
    descriptions: Mapping[str, str] | None = None,
) -> Path:
    """Write the columns as one Parquet file, atomically, after reading it back.

    Args:
        path: the file, in an existing folder; it is replaced if it exists.
        columns: name -> `[rows]` array or list of numbers, booleans or strings (NumPy or JAX;
            bfloat16 is stored as float32).
        units: name -> unit, such as "nats", "tokens", "steps"; a column may have none.
        descriptions: name -> what the column holds.

    Returns:
        The path.

    Raises:
        UserError: no columns, unequal lengths, a column that is not 1-D, or a unit of no column.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "loss.parquet"
    >>> _ = write_table(file, {"step": [0, 1], "loss": [2.0, 1.5]}, {"loss": "nats"})
    >>> read_table(file)["loss"].tolist(), table_units(file)
    ([2.0, 1.5], {'loss': 'nats'})
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    units, descriptions = dict(units or {}), dict(descriptions or {})
    arrays = {name: _column(name, values) for name, values in columns.items()}
    lengths = {name: len(array) for name, array in arrays.items()}
    if not arrays:
        raise UserError(f"table {Path(path).name}: give at least one column")
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name} {n}" for name, n in lengths.items())
        raise UserError(f"table {Path(path).name}: columns differ in length: {told}")
    for kind, given in (("unit", units), ("description", descriptions)):
        if strange := sorted(set(given) - set(arrays)):
            raise UserError(
                f"table {Path(path).name}: a {kind} for the unknown column {strange[0]!r}; "
                f"columns are {', '.join(arrays)}"
            )
    fields, data = [], []
    for name, array in arrays.items():
        values = pa.array(array.tolist(), pa.string()) if array.dtype.kind == "U" else array
        data.append(values if isinstance(values, pa.Array) else pa.array(values))
        notes = {"unit": units.get(name), "description": descriptions.get(name)}
        metadata = {key: text for key, text in notes.items() if text}
        fields.append(pa.field(name, data[-1].type, metadata=metadata or None))
    table = pa.Table.from_arrays(data, schema=pa.schema(fields))
    with replacing(path) as temporary:
        pq.write_table(table, temporary)
        for name, stored in read_table(temporary).items():
            floating = stored.dtype.kind == "f"
            if not np.array_equal(stored, arrays[name], equal_nan=floating):
                raise OSError(f"{Path(path).name}: column {name} was read back changed")
    return Path(path)


def read_table(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """The columns of a Parquet file by name, in order, as `[rows]` arrays (text as NumPy strings).

    Raises:
        UserError: there is no such file, or it is not a Parquet file.
    """
    import pyarrow as pa

    columns = {}
    table = _open(path).read()
    for name in table.column_names:
        column = table.column(name)
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            columns[name] = np.array(column.to_pylist(), dtype=str)
        else:
            columns[name] = column.to_numpy()
    return columns


def table_units(path: str | os.PathLike) -> dict[str, str]:
    """The unit of each column that has one.

    Raises:
        UserError: there is no such file, or it is not a Parquet file.
    """
    return _notes(path, b"unit")


def table_descriptions(path: str | os.PathLike) -> dict[str, str]:
    """The description of each column that has one.

    Raises:
        UserError: there is no such file, or it is not a Parquet file.
    """
    return _notes(path, b"description")


def _notes(path: str | os.PathLike, key: bytes) -> dict[str, str]:
    """One entry of the metadata of every field that has it."""
    schema = _open(path).schema_arrow
    return {f.name: f.metadata[key].decode() for f in schema if f.metadata and key in f.metadata}


def _open(path: str | os.PathLike):
    """The file opened by pyarrow, or a `UserError`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(Path(path))
    except FileNotFoundError:
        raise UserError(f"no table at {path}") from None
    except pa.ArrowInvalid:
        raise UserError(f"{path} is not a Parquet file") from None


def _column(name: str, values: Any) -> np.ndarray:
    """One column as a `[rows]` array of a type that Parquet holds."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise UserError(f"column {name}: needs one axis, its shape is {list(array.shape)}")
    if array.dtype.kind == "V":  # bfloat16 and the 8-bit floats
        array = array.astype(np.float32)
    if array.dtype.kind == "O" and all(isinstance(v, str) for v in values):
        array = array.astype(str)
    if array.dtype.kind not in "biufU":
        raise UserError(f"column {name}: needs numbers, booleans or text, not {array.dtype}")
    return array
