"""Lists that stay sequences, and what joins them."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import merlin_embeddings as me
from merlin_embeddings.data import Column, Domain

SCHEMA = (
    Column("items", ("categorical",), "int64", True, (0, None), Domain(None, 0, 9)),
    Column("shops", ("categorical",), "int64", True, (0, None), Domain(None, 0, 5)),
    Column("user", ("categorical",), "int64", domain=Domain(None, 0, 3)),
    Column("age", ("continuous",), "float32"),
)
ITEMS, SHOPS = [[3, 1, 3], [], [9]], [[5, 0, 1], [], [2]]
USER, AGE = [1, 2, 3], [0.5, 0.25, 2.0]


def batch(shops=SHOPS):
    return {
        "items": tf.ragged.constant(ITEMS, tf.int64, row_splits_dtype=tf.int64),
        "shops": tf.ragged.constant(shops, tf.int64, row_splits_dtype=tf.int64),
        "user": tf.constant(USER),
        "age": tf.constant(AGE),
    }


def features(schema, dim, combiner=None):
    return me.features_from_schema(schema, dim, combiner, initializer="normal", seed=1)


def table(block, name):
    return block.categorical.tables[name].variable.numpy()


def test_sequences_side_by_side():
    block = me.layers.InputBlock(SCHEMA[:2], features(SCHEMA[:2], {"items": 3, "shops": 2}))
    found = block(batch())
    for row, items, shops in zip(found, ITEMS, SHOPS, strict=True):
        expected = np.hstack([table(block, "items")[items], table(block, "shops")[shops]])
        np.testing.assert_array_equal(row, expected)


def test_sequences_stacked():
    block = me.layers.InputBlock(SCHEMA[:2], features(SCHEMA[:2], 3), aggregation="stack")
    found = block(batch())
    for row, items, shops in zip(found, ITEMS, SHOPS, strict=True):
        expected = np.stack([table(block, "items")[items], table(block, "shops")[shops]], 2)
        np.testing.assert_array_equal(row, expected)


def test_one_kept_one_pooled(pool):
    schema = SCHEMA[:2]
    block = me.layers.InputBlock(schema, features(schema, 3, {"items": None}), aggregation=None)
    found = block(batch())
    assert isinstance(found["items"], tf.RaggedTensor)
    np.testing.assert_allclose(found["shops"], pool(table(block, "shops"), SHOPS, "mean"), 1e-5)


def test_vectors_at_every_position():
    block = me.layers.InputBlock(SCHEMA, features(SCHEMA, 2), post=me.layers.BroadcastToSequence())
    found = block(batch())
    assert found.shape.as_list() == [3, None, 7]
    for b, row in enumerate(found):
        count = len(ITEMS[b])
        expected = np.hstack(
            [
                np.full([count, 1], AGE[b]),
                table(block, "items")[ITEMS[b]],
                table(block, "shops")[SHOPS[b]],
                np.tile(table(block, "user")[USER[b]], [count, 1]),
            ]
        )
        np.testing.assert_array_equal(row, expected)


def test_dense_sequences():
    joined = me.layers.BroadcastToSequence()(
        {"user": tf.constant([[1.0], [2.0]]), "items": tf.ones([2, 3, 2])}
    )
    assert joined["user"].numpy().tolist() == [[[1.0]] * 3, [[2.0]] * 3]
    alone = {"user": tf.ones([2, 1])}
    assert me.layers.BroadcastToSequence()(alone)["user"] is alone["user"]


@pytest.mark.parametrize("aggregation", ["concat", "stack", me.layers.Stack(axis=2)])
def test_a_sequence_model(tmp_path, aggregation):
    schema = SCHEMA[:3]
    block = me.layers.InputBlock(
        schema,
        features(schema, 3),
        post=me.layers.BroadcastToSequence(),
        aggregation=aggregation,
    )
    inputs = me.data.keras_inputs(schema)
    model = keras.Model(inputs, block(inputs))
    given = {name: tensor for name, tensor in batch().items() if name in inputs}
    found, symbol = model(given), model.output
    assert symbol.ragged and isinstance(found, tf.RaggedTensor)
    assert tuple(symbol.shape)[2:] == tuple(found.shape)[2:]
    np.testing.assert_array_equal(found.flat_values, block(given).flat_values)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again(given).flat_values, found.flat_values)


def test_sequences_of_different_lengths():
    block = me.layers.InputBlock(SCHEMA[:2], features(SCHEMA[:2], 3))
    block(batch())
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="'items' and 'shops' have different lengths"
    ):
        block(batch(shops=[[5, 0], [1], [2]]))


def test_a_sequence_beside_a_vector():
    block = me.layers.InputBlock(SCHEMA, features(SCHEMA, 3))
    message = (
        r"the same shape but for the last axis.*post=BroadcastToSequence.*"
        r"'age': '\[3, 1\]', 'items': 'ragged \[3, None, 3\]'"
    )
    with pytest.raises(ValueError, match=message.replace("3, 1", "None, 1").replace("[3", "[None")):
        block(me.data.keras_inputs(SCHEMA))


@pytest.mark.parametrize("axis", [0, 1])
def test_an_axis_that_sequences_do_not_have(axis):
    sequence = tf.ragged.constant([[[1.0]]], ragged_rank=1, inner_shape=(1,))
    with pytest.raises(ValueError, match=f"axis={axis} is the batch's or the sequence's"):
        me.layers.Stack(axis=axis)({"a": sequence, "b": sequence})
