"""Tables of a layer: sharing by name, regularizers on the distinct rows looked up."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import merlin_embeddings as me

ITEM = me.TableConfig("item", 11, 3, regularizer=keras.regularizers.L2(1.0))


def test_one_name_with_two_configs():
    other = dataclasses.replace(ITEM, embedding_dim=4)
    with pytest.raises(ValueError, match=r"Table 'item' has two configs.*feature 'b'.*rename one"):
        me.layers.Embeddings([me.FeatureConfig("a", ITEM), me.FeatureConfig("b", other)])


def test_equal_configs_are_one_table():
    # Keras objects have no equality of their own: their configs are compared.
    again = dataclasses.replace(ITEM, regularizer=keras.regularizers.L2(1.0))
    layer = me.layers.Embeddings([me.FeatureConfig("a", ITEM), me.FeatureConfig("b", again)])
    layer.build()
    assert len(layer.weights) == 1


def test_one_feature_name_twice():
    with pytest.raises(ValueError, match="Two features have the name 'a'"):
        me.layers.Embeddings([me.FeatureConfig("a", ITEM), me.FeatureConfig("a", ITEM)])


def test_regularizer_sees_each_row_once():
    features = [me.FeatureConfig("a", ITEM, padding_id=0), me.FeatureConfig("b", ITEM, None)]
    layer = me.layers.Embeddings(features)
    layer([tf.constant([[1, 2], [2, 0]]), tf.constant([2, 5])])
    rows = layer.tables["item"].variable.numpy()[[1, 2, 5]]
    [loss] = layer.losses
    np.testing.assert_allclose(loss, (rows**2).sum(), rtol=1e-5)


def test_regularizer_of_a_batch_without_rows():
    layer = me.layers.Embeddings(me.FeatureConfig("a", ITEM, padding_id=0))
    layer(tf.constant([[0, 0]]))
    assert float(layer.losses[0]) == 0


def test_regularizer_of_a_frozen_table_is_silent():
    frozen = dataclasses.replace(ITEM, trainable=False)
    layer = me.layers.Embeddings(me.FeatureConfig("a", frozen))
    layer(tf.constant([[1, 2]]))
    assert layer.losses == []


def test_regularizers_gradient():
    layer = me.layers.Embeddings(me.FeatureConfig("a", ITEM, "sum"))
    layer.build()
    with tf.GradientTape() as tape:
        output = layer(tf.constant([[1, 1, 4]]))
        loss = tf.reduce_sum(output) + layer.losses[0]
    table = layer.tables["item"].variable
    gradient = tape.gradient(loss, table.value)
    assert gradient.indices.numpy().tolist() == [1, 4]  # one gradient, its rows summed
    expected = np.array([[2.0], [1.0]]) + 2 * table.numpy()[[1, 4]]
    np.testing.assert_allclose(gradient.values, expected, rtol=1e-5)
