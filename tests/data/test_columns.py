"""What is read of a schema: NVTabular's own, the same through a file, and ones made by hand."""

import dataclasses

import numpy as np
import nvtabular as nvt
import pandas as pd
import pytest
from merlin.io import Dataset
from merlin.schema import ColumnSchema, Schema, Tags
from merlin.schema.io.tensorflow_metadata import TensorflowMetadata

from merlin_embeddings import config, data
from merlin_embeddings.data import Column, Domain, EmbeddingSizes


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("workflow")


@pytest.fixture(scope="module")
def workflow(folder):
    frame = pd.DataFrame(
        {
            "user": [11, 12, 13, 11, 19, 18, 17, 11],
            "home": ["a", "b", "c", "a", "b", "b", "b", "a"],
            "work": ["b", "b", "d", "a", "b", "b", "b", "e"],
            "genres": [[1, 2], [3], [1], [2, 3], [1], [1], [2], []],
            "city": list("abcdefgh"),
            "age": np.arange(8.0),
            "day": np.arange(8),
            "click": [0, 1] * 4,
        }
    )
    out = str(folder)
    user = ["user"] >> nvt.ops.Categorify(num_buckets=2, freq_threshold=2, out_path=out)
    places = [["home", "work"]] >> nvt.ops.Categorify(encode_type="joint", out_path=out)
    genres = ["genres"] >> nvt.ops.Categorify(max_size=4, out_path=out) >> nvt.ops.ValueCount()
    columns = (
        (user >> nvt.ops.AddMetadata(tags=[Tags.USER_ID]))
        + places
        + genres
        + (["city"] >> nvt.ops.HashBucket(10))
        + (["age"] >> nvt.ops.Normalize())
        + ["day"]
        + (["click"] >> nvt.ops.AddMetadata(tags=[Tags.BINARY_CLASSIFICATION, Tags.TARGET]))
    )
    workflow = nvt.Workflow(columns)
    workflow.fit_transform(nvt.Dataset(frame)).to_parquet(str(folder / "rows"), output_files=1)
    return workflow


@pytest.fixture(scope="module", params=["in memory", "pbtxt", "dataset"])
def schema(request, workflow, folder):
    if request.param == "in memory":
        return workflow.output_schema
    if request.param == "pbtxt":
        return TensorflowMetadata.from_proto_text_file(str(folder / "rows")).to_merlin_schema()
    return Dataset(str(folder / "rows"), engine="parquet").schema


def by_name(schema):
    return {column.name: column for column in data.columns(schema)}


def test_categorify(schema, folder):
    # 11 (three times) is the only user seen twice; 0 pad, 1 null, 2 and 3 buckets, 4 it.
    assert by_name(schema)["user"] == Column(
        "user",
        tags=("categorical", "id", "user"),
        dtype="int64",
        domain=Domain("user", 0, 4),
        embedding_sizes=EmbeddingSizes(5, 16),
        num_buckets=2,
        freq_threshold=2,
        max_size=0,
        cat_path=str(folder / "categories" / "unique.user.parquet"),
    )
    assert by_name(schema)["user"].rows == 5


def test_numbers_are_integers_whatever_the_way(schema):
    for column in data.columns(schema):
        plain = config.to_plain(column)
        numbers = [plain["num_buckets"], plain["freq_threshold"], plain["max_size"]]
        sizes = plain["embedding_sizes"] or {"cardinality": None, "dimension": None}
        numbers += [sizes["cardinality"], sizes["dimension"], *(column.value_count or ())]
        assert all(n is None or type(n) is int for n in numbers), (column.name, numbers)


def test_joint_encoding_shares_a_domain(schema):
    # a to e, and 0, 1, 2.
    columns = by_name(schema)
    assert columns["home"].table == columns["work"].table == "home_work"
    assert columns["home"].rows == columns["work"].rows == 8
    assert [column.name for column in data.tables(schema)["home_work"]] == ["home", "work"]


def test_list_with_value_counts(schema):
    genres = by_name(schema)["genres"]
    assert genres.is_list
    assert genres.value_count == (0, 2)
    assert (genres.max_size, genres.rows) == (4, 4)
    assert by_name(schema)["user"].value_count is None


def test_hash_bucket_has_a_row_to_spare(schema):
    city = by_name(schema)["city"]
    assert city.dtype == "int32"
    assert city.embedding_sizes == EmbeddingSizes(10, 16)
    assert city.rows == 11
    assert (city.domain.name, city.table) == (None, "city")


def test_kinds(schema):
    kinds = {column.name: column.kind for column in data.columns(schema)}
    assert kinds == {
        **dict.fromkeys(["user", "home", "work", "genres", "city"], "categorical"),
        "age": "continuous",
        "day": "other",
        "click": "target",
    }
    assert [c.name for c in data.categorical(schema)] == ["user", "home", "work", "genres", "city"]
    assert [c.name for c in data.continuous(schema)] == ["age"]
    assert [c.name for c in data.targets(schema)] == ["click"]
    assert [c.name for c in data.tagged(schema, Tags.USER_ID, "target")] == ["user", "click"]
    assert list(data.tables(schema)) == ["user", "home_work", "genres", "city"]


