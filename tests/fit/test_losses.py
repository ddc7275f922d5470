"""Losses that layers add: their sum in fit, and what is left of them afterwards."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import merlin_embeddings as me

ROWS = 9
IDS = np.array([[1, 1, 2], [3, 2, 8]])


def model_of(**options):
    symbol = keras.Input((3,), dtype="int64")
    layer = me.layers.Embedding(
        ROWS, 2, combiner="sum", name="table", embeddings_regularizer=keras.regularizers.L2(0.1)
    )
    model = keras.Model(symbol, keras.layers.Dense(1, kernel_initializer="zeros")(layer(symbol)))
    model.compile(me.optimizers.SGD(0.5), "mse", **options)
    return model


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_regularized_rows_shrink_in_fit(run_eagerly):
    model = model_of(run_eagerly=run_eagerly)
    table = model.get_layer("table").get_weights()[0]
    seen = [1, 2, 3, 8]
    loss = model.fit(IDS, np.zeros((2, 1)), verbose=0).history["loss"]
    # The kernel is zero, so the prediction is right and only the regularizer has a gradient.
    assert loss == pytest.approx([0.1 * (table[seen] ** 2).sum()], rel=1e-5)
    expected = table.copy()
    expected[seen] -= 0.5 * 0.1 * 2 * table[seen]
    np.testing.assert_allclose(model.get_layer("table").get_weights()[0], expected, rtol=1e-5)


def test_no_dead_symbols_are_left_after_fit():
    model = model_of()
    model.fit(IDS, np.zeros((2, 1)), verbose=0)
    assert model.losses == []
    model(IDS)
    rows = model.get_layer("table").get_weights()[0][[1, 2, 3, 8]]
    assert [float(loss) for loss in model.losses] == pytest.approx([0.1 * (rows**2).sum()])


def test_losses_in_a_graph_of_the_users_own():
    model = model_of()

    @tf.function
    def total(ids):
        model(ids)
        return tf.add_n(model.losses)

    rows = model.get_layer("table").get_weights()[0][[1, 2, 3, 8]]
    assert float(total(IDS)) == pytest.approx(0.1 * (rows**2).sum())
    assert model.losses == []


def test_add_loss_beside_a_table():
    class WithLoss(keras.Model):
        def __init__(self):
            super().__init__()
            self.table = me.layers.Embedding(ROWS, 2, combiner="sum", weights=np.ones((ROWS, 2)))

        def call(self, ids):
            vectors = self.table(ids)
            self.add_loss(tf.reduce_sum(vectors))
            return vectors

    model = WithLoss()
    model.compile(me.optimizers.SGD(0.25))
    # The loss is the sum over all vectors looked up: a row loses a quarter each time it was.
    assert model.fit(IDS, verbose=0).history["loss"] == [12.0]
    counts = np.bincount(IDS.ravel(), minlength=ROWS)
    np.testing.assert_allclose(model.table.get_weights()[0], np.tile(1 - counts / 4, (2, 1)).T)
