"""Moving averages of weights: those of a sweep after each step, without the sweep."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import merlin_embeddings as me
from tests.either_keras import Variable

ROWS, DIM, KEPT = 7, 3, 0.6
# Row 0 is seen first, row 1 often, row 2 late, row 3 once early, the others never.
LINES = [[0, 1, 1], [1, 3, 3], [1, 0, 1], [2, 2, 1], [1, 1, 1]]


def slices_of(lines, values):
    return tf.IndexedSlices(
        tf.constant(values, tf.float32), tf.constant(lines), tf.constant([ROWS, DIM])
    )


def start():
    return np.random.default_rng(1).normal(size=(ROWS, DIM)).astype(np.float32)


def gradients():
    rng = np.random.default_rng(0)
    for lines in LINES:
        values = rng.normal(size=(len(lines), DIM))
        gradient = np.zeros((ROWS, DIM))
        np.add.at(gradient, lines, values)
        yield lines, values, gradient


def test_equals_a_sweep_in_numpy(lookups, rule):
    make, numpy_rule = rule
    layer = lookups({"item": (ROWS, DIM)}, [("item", "sum")])
    table = layer.by_name["item"]
    expected = start().astype(np.float64)
    table.variable.assign(expected)
    optimizer = make(use_ema=True, ema_momentum=KEPT)
    state = numpy_rule.start(expected)
    average = None
    step = tf.function(lambda g: optimizer.apply([g], layer.trainable_variables))
    for number, (lines, values, gradient) in enumerate(gradients(), 1):
        numpy_rule(expected, gradient, state, np.unique(lines), number)
        average = expected if average is None else KEPT * average + (1 - KEPT) * expected
        average = average.copy()
        step(slices_of(lines, values))
    np.testing.assert_allclose(table.variable.numpy(), expected, rtol=1e-4, atol=1e-5)
    mark = table.mark()
    optimizer.finalize_variable_values(layer.trainable_variables)
    np.testing.assert_allclose(table.variable.numpy(), average, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(next(table.entries(since=mark)).keys, [0, 1, 2, 3])
    # Once more changes nothing: the averages are the weights now.
    optimizer.finalize_variable_values(layer.trainable_variables)
    np.testing.assert_allclose(table.variable.numpy(), average, rtol=1e-4, atol=1e-5)


# Rules whose lazy step is the dense step, so that Keras' sweep is the reference.
@pytest.mark.parametrize("name", ["SGD", "Adagrad"])
@pytest.mark.parametrize("frequency", [None, 1, 2])
def test_equals_keras(name, frequency):
    options = {"use_ema": True, "ema_momentum": KEPT, "ema_overwrite_frequency": frequency}
    results = []
    for optimizers in (me.optimizers, keras.optimizers):
        optimizer = getattr(optimizers, name)(0.3, **options)
        shapes = [(), (2,), (2, 3), (2, 2, 2)]
        variables = [Variable(start()), *(Variable(np.ones(s, "f")) for s in shapes)]
        for number, (lines, values, gradient) in enumerate(gradients(), 1):
            ours = optimizers is me.optimizers
            table = slices_of(lines, values) if ours else tf.constant(gradient, tf.float32)
            dense = [tf.fill(shape, tf.constant(number, tf.float32)) for shape in shapes]
            optimizer.apply([table, *dense], variables)
        steps = [v.numpy() for v in variables]
        optimizer.finalize_variable_values(variables)
        results.append([*steps, *(v.numpy() for v in variables)])
    for own, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(own, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("frequency", [None, 3])
def test_fit_ends_with_the_averages_as_with_keras(frequency):
    options = {"use_ema": True, "ema_momentum": KEPT, "ema_overwrite_frequency": frequency}
    rng = np.random.default_rng(2)
    # Each id once in a batch: Keras doesn't sum duplicates.
    ids = np.concatenate([rng.permutation(40)[:8] for _ in range(6)])
    labels = rng.normal(size=(48, 1))
    results = []
    for optimizers in (me.optimizers, keras.optimizers):
        keras.utils.set_random_seed(3)
        kind = me.layers.Embedding if optimizers is me.optimizers else keras.layers.Embedding
        embedding = kind(40, 4, keras.initializers.RandomNormal(seed=4))
        model = keras.Sequential([keras.Input((), dtype="int64"), embedding])
        model.add(keras.layers.Dense(1, kernel_initializer="ones"))
        model.compile(optimizers.Adagrad(0.3, **options), "mse")
        embedding.set_weights([np.linspace(-1, 1, 160).reshape(40, 4)])
        model.fit(ids, labels, batch_size=8, epochs=2, shuffle=False, verbose=0)
        results.append(model.get_weights())
    for own, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(own, theirs, rtol=1e-5, atol=1e-6)


def test_a_row_that_was_reset_begins_a_new_average(lookups):
    layer = lookups({"item": (ROWS, DIM)}, [("item", "sum")])
    table = layer.by_name["item"]
    optimizer = me.optimizers.SGD(0.5, use_ema=True, ema_momentum=KEPT)
    for lines, values, _ in gradients():
        optimizer.apply([slices_of(lines, values)], layer.trainable_variables)
    table.reset([1])
    fresh = table.variable.numpy()[1]
    optimizer.apply([slices_of([1], np.ones((1, DIM)))], layer.trainable_variables)
    optimizer.finalize_variable_values(layer.trainable_variables)
    np.testing.assert_allclose(table.variable.numpy()[1], fresh - (1 - KEPT) * 0.5, rtol=1e-5)


def test_split_ends_each_part(lookups):
    layer = lookups({"item": (ROWS, DIM)}, [("item", "sum")])
    before = layer.by_name["item"].variable.numpy()
    split = me.optimizers.Split(
        keras.optimizers.SGD(0.1), me.optimizers.SGD(0.5, use_ema=True, ema_momentum=KEPT)
    )
    for _ in range(2):
        split.apply([slices_of([1], np.ones((1, DIM)))], layer.trainable_variables)
    split.finalize_variable_values(layer.trainable_variables)
    # 0.5 below after the first step, which is the average's start; 1 below after the second.
    expected = before[1] - (KEPT * 0.5 + (1 - KEPT) * 1.0)
    np.testing.assert_allclose(layer.by_name["item"].variable.numpy()[1], expected, rtol=1e-5)


def test_swapping_by_keras_callback_is_refused():
    """It would swap whole variables with averages that are not made up for yet."""
    model = keras.Sequential([keras.Input((), dtype="int64"), me.layers.Embedding(9, 2)])
    model.compile(me.optimizers.SGD(0.1, use_ema=True), "mse")
    with pytest.raises(ValueError, match="SwapEMAWeights must be used"):
        model.fit(
            np.arange(4),
            np.zeros((4, 2)),
            verbose=0,
            callbacks=[keras.callbacks.SwapEMAWeights(swap_on_epoch=True)],
        )
