"""Split: which optimizer updates what, and its state."""

import copy

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import merlin_embeddings as me
from tests.either_keras import KERAS_3, Variable

opt = me.optimizers
SHAPES = {"item": (6, 2), "user": (6, 2)}
WANTED = [("item", "sum"), ("user", "sum")]


def step_of(layer, kernel, optimizer):
    @tf.function
    def step():
        with tf.GradientTape() as tape:
            item, user = layer([tf.constant([[1, 1]], tf.int64), tf.constant([[2, 3]], tf.int64)])
            loss = tf.reduce_sum(item) + 2 * tf.reduce_sum(user) + 3 * tf.reduce_sum(kernel)
            loss = optimizer.scale_loss(loss)
        variables = [*layer.trainable_variables, kernel]
        optimizer.apply(tape.gradient(loss, variables), variables)

    return step


@pytest.mark.parametrize("loss_scale", [None, 32.0])
def test_each_part_updates_its_own(lookups, loss_scale):
    layer = lookups(SHAPES, WANTED)
    kernel = Variable(np.ones(3, np.float32))
    split = opt.Split(
        dense=keras.optimizers.SGD(0.1),
        embeddings=opt.SGD(0.01),
        overrides={"user": opt.Adagrad(1.0, initial_accumulator_value=0.0, epsilon=0.0)},
        loss_scale_factor=loss_scale,
    )
    expected = {name: t.variable.numpy() for name, t in layer.by_name.items()}
    step_of(layer, kernel, split)()
    expected["item"][1] -= 0.01 * 2
    expected["user"][[2, 3]] -= 1.0
    for name, table in layer.by_name.items():
        np.testing.assert_allclose(table.variable.numpy(), expected[name], rtol=1e-5)
    np.testing.assert_allclose(kernel.numpy(), 1 - 0.3, rtol=1e-6)
    assert list(layer.by_name["item"].slots) == []
    assert list(layer.by_name["user"].slots) == ["accumulator"]
    parts = [split, split.dense, split.embeddings, split.overrides["user"]]
    assert [int(part.iterations.numpy()) for part in parts] == [1, 1, 1, 1]


@pytest.mark.skipif(not KERAS_3, reason="Keras 2's own optimizers don't accumulate")
def test_accumulation_and_averages_work_in_the_dense_part(lookups):
    layer = lookups(SHAPES, WANTED)
    kernel = Variable(np.ones(3, np.float32))
    split = opt.Split(
        dense=keras.optimizers.SGD(0.1, gradient_accumulation_steps=2, use_ema=True),
        embeddings=opt.SGD(0.01),
    )
    step = step_of(layer, kernel, split)
    step()
    np.testing.assert_allclose(kernel.numpy(), 1.0)
    step()
    np.testing.assert_allclose(kernel.numpy(), 0.7, rtol=1e-6)
    step()
    step()
    np.testing.assert_allclose(kernel.numpy(), 0.4, rtol=1e-6)
    # The average started at 0.7 and saw 0.7 and 0.4 with a momentum of 0.99.
    split.finalize_variable_values([*layer.trainable_variables, kernel])
    np.testing.assert_allclose(kernel.numpy(), 0.99 * 0.7 + 0.01 * 0.4, rtol=1e-6)


def test_a_keras_optimizer_serves_the_tables(lookups):
    layer = lookups(SHAPES, WANTED)
    kernel = Variable(np.ones(3, np.float32))
    split = opt.Split(keras.optimizers.SGD(0.1), keras.optimizers.SGD(0.01))
    expected = {name: t.variable.numpy() for name, t in layer.by_name.items()}
    step_of(layer, kernel, split)()
    expected["item"][1] -= 0.02
    expected["user"][[2, 3]] -= 0.02
    for name, table in layer.by_name.items():
        np.testing.assert_allclose(table.variable.numpy(), expected[name], rtol=1e-5)


def test_config_round_trip():
    split = opt.Split(
        dense=keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(0.1, 10)),
        embeddings=opt.RowwiseAdagrad(0.02, clipnorm=1.0),
        overrides={"item": opt.SGD(0.5, momentum=0.9, nesterov=True)},
        loss_scale_factor=8.0,
        name="mix",
    )
    config = keras.optimizers.serialize(split)
    again = keras.optimizers.deserialize(copy.deepcopy(config))
    assert keras.optimizers.serialize(again) == config
    assert isinstance(again.dense, keras.optimizers.Adam)
    assert again.embeddings.clipnorm == 1.0
    assert again.overrides["item"].nesterov
    assert (again.loss_scale_factor, again.name) == (8.0, "mix")


def test_learning_rates_of_the_parts_keep_their_ratio():
    split = opt.Split(keras.optimizers.SGD(0.1), opt.SGD(0.01), {"user": opt.SGD(1.0)})

    def rates():
        parts = split.dense, split.embeddings, split.overrides["user"]
        return [float(part.learning_rate) for part in parts]

    assert float(split.learning_rate) == pytest.approx(0.1)
    split.learning_rate = 0.5
    assert rates() == pytest.approx([0.5, 0.05, 5.0])
    split.embeddings.learning_rate = 0.5
    assert rates() == pytest.approx([0.5, 0.5, 5.0])
    split.learning_rate = 0.0
    with pytest.raises(ValueError, match=r"dense has 0.0, .*Set split.dense.learning_rate"):
        split.learning_rate = 0.1
    assert rates() == [0.0, 0.0, 0.0]


def test_learning_rates_that_follow_a_schedule_have_no_ratio():
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)
    split = opt.Split(keras.optimizers.SGD(0.1), opt.SGD(schedule))
    with pytest.raises(ValueError, match=r"schedules are at \['embeddings'\]"):
        split.learning_rate = 0.5
    assert float(split.dense.learning_rate) == pytest.approx(0.1)
    with pytest.raises(ValueError, match=r"got <.*ExponentialDecay"):
        opt.Split(keras.optimizers.SGD(0.1), opt.SGD(0.1)).learning_rate = schedule


def test_refusals(lookups):
    one = opt.SGD(0.1)
    with pytest.raises(ValueError, match="can't serve two parts"):
        opt.Split(one, one)
    with pytest.raises(TypeError, match="embeddings must be a Keras optimizer"):
        opt.Split(one, "adam")
    with pytest.raises(ValueError, match=r"give Split\(loss_scale_factor"):
        opt.Split(one, opt.SGD(0.1, loss_scale_factor=2.0))
    built = opt.SGD(0.1)
    built.build([Variable(1.0)])
    with pytest.raises(ValueError, match="built for another model"):
        opt.Split(one, built)
    layer = lookups(SHAPES, WANTED)
    split = opt.Split(opt.SGD(), opt.SGD(), overrides={"itme": opt.SGD()})
    with pytest.raises(ValueError, match=r"table 'itme'.*\['item', 'user'\]"):
        split.build(layer.trainable_variables)
