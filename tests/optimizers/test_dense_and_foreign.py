"""Variables that are no tables of ours, and tables that get a dense gradient."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import merlin_embeddings as me
from merlin_embeddings import compat
from tests.either_keras import Variable
from tests.optimizers.stock import STOCK

OPTIONS = [
    {},
    {"weight_decay": 0.1},
    {"clipnorm": 0.5},
    {"clipvalue": 0.2},
    {"global_clipnorm": 0.5},
]


@pytest.mark.parametrize(
    "name, options",
    [(n, o) for n in STOCK for o in OPTIONS if (n, "weight_decay") != ("lamb", *o)],
    ids=str,
)
def test_dense_variables_move_as_with_keras(name, options):
    ours, stock, hyper = STOCK[name]
    results = []
    hyper = {**hyper, **options}
    for optimizer in (ours(0.05, **hyper), stock(0.05, **hyper)):
        rng = np.random.default_rng(0)
        shapes = [(3, 4), (4,), (), (2, 3, 2)]
        variables = [Variable(rng.normal(size=s).astype(np.float32)) for s in shapes]
        for _ in range(4):
            gradients = [tf.constant(rng.normal(size=s), tf.float32) for s in shapes]
            optimizer.apply_gradients(zip(gradients, variables, strict=True))
        results.append([variable.numpy() for variable in variables])
    for own, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(own, theirs, rtol=1e-5, atol=1e-6)


def test_schedules_are_followed():
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([0, 1], [1.0, 0.5, 0.25])
    optimizer = me.optimizers.SGD(schedule)
    table, bias = Variable(np.zeros((3, 1), np.float32)), Variable(0.0)
    for _ in range(3):
        slices = tf.IndexedSlices([[1.0]], [1], [3, 1])
        optimizer.apply([slices, tf.constant(1.0)], [table, bias])
    # Steps 0, 1, 2 with 1, 0.5, 0.25.
    np.testing.assert_allclose(table.numpy()[:, 0], [0, -1.75, 0])
    assert float(bias.numpy()) == -1.75


def test_learning_rate_can_be_set():
    optimizer = me.optimizers.SGD(0.5)
    bias = Variable(0.0)
    optimizer.apply([tf.constant(1.0)], [bias])
    optimizer.learning_rate = 0.25
    optimizer.apply([tf.constant(1.0)], [bias])
    assert float(bias.numpy()) == -0.75


def test_rowwise_adagrad_of_other_ranks():
    optimizer = me.optimizers.RowwiseAdagrad(0.1, epsilon=0.0)
    vector, cube = (
        Variable(np.zeros(3, "float32")),
        Variable(np.zeros((2, 2, 2), "float32")),
    )
    cube_gradient = np.arange(1.0, 9).reshape(2, 2, 2)
    optimizer.apply(
        [tf.constant([1.0, -2.0, 3.0]), tf.constant(cube_gradient, tf.float32)], [vector, cube]
    )
    np.testing.assert_allclose(vector.numpy(), [-0.1, 0.1, -0.1], rtol=1e-6)
    root = np.sqrt((cube_gradient**2).mean((1, 2), keepdims=True))
    np.testing.assert_allclose(cube.numpy(), -0.1 * cube_gradient / root, rtol=1e-6)


def test_keras_embedding_sums_duplicates_first(rule):
    make, numpy_rule = rule
    layer = keras.layers.Embedding(9, 4)
    layer.build(None)
    [variable] = layer.trainable_variables
    expected = variable.numpy().astype(np.float64)
    state = numpy_rule.start(expected)
    optimizer = make()

    @tf.function
    def step(ids):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(ids) * [1.0, 2.0, -1.0, 0.5])
        optimizer.apply(tape.gradient(loss, [variable]), [variable])

    for number in (1, 2, 3):
        ids = np.array([1, 1, 1, 7, 8, 7]) - (number == 2)
        gradient = np.zeros((9, 4))
        np.add.at(gradient, ids, [1.0, 2.0, -1.0, 0.5])
        numpy_rule(expected, gradient, state, sorted(set(ids)), number)
        step(tf.constant(ids))
    np.testing.assert_allclose(variable.numpy(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
@pytest.mark.parametrize("shape", [(5,), (5, 2), (5, 2, 3)])
def test_rows_of_other_ranks_and_dtypes(dtype, shape):
    start = np.linspace(-1, 1, int(np.prod(shape))).reshape(shape).astype(dtype)
    variable = Variable(start, dtype=dtype)
    values = np.stack([np.full(shape[1:], g) for g in (1.0, 2.0, 3.0)]).astype(dtype)
    slices = tf.IndexedSlices(values, [4, 0, 4], list(shape))
    me.optimizers.Adagrad(0.5, initial_accumulator_value=0.0, epsilon=0.0).apply(
        [slices], [variable]
    )
    expected = start.astype(np.float64)
    expected[[0, 4]] -= 0.5  # g / sqrt(g * g), whatever g
    np.testing.assert_allclose(variable.numpy(), expected, rtol=2e-3, atol=1e-3)


def test_a_table_tied_to_a_softmax_gets_a_dense_gradient(lookups, rule):
    make, numpy_rule = rule
    layer = lookups({"item": (6, 3)}, [("item", "sum")])
    table = layer.by_name["item"]
    expected = table.variable.numpy().astype(np.float64)
    state = numpy_rule.start(expected)
    optimizer = make(weight_decay=0.01)
    towards = np.array([[1.0, -1.0, 2.0]])

    @tf.function
    def step(lines):
        with tf.GradientTape() as tape:
            pooled = layer([lines])[0]
            logits = tf.matmul(tf.constant(towards, tf.float32), table.variable, transpose_b=True)
            loss = tf.reduce_sum(pooled) + tf.reduce_sum(logits)
        optimizer.apply(tape.gradient(loss, layer.trainable_variables), layer.trainable_variables)

    mark_rows = []
    for number in (1, 2):
        gradient = np.tile(towards, (6, 1))
        np.add.at(gradient, [4, 4, 1], 1.0)
        numpy_rule(expected, gradient, state, slice(None), number, decay=0.01)
        step(tf.constant([[4, 4, 1]], tf.int64))
        mark_rows.append(len(np.flatnonzero(table.changes.flags.numpy())))
    np.testing.assert_allclose(table.variable.numpy(), expected, rtol=1e-5, atol=1e-6)
    assert mark_rows == [6, 6]


def test_weight_decay_acts_on_rows_seen_and_not_on_those_excluded(lookups):
    layer = lookups({"item": (4, 2), "user": (4, 2)}, [("item", "sum"), ("user", "sum")])
    optimizer = me.optimizers.SGD(0.5, weight_decay=0.2)
    optimizer.exclude_from_weight_decay(var_names=["us.r"])
    before = {name: t.variable.numpy() for name, t in layer.by_name.items()}

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            item, user = layer([tf.constant([[1]], tf.int64), tf.constant([[2]], tf.int64)])
            loss = tf.reduce_sum(item) + tf.reduce_sum(user)
        variables = layer.trainable_variables
        optimizer.apply(tape.gradient(loss, variables), variables)

    step()
    expected = {name: value.copy() for name, value in before.items()}
    expected["item"][1] += -expected["item"][1] * 0.2 * 0.5 - 0.5
    expected["user"][2] -= 0.5
    for name, table in layer.by_name.items():
        np.testing.assert_allclose(table.variable.numpy(), expected[name], rtol=1e-6)


def test_variables_that_are_replaced_by_their_gradient():
    scale = Variable(1.0)
    scale.overwrite_with_gradient = True
    other = Variable(1.0)
    me.optimizers.SGD(0.5).apply([tf.constant(7.0), tf.constant(1.0)], [scale, other])
    assert (float(scale.numpy()), float(other.numpy())) == (7.0, 0.5)


def test_constraints_act_on_the_rows_seen(lookups):
    layer = lookups(
        {"item": (4, 2)}, [("item", "sum")], constraint=keras.constraints.MaxNorm(0.001, axis=1)
    )
    table = layer.by_name["item"]
    before = table.variable.numpy()
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer([tf.constant([[2, 2]], tf.int64)])[0])
    me.optimizers.SGD(1.0).apply(
        tape.gradient(loss, layer.trainable_variables), layer.trainable_variables
    )
    after = table.variable.numpy()
    moved = before[2] - 2.0
    np.testing.assert_allclose(after[2], 0.001 * moved / np.linalg.norm(moved), rtol=1e-4)
    np.testing.assert_array_equal(after[[0, 1, 3]], before[[0, 1, 3]])


def test_a_constraint_over_whole_columns_is_refused(lookups):
    layer = lookups({"item": (4, 2)}, [("item", "sum")], constraint=keras.constraints.MaxNorm(1.0))
    optimizer = me.optimizers.SGD()
    with pytest.raises(ValueError, match=r"table 'item': MaxNorm\(axis=0\) spans all rows.*axis=1"):
        optimizer.build(layer.trainable_variables)
    assert not optimizer.built


def test_a_constraint_over_columns_of_a_keras_embedding_acts_as_in_keras():
    layer = keras.layers.Embedding(
        3, 1, keras.initializers.Constant(4.0), embeddings_constraint=keras.constraints.MaxNorm(1.0)
    )
    layer.build(None)
    [variable] = layer.trainable_variables
    me.optimizers.SGD(1.0).apply([tf.IndexedSlices([[4.0]], [0], [3, 1])], [variable])
    np.testing.assert_allclose(variable.numpy()[:, 0], [0, 2**-0.5, 2**-0.5], rtol=1e-5)


def test_a_value_held_does_not_change(lookups):
    layer = lookups({"item": (50, 4)}, [("item", "sum")])
    variable = compat.raw_variable(layer.by_name["item"].variable)
    optimizer = me.optimizers.Adam(0.1)

    @tf.function
    def step(lines):
        held = variable.read_value()
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer([lines])[0])
        optimizer.apply(tape.gradient(loss, layer.trainable_variables), layer.trainable_variables)
        return held, variable.read_value()

    lines = tf.constant([[1, 2], [2, 49]], tf.int64)
    outside = variable.read_value()
    before = outside.numpy().copy()
    held, after = step(lines)
    np.testing.assert_array_equal(held.numpy(), before)
    np.testing.assert_array_equal(outside.numpy(), before)
    assert sorted(set(np.flatnonzero((after.numpy() != before).any(1)))) == [1, 2, 49]
