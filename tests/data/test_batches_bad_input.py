"""Rows that disagree with the schema, files that aren't there: what the messages say."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf

from merlin_embeddings.data import Column, Domain, batches
from tests.data.rows import SCHEMA, frame

ID = Column("item", ("categorical",), "int64", domain=Domain("things", 0, 9))
TAGS = Column("tags", ("categorical",), "int64", True, domain=Domain("tag", 0, 9))


def write(path, columns, **options):
    pq.write_table(pa.table(columns), path / "rows.parquet", **options)
    return path


def read(source, schema, **options):
    for _ in batches(source, schema, **{"batch_size": 4} | options):
        pass


def fails_when_read(source, schema, message, **options):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        read(source, schema, **options)


# --- Values --------------------------------------------------------------------------------------


@pytest.mark.parametrize("statistics", [True, False])
@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint16"])
@pytest.mark.parametrize("wrong", [10, -1, 100])
def test_ids_out_of_the_domain(tmp_path, wrong, dtype, statistics):
    if dtype == "uint16" and wrong < 0:
        wrong = 2**15
    ids = np.arange(100) % 10
    ids[77] = wrong
    write(tmp_path, {"item": ids.astype(dtype)}, row_group_size=30, write_statistics=statistics)
    message = (
        rf"Column 'item', row 77 of .*rows.parquet: id {wrong} is not in \[0, 9\], the domain "
        r"'things' of the schema"
    )
    column = Column("item", ("categorical",), dtype, domain=Domain("things", 0, 9))
    fails_when_read(tmp_path, [column], message)
    fails_when_read(tmp_path, [column], message, shuffle=True)
    fails_when_read(tmp_path, [column], message, shard=(1, 2))
    read(tmp_path, [column], shard=(0, 2))
    read(tmp_path, [column], check=False)


@pytest.mark.parametrize("statistics", [True, False])
@pytest.mark.parametrize("kind", [pa.list_(pa.int64()), pa.large_list(pa.int64())])
def test_ids_in_lists_out_of_the_domain(tmp_path, kind, statistics):
    lists = [[1, 2], [], [3], [], [4, 5, 10], [6]]
    write(tmp_path, {"tags": pa.array(lists, kind)}, write_statistics=statistics)
    fails_when_read(
        tmp_path, [TAGS], r"Column 'tags', row 4 of .*: id 10 is not in \[0, 9\].*'tag'"
    )
    write(tmp_path, {"tags": pa.array([[], [-3]], kind)}, write_statistics=statistics)
    fails_when_read(tmp_path, [TAGS], r"Column 'tags', row 1 of .*: id -3 is not in")


def test_only_the_rows_that_are_read(tmp_path):
    """A row group is read from its start, but a share begins within it."""
    write(tmp_path, {"item": [10, 0, 0, 0, 0, 0]})
    read(tmp_path, [ID], shard=(1, 2))


def test_names_with_dots(tmp_path):
    """Parquet's own statistics are of leaves, whose paths have dots too."""
    write(tmp_path, {"item": [3, 99], "item.count": [1, 2]})
    fails_when_read(tmp_path, [ID], r"'item', row 1 of .*: id 99 is not in")
    count = Column("item.count", ("categorical",), "int64", domain=Domain("n", 0, 1))
    fails_when_read(tmp_path, [count], r"'item.count', row 1 of .*: id 2 is not in")
    write(tmp_path, {"tags": [[1], [99]], "tags.list": [1, 2], "tags.list.element": [1, 2]})
    fails_when_read(tmp_path, [TAGS], r"'tags', row 1 of .*: id 99 is not in")
    write(tmp_path, {"item": [{"count": 1}, {"count": 1}], "item.count": [1, 2]})
    fails_when_read(tmp_path, [count], r"'item.count', row 1 of .*: id 2 is not in")


def test_nulls(tmp_path):
    write(tmp_path, {"item": pa.array([1, 2, None, None]), "age": pa.array([1.0, None, 2.0, 3.0])})
    fails_when_read(tmp_path, [ID], r"Column 'item', row 2 of .*rows.parquet: null. .*Categorify")
    age = Column("age", ("continuous",), "float64")
    fails_when_read(tmp_path, [age], r"Column 'age', row 1 of .*: null. .*FillMissing")
    fails_when_read(tmp_path, None, r"Column 'item', row 2")


def test_nulls_in_and_of_lists(tmp_path):
    write(tmp_path, {"tags": pa.array([[1], None, [2]])})
    fails_when_read(tmp_path, [TAGS], r"Column 'tags', row 1 of .*: null\.")
    write(tmp_path, {"tags": pa.array([[1], [], [2, None]])})
    fails_when_read(tmp_path, [TAGS], r"Column 'tags', row 2 of .*: a null in a list\.")


def test_nulls_of_rows_that_belong_to_others(tmp_path):
    write(tmp_path, {"tags": pa.array([[1, None], [2], [3], [4]])})
    (batch,) = batches(tmp_path, [TAGS], batch_size=4, shard=(1, 2))
    assert batch["tags"].to_list() == [[3], [4]]


