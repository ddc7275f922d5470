"""Clipping and loss scaling: exact on summed rows."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import merlin_embeddings as me
from tests.either_keras import KERAS_3, LossScaleOptimizer, Variable

ROWS, DIM = 8, 3


def norm(*arrays):
    return np.sqrt(sum((array**2).sum() for array in arrays))


CLIPS = {
    "clipnorm": lambda limit, table, kernel: [
        g * limit / max(norm(g), limit) for g in (table, kernel)
    ],
    "clipvalue": lambda limit, table, kernel: [np.clip(g, -limit, limit) for g in (table, kernel)],
    "global_clipnorm": lambda limit, table, kernel: [
        g * limit / max(norm(table, kernel), limit) for g in (table, kernel)
    ],
}


def step_of(layer, kernel, optimizer, calls):
    @tf.function
    def step(lines, cotangent):
        with tf.GradientTape() as tape:
            pooled = sum(layer([lines[call]])[0] for call in range(calls))
            loss = tf.reduce_sum(pooled * cotangent) + tf.reduce_sum(kernel * 3.0)
            loss = optimizer.scale_loss(loss)
        variables = [*layer.trainable_variables, kernel]
        optimizer.apply(tape.gradient(loss, variables), variables)

    return step


@pytest.mark.parametrize("argument", CLIPS)
@pytest.mark.parametrize("limit", [0.8, 1000.0])
@pytest.mark.parametrize("calls", [1, 2])
@pytest.mark.parametrize("loss_scale", [None, 64.0])
def test_equals_numpy(lookups, argument, limit, calls, loss_scale):
    layer = lookups({"item": (ROWS, DIM)}, [("item", "sum")])
    table = layer.by_name["item"].variable
    kernel = Variable(np.ones((2, 2), np.float32))
    optimizer = me.optimizers.SGD(
        0.1, momentum=0.5, loss_scale_factor=loss_scale, **{argument: limit}
    )
    step = step_of(layer, kernel, optimizer, calls)
    rng = np.random.default_rng(1)
    weights = [table.numpy().astype(np.float64), np.ones((2, 2))]
    velocities = [np.zeros((ROWS, DIM)), np.zeros((2, 2))]
    for _ in range(3):
        lines = rng.integers(0, 4, (calls, 5, 2))
        cotangent = rng.normal(size=(5, DIM))
        gradient = np.zeros((ROWS, DIM))
        for call in range(calls):
            for place in range(2):
                np.add.at(gradient, lines[call, :, place], cotangent)
        seen = [sorted(set(lines.ravel())), slice(None)]
        clipped = CLIPS[argument](limit, gradient, np.full((2, 2), 3.0))
        for w, v, g, rows in zip(weights, velocities, clipped, seen, strict=True):
            v[rows] = 0.5 * v[rows] - 0.1 * g[rows]
            w[rows] += v[rows]
        step(tf.constant(lines), tf.constant(cotangent, tf.float32))
    np.testing.assert_allclose(table.numpy(), weights[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(kernel.numpy(), weights[1], rtol=1e-4, atol=1e-5)


def test_a_global_norm_that_is_not_finite_is_not_hidden():
    table = Variable(np.ones((4, 2), np.float32))
    slices = tf.IndexedSlices(np.full((1, 2), np.inf, np.float32), [1], tf.constant([4, 2]))
    me.optimizers.SGD(0.1, global_clipnorm=1.0).apply([slices], [table])
    assert np.isnan(table.numpy()[1]).all()
    np.testing.assert_array_equal(table.numpy()[[0, 2, 3]], 1)


class Scaled(keras.layers.Layer):
    """Multiplies by a factor from the batch, to make gradients overflow."""

    def call(self, inputs):
        pooled, factor = inputs
        return tf.cast(pooled, tf.float16) * tf.cast(factor, tf.float16)


def test_mixed_float16_trains_and_skips_steps_that_overflow(lookups):
    layer = lookups({"item": (ROWS, DIM)}, [("item", "sum")])
    table = layer.by_name["item"]
    ids, factor = keras.Input((2,), dtype="int64"), keras.Input((1,))
    pooled = layer([ids])[0]
    model = keras.Model([ids, factor], Scaled(dtype="mixed_float16")([pooled, factor]))
    optimizer = LossScaleOptimizer(
        me.optimizers.Adagrad(0.1, initial_accumulator_value=0.2), initial_scale=16.0
    )
    model.compile(optimizer, loss=lambda y, p: tf.reduce_mean(tf.cast(p, tf.float32), -1))
    lines = np.array([[1, 1], [2, 3]])
    start = table.variable.numpy().astype(np.float64)

    model.fit([lines, np.full((2, 1), 1e5)], np.zeros((2, DIM)), verbose=0)  # inf in float16
    np.testing.assert_array_equal(table.variable.numpy(), start.astype(np.float32))
    np.testing.assert_array_equal(
        table.slots["accumulator"].variable.numpy(), np.full((ROWS, DIM), 0.2, np.float32)
    )
    scale = optimizer.dynamic_scale if KERAS_3 else optimizer.loss_scale
    assert float(scale.numpy()) == 8.0

    model.fit([lines, np.ones((2, 1))], np.zeros((2, DIM)), verbose=0)
    gradient = np.zeros((ROWS, DIM))
    gradient[1], gradient[2:4] = 1 / DIM, 1 / (2 * DIM)
    accumulator = 0.2 + gradient**2
    start -= 0.1 * gradient / np.sqrt(accumulator + 1e-7)
    np.testing.assert_allclose(table.variable.numpy(), start, rtol=2e-3, atol=1e-4)
    np.testing.assert_allclose(table.slots["accumulator"].variable.numpy(), accumulator, rtol=2e-3)
