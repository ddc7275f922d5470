"""`EmbeddingTable` configured, cloned, shared, frozen, exported and made from given vectors."""

import copy

import merlin.models.tf as mm
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from merlin.io import Dataset
from merlin.models.utils.schema_utils import create_categorical_column
from merlin.schema import Schema, Tags
from tensorflow import keras

import merlin_embeddings as me
from merlin_embeddings.merlin import EmbeddingTable

WEIGHTS = np.random.default_rng(0).normal(size=(11, 3)).astype(np.float32)
FRAME = pd.DataFrame(WEIGHTS)
ITEM = create_categorical_column("item", 10, tags=[Tags.ITEM])
HISTORY = create_categorical_column("history", 10, domain_name="item", tags=[Tags.USER])
IDS = tf.constant([[1, 2], [10, 2]])


def numbers_in(config):
    """How many numbers a nested config holds, arrays counted by their elements."""
    if isinstance(config, dict):
        return sum(map(numbers_in, config.values()))
    if isinstance(config, (list, tuple)):
        return sum(map(numbers_in, config))
    return np.size(config) if isinstance(config, (int, float, np.ndarray, tf.Tensor)) else 0


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {
            "sequence_combiner": "sqrtn",
            "l2_batch_regularization_factor": 0.2,
            "embeddings_initializer": me.initializers.Normal(stddev=0.1),
            "embeddings_regularizer": "l2",
            "activity_regularizer": keras.regularizers.L1(0.1),
            "embeddings_constraint": "non_neg",
            "ids": me.ids.Modulo(7),
            "placement": "host",
            "table_dtype": "bfloat16",
            "padding_id": 0,
            "seed": 3,
            "dtype": "mixed_float16",
            "name": "items",
        },
        {"sequence_combiner": mm.SequenceAggregator("max"), "mask_zero": True, "trainable": False},
    ],
)
def test_config_there_and_back(arguments):
    table = EmbeddingTable(3, ITEM, HISTORY, **arguments)
    expected = table(IDS)
    config = table.get_config()
    kept = copy.deepcopy(config)
    again = EmbeddingTable.from_config(config)
    assert config == kept
    assert again.get_config() == config
    assert list(again.features) == ["item", "history"]
    assert again.table is not table.table
    assert again.trainable == table.trainable
    assert again(IDS).dtype == expected.dtype
    again.set_weights(table.get_weights())
    np.testing.assert_array_equal(again(IDS), expected)


def test_config_has_no_weights():
    table = EmbeddingTable(3, ITEM, weights=WEIGHTS)
    assert numbers_in(table.get_config()) < 20 < WEIGHTS.size


def test_keras_serializes_it():
    table = EmbeddingTable(3, ITEM, sequence_combiner="sum")
    saved = keras.layers.serialize(table)
    kept = copy.deepcopy(saved)
    again = keras.layers.deserialize(saved)
    assert type(again) is EmbeddingTable
    assert again.get_config() == table.get_config()
    assert saved == kept
    assert again.sequence_combiner == "sum"


def test_a_seed_gives_the_values():
    def values(**kwargs):
        table = EmbeddingTable(3, ITEM, **kwargs)
        table(IDS)
        return table.get_weights()[0]

    np.testing.assert_array_equal(values(seed=1), values(seed=1))
    assert not np.array_equal(values(seed=1), values(seed=2))
    limit = np.sqrt(6 / (11 + 3))  # Keras's glorot_uniform, for no initializer
    assert 0.05 < np.abs(values(embeddings_initializer=None)).max() <= limit


def test_select_by_tag_shares_table_and_combiner():
    combiner = mm.SequenceAggregator("sum")
    table = EmbeddingTable(3, ITEM, HISTORY, sequence_combiner=combiner, trainable=False)
    table.l2_batch_regularization_factor = 0.5
    selected = table.select_by_tag(Tags.USER)
    assert type(selected) is EmbeddingTable
    assert list(selected.features) == ["history"]
    assert selected.table is table.table
    assert selected.sequence_combiner is combiner
    assert selected.l2_batch_regularization_factor == 0.5
    assert not selected.trainable
    assert table.select_by_tag(Tags.CONTEXT) is None
    assert list(table.select_by_tag([Tags.ITEM, Tags.USER]).features) == ["item", "history"]
    block = mm.Embeddings(Schema([ITEM, HISTORY]), dim=3, table_cls=EmbeddingTable)
    assert block.select_by_tag(Tags.USER)["item"].table is block["item"].table


def test_a_frozen_table_isnt_trained():
    table = EmbeddingTable(3, ITEM, sequence_combiner="sum", trainable=False)
    model = keras.Sequential([keras.Input((2,), dtype="int64"), table, keras.layers.Dense(1)])
    start = table.get_weights()[0]
    model.compile("adagrad", "mse")
    model.fit(IDS, np.ones((2, 1)), verbose=0)
    np.testing.assert_array_equal(table.get_weights()[0], start)
    assert not table.trainable_weights
    assert len(table.non_trainable_weights) == 1
    table.trainable = True
    assert len(table.trainable_weights) == 1


