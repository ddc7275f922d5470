"""Each rule on tables against numpy: duplicates, rows of no vector, weights, all combiners."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorflow import keras

import merlin_embeddings as me
from tests.either_keras import Variable
from tests.optimizers.numpy_rules import pairs
from tests.optimizers.stock import STOCK

ROWS, DIM, STEPS = 12, 5, 4


def draw_bags(rng):
    # Few rows: duplicates within a bag and between bags; row -1 is "no vector"; row 11 never seen.
    return [list(rng.integers(-1, ROWS - 1, rng.integers(0, 7))) for _ in range(9)]


def trained_step(layer, optimizer, compiled=True):
    def step(lines, weights, splits, cotangent):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer([(lines, weights, splits)])[0] * cotangent)
        variables = layer.trainable_variables
        optimizer.apply(tape.gradient(loss, variables), variables)

    return tf.function(step, reduce_retracing=True) if compiled else step


def flat(bags, dtype):
    return np.array([value for bag in bags for value in bag], dtype)


KINDS = [(c, False) for c in ("sum", "mean", "sqrtn", "max", None)]
KINDS += [(c, True) for c in ("sum", "mean", "sqrtn")]


# One rule over all kinds of pooling, all rules over two.
@pytest.mark.parametrize(
    "name, combiner, weighted",
    [("adagrad", *kind) for kind in KINDS]
    + [(name, *kind) for name in pairs() for kind in (("sum", False), ("mean", True))],
)
def test_several_steps_equal_numpy(lookups, rules, name, pooled_gradient, combiner, weighted):
    make, numpy_rule = rules[name]
    layer = lookups({"item": (ROWS, DIM)}, [("item", combiner)])
    table = layer.by_name["item"]
    optimizer = make()
    expected = table.variable.numpy().astype(np.float64)
    untouched = expected[-1].copy()
    state = numpy_rule.start(expected)
    rng = np.random.default_rng(7)
    step = trained_step(layer, optimizer)
    for number in range(1, STEPS + 1):
        bags = draw_bags(rng)
        weights = [list(rng.uniform(0.5, 2.0, len(bag))) for bag in bags] if weighted else None
        lines = flat(bags, np.int64)
        cotangent = rng.normal(size=(len(lines) if combiner is None else len(bags), DIM))
        gradient, rows = pooled_gradient(expected, bags, weights, combiner, cotangent)
        numpy_rule(expected, gradient, state, rows, number)
        step(
            tf.constant(lines),
            None if weights is None else tf.constant(flat(weights, np.float32)),
            tf.constant(np.cumsum([0] + [len(bag) for bag in bags]), tf.int64),
            tf.constant(cotangent, tf.float32),
        )
    np.testing.assert_allclose(table.variable.numpy(), expected, rtol=2e-5, atol=2e-6)
    np.testing.assert_array_equal(table.variable.numpy()[-1], untouched.astype(np.float32))
    assert set(table.slots) == set(state)
    for name, value in state.items():
        np.testing.assert_allclose(
            table.slots[name].variable.numpy(), value, rtol=2e-5, atol=2e-6, err_msg=name
        )


@pytest.mark.parametrize("dtype, tolerance", [("bfloat16", 1e-2), ("float16", 2e-3)])
def test_half_precision_rows_have_float32_slots(lookups, rule, dtype, tolerance):
    make, numpy_rule = rule
    layer = lookups({"item": (6, 4)}, [("item", "sum")], dtype=dtype)
    table = layer.by_name["item"]
    before = tf.cast(table.variable.value, tf.float32).numpy().astype(np.float64)
    state = numpy_rule.start(before)
    gradient = np.zeros((6, 4))
    gradient[1], gradient[4] = 1.0, 2.0 * np.arange(1, 5)
    numpy_rule(before, gradient, state, [1, 4], 1)
    step = trained_step(layer, make())
    step(
        tf.constant([1, 4], tf.int64),
        None,
        tf.constant([0, 1, 2], tf.int64),
        tf.constant(gradient[[1, 4]], tf.float32),
    )
    after = tf.cast(table.variable.value, tf.float32).numpy()
    np.testing.assert_allclose(after, before, rtol=tolerance, atol=tolerance / 10)
    for name, value in state.items():
        slot = table.slots[name].variable.numpy()
        assert slot.dtype == np.float32
        np.testing.assert_allclose(slot, value, rtol=1e-5)


@pytest.mark.parametrize("compiled", [True, False])
def test_graph_and_eager_give_the_same(lookups, rule, compiled):
    make, numpy_rule = rule
    layer = lookups({"item": (ROWS, DIM)}, [("item", "mean")])
    expected = layer.by_name["item"].variable.numpy().astype(np.float64)
    state = numpy_rule.start(expected)
    step = trained_step(layer, make(), compiled)
    gradient = np.zeros((ROWS, DIM))
    gradient[2], gradient[3] = 1.0, 0.5
    for number in (1, 2):
        numpy_rule(expected, gradient, state, [2, 3], number)
        # The mean of rows 2 and 3, and row 2 alone: row 2 gets 0.5 + 0.5, row 3 gets 0.5.
        step(
            tf.constant([2, 3, 2], tf.int64),
            None,
            tf.constant([0, 2, 3], tf.int64),
            tf.constant([[1.0] * DIM, [0.5] * DIM], tf.float32),
        )
    np.testing.assert_allclose(
        layer.by_name["item"].variable.numpy(), expected, rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("name", [name for name in STOCK if name != "lamb"])
@pytest.mark.parametrize("options", [{}, {"weight_decay": 0.1}, {"clipnorm": 0.3}])
def test_equals_keras_when_each_step_sees_every_row_once(lookups, name, options):
    ours, stock, hyper = STOCK[name]
    results = []
    hyper = {**hyper, **options}
    for optimizer in (ours(0.05, **hyper), stock(0.05, **hyper)):
        layer = lookups({"item": (ROWS, DIM)}, [("item", "sum")])
        step = trained_step(layer, optimizer)
        rng = np.random.default_rng(3)
        for _ in range(STEPS):
            step(
                tf.constant(rng.permutation(ROWS), tf.int64),
                None,
                tf.constant(np.arange(0, ROWS + 1, 3), tf.int64),
                tf.constant(rng.normal(size=(ROWS // 3, DIM)), tf.float32),
            )
        results.append(layer.by_name["item"].variable.numpy())
    np.testing.assert_allclose(results[0], results[1], rtol=1e-5, atol=1e-6)


def test_a_keras_optimizer_serves_our_tables(lookups):
    """One lookup a step, duplicates in it: the gradient arrives with its rows summed."""
    layer = lookups({"item": (6, 2)}, [("item", "sum")])
    expected = layer.by_name["item"].variable.numpy().astype(np.float64)
    accumulator = np.full((6, 2), 0.1)
    step = trained_step(layer, keras.optimizers.Adagrad(0.5))
    for _ in range(2):
        step(
            tf.constant([4, 4, 4, 1], tf.int64),
            None,
            tf.constant([0, 2, 4], tf.int64),
            tf.ones([2, 2]),
        )
        gradient = np.array([0, 1, 0, 0, 3, 0])[:, None] * np.ones((6, 2))
        accumulator += gradient**2
        expected -= 0.5 * gradient / np.sqrt(accumulator + 1e-7)
    np.testing.assert_allclose(
        layer.by_name["item"].variable.numpy(), expected, rtol=1e-5, atol=1e-6
    )


def test_lamb_equals_keras_on_a_table_of_one_row():
    """A row is then the whole variable."""
    results = []
    for optimizer in (me.optimizers.Lamb(0.1), keras.optimizers.Lamb(0.1)):
        table = Variable(np.full((1, 4), 2.0, np.float32))
        for gradient in ([1.0, -2, 0, 3], [0.5, 1, 1, -1]):
            slices = tf.IndexedSlices([gradient], [0], tf.constant([1, 4]))
            optimizer.apply([slices], [table])
        results.append(table.numpy())
    np.testing.assert_allclose(*results, rtol=1e-6)


@pytest.mark.parametrize(
    "name",
    [
        "sgd",
        "nesterov",
        "adagrad",
        "rowwise_adagrad",
        "adam",
        "amsgrad",
        "rowwise_lamb",
        "lars",
        "ftrl",
        "rmsprop_centered_momentum",
    ],
)
@settings(max_examples=15, deadline=None, derandomize=True)
@given(data=st.data())
def test_any_batches_of_rows_equal_numpy(rules, name, data):
    rows, dim = data.draw(st.integers(1, 40), "rows"), data.draw(st.integers(1, 70), "dim")
    batches = data.draw(
        st.lists(st.lists(st.integers(0, rows - 1), max_size=60), min_size=1, max_size=3), "lines"
    )
    rng = np.random.default_rng(data.draw(st.integers(0, 2**31), "seed"))
    make, numpy_rule = rules[name]
    around = {"weight_decay": 0.1, "l2": 0.2, "max_norm": data.draw(st.sampled_from([None, 2.0]))}
    expected = rng.normal(size=(rows, dim))
    variable = Variable(expected.astype(np.float32))
    state = numpy_rule.start(expected)
    optimizer = make(**around)
    for number, lines in enumerate(batches, 1):
        values = rng.normal(size=(len(lines), dim))
        gradient = np.zeros((rows, dim))
        np.add.at(gradient, np.array(lines, int), values)
        seen = sorted(set(lines))
        numpy_rule(
            expected, gradient, state, seen, number, decay=0.1, l2=0.2, max_norm=around["max_norm"]
        )
        slices = tf.IndexedSlices(
            tf.constant(values, tf.float32), tf.constant(lines, tf.int64), [rows, dim]
        )
        optimizer.apply([slices], [variable])
    np.testing.assert_allclose(variable.numpy(), expected, rtol=1e-3, atol=1e-4)
