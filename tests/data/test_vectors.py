"""Values of tables from everything that holds vectors."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
import tensorflow as tf
from merlin.io import Dataset

from merlin_embeddings.data import vectors

VECTORS = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32)
IDS = np.array([4, 2, 13, 5, 0, 7, 8, 9, 10, 11, 12, 3])
PLACED = np.zeros([15, 3], np.float32)
PLACED[IDS] = VECTORS


def frame(lists=False, ids=False):
    """Vectors in a column each or one of lists, and their ids."""
    columns = {"item": IDS} if ids else {}
    if lists:
        return pd.DataFrame({**columns, "vector": list(VECTORS)})
    return pd.DataFrame({**columns, **{str(i): VECTORS[:, i] for i in range(3)}})


def dataset(*parts):
    return tf.data.Dataset.from_tensor_slices(parts[0] if len(parts) == 1 else parts)


def npy(folder, array):
    np.save(folder / "vectors.npy", array)
    return folder / "vectors.npy"


def parquet(folder, table):
    table.to_parquet(folder / "vectors.parquet", row_group_size=5)
    return str(folder / "vectors.parquet")


def parts(folder, table):
    """Parts whose names sort otherwise than their numbers."""
    for i in range(12):
        table[i : i + 1].to_parquet(folder / f"part_{i}.parquet")
    return folder


IN_ORDER = {
    "array": lambda folder: VECTORS,
    "float64": lambda folder: VECTORS.astype(np.float64),
    "lists of numbers": lambda folder: VECTORS.tolist(),
    "tensor": lambda folder: tf.constant(VECTORS),
    "npy": lambda folder: npy(folder, VECTORS),
    "frame": lambda folder: frame(),
    "frame of lists": lambda folder: frame(lists=True),
    "parquet": lambda folder: parquet(folder, frame()),
    "parquet of lists": lambda folder: parquet(folder, frame(lists=True)),
    "folder": lambda folder: parts(folder, frame()),
    "dataset": lambda folder: dataset(VECTORS),
    "dataset of batches": lambda folder: dataset(VECTORS).batch(5),
    "dataset of dicts": lambda folder: dataset({"vector": VECTORS}),
    "merlin": lambda folder: Dataset(frame(), npartitions=3),
    "merlin parquet": lambda folder: Dataset(parquet(folder, frame()), engine="parquet"),
}


@pytest.mark.parametrize("kind", IN_ORDER)
def test_in_the_order_of_rows(tmp_path, kind):
    for rows in (None, 12):
        found = vectors(IN_ORDER[kind](tmp_path), rows)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, VECTORS)


BY_ID = {
    "frame": lambda folder: frame(ids=True),
    "frame of lists": lambda folder: frame(lists=True, ids=True),
    "parquet": lambda folder: parquet(folder, frame(ids=True)),
    "folder": lambda folder: parts(folder, frame(lists=True, ids=True)),
    "dataset": lambda folder: dataset({"item": IDS, "vector": VECTORS}),
    "dataset of batches": lambda folder: dataset({"item": IDS, "vector": VECTORS}).batch(7),
    "merlin": lambda folder: Dataset(frame(ids=True), npartitions=2),
}


@pytest.mark.parametrize("kind", BY_ID)
def test_by_id(tmp_path, kind):
    found = vectors(BY_ID[kind](tmp_path), rows=15, id_column="item")
    np.testing.assert_array_equal(found, PLACED)
    np.testing.assert_array_equal(vectors(BY_ID[kind](tmp_path), None, "item"), PLACED[:14])


@pytest.mark.parametrize("batch", [None, 5])
def test_pairs(batch):
    pairs = dataset(IDS, VECTORS)
    found = vectors(pairs.batch(batch) if batch else pairs, 15)
    np.testing.assert_array_equal(found, PLACED)


def test_an_array_is_not_copied(tmp_path):
    assert vectors(VECTORS, 12) is VECTORS
    assert isinstance(vectors(npy(tmp_path, VECTORS)).base, np.memmap)


def refused(match, *args, error=ValueError, **kwargs):
    with pytest.raises(error, match=match):
        vectors(*args, **kwargs, name="table 'item'")


def test_another_number_of_vectors():
    refused(r"'item': the table has 15 rows, there are 12 vectors\..*id_column=", VECTORS, 15)
    refused("the table has 9 rows, there are 12 vectors", frame(), 9)


def test_ids_that_are_no_rows():
    refused("id 13 is no row; the table has 13 rows", frame(ids=True), 13, "item")
    negative = frame(ids=True).replace({"item": {4: -1}})
    refused("id -1 is no row", negative, 15, "item")
    refused("id -1 is no row", negative, None, "item")
    twice = frame(ids=True).replace({"item": {4: 2}})
    refused("id 2 has 2 vectors", twice, 15, "item")
    fractions = frame(ids=True).assign(item=IDS + 0.5)
    refused("need as many integer ids; got 12 of float64", fractions, 15, "item")


def test_columns_that_are_not_there():
    refused(r"no column is 'id'; there are \['item', '0'", frame(ids=True), 15, "id")
    refused("an array has no column 'id'", VECTORS, 12, "id")
    refused(r"elements have \['item', 'vector'\]", dataset({"item": IDS, "vector": VECTORS}), 12)
    refused(r"elements have \['vector'\]", dataset({"vector": VECTORS}), 12, "item")


def test_what_is_no_vector():
    refused(r"shape \[12\]; it must be \[N, D\]", VECTORS[:, 0])
    refused(r"shape \[0, 3\]; it must be \[N, D\]", VECTORS[:0])
    refused("there are no vectors", dataset(VECTORS).take(0))
    refused("vectors must be numbers", np.array([["a", "b"]]))
    ragged = pd.DataFrame({"vector": [[1.0, 2.0], [1.0]]})
    refused(r"different lengths: \[2, 1\]", ragged)
    shapes = [np.ones(2), np.ones(3)]
    refused(
        r"different shapes: \[\(2,\), \(3,\)\]",
        tf.data.Dataset.from_generator(lambda: shapes, output_signature=tf.TensorSpec([None])),
    )
    refused("numbers, not .*id_column=", pd.DataFrame({"item": ["a"], "x": [0.5]}))
    refused("no vectors beside 'item'", pd.DataFrame({"item": [1]}), 2, "item")


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
@pytest.mark.parametrize("row", [0, 7, 65_540])
def test_numbers_that_are_none(row, wrong):
    array = np.zeros([70_000, 2], np.float32)
    array[[row, 69_999], 1] = wrong
    refused(f"'item': vector {row} has NaN or infinity", array)


def test_no_file(tmp_path):
    refused("'item': there is no file", tmp_path / "x.parquet", error=FileNotFoundError)
    refused(r"has no \*\.parquet", tmp_path)


def test_another_source():
    refused("'item': vectors come from an array", 7, error=TypeError)
    refused("'item': vectors come from an array", None, error=TypeError)


def test_an_empty_file(tmp_path):
    pa.parquet.write_table(pa.table({"x": pa.array([], pa.float32())}), tmp_path / "x.parquet")
    refused(r"shape \[0, 1\]", tmp_path / "x.parquet")
    lists = pa.array([], pa.list_(pa.float32()))
    pa.parquet.write_table(pa.table({"x": lists}), tmp_path / "y.parquet")
    refused(r"shape \[0, 0\]", tmp_path / "y.parquet")


def test_numbers_that_are_missing():
    refused("vector 1 has NaN", pd.DataFrame({"x": [1.0, None], "y": [1.0, 2.0]}))
    refused("vector 1 has NaN", pd.DataFrame({"v": [[1.0], [None]]}))
    refused(r"different lengths: \[1, None\]", pd.DataFrame({"v": [[1.0], None]}))
    ids = pd.DataFrame({"item": [1.0, None], "x": [1.0, 2.0]})
    refused("integer ids; got 2 of float64", ids, 2, "item")
