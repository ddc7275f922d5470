"""Id maps and compressed tables on Keras 2 and in merlin-models."""

import merlin.models.tf as mm
import numpy as np
import pytest
import tensorflow as tf
from merlin.models.utils.schema_utils import create_categorical_column
from merlin.schema import ColumnSchema, Tags
from tensorflow import keras

import merlin_embeddings as me
from merlin_embeddings.merlin import EmbeddingTable

CITIES = ["Rome", "Oslo", "Bonn"]
BATCH = tf.constant([["Rome", "Bern"], ["Bonn", "Bonn"], ["Oslo", "Rome"]])
ROWS = [[0, 3], [2, 2], [1, 0]]
ITEM = create_categorical_column("item", 10, tags=[Tags.ITEM, Tags.ITEM_ID])


def test_map_ids_in_a_model_and_in_tf_data(tmp_path):
    rows = me.layers.MapIds(me.ids.Vocabulary(CITIES, oov_rows=1))
    assert rows(BATCH).numpy().tolist() == ROWS
    [found] = list(tf.data.Dataset.from_tensors(BATCH).map(rows))
    assert found.numpy().tolist() == ROWS
    city = keras.Input([2], dtype="string")
    model = keras.Model(city, rows(city))
    model.save(tmp_path / "model.keras")
    assert keras.models.load_model(tmp_path / "model.keras")(BATCH).numpy().tolist() == ROWS


@pytest.mark.parametrize("file", ["model.keras", "model"])
def test_known_ids_and_compressed_tables_train_and_are_saved(file, tmp_path):
    city = keras.Input([2], dtype="string")
    known = me.layers.Embedding(
        None, 3, ids=me.ids.Vocabulary(CITIES, oov_rows=1), combiner="mean", table_name="known"
    )
    bloom = me.layers.Embedding(
        None, 3, compression=me.tables.Bloom(7), combiner="max", table_name="bloom"
    )
    joined = keras.layers.Concatenate()([known(city), bloom(city)])
    model = keras.Model(city, keras.layers.Dense(1)(joined))
    model.compile(me.optimizers.Adagrad(0.1), "mse")
    losses = model.fit(BATCH, np.ones([3, 1]), epochs=5, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    np.testing.assert_allclose(
        known(BATCH), tf.reduce_mean(tf.gather(known.embeddings, ROWS), 1), rtol=1e-5
    )
    model.save(tmp_path / file)
    np.testing.assert_array_equal(keras.models.load_model(tmp_path / file)(BATCH), model(BATCH))


def test_a_compressed_table_of_merlin_models():
    table = EmbeddingTable(3, ITEM, compression=me.tables.Bloom(5))
    vectors = table(tf.constant([[1], [10]]))
    assert vectors.shape == (2, 3)
    assert table.table.embeddings.shape == (5, 3)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"item.*id 11"):
        table(tf.constant([[11]]))
    weights = np.arange(15.0).reshape(5, 3)
    given = EmbeddingTable(3, ITEM, compression=me.tables.Bloom(5), weights=[weights])
    np.testing.assert_array_equal(given.table.embeddings, weights)
    with pytest.raises(ValueError, match=r"shape \[11, 3\], the table is \[5, 3\]: Bloom"):
        EmbeddingTable(3, ITEM, compression=me.tables.Bloom(5), weights=[np.zeros([11, 3])])
    city = ColumnSchema("city", dtype=str, tags=[Tags.CATEGORICAL])
    open_ids = EmbeddingTable(3, city, compression=me.tables.DoubleHash(5))
    assert open_ids(tf.constant([["Rome"]])).shape == (1, 3)


def test_an_output_tied_to_a_compressed_table_is_refused():
    table = EmbeddingTable(3, ITEM, compression=me.tables.Bloom(5))
    table(tf.constant([[1]]))
    with pytest.raises(ValueError, match=r"Table 'item'.*its rows are no vectors.*CategoricalOutp"):
        mm.CategoricalOutput(table)(tf.zeros([4, 3]))
