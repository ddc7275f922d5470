"""Lookup and its gradients against plain numpy."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from merlin_embeddings import native
from tests.native import reference

COMBINERS = ["sum", "mean", "sqrtn", "max"]
DTYPES = {"float32": tf.float32, "bfloat16": tf.bfloat16, "float16": tf.float16}


def pooling(lines, splits=None, weights=None, combiner="sum", hotness=None, table=0, name="t"):
    return native.Pooling(
        table=table,
        lines=tf.constant(lines, tf.int64),
        row_splits=None if splits is None else tf.constant(splits, tf.int64),
        weights=None if weights is None else tf.convert_to_tensor(weights, tf.float32),
        combiner=combiner,
        hotness=hotness,
        name=name,
    )


def make_table(rng, rows, dim, dtype="float32"):
    variable = tf.Variable(tf.cast(rng.normal(size=[rows, dim]), DTYPES[dtype]))
    return variable, tf.cast(variable, tf.float32).numpy()


@st.composite
def bags(draw, rows, most=12):
    sizes = draw(st.lists(st.integers(0, 5), min_size=0, max_size=most))
    count = sum(sizes)
    lines = draw(st.lists(st.integers(-1, rows - 1), min_size=count, max_size=count))
    return np.asarray(lines, np.int64), np.cumsum([0, *sizes])


@given(
    batch=bags(rows=7),
    dim=st.sampled_from([1, 3, 8, 16, 17, 32, 64, 100, 128]),
    dtype=st.sampled_from(sorted(DTYPES)),
    combiner=st.sampled_from(COMBINERS),
    weighted=st.booleans(),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=150)
def test_any_bags(batch, dim, dtype, combiner, weighted, seed):
    lines, splits = batch
    rng = np.random.default_rng(seed)
    variable, table = make_table(rng, 7, dim, dtype)
    weights = None
    if weighted and combiner != "max":
        weights = rng.uniform(0.2, 2, len(lines)).astype(np.float32)
    upstream = rng.normal(size=[len(splits) - 1, dim]).astype(np.float32)
    watched = None if weights is None else tf.constant(weights)
    with tf.GradientTape() as tape:
        if weights is not None:
            tape.watch(watched)
        [pooled] = native.lookup([variable], [pooling(lines, splits, watched, combiner)])
    expected, _ = reference.pool(table, lines, splits, weights, combiner)
    np.testing.assert_allclose(pooled, expected, rtol=1e-5, atol=1e-5)

    sources = [variable] if weights is None else [variable, watched]
    gradients = tape.gradient(pooled, sources, output_gradients=tf.constant(upstream))
    rows = gradients[0].indices.numpy()
    assert (np.diff(rows) > 0).all(), "rows must be distinct and ascend"
    assert set(rows) == set(lines[lines >= 0])
    dense = np.zeros(table.shape)
    dense[rows] = gradients[0].values
    expected = reference.table_gradient(table, lines, splits, weights, combiner, upstream)
    np.testing.assert_allclose(dense, expected, rtol=1e-4, atol=1e-5)
    if weights is not None:
        expected = reference.weight_gradient(table, lines, splits, weights, combiner, upstream)
        np.testing.assert_allclose(gradients[1], expected, rtol=1e-3, atol=1e-3)


def test_many_features_and_tables_in_one_call():
    rng = np.random.default_rng(3)
    (first, first_values), (second, second_values) = make_table(rng, 9, 16), make_table(rng, 5, 3)
    ragged = rng.integers(-1, 9, 6), np.array([0, 4, 4, 6])
    fixed, single = rng.integers(0, 9, 8), rng.integers(0, 5, 4)
    weights = rng.uniform(1, 2, 6).astype(np.float32)
    poolings = [
        pooling(*ragged, weights=weights, combiner="mean", table=0),
        pooling(single, combiner=None, table=1),
        pooling(fixed, combiner="sqrtn", hotness=4, table=0),
        pooling(fixed, combiner="max", hotness=2, table=0),
    ]
    with tf.GradientTape() as tape:
        outputs = native.lookup([first, second], poolings)
    cases = [
        (first_values, *ragged, weights, "mean"),
        (second_values, single, np.arange(5), None, "sum"),
        (first_values, fixed, np.arange(0, 9, 4), None, "sqrtn"),
        (first_values, fixed, np.arange(0, 9, 2), None, "max"),
    ]
    upstream = [rng.normal(size=o.shape).astype(np.float32) for o in outputs]
    for output, case in zip(outputs, cases, strict=True):
        np.testing.assert_allclose(output, reference.pool(*case)[0], rtol=1e-5, atol=1e-6)
    gradients = tape.gradient(outputs, [first, second], output_gradients=upstream)
    expected = [reference.table_gradient(*c, g) for c, g in zip(cases, upstream, strict=True)]
    np.testing.assert_allclose(
        tf.convert_to_tensor(gradients[0]),
        expected[0] + expected[2] + expected[3],
        rtol=1e-4,
        atol=1e-5,
    )
    np.testing.assert_allclose(tf.convert_to_tensor(gradients[1]), expected[1], rtol=1e-5)


def test_first_of_equal_maxima_takes_the_gradient():
    variable = tf.Variable([[1.0, 5.0], [1.0, 2.0], [1.0, 5.0]])
    with tf.GradientTape() as tape:
        [pooled] = native.lookup([variable], [pooling([1, 0, 2], [0, 3], combiner="max")])
    gradient = tape.gradient(pooled, variable)
    np.testing.assert_array_equal(pooled, [[1, 5]])
    np.testing.assert_array_equal(tf.convert_to_tensor(gradient), [[0, 1], [1, 0], [0, 0]])


def test_a_feature_that_nothing_depends_on():
    variable = tf.Variable(tf.ones([4, 2]))
    with tf.GradientTape() as tape:
        used, _ = native.lookup([variable], [pooling([1], hotness=1), pooling([2, 3], hotness=1)])
    gradient = tf.convert_to_tensor(tape.gradient(used, variable))
    np.testing.assert_array_equal(gradient, [[0, 0], [1, 1], [0, 0], [0, 0]])


def test_empty_batch_and_empty_bags():
    variable = tf.Variable(tf.ones([4, 16]))
    empty, hollow = native.lookup(
        [variable], [pooling([], [0], combiner="mean"), pooling([], [0, 0, 0], combiner="max")]
    )
    assert empty.shape == (0, 16)
    np.testing.assert_array_equal(hollow, np.zeros([2, 16]))


def test_static_shapes_inside_a_function():
    variable = tf.Variable(tf.ones([4, 16]))

    @tf.function(input_signature=[tf.TensorSpec([6], tf.int64), tf.TensorSpec([None], tf.int64)])
    def look_up(lines, splits):
        outputs = native.lookup(
            [variable],
            [
                native.Pooling(0, lines, None, None, "sum", 3, "t"),
                native.Pooling(0, lines, splits, None, "max", None, "t"),
                native.Pooling(0, lines, None, None, None, None, "t"),
            ],
        )
        assert [o.shape.as_list() for o in outputs] == [[2, 16], [None, 16], [6, 16]]
        return outputs

    look_up(tf.range(6, dtype=tf.int64) % 4, tf.constant([0, 6], tf.int64))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (dict(lines=[0, 4], hotness=1), "history: row 4 of lookup 1 is outside the table's 4 rows"),
        (dict(lines=[-2], hotness=1), "history: row -2"),
        (dict(lines=[0, 1], splits=[0, 2, 1, 2]), r"history: row_splits\[2\] = 1"),
        (dict(lines=[0, 1], splits=[0, 3]), r"row_splits\[1\] = 3.*end at the number of ids, 2"),
        (dict(lines=[0, 1], splits=[1, 2]), r"row_splits\[0\] = 1"),
        (dict(lines=[0, 1], splits=[0, 1]), r"row_splits\[1\] = 1"),
        (dict(lines=[0, 1], splits=[]), "row_splits is empty"),
        (dict(lines=[0, 1, 2], hotness=2), "3 ids are no multiple of 2"),
        (dict(lines=[0, 1], hotness=1, weights=[1.0]), "1 weights for 2 ids"),
        (dict(lines=[0, 1], hotness=1, weights=[1.0, np.nan]), "weight 1 is nan"),
        (dict(lines=[0], hotness=1, weights=[np.inf]), "weight 0 is inf"),
        (dict(lines=[0], hotness=1, weights=[1.0], combiner="max"), "a maximum takes no weights"),
    ],
)
def test_bad_input(bad, message):
    variable = tf.Variable(tf.ones([4, 2]))
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        native.lookup([variable], [pooling(**bad, name="history")])


def test_a_gradient_meets_one_that_a_condition_made():
    variable = tf.Variable(tf.ones([4, 2]))

    @tf.function
    def gradient_of(choose):
        with tf.GradientTape() as tape:
            pooled = tf.cond(
                choose,
                lambda: native.lookup([variable], [pooling([1, 1], hotness=2)])[0],
                lambda: tf.zeros([1, 2]),
            )
        return tf.convert_to_tensor(tape.gradient(pooled, variable))

    np.testing.assert_array_equal(gradient_of(tf.constant(True)), [[0, 0], [2, 2], [0, 0], [0, 0]])
    np.testing.assert_array_equal(gradient_of(tf.constant(False)), np.zeros([4, 2]))


def test_in_a_graph_a_table_that_nothing_depends_on_has_no_gradient():
    first, second = tf.Variable(tf.ones([4, 2])), tf.Variable(tf.ones([5, 3]))

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)] * 2)
    def gradients_of(lines, others):
        with tf.GradientTape() as tape:
            _, used = native.lookup(
                [first, second],
                [
                    native.Pooling(0, lines, None, None, "sum", 1, "t"),
                    native.Pooling(1, others, None, None, "sum", 1, "u"),
                ],
            )
        gradients = tape.gradient(used, [first, second])
        assert gradients[0] is None
        return tf.convert_to_tensor(gradients[1])

    gradient = gradients_of(tf.constant([1], tf.int64), tf.constant([2, 2], tf.int64))
    np.testing.assert_array_equal(gradient, np.eye(5, 3)[[3, 3, 0, 3, 3]][:, [0, 0, 0]] * 2)


@pytest.mark.parametrize("weighted", [False, True])
def test_second_order_is_refused_with_a_way_out(weighted):
    variable = tf.Variable(tf.ones([4, 2]))
    weights = tf.Variable([2.0])
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            [pooled] = native.lookup(
                [variable],
                [pooling([1], hotness=1, weights=weights if weighted else None, name="history")],
            )
            loss = tf.reduce_sum(pooled**2)
        source = weights if weighted else variable
        gradient = tf.convert_to_tensor(inner.gradient(loss, source))
    with pytest.raises(LookupError, match=r"history.*first-order gradients only.*stop_gradient"):
        outer.gradient(gradient, source)
