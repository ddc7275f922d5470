"""MapIds: id maps as preprocessing layers."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import merlin_embeddings as me
from merlin_embeddings.layers import MapIds
from tests.ids.xxh64 import row_of

IDS = np.array([[3, -1], [2**40, 3]])
ROWS = [[row_of(int(id), 100) for id in bag] for bag in IDS]


def layer():
    return MapIds(me.ids.Hash(100))


@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_dense_of_any_rank(dtype):
    ids = np.array([[3, -1], [1000, 3]], dtype)
    rows = np.array([[row_of(int(id), 100) for id in bag] for bag in ids])
    for given, wanted in [(ids, rows), (ids[0], rows[0]), (ids[0, 0], rows[0, 0])]:
        found = layer()(tf.constant(given))
        assert found.dtype == tf.int64
        np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(layer()(np.zeros([0, 2], dtype)), np.zeros([0, 2]))
    np.testing.assert_array_equal(layer()(ids.tolist()), rows)


def test_ragged_and_sparse_keep_their_structure():
    ragged = layer()(tf.ragged.constant([[[3], [-1]], [], [[3, -1]]], dtype=tf.int64))
    a, b = ROWS[0]
    assert ragged.to_list() == [[[a], [b]], [], [[a, b]]]
    sparse = layer()(tf.SparseTensor([[0, 4], [2, 1]], tf.constant([3, -1], tf.int64), [3, 5]))
    assert sparse.values.numpy().tolist() == [a, b]
    assert sparse.indices.numpy().tolist() == [[0, 4], [2, 1]]
    assert sparse.dense_shape.numpy().tolist() == [3, 5]


def test_strings_have_the_rows_that_a_table_gives_them():
    strings = tf.constant(["Rome", "Oslo", "Rome"])
    rows = layer()(strings)
    table = me.layers.Embedding(None, 2, ids=me.ids.Hash(100))
    np.testing.assert_array_equal(table(strings), tf.gather(table.embeddings, rows))
    np.testing.assert_array_equal(layer()(["Rome", "Oslo", "Rome"]), rows)


def test_in_tf_data():
    mapped = layer()
    data = tf.data.Dataset.from_tensor_slices(IDS).batch(2).map(mapped)
    assert [batch.tolist() for batch in data.as_numpy_iterator()] == [ROWS]
    ragged = tf.data.Dataset.from_tensors(tf.ragged.constant([[3], []], dtype=tf.int64))
    [batch] = list(ragged.map(mapped))
    assert batch.to_list() == [[ROWS[0][0]], []]


@pytest.mark.parametrize("kind", ["dense", "ragged", "sparse"])
def test_in_a_model(kind, tmp_path):
    inputs = keras.Input([None], dtype="string", **({} if kind == "dense" else {kind: True}))
    rows = layer()(inputs)
    assert rows.dtype == "int64"
    outputs = me.layers.Embedding(100, 3, combiner="sum")(rows)
    model = keras.Model(inputs, outputs)
    given = {
        "dense": tf.constant([["a", "b"], ["c", "c"]]),
        "ragged": tf.ragged.constant([["a", "b"], ["c"]]),
        "sparse": tf.sparse.from_dense([["a", "b"], ["c", ""]]),
    }[kind]
    wanted = me.layers.Embedding(None, 3, ids=me.ids.Hash(100), combiner="sum")
    wanted.build()
    wanted.set_weights(model.get_weights())
    np.testing.assert_array_equal(model(given), wanted(given))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(given), model(given))
    assert loaded.layers[1].ids == me.ids.Hash(100)


def test_exported():
    model = keras.Sequential([keras.Input([2], dtype="int64"), layer()])
    served = tf.function(model, input_signature=[tf.TensorSpec([None, 2], tf.int64)])
    np.testing.assert_array_equal(served(IDS), ROWS)


def test_the_map_of_a_vocabulary_size():
    clipped = MapIds(me.ids.Identity("clip"), vocabulary_size=5)
    assert clipped.rows == 5
    assert clipped([7, -1, 3]).numpy().tolist() == [4, 0, 3]
    again = MapIds.from_config(clipped.get_config())
    assert again([7]).numpy().tolist() == [4]
    refusing = MapIds(me.ids.Identity(), vocabulary_size=5, name="small")
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"MapIds 'small': id 7 at position 0"):
        refusing([7])


@pytest.mark.parametrize(
    ("ids", "inputs", "error", "message"),
    [
        (None, None, TypeError, r"ids=None; it must be a spec of merlin_embeddings.ids"),
        (me.ids.Hash, None, TypeError, r"it must be a spec"),
        (me.ids.Identity(), None, ValueError, r"needs a vocabulary_size"),
        (me.ids.Hash(9), np.array([1.5]), TypeError, r"ids have dtype float64; ids are int"),
        (me.ids.Hash(9), {"values": np.array([1])}, TypeError, r"got dict; it takes one tensor"),
    ],
)
def test_mistakes(ids, inputs, error, message):
    with pytest.raises(error, match=message):
        MapIds(ids)(inputs)


def test_strings_for_ids_in_a_range():
    with pytest.raises(ValueError, match=r"MapIds .*: got strings"):
        MapIds(me.ids.Identity(), 5)(tf.constant(["a"]))
