"""`batches` of Merlin's Dataset and Loader, and of tf.data: the rows that pandas has."""

import numpy as np
import nvtabular as nvt
import pandas as pd
import pytest
import tensorflow as tf
from merlin.dataloader.tensorflow import Loader
from merlin.io import Dataset
from merlin.schema import ColumnSchema, Schema, Tags

from merlin_embeddings.data import batches
from tests.data.rows import collect, frame, plain

ROWS = 200
LABEL = {"click": "target"}
MERLIN = Schema(
    [
        ColumnSchema(
            "user",
            dtype="int64",
            tags=[Tags.CATEGORICAL],
            properties={"domain": {"min": 0, "max": 999}},
        ),
        ColumnSchema("tags", dtype="int64", tags=[Tags.CATEGORICAL], is_list=True, is_ragged=True),
        ColumnSchema("age", dtype="float32", tags=[Tags.CONTINUOUS]),
        ColumnSchema("click", dtype="int8", tags=[Tags.BINARY_CLASSIFICATION, Tags.TARGET]),
    ]
)
FEATURES = ["user", "tags", "age"]


@pytest.fixture(scope="module")
def rows():
    return frame(ROWS)[["user", "tags", "age", "click"]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("rows")
    rows.iloc[:150].to_parquet(path / "part_0.parquet", row_group_size=40)
    rows.iloc[150:].reset_index(drop=True).to_parquet(path / "part_1.parquet")
    return path


def expected(rows, target="target"):
    return plain(rows, FEATURES) | {target: plain(rows)["click"]}


# --- merlin.io.Dataset ---------------------------------------------------------------------------


@pytest.fixture(params=["files", "partitions"])
def dataset(request, folder, rows):
    if request.param == "files":
        return Dataset(str(folder), engine="parquet", schema=MERLIN)
    return Dataset(rows, npartitions=3, schema=MERLIN)


def test_dataset(dataset, rows):
    found = batches(dataset, batch_size=64)
    assert collect(found) == ([64, 64, 64, 8], expected(rows))
    assert len(found) == 4


def test_dataset_shuffled_and_shared(dataset, rows):
    users = []
    for index in (0, 1):
        share = batches(dataset, batch_size=30, shuffle=50, seed=1, shard=(index, 2))
        found = collect(share)[1]
        assert found == expected(rows.iloc[found["user"]])
        users += found["user"]
    assert sorted(users) == list(range(ROWS)) and users != sorted(users)


def test_files_are_read_as_files(folder, monkeypatch):
    """No detour over dask and pandas."""
    dataset = Dataset(str(folder), engine="parquet", schema=MERLIN)
    monkeypatch.setattr(Dataset, "to_ddf", lambda *_, **__: pytest.fail("went through dask"))
    assert len(collect(batches(dataset, batch_size=64))[0]) == 4


def test_a_workflow_s_rows(tmp_path):
    """What a workflow is about to compute, and the same once it is written."""
    raw = pd.DataFrame(
        {"city": list("abacad") * 5, "words": [["x"], ["x", "y"], ["x"]] * 10, "n": np.arange(30.0)}
    )
    encoded = ["city", "words"] >> nvt.ops.Categorify(out_path=str(tmp_path))
    label = ["n"] >> nvt.ops.AddMetadata(tags=[Tags.REGRESSION, Tags.TARGET])
    workflow = nvt.Workflow(encoded + label)
    computed = workflow.fit_transform(Dataset(raw))
    computed.to_parquet(str(tmp_path / "rows"), output_files=1)
    wanted = {
        "city": [[3, 4, 3, 5, 3, 6][i % 6] for i in range(30)],
        "words": [[[3], [3, 4], [3]][i % 3] for i in range(30)],
        "target": [float(i) for i in range(30)],
    }
    assert collect(batches(computed, batch_size=8))[1] == wanted
    written = batches(tmp_path / "rows", workflow.output_schema, batch_size=8)
    found = collect(written)[1]
    assert sorted(zip(*map(map, [str] * 3, found.values()), strict=True)) == sorted(
        zip(*map(map, [str] * 3, wanted.values()), strict=True)
    )


def test_ids_out_of_the_domain_in_a_partition(rows):
    rows = rows.assign(user=rows["user"].replace(150, 1234))
    dataset = Dataset(rows, npartitions=3, schema=MERLIN)
    message = r"'user', row \d+ of partition 2 of the Dataset: id 1234 is not in \[0, 999\]"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        collect(batches(dataset, batch_size=64))


def test_dataset_without_rows(rows):
    with pytest.raises(ValueError, match="The Dataset has no rows"):
        batches(Dataset(rows.iloc[:0], schema=MERLIN), batch_size=64)


# --- merlin.dataloader.Loader --------------------------------------------------------------------


@pytest.fixture
def loader(folder):
    return Loader(Dataset(str(folder), engine="parquet", schema=MERLIN), batch_size=64)


def test_loader(loader, rows):
    dataset = batches(loader)
    for _ in range(2):
        assert collect(dataset) == ([64, 64, 64, 8], expected(rows))
    assert len(dataset) == 4
    features, _ = dataset.element_spec
    assert features["tags"] == tf.RaggedTensorSpec([None, None], tf.int64, 1, tf.int64)
    assert features["user"] == tf.TensorSpec([None], tf.int64)


def test_loader_that_shuffles(folder, rows):
    loader = Loader(
        Dataset(str(folder), engine="parquet", schema=MERLIN), batch_size=64, shuffle=True
    )
    found = collect(batches(loader))[1]
    assert sorted(found["user"]) == list(range(ROWS)) and found["user"] != list(range(ROWS))
    assert found == expected(rows.iloc[found["user"]])


def test_loader_s_targets(folder, rows):
    schema = Schema([*MERLIN])
    schema["age"] = schema["age"].with_tags([Tags.TARGET])
    loader = Loader(Dataset(str(folder), engine="parquet", schema=schema), batch_size=200)
    ((features, target),) = batches(loader)
    assert list(features) == ["user", "tags"] and sorted(target) == ["age", "click"]
    ((features, target),) = batches(loader, targets="click")
    assert target.numpy().tolist() == plain(rows)["click"]
    ((features, target),) = batches(loader, targets="user", columns=["age", "click"])
    assert list(features) == ["age", "click"] and target.shape == (200,)
    (features,) = batches(loader, targets=[])
    assert list(features) == ["user", "tags"]


def test_loader_with_weights(loader):
    loader.map(lambda features, target: (features, target, features["age"]))
    for features, _, weight in batches(loader):
        assert list(features) == FEATURES
        assert weight.numpy().tolist() == features["age"].numpy().tolist()


def test_lists_of_one_length(tmp_path):
    """The Loader makes them dense; here lists are ragged."""
    pd.DataFrame({"pair": [[1, 2], [3, 4]]}).to_parquet(tmp_path / "rows.parquet")
    column = ColumnSchema(
        "pair",
        dtype="int64",
        tags=[Tags.CATEGORICAL],
        properties={"value_count": {"min": 2, "max": 2}},
    )
    dataset = Dataset(str(tmp_path), engine="parquet", schema=Schema([column]))
    (batch,) = batches(Loader(dataset, batch_size=2))
    assert batch["pair"].to_list() == [[1, 2], [3, 4]]


def test_a_loader_is_in_one_place(loader):
    dataset = batches(loader, prefetch=0)
    first = iter(dataset)
    next(first)
    second = iter(dataset)
    next(second)
    with pytest.raises(tf.errors.OpError, match="started again before this iteration's end"):
        for _ in first:
            pass
    assert len(list(second)) == 3


def test_loader_s_ids_out_of_the_domain(folder):
    schema = Schema([*MERLIN])
    schema["user"] = schema["user"].with_properties({"domain": {"min": 0, "max": 149}})
    loader = Loader(Dataset(str(folder), engine="parquet", schema=schema), batch_size=64)
    message = r"'user', row 150 of the Loader's rows: id 150 is not in \[0, 149\]"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        collect(batches(loader))
    assert len(collect(batches(loader, check=False))[0]) == 4


def test_lengths_of_a_loader_s_lists(folder):
    schema = Schema([*MERLIN])
    schema["tags"] = schema["tags"].with_properties({"value_count": {"min": 0, "max": 4}})
    loader = Loader(Dataset(str(folder), engine="parquet", schema=schema), batch_size=64)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"'tags', row \d+ of .* max=4"):
        collect(batches(loader))