@pytest.mark.parametrize(
    ("count", "row", "elements", "remedy"),
    [
        ((0, 2), 3, 3, "Cut lists"),
        ((1, None), 1, 0, r"leave out ListSlice\(pad=True\)"),
        ((1, 3), 1, 0, r"leave out ListSlice\(pad=True\)"),
        ((0, 1), 2, 2, "Cut lists"),
    ],
)
def test_lengths_of_lists(tmp_path, count, row, elements, remedy):
    write(tmp_path, {"tags": pa.array([[1], [], [1, 2], [1, 2, 3]])})
    column = Column("tags", ("categorical",), "int64", True, value_count=count)
    low, high = count
    fails_when_read(
        tmp_path,
        [column],
        rf"'tags', row {row} of .*: a list of {elements} elements; .* value_count min={low}, "
        rf"max={high}\..*{remedy}",
    )
    read(tmp_path, [column], check=False)


def test_vectors_of_another_length(tmp_path):
    write(tmp_path, {"vector": pa.array([[1.0, 2.0], [1.0], [1.0, 2.0]])})
    column = Column("vector", ("embedding",), "float64", True, value_count=(2, 2))
    fails_when_read(
        tmp_path, [column], r"'vector', row 1 of .*: a vector of 1 elements; the schema says 2"
    )


def test_fit_reports_it_too(tmp_path):
    from tensorflow import keras

    write(tmp_path, {"item": [1, 2, 3, 4, 50, 6, 7, 8], "y": [0.0] * 8})
    inputs = keras.Input((), name="item", dtype="int64")
    model = keras.Model({"item": inputs}, keras.layers.Embedding(10, 1)(inputs))
    model.compile("sgd", "mse")
    schema = [ID, Column("y", ("target",), "float64")]
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"'item', row 4 of .*: id 50 is not in"
    ):
        model.fit(batches(tmp_path, schema, batch_size=2), verbose=0)


# --- What is seen before anything is read --------------------------------------------------------


def test_missing_column(tmp_path):
    write(tmp_path, {"thing": [1]})
    with pytest.raises(ValueError, match=r"'item' isn't in .*rows.parquet, which has \['thing'\]"):
        batches(tmp_path, [ID], batch_size=4)


def test_missing_target(tmp_path):
    write(tmp_path, {"item": [1]})
    schema = [ID, Column("y", ("target",), "float64")]
    with pytest.raises(ValueError, match=r"'y' isn't in .*rows.parquet"):
        batches(tmp_path, schema, batch_size=4)
    read(tmp_path, schema, targets=[])


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([1.5], "int64"),
        (["a"], "int64"),
        ([[1]], "int64"),
        ([True], "float32"),
        ([1], "string"),
        ([1], "int32"),
        (pa.array([2**63], pa.uint64()), "int64"),
    ],
)
def test_another_type(tmp_path, values, said):
    write(tmp_path, {"item": values})
    column = Column("item", ("categorical",), said)
    with pytest.raises(
        ValueError, match=rf"'item' of .*rows.parquet has the type .*; the schema says {said}"
    ):
        batches(tmp_path, [column], batch_size=4)


def test_a_list_where_a_number_is_said(tmp_path):
    write(tmp_path, {"tags": [1]})
    with pytest.raises(ValueError, match=r"'tags' .* has the type int64; .* lists of int64"):
        batches(tmp_path, [TAGS], batch_size=4)


def test_types_that_no_tensor_has(tmp_path):
    write(tmp_path, {"item": [1], "when": pd.to_datetime(["2020-01-01"]), "deep": [[[1]]]})
    with pytest.raises(ValueError, match=r"'when' of .* has the type timestamp.*columns=\["):
        batches(tmp_path, batch_size=4)
    with pytest.raises(ValueError, match=r"'deep' of .* has the type list<"):
        batches(tmp_path, batch_size=4, columns=["deep"])
    read(tmp_path, None, columns=["item"])


def test_files_of_two_kinds(tmp_path):
    pq.write_table(pa.table({"item": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"item": ["x"]}), tmp_path / "b.parquet")
    with pytest.raises(
        ValueError, match=r"'item' has the type int64 in .*a.parquet, but in .*b.parq"
    ):
        batches(tmp_path, batch_size=4)
    pq.write_table(pa.table({"thing": [1]}), tmp_path / "b.parquet")
    with pytest.raises(ValueError, match=r"but in .*b.parquet it is missing"):
        batches(tmp_path, batch_size=4)


@pytest.mark.parametrize("most", [None, 0])
def test_a_domain_without_a_maximum(tmp_path, most):
    write(tmp_path, {"item": [1]})
    column = Column("item", ("categorical",), "int64", domain=Domain("things", 0, most))
    with pytest.raises(ValueError, match=rf"'item': its domain 'things' has max={most}"):
        batches(tmp_path, [column], batch_size=4)


