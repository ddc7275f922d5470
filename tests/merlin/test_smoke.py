"""Forward, backward and update on the oldest TensorFlow that the op library is built for.

The tests stay with ``native``: layers and optimizers are made for Keras 3.
"""

import numpy as np
import pytest
import tensorflow as tf

from merlin_embeddings import native

ROWS, DIM = 7, 5
LINES = np.array([3, 0, -1, 3, 6, 3], np.int64)
SPLITS = np.array([0, 2, 3, 3, 6], np.int64)
WEIGHTS = np.array([1, 2, 3, 4, 0.5, 1], np.float32)
TABLE = (np.arange(ROWS * DIM, dtype=np.float32).reshape(ROWS, DIM) % 11 - 5) / 4
SLOPE = (np.arange(4 * DIM, dtype=np.float32).reshape(4, DIM) % 7 - 3) / 2  # of the loss, [B, D]


def pooling(combiner="sum", weights=None, lines=LINES):
    return native.Pooling(
        table=0,
        lines=tf.constant(lines),
        row_splits=tf.constant(SPLITS),
        weights=weights,
        combiner=combiner,
        hotness=None,
        name="table 'item', feature 'history'",
    )


def part_of(bag, n, combiner, weights):
    """What lookup n is multiplied with in its bag."""
    inside = [i for i in range(SPLITS[bag], SPLITS[bag + 1]) if LINES[i] >= 0]
    if n not in inside:
        return 0.0
    divisor = {
        "sum": 1.0,
        "mean": sum(weights[i] for i in inside),
        "sqrtn": np.sqrt(sum(weights[i] ** 2 for i in inside)),
    }[combiner]
    return weights[n] / divisor


def expected_pooled(combiner, weights):
    pooled = np.zeros((4, DIM))
    for bag in range(4):
        for n in range(len(LINES)):
            pooled[bag] += part_of(bag, n, combiner, weights) * TABLE[LINES[n]]
    return pooled


def expected_gradient(combiner, weights):
    gradient = np.zeros((ROWS, DIM))
    for bag in range(4):
        for n in range(len(LINES)):
            gradient[LINES[n]] += part_of(bag, n, combiner, weights) * SLOPE[bag]
    return gradient


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_forward_and_backward(combiner, weighted):
    table = tf.Variable(TABLE)
    weights = tf.constant(WEIGHTS) if weighted else None
    with tf.GradientTape() as tape:
        (pooled,) = native.lookup([table], [pooling(combiner, weights)])
        loss = tf.reduce_sum(pooled * SLOPE)
    gradient = tape.gradient(loss, table)
    plain = WEIGHTS if weighted else np.ones(6)
    np.testing.assert_allclose(pooled, expected_pooled(combiner, plain), atol=1e-6)
    assert gradient.indices.numpy().tolist() == [0, 3, 6]
    np.testing.assert_allclose(
        gradient.values, expected_gradient(combiner, plain)[[0, 3, 6]], atol=1e-6
    )


def test_maximum():
    (pooled,) = native.lookup([tf.Variable(TABLE)], [pooling("max")])
    expected = np.zeros((4, DIM))
    expected[0] = np.maximum(TABLE[3], TABLE[0])
    expected[3] = np.maximum(TABLE[3], TABLE[6])
    np.testing.assert_array_equal(pooled, expected)


def test_gradient_of_weights():
    weights = tf.constant(WEIGHTS)
    with tf.GradientTape() as tape:
        tape.watch(weights)
        (pooled,) = native.lookup([tf.Variable(TABLE)], [pooling("sum", weights)])
        loss = tf.reduce_sum(pooled * SLOPE)
    bag_of = np.array([0, 0, 1, 3, 3, 3])
    expected = (TABLE[LINES] * SLOPE[bag_of]).sum(axis=1) * (LINES >= 0)
    np.testing.assert_allclose(tape.gradient(loss, weights), expected, atol=1e-6)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("rule", ["sgd", "adagrad"])
def test_update(rule, fused):
    table, changed = tf.Variable(TABLE), tf.Variable(tf.zeros([ROWS], tf.uint8))
    slots = [tf.Variable(tf.fill([ROWS, DIM], 0.5))] if rule == "adagrad" else []
    hyper = tf.constant([0.25, 0, 1, 0, 0] + ([0.125] if slots else []), tf.float32)
    untouched = []

    def step():
        with tf.GradientTape() as tape:
            (pooled,) = native.lookup([table], [pooling()])
            loss = tf.reduce_sum(pooled * SLOPE)
        gradient = tape.gradient(loss, table)
        untouched.append(native.sources(gradient) is not None)
        native.update(rule, hyper, [native.TableUpdate(table, slots, changed, gradient)])

    if fused:
        step = tf.function(step)
    step()
    assert untouched == [fused]
    gradient = expected_gradient("sum", np.ones(6))
    accumulator = 0.5 + gradient**2
    divisor = np.sqrt(accumulator + 0.125) if slots else 1
    np.testing.assert_allclose(table, TABLE - 0.25 * gradient / divisor, atol=1e-6)
    if slots:
        np.testing.assert_allclose(slots[0], accumulator, atol=1e-6)
    assert changed.numpy().tolist() == [1, 0, 0, 1, 0, 0, 1]


def test_errors_name_the_feature():
    lines = LINES.copy()
    lines[1] = ROWS
    with pytest.raises(tf.errors.InvalidArgumentError, match="table 'item', feature 'history'"):
        native.lookup([tf.Variable(TABLE)], [pooling(lines=lines)])


def test_initial_values():
    arguments = dict(
        dim=DIM, dtype=tf.float32, kind="uniform", params=(-1.0, 1.0), seed=3, table="item"
    )
    table = native.initial_table(rows=ROWS, **arguments)
    rows = native.initial_rows(tf.constant([5, 2], tf.int64), **arguments)
    np.testing.assert_array_equal(rows, table.numpy()[[5, 2]])
    assert np.unique(table).size == ROWS * DIM
    assert np.abs(table).max() <= 1


def test_written_rows():
    table = tf.Variable(TABLE)
    native.write_rows(table, tf.constant([4], tf.int64), tf.ones([1, DIM]))
    expected = TABLE.copy()
    expected[4] = 1
    np.testing.assert_array_equal(table, expected)


def test_ids():
    (rows,) = native.modulo([tf.constant([-1, 12, 2**62], tf.int64)], [10])
    assert rows.numpy().tolist() == [9, 2, 2**62 % 10]
