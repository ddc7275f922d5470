"""Gradient accumulation: one step for the rows of several batches."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import merlin_embeddings as me
from tests.either_keras import Variable

ROWS, DIM, BATCHES = 9, 3, 3


def drawn(count):
    rng = np.random.default_rng(0)
    for _ in range(count):
        lines, values = rng.integers(0, ROWS - 2, 5), rng.normal(size=(5, DIM))
        gradient = np.zeros((ROWS, DIM))
        np.add.at(gradient, lines, values)
        yield lines, values, gradient


def slices_of(lines, values):
    return tf.IndexedSlices(
        tf.constant(values, tf.float32), tf.constant(lines), tf.constant([ROWS, DIM])
    )


@pytest.mark.parametrize("options", [{}, {"weight_decay": 0.3}, {"global_clipnorm": 0.5}], ids=str)
def test_equals_one_step_on_the_mean_in_numpy(lookups, rule, options):
    make, numpy_rule = rule
    layer = lookups({"item": (ROWS, DIM)}, [("item", "sum")])
    table = layer.by_name["item"]
    expected = table.variable.numpy().astype(np.float64)
    untouched = table.variable.numpy()[-2:]
    state = numpy_rule.start(expected)
    optimizer = make(gradient_accumulation_steps=BATCHES, **options)
    step = tf.function(lambda g: optimizer.apply([g], layer.trainable_variables))
    total, seen = np.zeros((ROWS, DIM)), set()
    for number, (lines, values, gradient) in enumerate(drawn(2 * BATCHES), 1):
        before = table.variable.numpy()
        step(slices_of(lines, values))
        total += gradient / BATCHES
        seen |= set(lines)
        if number % BATCHES:
            np.testing.assert_array_equal(table.variable.numpy(), before)
            continue
        if "global_clipnorm" in options:
            total *= min(1, 0.5 / np.sqrt((total**2).sum()))
        decay = options.get("weight_decay", 0.0)
        numpy_rule(expected, total, state, sorted(seen), number // BATCHES, decay=decay)
        np.testing.assert_allclose(table.variable.numpy(), expected, rtol=1e-4, atol=1e-5)
        assert not table.slots["gradient_sum"].variable.numpy().any()
        assert not table.slots["gradient_seen"].variable.numpy().any()
        total, seen = np.zeros((ROWS, DIM)), set()
    np.testing.assert_array_equal(table.variable.numpy()[-2:], untouched)
    assert int(optimizer.iterations.numpy()) == 2


@pytest.mark.parametrize("name", ["SGD", "Adagrad", "Adam"])
def test_dense_variables_equal_keras(name):
    results = []
    for optimizers in (me.optimizers, keras.optimizers):
        rng = np.random.default_rng(0)
        schedule = keras.optimizers.schedules.InverseTimeDecay(0.3, 2, 0.5)
        optimizer = getattr(optimizers, name)(schedule, gradient_accumulation_steps=BATCHES)
        shapes = [(), (2,), (2, 3), (2, 2, 2)]
        variables = [Variable(np.ones(shape, "f")) for shape in shapes]
        for _ in range(2 * BATCHES + 1):
            gradients = [tf.constant(rng.normal(size=shape), tf.float32) for shape in shapes]
            optimizer.apply(gradients, variables)
        results.append([v.numpy() for v in variables])
    for own, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(own, theirs, rtol=1e-5, atol=1e-6)


def test_fit_in_small_batches_is_fit_in_one():
    """With plain descent the mean of the gradients is the gradient of the mean."""
    rng = np.random.default_rng(2)
    ids, labels = rng.integers(0, 20, (24, 2)), rng.normal(size=(24, 1))
    results = []
    for batch, steps in ((24, None), (8, 3)):
        embedding = me.layers.Embedding(20, 4, "ones", combiner="mean")
        model = keras.Sequential([keras.Input((2,), dtype="int64"), embedding])
        model.add(keras.layers.Dense(1, kernel_initializer="ones"))
        model.compile(me.optimizers.SGD(0.3, gradient_accumulation_steps=steps), "mse")
        model.fit(ids, labels, batch_size=batch, epochs=3, shuffle=False, verbose=0)
        results.append(model.get_weights())
    for one, many in zip(*results, strict=True):
        np.testing.assert_allclose(one, many, rtol=1e-4, atol=1e-6)


def test_averages_count_steps_not_batches(lookups):
    layer = lookups({"item": (ROWS, DIM)}, [("item", "sum")])
    table = layer.by_name["item"]
    before = table.variable.numpy()
    optimizer = me.optimizers.SGD(
        0.5, gradient_accumulation_steps=2, use_ema=True, ema_momentum=0.6
    )
    for _ in range(4):
        optimizer.apply([slices_of([1], np.ones((1, DIM)))], layer.trainable_variables)
    optimizer.finalize_variable_values(layer.trainable_variables)
    expected = before[1] - (0.6 * 0.5 + 0.4 * 1.0)
    np.testing.assert_allclose(table.variable.numpy()[1], expected, rtol=1e-5)
