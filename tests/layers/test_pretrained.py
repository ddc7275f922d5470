"""Tables that begin with given vectors."""

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from merlin.io import Dataset
from tensorflow import keras

import merlin_embeddings as me
from merlin_embeddings.data import Column, Domain

ITEM = Domain("item", 0, 9)
SCHEMA = (
    Column("history", ("categorical",), "int64", True, (0, None), ITEM),
    Column("last", ("categorical",), "int64", domain=ITEM),
    Column("user", ("categorical",), "int64", domain=Domain(None, 0, 4)),
)
VECTORS = np.random.default_rng(0).normal(size=(10, 6)).astype(np.float32)
BATCH = {
    "history": tf.ragged.constant([[1, 2], [], [7]], tf.int64, row_splits_dtype=tf.int64),
    "last": tf.constant([9, 0, 7], tf.int64),
    "user": tf.constant([4, 0, 1], tf.int64),
}


def parquet(folder):
    pd.DataFrame({"vector": list(VECTORS)}).to_parquet(folder / "item.parquet")
    return folder / "item.parquet"


SOURCES = {
    "numpy": lambda folder: VECTORS,
    "parquet": parquet,
    "tf.data": lambda folder: tf.data.Dataset.from_tensor_slices(VECTORS).batch(4),
    "merlin": lambda folder: Dataset(parquet(folder), engine="parquet"),
}


@pytest.mark.parametrize("name", ["item", "last", "history"])
@pytest.mark.parametrize("kind", SOURCES)
def test_sources_by_name_of_table_or_column(tmp_path, kind, name):
    block = me.layers.InputBlock(SCHEMA, pretrained={name: SOURCES[kind](tmp_path)})
    found = block(BATCH)
    assert found.shape == (3, 6 + 6 + 8)
    np.testing.assert_allclose(found[0, :6], (VECTORS[1] + VECTORS[2]) / 2, rtol=1e-6)
    np.testing.assert_array_equal(found[:, 6:12], VECTORS[[9, 0, 7]])


def by_id():
    frame = pd.DataFrame({"id": [3, 9], "vector": list(VECTORS[[3, 9]])})
    return me.layers.Pretrained(frame, trainable=False, id_column="id")


def test_vectors_by_id():
    block = me.layers.InputBlock(SCHEMA, pretrained={"item": by_id()}, aggregation=None)
    np.testing.assert_array_equal(block(BATCH)["last"][0], VECTORS[9])
    np.testing.assert_array_equal(block(BATCH)["last"][1:], np.zeros([2, 6]))


@pytest.mark.parametrize("trainable", [True, False])
@pytest.mark.parametrize("optimizer", [me.optimizers.Adagrad, keras.optimizers.SGD])
def test_frozen_tables_stay(trainable, optimizer):
    given = me.layers.Pretrained(VECTORS, trainable)
    inputs = me.data.keras_inputs(SCHEMA)
    block = me.layers.InputBlock(SCHEMA, pretrained={"item": given})
    model = keras.Model(inputs, keras.layers.Dense(1)(block(inputs)))
    tables = block.categorical.tables
    user = tables["user"].variable.numpy().copy()
    model.compile(optimizer(0.5), "mse")
    data = tf.data.Dataset.from_tensor_slices((BATCH, np.ones([3, 1]))).batch(3)
    model.fit(data, epochs=2, verbose=0)
    changed = np.any(tables["item"].variable.numpy() != VECTORS, axis=1)
    assert np.flatnonzero(changed).tolist() == ([0, 1, 2, 7, 9] if trainable else [])
    assert np.any(tables["user"].variable.numpy() != user)
    assert tables["item"].variable.trainable is trainable


def test_a_saved_model_has_the_vectors_as_its_weights(tmp_path):
    inputs = me.data.keras_inputs(SCHEMA)
    frozen = me.layers.Pretrained(parquet(tmp_path), trainable=False)
    block = me.layers.InputBlock(SCHEMA, pretrained={"item": frozen})
    model = keras.Model(inputs, block(inputs))
    model.save(tmp_path / "model.keras")
    (tmp_path / "item.parquet").unlink()
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again(BATCH), model(BATCH))
    assert [w.name for w in again.non_trainable_weights] == ["item"]


def test_other_fields_of_the_table_stay():
    features = me.features_from_schema(SCHEMA, 4, dtype="bfloat16", combiner={"history": "sum"})
    block = me.layers.InputBlock(SCHEMA, features, pretrained={"item": VECTORS})
    changed = block.categorical.features
    assert (changed["last"].table.dtype, changed["last"].table.embedding_dim) == ("bfloat16", 6)
    assert changed["history"].combiner == "sum"
    assert changed["user"] == features["user"]
    assert features["last"].table.embedding_dim == 4


def refused(match, pretrained):
    with pytest.raises(ValueError, match=match):
        me.layers.InputBlock(SCHEMA, pretrained=pretrained)


def test_what_does_not_fit():
    refused("table 'item': the table has 10 rows, there are 9 vectors", {"item": VECTORS[:9]})
    refused(r"pretrained has 'itme', which is no.*'history', 'item'", {"itme": VECTORS})
    refused("two entries for table 'item': 'last' too", {"item": VECTORS, "last": VECTORS})
    refused("table 'user': vectors have shape", {"user": np.ones(5)})
