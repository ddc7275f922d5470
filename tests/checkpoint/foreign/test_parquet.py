"""Parquet files of ids and vectors, with pyarrow as the other side."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from merlin_embeddings.checkpoint import foreign
from tests.checkpoint.foreign import tables

LISTS = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]


@pytest.mark.parametrize("kind", ["list", "large_list", "fixed"])
def test_columns_by_name_or_by_type(tmp_path, kind):
    lists = {
        "list": pa.list_(pa.float32()),
        "large_list": pa.large_list(pa.float64()),
        "fixed": pa.list_(pa.float32(), 2),
    }[kind]
    table = pa.table(
        {
            "who": pa.array(["a", "b", "c"]),
            "item": pa.array([7, -1, 3], pa.int32()),
            "emb": pa.array(LISTS, lists),
        }
    )
    pq.write_table(table, tmp_path / "items.parquet", row_group_size=2)
    (found,) = foreign.read(tmp_path / "items.parquet")
    assert foreign.recognise(tmp_path / "items.parquet") == "parquet"
    assert (found.name, found.info.key, found.info.dim) == ("items", "id", 2)
    expected = {7: (LISTS[0], {}, None), -1: (LISTS[1], {}, None), 3: (LISTS[2], {}, None)}
    assert tables.rows_of(found, 2) == expected


def test_arrow_reads_what_is_written(tmp_path):
    vectors = np.array(LISTS, "float16")
    slots = {"accumulator": np.array([1, 2, 3], "float32"), "linear": vectors.astype("float64")}
    made = tables.source("t", [5, 0, 2], vectors, slots, np.array([9, 8, 7]), chunk=2)
    foreign.write(tmp_path / "t.parquet", [made], "parquet")
    foreign.write(tmp_path / "folder", [made], "parquet")
    for path in (tmp_path / "t.parquet", tmp_path / "folder" / "t.parquet"):
        assert pq.read_table(path).to_pydict() == {
            "id": [5, 0, 2],
            "vector": LISTS,
            "slot.accumulator": [1.0, 2.0, 3.0],
            "slot.linear": LISTS,
            "score": [9, 8, 7],
        }
    (found,) = foreign.read(tmp_path / "folder")
    rows = tables.rows_of(found)
    assert rows[0] == (LISTS[1], {"accumulator": 2.0, "linear": LISTS[1]}, 8)


@pytest.mark.parametrize(
    "columns, match",
    [
        ({"id": [1, 1], "vector": LISTS[:2]}, "key 1 stands more than once"),
        ({"id": [1, None], "vector": LISTS[:2]}, "'id' has nulls"),
        ({"id": [1, 2], "vector": [[1.0], [1.0, 2.0]]}, "aren't equally long"),
        ({"id": [1, 2], "vector": [[1.0], [None]]}, "without nulls"),
        ({"id": [1.5, 2.5], "vector": LISTS[:2]}, "'id' is double"),
        ({"id": [1, 2], "other": [1, 2]}, "no columns 'id' and 'vector'"),
        ({"id": [], "vector": []}, "no"),
    ],
)
def test_bad_columns(tmp_path, columns, match):
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=rf"t\.parquet.*{match}"):
        tables.rows_of(*foreign.read(tmp_path / "t.parquet"))
