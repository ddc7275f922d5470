"""Outputs that nothing depends on have no gradient, in graphs and out of them."""

import numpy as np
import pytest
import tensorflow as tf

import merlin_embeddings as me


def layer_of(combiner):
    return me.layers.Embeddings(
        {
            name: me.FeatureConfig(name, me.TableConfig(name, 9, 3, seed=1), combiner=combiner)
            for name in ("used", "unused")
        }
    )


def gradients(layer, loss_of, eager):
    def compute(ids):
        with tf.GradientTape() as tape:
            vectors = layer({"used": ids, "unused": ids})
            loss = loss_of(vectors["used"], vectors["unused"])
        return tape.gradient(loss, layer.trainable_variables)

    ids = tf.constant([[1, 2], [2, 3]])
    return (compute if eager else tf.function(compute))(ids)


@pytest.mark.parametrize("eager", [True, False])
@pytest.mark.parametrize("combiner", ["mean", "max", None])
def test_features_outside_of_the_loss(combiner, eager):
    found = gradients(layer_of(combiner), lambda used, _: tf.reduce_sum(used), eager)
    assert found[0].indices.numpy().tolist() == [1, 2, 3]
    assert found[1] is None


@pytest.mark.parametrize("eager", [True, False])
def test_a_gradient_that_is_zero_is_one(eager):
    def loss_of(used, unused):
        return tf.reduce_sum(used) + tf.reduce_sum(tf.nn.relu(unused - 100.0))

    found = gradients(layer_of("sum"), loss_of, eager)
    assert found[1].indices.numpy().tolist() == [1, 2, 3]
    np.testing.assert_array_equal(found[1].values, np.zeros((3, 3)))


@pytest.mark.parametrize("eager", [True, False])
def test_rows_outside_of_the_loss_do_not_decay(eager):
    layer = layer_of("sum")
    layer.build()
    before = [variable.numpy() for variable in layer.trainable_variables]
    found = gradients(layer, lambda used, _: tf.reduce_sum(used), eager)
    optimizer = me.optimizers.Adam(0.1, weight_decay=0.5)
    with pytest.warns(UserWarning, match="Gradients do not exist for variables .'unused'"):
        optimizer.apply(found, layer.trainable_variables)
    used, unused = layer.trainable_variables
    np.testing.assert_array_equal(unused.numpy(), before[1])
    assert np.flatnonzero((used.numpy() != before[0]).any(1)).tolist() == [1, 2, 3]