def test_columns_are_plain_data_and_a_schema(schema):
    columns = data.columns(schema)
    assert data.columns(columns) == columns
    assert config.from_plain(config.to_plain(columns)) == columns
    with pytest.raises(dataclasses.FrozenInstanceError):
        columns[0].name = "other"


def made(name, tags=("categorical",), dtype=np.int64, **properties):
    return ColumnSchema(name, tags=list(tags), dtype=dtype, properties=properties)


def test_a_target_is_no_feature():
    schema = Schema(
        [
            made("next", ["categorical", "target"], domain={"min": 0, "max": 9}),
            made("rating", ["continuous", "regression"], np.float32),
            made("kind", ["categorical", "multi_class_classification"], domain={"max": 4}),
        ]
    )
    assert [column.name for column in data.targets(schema)] == ["next", "rating", "kind"]
    assert data.categorical(schema) == data.continuous(schema) == []


@pytest.mark.parametrize(
    ("tag", "expected"),
    [
        (Tags.ITEM_ID, True),
        ("item_id", True),
        ("ITEM", True),
        (Tags.ID, True),
        ("user_id", False),
        ("mine", True),
        ("theirs", False),
    ],
)
def test_has(tag, expected):
    [column] = data.columns(Schema([made("i", [Tags.ITEM_ID, "Mine"])]))
    assert column.tags == ("id", "item", "mine")
    assert column.has(tag) is expected


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ({"is_list": True}, (0, None)),
        ({"is_list": True, "is_ragged": False, "properties": {"value_count": {"max": 4}}}, (4, 4)),
        ({"properties": {"value_count": {"min": 1, "max": 7}}}, (1, 7)),
        ({"dims": (None, 20)}, (20, 20)),
        ({"dims": (None, (2, None))}, (2, None)),
        ({}, None),
    ],
)
def test_value_counts(shape, expected):
    [column] = data.columns([ColumnSchema("c", dtype=np.int64, **shape)])
    assert column.value_count == expected
    assert column.is_list is (expected is not None)


def test_a_column_without_a_dtype():
    [column] = data.columns([ColumnSchema("c", properties={"domain": {"max": 9.0}})])
    assert column.dtype == "unknown"
    assert column.domain == Domain(None, None, 9)


def test_a_float_domain_stays_one():
    [column] = data.columns([made("f", ["continuous"], np.float32, domain={"min": 0, "max": 0.5})])
    assert column.domain == Domain(None, 0, 0.5)


def test_no_domain():
    [column] = data.columns([made("item")])
    with pytest.raises(
        ValueError, match=r"'item' is categorical but the schema has no domain.*Cat"
    ):
        _ = column.rows
    with pytest.raises(ValueError, match="'item'"):
        data.features_from_schema([column])


def test_a_domain_without_max():
    [column] = data.columns([made("item", domain={"name": "thing", "min": 0})])
    with pytest.raises(ValueError, match=r"'item': its domain 'thing' has max=None.*Set the"):
        _ = column.rows


def test_a_domain_without_max_in_a_file(tmp_path):
    text = """feature { name: "item" type: INT int_domain { name: "thing" is_categorical: true }
              annotation { tag: "categorical" } }"""
    (tmp_path / "schema.pbtxt").write_text(text)
    schema = TensorflowMetadata.from_proto_text_file(str(tmp_path)).to_merlin_schema()
    with pytest.raises(ValueError, match=r"'item': its domain 'thing' has max=0.*pbtxt"):
        data.features_from_schema(schema)


@pytest.mark.parametrize("most", [-3, 9.5])
def test_a_domain_whose_max_is_no_id(most):
    column = Column("item", ("categorical",), domain=Domain(None, 0, most))
    with pytest.raises(ValueError, match=f"'item': its domain 'item' has max={most}; the largest"):
        _ = column.rows


def test_a_shared_domain_of_two_sizes():
    schema = Schema(
        [
            made("viewed", domain={"name": "item", "max": 9}),
            made("user", domain={"name": "user", "max": 5}),
            made("bought", domain={"name": "item", "max": 12}),
        ]
    )
    with pytest.raises(
        ValueError, match=r"domain 'item'.*'viewed' has max 9, 'bought' has max 12\. Encode them"
    ):
        data.tables(schema)


def test_a_property_that_is_no_number():
    with pytest.raises(ValueError, match=r"'item': num_buckets is 'many' in the schema"):
        data.columns([made("item", num_buckets="many")])
    with pytest.raises(ValueError, match=r"'item': domain max is 9\.5 in the schema"):
        data.columns([made("item", domain={"max": 9.5})])
    with pytest.raises(ValueError, match=r"'item': domain max is nan in the schema"):
        data.columns([made("item", domain={"max": float("nan")})])


@pytest.mark.parametrize("wrong", ["schema.pbtxt", {"item": 3}, None, [3], 7])
def test_no_schema(wrong):
    with pytest.raises(TypeError, match=r"A schema is a merlin.schema.Schema"):
        data.columns(wrong)


def test_a_name_twice():
    with pytest.raises(ValueError, match="two columns 'a'"):
        data.columns([Column("a"), Column("a")])