@pytest.mark.parametrize("make", [EmbeddingTable.from_pretrained, EmbeddingTable.from_dataset])
@pytest.mark.parametrize("data", [FRAME, Dataset(FRAME)])
def test_given_vectors(make, data):
    for table in (
        make(data, name="item"),
        make(data, col_schema=ITEM, trainable=False),
        make(data, col_schema=ITEM, sequence_combiner="sum", table_dtype="float32"),
    ):
        np.testing.assert_array_equal(table.table(range(11)), WEIGHTS)
        np.testing.assert_array_equal(table.table.embeddings, WEIGHTS)
        assert table.input_dim == 11
        assert table.dim == 3
    assert make(data, name="item").trainable
    assert not make(data, col_schema=ITEM, trainable=False).trainable
    assert make(data, name="item").name == "item"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_vectors_as_a_dataset(dtype):
    table = EmbeddingTable(3, ITEM, weights=WEIGHTS, table_dtype=dtype)
    stored = tf.cast(tf.cast(WEIGHTS, dtype), tf.float32)
    frame = table.to_df()
    np.testing.assert_array_equal(frame.to_numpy(), stored)
    assert list(frame.columns) == ["0", "1", "2"]
    dataset = table.to_dataset()
    assert isinstance(dataset, Dataset)
    again = EmbeddingTable.from_dataset(dataset, col_schema=ITEM)
    np.testing.assert_array_equal(again.get_weights()[0], stored)


def test_weights_as_keras_takes_them():
    for weights in (WEIGHTS, [WEIGHTS], tf.constant(WEIGHTS)):
        np.testing.assert_array_equal(EmbeddingTable(3, ITEM, weights=weights)(IDS), WEIGHTS[IDS])


def test_a_table_given():
    first = EmbeddingTable(3, ITEM, weights=WEIGHTS)
    second = EmbeddingTable(3, HISTORY, table=first.table, sequence_combiner="sum")
    np.testing.assert_allclose(second(IDS), WEIGHTS[IDS].sum(1), rtol=1e-6)
    own = EmbeddingTable(3, ITEM, table=me.layers.Embedding(11, 3, weights=WEIGHTS))
    np.testing.assert_array_equal(own(IDS), WEIGHTS[IDS])


def test_checkpoints_of_tensorflow(tmp_path):
    table = EmbeddingTable(3, ITEM, weights=WEIGHTS)
    path = tf.train.Checkpoint(table=table).save(str(tmp_path / "checkpoint"))
    other = EmbeddingTable(3, ITEM)
    other(IDS)
    tf.train.Checkpoint(table=other).restore(path).assert_existing_objects_matched()
    np.testing.assert_array_equal(other.get_weights()[0], WEIGHTS)


def test_copy_of_a_block_has_its_own_rows():
    table = EmbeddingTable(3, ITEM, weights=WEIGHTS)
    copied = table.copy()
    copied(IDS)
    assert copied.table is not table.table
    assert copied.get_config() == table.get_config()


@pytest.mark.parametrize("file", ["model", "model.keras", "model.h5"])
@pytest.mark.parametrize(
    "arguments",
    [
        {"sequence_combiner": mm.SequenceAggregator("max"), "activity_regularizer": "l2"},
        {"sequence_combiner": "sqrtn", "ids": me.ids.Modulo(4), "embeddings_regularizer": "l2"},
    ],
)
def test_keras_saves_and_loads_it(file, arguments, tmp_path):
    table = EmbeddingTable(3, ITEM, **arguments)
    model = keras.Sequential([keras.Input((2,), dtype="int64"), table, keras.layers.Dense(1)])
    model.compile(me.optimizers.Adam(0.1), "mse")
    model.fit(IDS, np.ones((2, 1)), verbose=0)
    model.save(tmp_path / file)
    again = keras.models.load_model(tmp_path / file)
    np.testing.assert_array_equal(again(IDS), model(IDS))
    assert type(again.layers[0]) is EmbeddingTable
    assert again.layers[0].get_config() == table.get_config()
    for one in (model, again):  # the optimizer comes back too
        # Rows come twice in a batch: the order of the samples is that of sums.
        one.fit(IDS, np.ones((2, 1)), shuffle=False, verbose=0)
    np.testing.assert_array_equal(again(IDS), model(IDS))


def test_nothing_prints_the_rows():
    """merlin-models has layers print their weights; Keras 2 prints layers in warnings."""
    table = EmbeddingTable(4, ITEM)
    table(tf.constant([[1]]))
    plain = me.layers.Embedding(30, 4, name="plain")
    plain(tf.constant([1]))
    assert repr(plain) == "<Embedding name=plain, built=True>"
    assert "Table name=" in repr(table)
    assert "array" not in repr(table) + repr(plain)
