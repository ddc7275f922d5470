"""`batches` of Parquet: the same rows as pandas has, whatever the pieces, windows and shares."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf

import merlin_embeddings as me
from merlin_embeddings.data import Column, Domain, batches
from tests.data.rows import SCHEMA, collect, frame, plain

ROWS = 1000
FEATURES = [column.name for column in SCHEMA if column.kind != "target"]


@pytest.fixture(scope="module")
def rows():
    return frame(ROWS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, rows):
    """Files of unequal sizes, with row groups of 64 rows, whose names sort by number only."""
    path = tmp_path_factory.mktemp("rows")
    for number, (start, stop) in enumerate([(0, 130), (130, 131), (131, 700), (700, ROWS)]):
        part = rows.iloc[start:stop].reset_index(drop=True)
        part.to_parquet(path / f"part_{number + 8}.parquet", row_group_size=64)
    (path / "_metadata").write_bytes(b"not rows")
    return path


def expected(rows, names=FEATURES):
    return plain(rows, names) | {"target": plain(rows)["click"]}


@pytest.mark.parametrize("batch_size", [1, 7, 64, 1000, 5000])
def test_all_rows_in_order(folder, rows, batch_size):
    dataset = batches(folder, SCHEMA, batch_size=batch_size)
    sizes, found = collect(dataset)
    assert found == expected(rows)
    full, rest = divmod(ROWS, batch_size)
    assert sizes == [batch_size] * full + [rest] * bool(rest)
    assert len(dataset) == len(sizes)


def test_element_spec(folder):
    features, target = batches(folder, SCHEMA, batch_size=8).element_spec
    assert list(features) == FEATURES
    for name, dtype in [("user", tf.int64), ("item", tf.int32), ("age", tf.float32)]:
        assert features[name] == tf.TensorSpec([None], dtype)
    assert features["price"] == tf.TensorSpec([None], tf.float64)
    assert features["tags"] == tf.RaggedTensorSpec([None, None], tf.int64, 1, tf.int64)
    assert features["vector"] == tf.TensorSpec([None, 3], tf.float32)
    assert target == tf.TensorSpec([None], tf.int8)


@pytest.mark.parametrize("kind", ["file", "pattern", "list", "text", "files and folders"])
def test_kinds_of_paths(folder, rows, kind):
    source = {
        "file": folder / "part_8.parquet",
        "pattern": str(folder / "part_*.parquet"),
        "list": [folder / f"part_{number}.parquet" for number in (8, 9, 10, 11)],
        "text": str(folder),
        "files and folders": [folder / "part_8.parquet", str(folder)],
    }[kind]
    wanted = {
        "file": rows.iloc[:130],
        "files and folders": pd.concat([rows.iloc[:130], rows]),
    }.get(kind, rows)
    assert collect(batches(source, SCHEMA, batch_size=100))[1] == expected(wanted)


def test_without_a_schema(folder, rows):
    found = collect(batches(folder, batch_size=300, targets="click"))[1]
    assert found == plain(rows, FEATURES) | {"target": plain(rows)["click"]}
    features, target = batches(folder, batch_size=300, targets="click").element_spec
    assert isinstance(features["vector"], tf.RaggedTensorSpec)  # nobody said that it is one
    assert target.dtype == tf.int8


def test_types_of_columns_without_a_schema(tmp_path):
    columns = {
        "int8": pa.array([1, -2], pa.int8()),
        "uint64": pa.array([1, 2**63], pa.uint64()),
        "half": pa.array(np.array([0.5, 1], "float16")),
        "flag": pa.array([True, False]),
        "text": pa.array(["é", ""]),
        "words": pa.array([["a", "b"], []]),
        "few": pa.array(["x", "y"]).dictionary_encode(),
        "pair": pa.array([[1, 2], [3, 4]], pa.list_(pa.int32(), 2)),
        "large": pa.array([[1.5], [2.5, 3.5]], pa.large_list(pa.float64())),
    }
    del columns["half"]  # Parquet has none
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
    (batch,) = batches(tmp_path, batch_size=2)
    assert {name: column.dtype.name for name, column in batch.items()} == {
        "int8": "int8",
        "uint64": "uint64",
        "flag": "bool",
        "text": "string",
        "words": "string",
        "few": "string",
        "pair": "int32",
        "large": "float64",
    }
    assert batch["uint64"].numpy().tolist() == [1, 2**63]
    assert batch["text"].numpy().tolist() == ["é".encode(), b""]
    assert batch["words"].to_list() == [[b"a", b"b"], []]
    assert batch["few"].numpy().tolist() == [b"x", b"y"]
    assert batch["pair"].to_list() == [[1, 2], [3, 4]]
    assert batch["large"].to_list() == [[1.5], [2.5, 3.5]]


def test_the_schema_widens(tmp_path):
    pd.DataFrame({"id": np.arange(3, dtype="int32"), "x": np.ones(3)}).to_parquet(
        tmp_path / "rows.parquet"
    )
    schema = [Column("id", ("categorical",), "int64"), Column("x", ("continuous",), "float32")]
    (batch,) = batches(tmp_path, schema, batch_size=3)
    assert (batch["id"].dtype, batch["x"].dtype) == (tf.int64, tf.float32)
    assert batch["id"].numpy().tolist() == [0, 1, 2]


# --- Features and targets ------------------------------------------------------------------------


def test_chosen_columns(folder):
    dataset = batches(folder, SCHEMA, batch_size=4, columns=["item", "click"])
    assert list(dataset.element_spec[0]) == ["item", "click"]


def test_untagged_columns_stay_away(folder):
    schema = [*SCHEMA[:2], Column("age", (), "float32")]
    assert list(batches(folder, schema, batch_size=4).element_spec) == ["user", "item"]
    untagged = [Column("age", (), "float32"), Column("user", (), "int64")]
    assert list(batches(folder, untagged, batch_size=4).element_spec) == ["age", "user"]


def test_targets(folder):
    schema = list(SCHEMA)
    schema[5] = Column("price", ("regression",), "float64")

    def targets(**options):
        spec = batches(folder, schema, batch_size=4, **options).element_spec
        return spec[1] if isinstance(spec, tuple) else None

    double, byte = tf.TensorSpec([None], tf.float64), tf.TensorSpec([None], tf.int8)
    assert targets() == {"price": double, "click": byte}
    assert targets(targets="click") == byte
    assert targets(targets=["click"]) == {"click": byte}
    assert targets(targets="regression") == double
    assert targets(targets="age") == tf.TensorSpec([None], tf.float32)
    assert targets(targets=[]) is None


def test_a_named_target_is_no_feature(folder):
    features, _ = batches(folder, SCHEMA, batch_size=4, targets="age").element_spec
    assert "age" not in features and "click" not in features


# --- Shuffling -----------------------------------------------------------------------------------


def ids(dataset):
    return [int(user) for features, _ in dataset for user in features["user"]]


@pytest.mark.parametrize("window", [True, 1, 50, 300, 10_000])
def test_shuffled_rows_are_whole(folder, rows, window):
    dataset = batches(folder, SCHEMA, batch_size=60, shuffle=window, seed=3)
    sizes, found = collect(dataset)
    order = found["user"]
    assert sorted(order) == list(range(ROWS)) and order != sorted(order)
    assert found == expected(rows.iloc[order])
    assert sizes == [60] * 16 + [40]


def test_epochs_differ_and_come_again(folder):
    first, again, other = (
        batches(folder, SCHEMA, batch_size=60, shuffle=200, seed=seed) for seed in (1, 1, 2)
    )
    epochs = [ids(first), ids(first)]
    assert epochs[0] != epochs[1]
    assert [ids(again), ids(again)] == epochs
    assert ids(other) != epochs[0]


def test_the_seed_is_keras_s_by_default(folder):
    from tensorflow import keras

    orders = []
    for seed in (5, 5, 6):
        keras.utils.set_random_seed(seed)
        orders.append(ids(batches(folder, SCHEMA, batch_size=60, shuffle=True)))
    assert orders[0] == orders[1] != orders[2]


def test_row_groups_are_shuffled_too(folder):
    """A window is smaller than a file, yet the first batch isn't always of the first rows."""
    firsts = {
        min(ids(batches(folder, SCHEMA, batch_size=30, shuffle=30, seed=seed).take(1))) // 130
        for seed in range(8)
    }
    assert len(firsts) > 2


