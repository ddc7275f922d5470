"""Every optimizer of the package on rows that move, and those that can't be right there."""

import gc

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import merlin_embeddings as me
from tests.either_keras import KERAS_3, Variable
from tests.moving import oracle
from tests.moving.test_steps import layer_of, step_of, weights_of
from tests.optimizers.numpy_rules import pairs

# Of 16 rows and 12 ids a step, so that most steps give rows to other ids.
BATCHES = list(oracle.stream(25, 12, 60, drift=2))


def by_id(rule, dim=3):
    """Slots and rule of the oracle, of a numpy rule on matrices."""
    slots = {name: (() if per_row else dim, fill) for name, (fill, per_row) in rule.slots.items()}
    steps = [0]

    def apply(row, gradient):
        weights = row["vector"][None].astype(np.float64)
        state = {name: np.asarray(row[name], np.float64)[None] for name in slots}
        rule(weights, gradient[None].astype(np.float64), state, [0], steps[0])
        row["vector"] = weights[0].astype(np.float32)
        for name in slots:
            row[name] = state[name][0].astype(np.float32)

    return slots, apply, steps


def train(layer, optimizer, expected, steps=None, every=1):
    step = step_of([layer], optimizer, True)
    evicted = int(layer.table.ids.statistics()["evicted"])
    for number, batch in enumerate(BATCHES, 1):
        if steps is not None:
            steps[0] = number
        step(tf.constant(batch))
        expected.begin(batch)
        expected.end(batch, np.repeat(weights_of(0, 12)[:, None], 3, 1))
    assert int(layer.table.ids.statistics()["evicted"]) > evicted + 50


@pytest.mark.parametrize("name", list(pairs()))
def test_each_rule_begins_anew_with_each_id(name):
    make, rule = pairs()[name]
    layer, optimizer = layer_of(), make()
    optimizer.build(layer.trainable_variables)
    slots, apply, steps = by_id(rule)
    expected = oracle.Oracle(layer.table, slots, apply)
    train(layer, optimizer, expected, steps)
    expected.check(rtol=2e-4)


@pytest.mark.parametrize("graph", [False, True])
def test_gradient_accumulation_keeps_rows_until_the_step(graph):
    layer = layer_of(capacity=32)
    optimizer = me.optimizers.SGD(0.5, gradient_accumulation_steps=2)
    optimizer.build(layer.trainable_variables)
    step = step_of([layer], optimizer, graph)
    expected = oracle.Oracle(layer.table, {}, oracle.sgd(0.5))
    for first, second in zip(BATCHES[::2], BATCHES[1::2], strict=False):
        step(tf.constant(first))
        expected.begin(first)
        expected.forget()
        step(tf.constant(second))
        # What the first batch has is still there: nothing of its gradient is lost.
        both = np.concatenate([first, second])
        assert (layer.table.find(first) >= 0).all()
        expected.begin(both)
        gradients = np.repeat(np.tile(weights_of(0, 12), 2)[:, None], 3, 1) / 2
        expected.end(both, gradients)
        expected.check()
    assert int(layer.table.ids.statistics()["evicted"]) > 50


def test_averages_begin_anew_with_each_id():
    """The average of an id is that of its own steps since it has its row."""
    momentum, lr = 0.75, 0.5
    layer = layer_of()
    optimizer = me.optimizers.SGD(lr, use_ema=True, ema_momentum=momentum)
    optimizer.build(layer.trainable_variables)

    def rule(row, gradient):
        now, before = steps[0], row["vector"]
        after = before - np.float32(lr) * gradient
        since = row["average_step"]
        start = before if now > 1 else after
        past = (
            start
            if since == 0
            else before + momentum ** (now - 1 - since) * (row["average"] - before)
        )
        row["vector"] = after
        row["average"] = momentum * past + (1 - momentum) * after
        row["average_step"] = np.float32(now)

    steps = [0]
    slots = {"average": (3, 0.0), "average_step": ((), 0.0)}
    expected = oracle.Oracle(layer.table, slots, rule)
    train(layer, optimizer, expected, steps)
    expected.check()


@pytest.mark.parametrize(
    "arguments", [{"clipnorm": 0.5}, {"global_clipnorm": 0.5}, {"weight_decay": 0.1}]
)
def test_what_goes_around_a_rule(arguments):
    layer = layer_of()
    optimizer = me.optimizers.SGD(0.5, **arguments)
    optimizer.build(layer.trainable_variables)
    step = step_of([layer], optimizer, True)
    expected = oracle.Oracle(layer.table, {}, oracle.sgd(0.5))
    decay = arguments.get("weight_decay", 0)
    for batch in BATCHES:
        step(tf.constant(batch))
        expected.begin(batch)
        gradients = np.repeat(weights_of(0, 12)[:, None], 3, 1)
        distinct, at = np.unique(batch, return_inverse=True)
        sums = np.zeros([len(distinct), 3], np.float32)
        np.add.at(sums, at, gradients)
        length = np.linalg.norm(sums)
        if not decay:
            sums *= min(1, 0.5 / length)
        else:
            for id in distinct:
                row = expected.rows[id]
                row["vector"] = row["vector"] * np.float32(1 - 0.5 * decay)
        expected.end(distinct.tolist(), sums)
    expected.check(1e-4)


