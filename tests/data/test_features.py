"""Features, tables and inputs that follow from a schema."""

import functools
import math

import numpy as np
import pytest
import tensorflow as tf
from merlin.schema import ColumnSchema, Schema, Tags
from tensorflow import keras

import merlin_embeddings as me
from merlin_embeddings import config
from merlin_embeddings.data import Column, Domain, EmbeddingSizes


def categorical(name, most, domain=None, is_list=False, sizes=None, dtype="int64"):
    return Column(
        name,
        ("categorical",),
        dtype,
        is_list,
        (0, None) if is_list else None,
        Domain(domain, 0, most),
        sizes,
    )


SCHEMA = [
    categorical("last", 999, "item", sizes=EmbeddingSizes(1000, 77)),
    Column("age", ("continuous",), "float64"),
    categorical("history", 999, "item", is_list=True, sizes=EmbeddingSizes(1000, 77)),
    categorical("city", 9, dtype="int32", sizes=EmbeddingSizes(9, 16)),
    categorical("tags", 49, is_list=True, sizes=EmbeddingSizes(50, 16)),
    Column("day", (), "int64"),
    Column("click", ("categorical", "target"), "int64", domain=Domain(max=1)),
]
FEATURES = ["last", "history", "city", "tags"]


def dims(features):
    return {feature.table.name: feature.table.embedding_dim for feature in features.values()}


def test_of_a_merlin_schema():
    domain = {"name": "item", "min": 0, "max": 999}
    schema = Schema(
        [
            ColumnSchema("last", [Tags.CATEGORICAL], {"domain": domain}, np.int64),
            ColumnSchema("history", [Tags.CATEGORICAL], {"domain": domain}, np.int64, is_list=True),
            ColumnSchema("age", [Tags.CONTINUOUS], dtype=np.float32),
            ColumnSchema("click", [Tags.TARGET], dtype=np.int64),
        ]
    )
    item = me.TableConfig("item", vocabulary_size=1000, embedding_dim=16)
    assert me.features_from_schema(schema, embedding_dim=16, combiner="sqrtn") == {
        "last": me.FeatureConfig("last", item, "sqrtn"),
        "history": me.FeatureConfig("history", item, "sqrtn"),
    }


def test_one_table_a_domain():
    features = me.features_from_schema(SCHEMA)
    assert list(features) == FEATURES
    assert features["last"].table is features["history"].table
    rows = {feature.table.name: feature.table.rows for feature in features.values()}
    assert rows == {"item": 1000, "city": 10, "tags": 50}


def rule(rows, multiplier, multiple):
    """ceil(multiplier * the fourth root), up to a multiple."""
    dim = math.ceil(multiplier * math.sqrt(math.sqrt(rows)))
    return dim + -dim % multiple


def test_no_dim_is_the_rule_of_merlin_models():
    expected = {"item": rule(1000, 2, 8), "city": rule(10, 2, 8), "tags": rule(50, 2, 8)}
    assert expected == {"item": 16, "city": 8, "tags": 8}
    assert dims(me.features_from_schema(SCHEMA)) == expected


def test_the_rule_with_other_numbers():
    other = functools.partial(me.data.infer_embedding_dim, multiplier=5, ensure_multiple_of_8=False)
    expected = {"item": rule(1000, 5, 1), "city": rule(10, 5, 1), "tags": rule(50, 5, 1)}
    assert expected == {"item": 29, "city": 9, "tags": 14}
    assert dims(me.features_from_schema(SCHEMA, other)) == expected


def test_dims_that_nvtabular_suggests():
    features = me.features_from_schema(SCHEMA, me.data.suggested_embedding_dim)
    assert dims(features) == {"item": 77, "city": 16, "tags": 16}
    with pytest.raises(ValueError, match=r"'x' has no embedding_sizes.*infer_embedding_dim"):
        me.features_from_schema([categorical("x", 9)], me.data.suggested_embedding_dim)


@pytest.mark.parametrize("key", ["item", "last", "history"])
def test_dims_by_name(key):
    features = me.features_from_schema(SCHEMA, {key: 4, "tags": 6})
    assert dims(features) == {"item": 4, "city": 8, "tags": 6}