def test_a_window_mixes_row_groups(folder):
    order = ids(batches(folder, SCHEMA, batch_size=100, shuffle=ROWS, seed=0))
    assert len({user // 100 for user in order[:100]}) > 7


# --- Shares --------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("shuffle", [False, 128])
def test_shares_are_all_rows_in_each_epoch(folder, shuffle, count):
    shares = [
        batches(folder, SCHEMA, batch_size=64, shuffle=shuffle, seed=9, shard=(index, count))
        for index in range(count)
    ]
    assert len({len(share) for share in shares}) == 1
    epochs = []
    for _ in range(2):
        parts = [ids(share) for share in shares]
        assert sorted(user for part in parts for user in part) == list(range(ROWS))
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
        epochs.append(parts)
    assert (epochs[0] == epochs[1]) != bool(shuffle)


def test_shares_of_full_batches(folder):
    shares = [
        batches(folder, SCHEMA, batch_size=64, shard=(index, 2), drop_remainder=True)
        for index in (0, 1)
    ]
    assert [ids(share) for share in shares] == [
        list(range(7 * 64)),
        list(range(7 * 64, 14 * 64)),
    ]


# --- As tf.data ----------------------------------------------------------------------------------


def test_batches_are_their_own(folder, rows):
    """Memory that a batch lies in isn't used again while somebody has the batch."""
    kept = [features["age"] for features, _ in batches(folder, SCHEMA, batch_size=16, shuffle=True)]
    again = [x.numpy().copy() for x in kept]
    for _ in range(3):
        ids(batches(folder, SCHEMA, batch_size=16, shuffle=True))
    assert all((a.numpy() == b).all() for a, b in zip(kept, again, strict=True))
    assert sorted(np.concatenate(again).tolist()) == sorted(rows["age"].tolist())


def test_repeat_and_take(folder):
    dataset = batches(folder, SCHEMA, batch_size=100)
    assert len(ids(dataset.repeat(2))) == 2 * ROWS
    assert ids(dataset.take(2)) == list(range(200))


def test_two_iterations_at_once(folder):
    dataset = batches(folder, SCHEMA, batch_size=100)
    assert all(
        (a["user"] == b["user"]).numpy().all()
        for (a, _), (b, _) in zip(dataset, dataset, strict=True)
    )


def test_prefetch_is_optional(folder):
    assert ids(batches(folder, SCHEMA, batch_size=100, prefetch=0)) == list(range(ROWS))


def test_public_name():
    assert me.data.batches is batches


def test_domains_that_hold(tmp_path):
    """The largest and the smallest id, of each integer type, with and without statistics."""
    for number, dtype in enumerate(["int8", "int16", "int32", "int64", "uint8", "uint32"]):
        path = tmp_path / f"{dtype}.parquet"
        pd.DataFrame({"id": np.array([0, 9, 5], dtype)}).to_parquet(
            path, write_statistics=bool(number % 2)
        )
        schema = [Column("id", ("categorical",), dtype, domain=Domain("id", 0, 9))]
        (batch,) = batches(path, schema, batch_size=3)
        assert batch["id"].numpy().tolist() == [0, 9, 5]


def test_lists_that_are_all_empty_have_no_type(tmp_path):
    """Arrow writes them as lists of null; other files, partitions or the schema know better."""
    schema = [
        Column("tags", ("categorical",), "int32", True, (0, 3), Domain("tag", 0, 9)),
        Column("names", ("other",), "string", True, (0, 3)),
    ]
    empty = {"tags": [[], []], "names": [[], []], "row": [0, 1]}
    filled = {"tags": [[1, 2], []], "names": [["a"], ["b", "c"]], "row": [2, 3]}
    pq.write_table(pa.table(empty), tmp_path / "a.parquet")
    dataset = batches(tmp_path, schema, batch_size=3, columns=["tags", "names"])
    assert dataset.element_spec["tags"].dtype == tf.int32
    assert collect(dataset) == ([2], {"tags": [[], []], "names": [[], []]})
    with pytest.raises(ValueError, match=r"'tags' of .* has the type list<element: null>"):
        batches(tmp_path, batch_size=3)

    pq.write_table(pa.table(filled), tmp_path / "b.parquet")
    for options in ({}, {"shuffle": True, "seed": 3}):
        _, found = collect(batches(tmp_path, batch_size=3, **options))
        order = np.argsort(found["row"])
        assert [found["tags"][row] for row in order] == [[], [], [1, 2], []]
        assert [found["names"][row] for row in order] == [[], [], [b"a"], [b"b", b"c"]]
    pq.write_table(pa.table(empty), tmp_path / "c.parquet")
    assert collect(batches(tmp_path, batch_size=3))[1]["tags"] == [[], [], [1, 2], [], [], []]
    pq.write_table(pa.table({"tags": [[], [None]]}), tmp_path / "c.parquet")
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"row 1 of .*c.parquet: a null in"):
        collect(batches(tmp_path, batch_size=3, columns=["tags"]))
