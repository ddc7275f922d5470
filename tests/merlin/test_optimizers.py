"""Our optimizers in Keras 2's training loops."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import merlin_embeddings as me
from tests import fresh
from tests.optimizers import numpy_rules

RULES = numpy_rules.pairs()
ROWS, DIM = 10, 4
IDS = np.array([[1, 2, 2], [3, 1, 7], [1, 1, 9], [2, 0, 3]])
SLOPES = np.linspace(-1, 2, 2 * DIM).reshape(2, DIM).astype(np.float32)


class Dot(keras.losses.Loss):
    """The mean of the products: its gradient towards a prediction is the target's share."""

    def call(self, y_true, y_pred):
        return tf.reduce_sum(y_true * y_pred, axis=-1)


@pytest.mark.parametrize("name", RULES)
def test_fit_makes_the_rule_s_steps(name):
    make, rule = RULES[name]
    layer = me.layers.Embedding(ROWS, DIM, combiner="sum", seed=1)
    model = keras.Sequential([keras.Input((3,), dtype="int64"), layer])
    optimizer = make()
    model.compile(optimizer, Dot())
    expected = layer.get_weights()[0].astype(np.float64)
    state = rule.start(expected)
    model.fit(IDS, np.tile(SLOPES, (2, 1)), batch_size=2, epochs=2, shuffle=False, verbose=0)
    for step in range(4):
        ids = IDS[2 * (step % 2) :][:2]
        gradient = np.zeros((ROWS, DIM))
        np.add.at(gradient, ids, SLOPES[:, None] / 2)
        rule(expected, gradient, state, np.unique(ids), step + 1)
    np.testing.assert_allclose(layer.get_weights()[0], expected, rtol=2e-5, atol=1e-6)
    assert int(optimizer.iterations) == 4
    for name, values in state.items():
        slot = me.tables.table_of(layer.weights[0]).slots[name].variable
        np.testing.assert_allclose(slot, values, rtol=2e-5, atol=1e-6)


def test_callbacks_set_learning_rates():
    split = me.optimizers.Split(keras.optimizers.SGD(0.1), me.optimizers.SGD(0.4))
    for optimizer in (me.optimizers.SGD(0.1), split, me.optimizers.Legacy(me.optimizers.SGD(0.1))):
        layer = me.layers.Embedding(ROWS, DIM, combiner="sum")
        model = keras.Sequential([keras.Input((3,), dtype="int64"), layer, keras.layers.Dense(1)])
        model.compile(optimizer, "mse")
        halves = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate / 2)
        model.fit(IDS, np.ones(4), epochs=2, verbose=0, callbacks=[halves])
        assert np.isclose(float(optimizer.learning_rate), 0.025)
    assert np.isclose(float(split.embeddings.learning_rate), 0.1)


def test_a_schedule_is_not_set():
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([0], [0.5, 0.25])
    optimizer = me.optimizers.SGD(schedule)
    variable = tf.Variable(1.0)
    for _ in range(2):
        optimizer.apply_gradients([(tf.constant(1.0), variable)])
    assert float(variable) == 0.25
    with pytest.raises(TypeError, match="PiecewiseConstantDecay says and can't be set"):
        keras.backend.set_value(optimizer.lr, 0.1)


def test_horovod_s_way_to_scale_a_learning_rate():
    for optimizer in (me.optimizers.Adam(0.25), me.optimizers.Legacy(me.optimizers.Adam(0.25))):
        config = optimizer.get_config()
        config["lr"] = optimizer.learning_rate * 4
        assert float(type(optimizer).from_config(config).learning_rate) == 1.0


def test_what_legacy_refuses():
    with pytest.raises(TypeError, match=r"must be one of merlin_embeddings.optimizers"):
        me.optimizers.Legacy(keras.optimizers.SGD(0.1))
    with pytest.raises(ValueError, match=r"isn't scaled by sgd.*loss_scale_factor=2.0"):
        me.optimizers.Legacy(me.optimizers.SGD(0.1, loss_scale_factor=2.0))


LEGACY = keras.optimizers.legacy
KERAS_2 = {
    "sgd": lambda: keras.optimizers.SGD(0.1, momentum=0.9),
    "adagrad": lambda: keras.optimizers.Adagrad(0.1),
    "adam": lambda: keras.optimizers.Adam(0.1),
    "rmsprop": lambda: keras.optimizers.RMSprop(0.1),
    "ftrl": lambda: keras.optimizers.Ftrl(0.1),
    "legacy sgd": lambda: LEGACY.SGD(0.1, momentum=0.9),
    "legacy adagrad": lambda: LEGACY.Adagrad(0.1),
    "legacy adam": lambda: LEGACY.Adam(0.1),
    "legacy rmsprop": lambda: LEGACY.RMSprop(0.1),
    "legacy ftrl": lambda: LEGACY.Ftrl(0.1),
}


@pytest.mark.parametrize("name", KERAS_2)
def test_keras_own_optimizers_train_our_tables(name):
    """Beside `keras.layers.Embedding`, with rows that a step looks up several times."""
    tables = []
    start = np.random.default_rng(0).normal(size=(ROWS, DIM)).astype(np.float32)
    for cls in (me.layers.Embedding, keras.layers.Embedding):
        layer = cls(ROWS, DIM, weights=[start] if cls is keras.layers.Embedding else start)
        model = keras.Sequential([keras.Input((3,), dtype="int64"), layer])
        model.compile(KERAS_2[name](), Dot())
        y = np.tile(SLOPES[:, None], (2, 3, 1))
        model.fit(IDS, y, batch_size=2, epochs=2, shuffle=False, verbose=0)
        tables.append(layer.get_weights()[0])
    np.testing.assert_allclose(tables[0], tables[1], rtol=1e-4, atol=1e-5)
    assert np.abs(tables[0] - start).max() > 1e-3


def test_two_replicas_make_the_step_of_one():
    script = """
import numpy as np, tensorflow as tf
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
import merlin_embeddings as me
from tensorflow import keras
ids = np.array([[1, 2, 2], [3, 1, 7], [1, 1, 9], [2, 0, 3]])
tables = []
for strategy in (tf.distribute.get_strategy(), tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])):
    with strategy.scope():
        layer = me.layers.Embedding(10, 4, combiner="sum", seed=1)
        dense = keras.layers.Dense(1, kernel_initializer="ones")
        model = keras.Sequential([keras.Input((3,), dtype="int64"), layer, dense])
        model.compile(me.optimizers.Adam(0.1, global_clipnorm=1.0), "mse")
    model.fit(ids, np.ones(4), batch_size=4, epochs=3, verbose=0, shuffle=False)
    tables.append(model.get_weights())
for one, two in zip(*tables):
    np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-6)
print("equal")
"""
    assert fresh.output_of(script).endswith("equal\n")