def test_the_table_s_own_entry_wins():
    features = me.features_from_schema(SCHEMA, {"item": 4, "last": 5, "history": 6})
    assert dims(features)["item"] == 4


def test_two_dims_for_one_table():
    with pytest.raises(ValueError, match=r"'item' have different embedding_dim.*'last': 4"):
        me.features_from_schema(SCHEMA, {"last": 4, "history": 5})
    with pytest.raises(ValueError, match=r"'item' have different embedding_dim.*'history': 7"):
        me.features_from_schema(SCHEMA, lambda column: len(column.name))


@pytest.mark.parametrize("dim", [0, -3, 2.5, "16"])
def test_dims_no_table_has(dim):
    with pytest.raises(ValueError, match="TableConfig 'item': embedding_dim="):
        me.features_from_schema(SCHEMA, dim)


def test_combiners():
    combiners = {
        name: feature.combiner
        for name, feature in me.features_from_schema(SCHEMA, 4, {"history": "sum"}).items()
    }
    assert combiners == {"last": "mean", "history": "sum", "city": "mean", "tags": "mean"}
    by_table = me.features_from_schema(SCHEMA, 4, {"item": "max", "history": "sqrtn"})
    assert (by_table["last"].combiner, by_table["history"].combiner) == ("max", "sqrtn")


def test_lists_that_are_kept():
    features = me.features_from_schema(SCHEMA, 4, combiner=None)
    combiners = {name: feature.combiner for name, feature in features.items()}
    assert combiners == {"last": "mean", "history": None, "city": "mean", "tags": None}
    one = me.features_from_schema(SCHEMA, 4, combiner={"history": None})
    assert (one["history"].combiner, one["tags"].combiner) == (None, "mean")


def test_options_of_tables():
    l2 = keras.regularizers.L2(0.1)
    vectors = np.ones([10, 4], np.float32)
    features = me.features_from_schema(
        SCHEMA,
        4,
        dtype={"item": "bfloat16"},
        regularizer={"history": l2},
        trainable={"city": False},
        initializer={"city": vectors, "tags": "zeros"},
        placement="host",
        seed=7,
    )
    item, city = features["last"].table, features["city"].table
    assert (item.dtype, item.regularizer, item.trainable) == ("bfloat16", l2, True)
    assert (city.dtype, city.regularizer, city.trainable) == ("float32", None, False)
    assert city.initializer.array is vectors
    assert features["tags"].table.initializer == "zeros"
    assert {f.table.placement for f in features.values()} == {"host"}
    assert {f.table.seed for f in features.values()} == {7}


def test_options_of_features():
    features = me.features_from_schema(SCHEMA, 4, padding_id={"history": 0, "tags": 1})
    ids = {name: feature.padding_id for name, feature in features.items()}
    assert ids == {"last": None, "history": 0, "city": None, "tags": 1}
    assert {f.padding_id for f in me.features_from_schema(SCHEMA, 4, padding_id=0).values()} == {0}
    by_table = me.features_from_schema(SCHEMA, 4, padding_id={"item": 0, "last": 2})
    assert (by_table["history"].padding_id, by_table["last"].padding_id) == (0, 2)


def test_two_options_for_one_table():
    with pytest.raises(ValueError, match=r"'item' have different trainable.*\{'item': \.\.\.\}"):
        me.features_from_schema(SCHEMA, 4, trainable={"last": False, "history": True})
    same = me.features_from_schema(SCHEMA, 4, trainable={"last": False, "history": False})
    assert not same["last"].table.trainable


def test_open_id_spaces():
    schema = [Column("raw", ("categorical",), "int64"), categorical("city", 9)]
    features = me.features_from_schema(schema, 4, ids={"raw": me.ids.Modulo(100)})
    assert features["raw"].table == me.TableConfig("raw", None, 4, ids=me.ids.Modulo(100))
    assert features["city"].table.rows == 10
    with pytest.raises(ValueError, match="'raw' is categorical but the schema has no domain"):
        me.features_from_schema(schema, 4)


def test_ids_of_a_column_that_has_a_domain():
    features = me.features_from_schema([categorical("city", 9)], 4, ids=me.ids.Identity("zero"))
    assert features["city"].table == me.TableConfig("city", 10, 4, ids=me.ids.Identity("zero"))