@pytest.mark.parametrize(
    "options", [{"batch_size": 32}, {"shuffle": True}, {"shard": (0, 2)}, {"drop_remainder": True}]
)
def test_what_the_loader_does_itself(loader, options):
    (name,) = options
    with pytest.raises(
        ValueError, match=rf"{name}=.* with a Loader, which makes its batches itself"
    ):
        batches(loader, **options)
    assert len(batches(loader, batch_size=64)) == 4


# --- tf.data -------------------------------------------------------------------------------------


def as_dicts(rows):
    tags = tf.ragged.constant([list(t) for t in rows["tags"]], tf.int64)
    return tf.data.Dataset.from_tensor_slices(
        {
            "user": rows["user"].to_numpy(),
            "tags": tags,
            "age": rows["age"].to_numpy()[:, None],
            "click": rows["click"].to_numpy(),
        }
    )


def test_dataset_of_rows(rows):
    scalars = as_dicts(rows).map(lambda x: {"user": x["user"], "click": x["click"]})
    found = batches(scalars, batch_size=64, targets="click")
    assert collect(found) == (
        [64, 64, 64, 8],
        {"user": plain(rows)["user"], "target": plain(rows)["click"]},
    )
    assert len(batches(scalars, batch_size=64, drop_remainder=True)) == 3