def test_no_files(tmp_path):
    for source, message in [
        (tmp_path / "rows.parquet", "no such file or folder, nor a pattern that matches any"),
        (tmp_path / "*.parquet", "no such file or folder, nor a pattern that matches any"),
        (tmp_path, "a folder without .* files"),
        ([], "an empty list of files"),
    ]:
        with pytest.raises(FileNotFoundError, match=message):
            batches(source, [ID], batch_size=4)


def test_files_without_rows(tmp_path):
    write(tmp_path, {"item": pa.array([], pa.int64())})
    with pytest.raises(ValueError, match=r"rows.parquet: no rows"):
        batches(tmp_path, [ID], batch_size=4)


def test_an_empty_file_among_others(tmp_path):
    frame(5).to_parquet(tmp_path / "b.parquet")
    frame(0).to_parquet(tmp_path / "a.parquet")
    assert len(batches(tmp_path, SCHEMA, batch_size=4)) == 2


@pytest.mark.parametrize("content", [b"", b"PAR1", b"x" * 100])
def test_damaged_files(tmp_path, content):
    (tmp_path / "rows.parquet").write_bytes(content)
    with pytest.raises(ValueError, match=r"rows.parquet: can't be read as Parquet"):
        batches(tmp_path, [ID], batch_size=4)


def test_a_file_that_is_cut_off(tmp_path):
    frame(500).to_parquet(tmp_path / "rows.parquet")
    content = (tmp_path / "rows.parquet").read_bytes()
    (tmp_path / "rows.parquet").write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=r"rows.parquet: can't be read as Parquet"):
        batches(tmp_path, SCHEMA, batch_size=4)


def test_a_file_with_damaged_pages(tmp_path):
    frame(500).to_parquet(tmp_path / "rows.parquet")
    content = (tmp_path / "rows.parquet").read_bytes()
    (tmp_path / "rows.parquet").write_bytes(content[:4] + b"\xff" * 200 + content[204:])
    fails_when_read(tmp_path, SCHEMA, r"rows.parquet: can't be read as Parquet", batch_size=100)


def test_a_file_that_is_written_again(tmp_path):
    write(tmp_path, {"item": [1, 2, 3]})
    found = batches(tmp_path, [ID], batch_size=4)
    assert [batch["item"].numpy().tolist() for batch in found] == [[1, 2, 3]]
    write(tmp_path, {"item": [1, 2, 3, 4, 5]})
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"rows.parquet was written again since batches opened"
    ):
        list(found)
    assert [batch["item"].shape[0] for batch in batches(tmp_path, [ID], batch_size=4)] == [4, 1]


# --- Arguments -----------------------------------------------------------------------------------


def test_arguments(tmp_path):
    write(tmp_path, {"item": [1, 2, 3]})
    for options, message in [
        ({"batch_size": None}, "batch_size= is needed"),
        ({"batch_size": 0}, "batch_size=0; it must be a positive integer"),
        ({"batch_size": 2.0}, "batch_size=2.0; it must be a positive integer"),
        ({"batch_size": True}, "batch_size=True; it must be a positive integer"),
        ({"seed": -1}, "seed=-1; it must be None, or an integer that isn't negative"),
        ({"seed": "a"}, "seed='a'; it must be None, or an integer that isn't negative"),
        ({"prefetch": -1}, "prefetch=-1; it must be a number of batches, 0 for none"),
        ({"shard": 3}, r"shard=3; it must be \(index, count\)"),
        ({"shard": (0, 1.5)}, r"shard=\(0, 1.5\); it must be \(index, count\)"),
        ({"shuffle": "yes"}, "shuffle='yes'; it must be True, False or a number of rows"),
        ({"shuffle": -1}, "shuffle=-1; it must be True, False or a number of rows"),
        ({"shuffle": "yes"}, "shuffle='yes'"),
        ({"shard": (2, 2)}, r"shard=\(2, 2\); it must be \(index, count\)"),
        ({"shard": (0, 2), "shuffle": True}, "need one seed"),
        ({"shard": (0, 4)}, "3 rows in batches of 4 can't be shared among 4 processes"),
        ({"drop_remainder": True}, "3 rows don't fill a batch of 4"),
        ({"targets": "price"}, r"targets='price' is no column, nor a tag of one.*\['item'\]"),
        ({"columns": "item"}, "columns='item'; it must be a list of names"),
        ({"targets": "item"}, "no column is left as a feature"),
    ]:
        with pytest.raises(ValueError, match=message):
            batches(tmp_path, [ID], **{"batch_size": 4} | options)


def test_numpy_s_numbers(tmp_path):
    write(tmp_path, {"item": [1, 2, 3]})
    two = np.int64(2)
    found = batches(tmp_path, [ID], batch_size=two, shuffle=two, seed=two, shard=(two - 1, two))
    assert [batch["item"].shape[0] for batch in found] == [1]


def test_another_source():
    with pytest.raises(TypeError, match=r"the source is a dict; it must be Parquet"):
        batches({"item": [1]}, [ID], batch_size=4)
