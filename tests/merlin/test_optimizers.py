"""Our optimizers in Keras 2's training loops."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import merlin_embeddings as me
from tests.optimizers import numpy_rules

RULES = numpy_rules.pairs()
ROWS, DIM = 10, 4
IDS = np.array([[1, 2, 2], [3, 1, 7], [1, 1, 9], [2, 0, 3]])
SLOPES = np.linspace(-1, 2, 2 * DIM).reshape(2, DIM).astype(np.float32)


class Dot(keras.losses.Loss):
    """The mean of the products: its gradient towards a prediction is the target's share."""

    def call(self, y_true, y_pred):
        return tf.reduce_sum(y_true * y_pred, axis=-1)


@pytest.mark.parametrize("name", RULES)
def test_fit_makes_the_rule_s_steps(name):
    make, rule = RULES[name]
    layer = me.layers.Embedding(ROWS, DIM, combiner="sum", seed=1)
    model = keras.Sequential([keras.Input((3,), dtype="int64"), layer])
    optimizer = make()
    model.compile(optimizer, Dot())
    expected = layer.get_weights()[0].astype(np.float64)
    state = rule.start(expected)
    model.fit(IDS, np.tile(SLOPES, (2, 1)), batch_size=2, epochs=2, shuffle=False, verbose=0)
    for step in range(4):
        ids = IDS[2 * (step % 2) :][:2]
        gradient = np.zeros((ROWS, DIM))
        np.add.at(gradient, ids, SLOPES[:, None] / 2)
        rule(expected, gradient, state, np.unique(ids), step + 1)
    np.testing.assert_allclose(layer.get_weights()[0], expected, rtol=2e-5, atol=1e-6)
    assert int(optimizer.iterations) == 4
    for name, values in state.items():
        slot = me.tables.table_of(layer.weights[0]).slots[name].variable
        np.testing.assert_allclose(slot, values, rtol=2e-5, atol=1e-6)
