"""What goes around every rule: decay of both kinds, the largest norm, clipping, fusion."""

import numpy as np
import pytest
import tensorflow as tf

import merlin_embeddings as me
from tests.either_keras import Variable

ROWS, DIM, STEPS = 8, 4, 3
OPTIONS = {
    "decay": ({"weight_decay": 0.3}, {"decay": 0.3}),
    "all": (
        {"weight_decay": 0.3, "l2": 0.5, "max_norm": 1.1},
        {"decay": 0.3, "l2": 0.5, "max_norm": 1.1},
    ),
}


def lookup_step(layer, optimizer, change=lambda gradient: gradient):
    @tf.function
    def step(lines, cotangent):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer([lines])[0] * cotangent)
        variables = layer.trainable_variables
        optimizer.apply([change(g) for g in tape.gradient(loss, variables)], variables)

    return step


def batches(seed=5):
    """Lines [6, 2] with duplicates, row 7 never; what reaches the pooled vectors; the gradient."""
    rng = np.random.default_rng(seed)
    for _ in range(STEPS):
        lines, cotangent = rng.integers(0, ROWS - 1, (6, 2)), rng.normal(size=(6, DIM))
        gradient = np.zeros((ROWS, DIM))
        for place in range(2):
            np.add.at(gradient, lines[:, place], cotangent)
        yield tf.constant(lines), tf.constant(cotangent, tf.float32), gradient