@pytest.mark.parametrize("option", ["embedding_dim", "combiner", "trainable", "padding_id"])
@pytest.mark.parametrize("name", ["age", "click", "itme"])
def test_a_name_that_is_nothing(option, name):
    with pytest.raises(
        ValueError, match=f"{option} has '{name}', which is no .*'city', 'history', 'item', 'last'"
    ):
        me.features_from_schema(SCHEMA, **{option: {name: 1}})


def test_an_option_that_is_none():
    with pytest.raises(TypeError, match=r"no option 'embeddings_initializer'.*initializer"):
        me.features_from_schema(SCHEMA, embeddings_initializer="zeros")
    with pytest.raises(TypeError, match="no option 'vocabulary_size'"):
        me.features_from_schema(SCHEMA, vocabulary_size=10)


def test_no_categorical_column():
    with pytest.raises(ValueError, match=r"no categorical column.*Tags\.CATEGORICAL"):
        me.features_from_schema([Column("age", ("continuous",))])


def test_features_are_plain_data():
    features = me.features_from_schema(SCHEMA)
    assert config.from_plain(config.to_plain(features)) == features


def test_inputs():
    schema = [*SCHEMA, Column("image", ("embedding",), "float32", True, (8, 8))]
    inputs = me.data.keras_inputs(schema)
    assert {name: (tuple(x.shape), x.dtype, bool(x.ragged)) for name, x in inputs.items()} == {
        "last": ((None,), "int64", False),
        "age": ((None,), "float32", False),
        "history": ((None, None), "int64", True),
        "city": ((None,), "int32", False),
        "tags": ((None, None), "int64", True),
        "image": ((None, 8), "float32", False),
    }
    assert [x.name for x in inputs.values()] == list(inputs)


def test_inputs_of_other_dtypes():
    schema = [
        Column("word", ("categorical",), "string"),
        Column("id", ("categorical",)),
        Column("prices", ("continuous",), "float64", True),
    ]
    inputs = me.data.keras_inputs(schema)
    assert [x.dtype for x in inputs.values()] == ["string", "int64", "float32"]
    assert inputs["prices"].ragged


def test_inputs_feed_a_functional_model():
    inputs = me.data.keras_inputs(SCHEMA)
    vectors = me.layers.Embeddings(me.features_from_schema(SCHEMA, 4))(inputs)
    model = keras.Model(inputs, vectors)
    batch = {
        "last": tf.constant([1, 2]),
        "history": tf.ragged.constant([[1, 3], []], dtype=tf.int64),
        "city": tf.constant([9, 0]),
        "tags": tf.ragged.constant([[], [49]], dtype=tf.int64),
        "age": tf.constant([0.5, 0.1], tf.float64),
    }
    found = model(batch)
    item = model.get_layer(index=-1).tables["item"].variable.numpy()
    np.testing.assert_allclose(found["history"][0], (item[1] + item[3]) / 2, rtol=1e-6)
    np.testing.assert_array_equal(found["history"][1], np.zeros(4))
    np.testing.assert_array_equal(found["last"], item[[1, 2]])


def test_no_input():
    with pytest.raises(ValueError, match="no column tagged as categorical"):
        me.data.keras_inputs([Column("day"), Column("click", ("target",))])


@pytest.mark.parametrize("count", [None, (0, 8), (0, None)])
def test_vectors_of_unknown_length(count):
    with pytest.raises(ValueError, match=r"'image' is tagged as embedding.*value_count"):
        me.data.keras_inputs([Column("image", ("embedding",), "float32", True, count)])


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (Column("a/b", ("categorical",), domain=Domain(max=9)), r"'a/b': .* no names with '/'"),
        (
            Column("a", ("categorical",), domain=Domain("b/c", max=9)),
            r"'a': its domain 'b/c' .* '/'",
        ),
    ],
)
def test_names_that_keras_has_not(column, message):
    with pytest.raises(ValueError, match=message):
        me.features_from_schema([column])
    with pytest.raises(ValueError, match=message):
        me.data.keras_inputs([column])
