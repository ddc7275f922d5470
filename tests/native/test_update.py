"""Updates against numpy, whichever way the gradient comes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from merlin_embeddings import native

ROWS, DIM = 12, 16
HYPER = tf.constant([0.5, 0.0, 1.0, 0.0, 0.0], tf.float32)


def make(seed=0):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=[ROWS, DIM]).astype(np.float32)
    return tf.Variable(values), tf.Variable(tf.zeros([ROWS], tf.uint8)), values


def one_hot(lines, name="t"):
    return native.Pooling(0, tf.constant(lines, tf.int64), None, None, "sum", 1, name)


def op_types(function, *arguments):
    return [op.type for op in function.get_concrete_function(*arguments).graph.get_operations()]


def sgd(variable, changed, gradient):
    return native.update("sgd", HYPER, [native.TableUpdate(variable, (), changed, gradient)])


def expected_sgd(values, lines, factor=1.0):
    expected = values.copy()
    np.add.at(expected, lines, -0.5 * factor)
    return expected


def test_untouched_gradient_is_fused():
    variable, changed, values = make()

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            [pooled] = native.lookup([variable], [one_hot([3, 5, 3])])
        gradient = tape.gradient(pooled, variable)
        assert [source.table for source in native.sources(gradient)] == [0]
        sgd(variable, changed, gradient)

    step()
    np.testing.assert_allclose(variable, expected_sgd(values, [3, 5, 3]), rtol=1e-6)
    np.testing.assert_array_equal(np.flatnonzero(changed), [3, 5])
    assert op_types(step).count("Merlin>Group") == 1


def test_two_lookups_of_a_table_are_one_fused_update():
    variable, changed, values = make()

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            [first] = native.lookup([variable], [one_hot([3, 5, 3])])
            [second] = native.lookup([variable], [one_hot([5, 7])])
            loss = tf.reduce_sum(first) + 2 * tf.reduce_sum(second)
        gradient = tape.gradient(loss, variable)
        assert len(native.sources(gradient)) == 2
        sgd(variable, changed, gradient)

    step()
    np.testing.assert_allclose(variable, expected_sgd(values, [3, 5, 3, 5, 5, 7, 7]), rtol=1e-6)
    assert op_types(step).count("Merlin>Update") == 1


def test_lookups_of_many_tables_are_one_update():
    """A layer a table, as merlin-models has it; one lookup has weights, one is of two tables."""
    made = [make() for _ in range(4)]
    variables = [variable for variable, _, _ in made]
    weights = tf.constant([2.0, 3.0])
    weighted = dataclasses.replace(one_hot([6, 1]), weights=weights)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            [a] = native.lookup([variables[0]], [weighted])
            [b] = native.lookup([variables[1]], [one_hot([3, 5, 3])])
            both = [one_hot([7]), dataclasses.replace(one_hot([2, 2]), table=1)]
            c, d = native.lookup(variables[2:], both)
            loss = sum(factor * tf.reduce_sum(x) for factor, x in enumerate([a, b, c, d], 1))
        gradients = tape.gradient(loss, variables)
        native.update(
            "sgd",
            HYPER,
            [  # in another order than that of the lookups
                native.TableUpdate(variables[i], (), made[i][1], gradients[i]) for i in (3, 0, 2, 1)
            ],
        )

    step()
    rows = [[6] * 2 + [1] * 3, [3, 5, 3], [7], [2, 2]]
    for factor, (variable, changed, values), its_rows in zip([1, 2, 3, 4], made, rows, strict=True):
        expected = expected_sgd(values, its_rows, factor)
        np.testing.assert_allclose(variable, expected, rtol=1e-6)
        np.testing.assert_array_equal(np.flatnonzero(changed), np.unique(its_rows))
    assert op_types(step).count("Merlin>Update") == 1


@pytest.mark.parametrize("eager", [True, False])
def test_a_gradient_that_was_scaled_is_regrouped(eager):
    variable, changed, values = make()

    def step():
        with tf.GradientTape() as tape:
            [pooled] = native.lookup([variable], [one_hot([3, 5, 3])])
        gradient = tape.gradient(pooled, variable)
        scaled = tf.IndexedSlices(gradient.values * 3.0, gradient.indices, gradient.dense_shape)
        assert native.sources(scaled) is None
        sgd(variable, changed, scaled)

    (step if eager else tf.function(step))()
    np.testing.assert_allclose(variable, expected_sgd(values, [3, 5, 3], 3.0), rtol=1e-6)


def test_rows_of_a_foreign_gradient_are_summed_before_the_rule():
    variable, changed, values = make()
    accumulator = tf.Variable(tf.fill([ROWS, DIM], 0.1))
    gradient = tf.IndexedSlices(tf.ones([3, DIM]), tf.constant([4, 4, 4]))
    hyper = tf.constant([0.1, 0.0, 1.0, 0.0, 0.0, 1e-7], tf.float32)
    native.update(
        "adagrad", hyper, [native.TableUpdate(variable, [accumulator], changed, gradient)]
    )
    # A gradient of 3: the accumulator gets 9, not 3 times 1.
    np.testing.assert_allclose(accumulator[4], np.full(DIM, 9.1), rtol=1e-6)
    np.testing.assert_allclose(variable[4], values[4] - 0.1 * 3 / np.sqrt(9.1), rtol=1e-5)


def test_only_tables_that_were_given_are_written():
    first, changed, values = make(0)
    second, _, kept = make(1)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            pooled = native.lookup(
                [second, first],
                [
                    one_hot([1]),
                    native.Pooling(1, tf.constant([2], tf.int64), None, None, "sum", 1, "u"),
                ],
            )
        gradients = tape.gradient(pooled, [second, first])
        sgd(first, changed, gradients[1])

    step()
    np.testing.assert_allclose(first, expected_sgd(values, [2]), rtol=1e-6)
    np.testing.assert_array_equal(second, kept)


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16])
def test_reduced_precision_rounds_to_nearest(dtype):
    rng = np.random.default_rng(5)
    variable = tf.Variable(tf.cast(rng.normal(size=[ROWS, 17]), dtype))
    before = tf.cast(variable, tf.float32).numpy()
    changed = tf.Variable(tf.zeros([ROWS], tf.uint8))
    gradient = rng.normal(size=[1, 17]).astype(np.float32)
    sgd(variable, changed, tf.IndexedSlices(tf.constant(gradient), tf.constant([3])))
    expected = tf.cast(tf.constant(before[3] - np.float32(0.5) * gradient[0]), dtype)
    np.testing.assert_array_equal(
        tf.cast(variable, tf.float32).numpy()[3], tf.cast(expected, tf.float32)
    )


def test_a_held_value_never_changes():
    variable, changed, values = make()
    held = variable.read_value()
    sgd(variable, changed, tf.IndexedSlices(tf.ones([1, DIM]), tf.constant([0])))
    np.testing.assert_array_equal(held, values)
    np.testing.assert_allclose(variable[0], values[0] - 0.5, rtol=1e-6)


def test_weight_decay_and_gradient_scale():
    variable, changed, values = make()
    hyper = tf.constant([0.5, 0.1, 2.0, 0.0, 0.0], tf.float32)
    gradient = tf.IndexedSlices(tf.ones([1, DIM]), tf.constant([6]))
    native.update("sgd", hyper, [native.TableUpdate(variable, (), changed, gradient)])
    np.testing.assert_allclose(variable[6], values[6] * (1 - 0.05) - 0.5 * 2, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(np.delete(variable.numpy(), 6, 0), np.delete(values, 6, 0))


def test_coalesce():
    slices = tf.IndexedSlices(
        tf.constant([[1.0], [2.0], [4.0]]), tf.constant([9, 2, 9]), tf.constant([10, 1])
    )
    result = native.coalesce(slices)
    np.testing.assert_array_equal(result.indices, [2, 9])
    np.testing.assert_array_equal(result.values, [[2.0], [5.0]])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(rule="adagard"), "no update rule 'adagard'"),
        (dict(hyper=tf.zeros([4])), "takes 5 hyper-parameters, not 4"),
        (dict(slots=1), "has 0 slots a table, but 1 tables came with 1"),
        (dict(dim=3), "a gradient of dim 3 for a table of dim 16"),
        (dict(changed=5), r"is \[5\], not uint8\[12\]"),
    ],
)
def test_bad_input_writes_nothing(change, message):
    variable, changed, values = make()
    slots = [tf.Variable(tf.zeros([ROWS, DIM]))] * change.get("slots", 0)
    if "changed" in change:
        changed = tf.Variable(tf.zeros([change["changed"]], tf.uint8))
    gradient = tf.IndexedSlices(tf.ones([1, change.get("dim", DIM)]), tf.constant([0]))
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        native.update(
            change.get("rule", "sgd"),
            change.get("hyper", HYPER),
            [native.TableUpdate(variable, slots, changed, gradient)],
        )
    np.testing.assert_array_equal(variable, values)