@pytest.mark.parametrize("options", OPTIONS)
def test_decay_and_norm_on_tables(lookups, rule, options):
    make, numpy_rule = rule
    ours, numpys = OPTIONS[options]
    layer = lookups({"item": (ROWS, DIM)}, [("item", "sum")], initializer="normal")
    table = layer.by_name["item"]
    expected = 10 * table.variable.numpy().astype(np.float64)
    table.variable.assign(expected)
    untouched = table.variable.numpy()[-1]
    state = numpy_rule.start(expected)
    step = lookup_step(layer, make(**ours))
    for number, (lines, cotangent, gradient) in enumerate(batches(), 1):
        rows = np.unique(lines.numpy())
        numpy_rule(expected, gradient, state, rows, number, **numpys)
        step(lines, cotangent)
    np.testing.assert_allclose(table.variable.numpy(), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(table.variable.numpy()[-1], untouched)
    for name, value in state.items():
        np.testing.assert_allclose(
            table.slots[name].variable.numpy(), value, rtol=1e-4, atol=1e-5, err_msg=name
        )


def test_clipping_by_global_norm_is_that_of_summed_rows(lookups, rule):
    make, numpy_rule = rule
    layer = lookups({"item": (ROWS, DIM)}, [("item", "sum")])
    table = layer.by_name["item"]
    expected = table.variable.numpy().astype(np.float64)
    state = numpy_rule.start(expected)
    step = lookup_step(layer, make(global_clipnorm=0.7))
    for number, (lines, cotangent, gradient) in enumerate(batches(), 1):
        gradient *= 0.7 / np.sqrt((gradient**2).sum())
        numpy_rule(expected, gradient, state, np.unique(lines.numpy()), number)
        step(lines, cotangent)
    np.testing.assert_allclose(table.variable.numpy(), expected, rtol=1e-4, atol=1e-5)


def test_fused_and_regrouped_steps_are_equal_bit_by_bit(lookups, rule):
    make, _ = rule
    states = []
    for change in (lambda gradient: gradient, with_identity):
        layer = lookups({"item": (ROWS, DIM)}, [("item", "sum")])
        step = lookup_step(layer, make(weight_decay=0.1), change)
        for lines, cotangent, _ in batches():
            step(lines, cotangent)
        table = layer.by_name["item"]
        states.append([table.variable.numpy(), *(s.variable.numpy() for s in table.slots.values())])
    for fused, regrouped in zip(*states, strict=True):
        np.testing.assert_array_equal(fused, regrouped)


def with_identity(gradient):
    assert me.native.sources(gradient) is not None
    changed = tf.IndexedSlices(tf.identity(gradient.values), gradient.indices, gradient.dense_shape)
    assert me.native.sources(changed) is None
    return changed


@pytest.mark.parametrize("options, dtype", [("decay", "float32"), ("all", "float64")])
def test_rows_in_tensorflow_ops(rule, options, dtype):
    """Rows of rank 3 aren't native: the same rule, a row being all behind the first axis."""
    make, numpy_rule = rule
    ours, numpys = OPTIONS[options]
    rng = np.random.default_rng(0)
    expected = rng.normal(size=(5, 6))
    variable = Variable(expected.reshape(5, 2, 3), dtype=dtype)
    state = numpy_rule.start(expected)
    optimizer = make(**ours)
    for number in (1, 2):
        values = rng.normal(size=(3, 6))
        gradient = np.zeros((5, 6))
        np.add.at(gradient, [4, 0, 4], values)
        numpy_rule(expected, gradient, state, [0, 4], number, **numpys)
        slices = tf.IndexedSlices(tf.constant(values.reshape(3, 2, 3), dtype), [4, 0, 4], [5, 2, 3])
        optimizer.apply([slices], [variable])
    np.testing.assert_allclose(variable.numpy().reshape(5, 6), expected, rtol=1e-4, atol=1e-5)


def test_dense_variables(rule):
    """All rows are seen, and a trust ratio is that of the whole variable: of its one row here."""
    make, numpy_rule = rule
    shape = (1, 12) if numpy_rule.own_decay else (3, 4)
    rng = np.random.default_rng(0)
    expected = rng.normal(size=shape)
    variable = Variable(expected.astype(np.float32))
    state = numpy_rule.start(expected)
    optimizer = make(weight_decay=0.3, l2=0.5, max_norm=0.1)
    for number in (1, 2, 3):
        gradient = rng.normal(size=shape)
        # max_norm is for tables.
        numpy_rule(expected, gradient, state, slice(None), number, decay=0.3, l2=0.5)
        optimizer.apply([tf.constant(gradient, tf.float32)], [variable])
    np.testing.assert_allclose(variable.numpy(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("cls", [me.optimizers.Lamb, me.optimizers.RowwiseLamb])
def test_the_trust_ratio_of_a_dense_variable_is_of_all_its_rows(cls):
    start = np.array([[3.0, 0, 0, 0], [0, 4, 0, 0]])
    variable = Variable(start.astype(np.float32))
    cls(0.1, epsilon=0.0).apply([tf.ones([2, 4])], [variable])
    # The direction is 1 everywhere, its length sqrt(8); the weights' is 5.
    np.testing.assert_allclose(variable.numpy(), start - 0.1 * 5 / np.sqrt(8), rtol=1e-5)


@pytest.mark.parametrize("cls", [me.optimizers.Lamb, me.optimizers.RowwiseLamb])
def test_lamb_moves_each_row_by_its_length(cls):
    table = Variable(np.array([[3.0, 4.0], [0.6, 0.8], [0.0, 0.0]], np.float32))
    before = table.numpy()
    slices = tf.IndexedSlices(np.array([[1e-3, 1e-3], [7.0, 7.0], [2.0, 2.0]], "f"), [0, 1, 2])
    cls(0.1).apply([slices], [table])
    moved = before - table.numpy()
    # A row of zeros has no length to follow: it takes Adam's step.
    np.testing.assert_allclose(moved[:, 0], [0.5 / 2**0.5, 0.1 / 2**0.5, 0.1], rtol=2e-3)
    np.testing.assert_allclose(moved[:, 0], moved[:, 1], rtol=1e-5)


def test_excluded_variables_have_no_decay_of_either_kind(lookups):
    layer = lookups({"item": (4, 2), "user": (4, 2)}, [("item", "sum"), ("user", "sum")])
    optimizer = me.optimizers.SGD(0.5, l2=0.2, weight_decay=0.1)
    optimizer.exclude_from_weight_decay(var_names=["user"])
    before = {name: t.variable.numpy() for name, t in layer.by_name.items()}
    with tf.GradientTape() as tape:
        loss = sum(map(tf.reduce_sum, layer([tf.constant([[1]]), tf.constant([[1]])])))
    variables = layer.trainable_variables
    optimizer.apply(tape.gradient(loss, variables), variables)
    moved = {name: before[name] - t.variable.numpy() for name, t in layer.by_name.items()}
    np.testing.assert_allclose(moved["user"][1], 0.5, rtol=1e-5)
    np.testing.assert_allclose(moved["item"][1], 0.5 + 0.5 * 0.3 * before["item"][1], rtol=1e-5)


def test_l2_comes_after_clipping():
    """As with torch, whose optimizers add it to gradients that were clipped before."""
    table = Variable(np.full((2, 1), 8.0, np.float32))
    slices = tf.IndexedSlices([[100.0]], [1], tf.constant([2, 1]))
    me.optimizers.SGD(1.0, l2=0.5, clipnorm=1.0).apply([slices], [table])
    np.testing.assert_allclose(table.numpy().ravel(), [8, 8 - 1 - 4])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_max_norm_of_half_precision_rows(lookups, dtype):
    layer = lookups({"item": (4, 2)}, [("item", "sum")], dtype=dtype)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer([tf.constant([[2]])])[0] * [3.0, -4.0])
    variables = layer.trainable_variables
    me.optimizers.SGD(100.0, max_norm=2.0).apply(tape.gradient(loss, variables), variables)
    row = tf.cast(layer.by_name["item"].variable, tf.float32).numpy()[2]
    np.testing.assert_allclose(row, [-1.2, 1.6], rtol=1e-2)
