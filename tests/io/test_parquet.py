"""Do tables come back unchanged, with their units, and is a bad one refused?"""

import os

import jax.numpy as jnp
import numpy as np
import pytest

from jaxfeat.io.atomic import replacing
from jaxfeat.io.parquet import read_table, table_descriptions, table_units, write_table
from jaxfeat.types import UserError


def test_every_kind_of_column_comes_back(tmp_path):
    columns = {
        "step": np.arange(3),
        "loss": np.array([1.5, np.nan, np.inf]),
        "half": jnp.array([0.5, -1.0, 2.0], jnp.bfloat16),
        "small": np.array([0.5, 1.0, 2.0], np.float16),
        "held": [True, False, True],
        "variant": ["standard", "", "née — 平"],
        "byte": np.array([0, 255, 7], np.uint8),
    }
    path = write_table(
        tmp_path / "a b.parquet", columns, {"loss": "nats"}, {"step": "updates done"}
    )
    found = read_table(path)
    assert list(found) == list(columns)
    for name, values in columns.items():
        wanted = np.asarray(values)
        wanted = wanted.astype(np.float32) if name == "half" else wanted
        np.testing.assert_array_equal(found[name], wanted)
        assert found[name].dtype.kind == wanted.dtype.kind
    assert table_units(path) == {"loss": "nats"}
    assert table_descriptions(path) == {"step": "updates done"}
    assert os.listdir(tmp_path) == ["a b.parquet"]


def test_an_empty_table_keeps_its_columns(tmp_path):
    path = write_table(tmp_path / "t.parquet", {"x": np.zeros(0), "name": np.zeros(0, str)})
    assert [len(v) for v in read_table(path).values()] == [0, 0]


@pytest.mark.parametrize(
    ("columns", "units", "told"),
    [
        ({}, None, "at least one column"),
        ({"a": [1], "b": [1, 2]}, None, "a 1, b 2"),
        ({"a": np.zeros((2, 2))}, None, r"column a: needs one axis, its shape is \[2, 2\]"),
        ({"a": [object()]}, None, "column a: needs numbers"),
        ({"a": [1]}, {"b": "nats"}, "unknown column 'b'; columns are a"),
    ],
)
def test_a_bad_table_changes_nothing(tmp_path, columns, units, told):
    path = write_table(tmp_path / "t.parquet", {"x": [1]})
    with pytest.raises(UserError, match=told):
        write_table(path, columns, units)
    assert read_table(path)["x"].tolist() == [1]
    assert os.listdir(tmp_path) == ["t.parquet"]


def test_what_is_no_table_is_named(tmp_path):
    with pytest.raises(UserError, match="no table at"):
        read_table(tmp_path / "absent.parquet")
    (tmp_path / "text.parquet").write_text("no table")
    with pytest.raises(UserError, match="not a Parquet file"):
        table_units(tmp_path / "text.parquet")


def test_an_interrupted_write_keeps_the_old_file(tmp_path):
    (tmp_path / "a.txt").write_text("old")
    with pytest.raises(KeyboardInterrupt), replacing(tmp_path / "a.txt") as temporary:
        temporary.write_text("half")
        raise KeyboardInterrupt
    assert (tmp_path / "a.txt").read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]
