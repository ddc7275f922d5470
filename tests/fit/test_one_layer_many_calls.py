"""One layer called several times in a model: one table, the gradients of all calls summed."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import merlin_embeddings as me

ROWS, DIM = 9, 2
IDS = [np.array([[1, 2], [2, 2]]), np.array([[2, 3], [8, 1]])]
Y = np.array([[1.0], [-2.0]])


def make_model(layer, optimizer, **options):
    symbols = [keras.Input((2,), dtype="int64") for _ in IDS]
    total = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones", trainable=False)
    model = keras.Model(symbols, total(layer(symbols[0]) + 3.0 * layer(symbols[1])))
    model.compile(optimizer, "mse", **options)
    return model


def gradient_of(table):
    """By hand: of the mean squared error of sum(first) + 3 sum(second) towards the table."""
    errors = table[IDS[0]].sum((1, 2)) + 3 * table[IDS[1]].sum((1, 2)) - Y[:, 0]
    gradient = np.zeros_like(table)
    for ids, factor in zip(IDS, (1.0, 3.0), strict=True):
        np.add.at(gradient, ids, (factor * errors)[:, None, None])
    return gradient


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_adagrad_sees_the_sum_of_both_calls(run_eagerly):
    layer = me.layers.Embedding(ROWS, DIM, combiner="sum", seed=1)
    model = make_model(
        layer,
        me.optimizers.Adagrad(0.1, initial_accumulator_value=0.0, epsilon=1e-7),
        run_eagerly=run_eagerly,
    )
    table = layer.get_weights()[0].astype(np.float64)
    accumulator = np.zeros_like(table)
    for _ in range(3):
        gradient = gradient_of(table)
        accumulator += gradient**2
        table -= np.where(gradient, 0.1 * gradient / np.sqrt(accumulator + 1e-7), 0.0)
    assert len(model.trainable_weights) == 1
    model.fit(IDS, Y, epochs=3, verbose=0)
    np.testing.assert_allclose(layer.get_weights()[0], table, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_keras_sgd_too(run_eagerly):
    layer = me.layers.Embedding(ROWS, DIM, combiner="sum", seed=1)
    model = make_model(layer, keras.optimizers.SGD(0.1), run_eagerly=run_eagerly)
    table = layer.get_weights()[0].astype(np.float64)
    for _ in range(3):
        table -= 0.1 * gradient_of(table)
    model.fit(IDS, Y, epochs=3, verbose=0)
    np.testing.assert_allclose(layer.get_weights()[0], table, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_calls_with_kinds_of_their_own(run_eagerly):
    """Dense bags, ragged bags and a feature's weights through one layer."""
    layer = me.layers.Embedding(ROWS, DIM, combiner="sum", seed=1)
    dense = keras.Input((2,), dtype="int64")
    ragged = keras.Input((None,), dtype="int64", ragged=True)
    weights = keras.Input((None,), ragged=True)
    vectors = layer(dense) + layer(ragged) + layer(ragged, weights=weights)
    total = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones", trainable=False)
    model = keras.Model([dense, ragged, weights], total(vectors))
    model.compile(me.optimizers.SGD(0.1), "mse", run_eagerly=run_eagerly)
    bags, its_weights = [[4], [4, 5]], [[2.0], [3.0, 0.5]]
    start = layer.get_weights()[0].astype(np.float64)
    errors = start[IDS[0]].sum((1, 2)) - Y[:, 0]
    expected = start.copy()
    for b in range(2):
        for id_, weight in zip(bags[b], its_weights[b], strict=True):
            errors[b] += (1 + weight) * start[id_].sum()
    for b in range(2):
        np.subtract.at(expected, IDS[0][b], 0.1 * errors[b])
        for id_, weight in zip(bags[b], its_weights[b], strict=True):
            expected[id_] -= 0.1 * (1 + weight) * errors[b]
    data = tf.data.Dataset.from_tensor_slices(
        ((IDS[0], tf.ragged.constant(bags, tf.int64), tf.ragged.constant(its_weights)), Y)
    ).batch(2)
    model.fit(data, verbose=0)
    np.testing.assert_allclose(layer.get_weights()[0], expected, rtol=1e-5, atol=1e-6)