def test_dataset_of_batches(rows):
    dataset = as_dicts(rows).batch(64)
    assert collect(batches(dataset, MERLIN)) == ([64, 64, 64, 8], expected(rows))


def test_dataset_of_merlin_s_form(rows):
    def split(x):
        tags = x.pop("tags")
        click = x.pop("click")
        return x | {"tags__values": tags.values, "tags__offsets": tags.row_splits}, click

    dataset = as_dicts(rows).batch(64).map(split)
    assert collect(batches(dataset, MERLIN)) == ([64, 64, 64, 8], expected(rows))
    assert collect(batches(dataset))[1] == expected(rows)


def test_tf_dataset_shuffled_and_shared(rows):
    dataset = as_dicts(rows)
    users = []
    for index in (0, 1):
        share = batches(
            dataset, MERLIN, batch_size=16, shuffle=1000, seed=3, shard=(index, 2), prefetch=0
        )
        epochs = [collect(share)[1]["user"] for _ in range(2)]
        assert epochs[0] != epochs[1] and sorted(epochs[0]) == sorted(epochs[1])
        users += epochs[0]
    assert sorted(users) == list(range(ROWS))


def test_dataset_of_another_form():
    numbers = tf.data.Dataset.range(3)
    with pytest.raises(ValueError, match=r"elements of the tf.data.Dataset are TensorSpec"):
        batches(numbers)
    with pytest.raises(ValueError, match=r"are single rows, .* Give batch_size="):
        batches(tf.data.Dataset.from_tensor_slices({"a": [1]}))
    pairs = tf.data.Dataset.from_tensors(({"a": [1]}, [1]))
    with pytest.raises(ValueError, match=r"has targets of its own; leave targets= out"):
        batches(pairs, targets="a")
    with pytest.raises(ValueError, match=r"'user' isn't in the tf.data.Dataset, which has \['a'\]"):
        batches(pairs, MERLIN)


def test_partitions_whose_lists_are_all_empty():
    import dask.dataframe as dd

    frame = pd.DataFrame({"tags": [[], [], [1], [2, 3]], "row": range(4)})
    dataset = Dataset(dd.from_pandas(frame, npartitions=2))
    assert collect(batches(dataset, batch_size=3, columns=["tags"])) == (
        [3, 1],
        {"tags": [[], [], [1], [2, 3]]},
    )