def model_of(optimizer, **compile_options):
    symbol = keras.Input((2,), dtype="int64")
    output = keras.layers.Dense(1)(layer_of()(symbol))
    model = keras.Model(symbol, output)
    model.compile(optimizer, "mse", **compile_options)
    return model


X = np.stack(BATCHES[:4]).reshape(-1, 2)
Y = np.ones((len(X), 1), np.float32)


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_a_plain_keras_optimizer_is_refused_before_a_vector_is_written(kind):
    model = model_of(getattr(keras.optimizers, kind)(0.1))
    with pytest.raises(Exception, match=r"table 'embeddings'.*optimizers\.Split\(dense="):
        model.fit(X, Y, batch_size=8, verbose=0)
    table = model.layers[1].table
    expected = oracle.Oracle(table)
    assert table.size() > 0
    for entries in table.entries():
        for id, vector in zip(entries.keys.tolist(), entries.vectors, strict=True):
            np.testing.assert_array_equal(vector, expected.fresh(id)["vector"])


def test_a_plain_keras_optimizer_is_refused_eagerly_at_the_second_step():
    model = model_of(keras.optimizers.SGD(0.1), run_eagerly=True)
    with pytest.raises(ValueError, match=r"table 'embeddings'.*optimizers\.Split\(dense="):
        model.fit(X, Y, batch_size=8, verbose=0)
    assert int(model.layers[1].table.ids.statistics()["steps"]) == 1


@pytest.mark.parametrize("eagerly", [False, True])
def test_the_way_out_that_the_message_names(eagerly):
    split = me.optimizers.Split(
        dense=keras.optimizers.SGD(0.1), embeddings=me.optimizers.Adagrad(0.01)
    )
    model = model_of(split, run_eagerly=eagerly)
    model.fit(X, Y, batch_size=8, verbose=0)
    assert int(model.layers[1].table.ids.statistics()["steps"]) == 3


def test_a_split_with_a_plain_optimizer_for_tables_is_refused():
    split = me.optimizers.Split(
        dense=keras.optimizers.SGD(0.1), embeddings=keras.optimizers.SGD(0.1)
    )
    with pytest.raises(ValueError, match=r"Split: embeddings is SGD.*\['embeddings'\]"):
        model_of(split).fit(X, Y, batch_size=8, verbose=0)


def test_a_claim_ends_with_its_optimizer():
    model = model_of(me.optimizers.SGD(0.1))
    model.fit(X, Y, batch_size=8, verbose=0)
    model.compile(keras.optimizers.SGD(0.1), "mse")
    gc.collect()
    with pytest.raises(Exception, match=r"table 'embeddings'.*optimizers\.Split\(dense="):
        model.fit(X, Y, batch_size=8, verbose=0)


def test_slots_of_a_second_optimizer_begin_anew_too():
    """A forward pass that was traced before there was an optimizer resets what is attached now."""
    layer = layer_of()

    @tf.function
    def look_up(ids):
        return layer(ids[:, None], training=True)

    look_up(tf.range(16, dtype=tf.int64))
    layer.table.release()
    first = me.optimizers.Adagrad(0.1, initial_accumulator_value=0.25)
    second = me.optimizers.Adam(0.1)
    for optimizer in (first, second):
        optimizer.build(layer.trainable_variables)
    for slot in layer.table.slots.values():
        values = slot.variable.value if KERAS_3 else slot.variable
        values.assign(tf.fill(values.shape, 9.0))
    look_up(tf.range(100, 104, dtype=tf.int64))
    [entries] = layer.table.entries(keys=np.arange(100, 104))
    assert (entries.slots["accumulator"] == 0.25).all()
    assert (entries.slots["momentum"] == 0).all() and (entries.slots["velocity"] == 0).all()
    _, others = layer.table.in_use()
    others = np.setdiff1d(others, layer.table.find(np.arange(100, 104)))
    for name in ("accumulator", "momentum"):
        values = np.asarray(layer.table.slots[name].variable)
        assert (values[others] == 9).all()


def test_a_loss_scale_that_skips_a_step_moves_nothing_but_ids():
    if not KERAS_3:
        pytest.skip("tests/optimizers/test_around.py has Keras 2's")
    layer = layer_of()
    optimizer = keras.optimizers.LossScaleOptimizer(me.optimizers.SGD(0.5), initial_scale=4.0)
    kernel = Variable(np.ones(3, np.float32))

    @tf.function
    def step(ids, factor):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(ids[:, None], training=True) * kernel) * factor
            loss = optimizer.scale_loss(loss)
        variables = [*layer.trainable_variables, kernel]
        optimizer.apply(tape.gradient(loss, variables), variables)

    step(tf.constant([1, 2]), 1.0)
    before = layer.table.variable.numpy() if hasattr(layer.table.variable, "numpy") else None
    step(tf.constant([1, 2]), np.inf)
    np.testing.assert_array_equal(np.asarray(layer.table.variable), before)
    step(tf.constant([1, 2]), 1.0)
    assert (np.asarray(layer.table.variable) != before).any()
