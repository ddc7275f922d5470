"""Training steps of the user's own: in fit, in loops, in a SavedModel."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import merlin_embeddings as me
from tests import fresh

ROWS, DIM = 12, 2
IDS = np.array([[1, 2, 2], [3, 1, 9], [4, 4, 4], [0, 2, 5]])
Y = np.array([[1.0], [-1.0], [0.5], [2.0]], np.float32)


class Regression(keras.Model):
    """Predicts the sum of a bag's vectors; its step is written out."""

    def __init__(self):
        super().__init__()
        self.table = me.layers.Embedding(ROWS, DIM, combiner="sum", seed=1)
        self.loss_tracker = keras.metrics.Mean(name="loss")

    def call(self, ids):
        return tf.reduce_sum(self.table(ids), axis=1, keepdims=True)

    def train_step(self, data):
        self.loss_tracker.update_state(self.learn(*data))
        return {"loss": self.loss_tracker.result()}

    def learn(self, ids, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(ids, training=True) - y) ** 2)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return loss

    @tf.function
    def step(self, ids, y):
        # Without the metric: Keras doesn't show its variables to SavedModels.
        return self.learn(ids, y)


def by_hand(table, steps, rate=0.1):
    """The table and the losses of gradient descent, written out."""
    table, losses = np.array(table, np.float64), []
    for _ in range(steps):
        errors = table[IDS].sum((1, 2)) - Y[:, 0]
        losses.append((errors**2).mean())
        np.subtract.at(table, IDS, (rate * 2 * errors / len(IDS))[:, None, None])
    return table, losses


OPTIMIZERS = {
    "ours": lambda: me.optimizers.SGD(0.1),
    "keras": lambda: keras.optimizers.SGD(0.1),
    "split": lambda: me.optimizers.Split(keras.optimizers.Adam(0.1), me.optimizers.SGD(0.1)),
}


@pytest.fixture(params=OPTIMIZERS)
def make(request):
    return OPTIMIZERS[request.param]


def built(optimizer, **options):
    model = Regression()
    model(IDS)
    model.compile(optimizer, **options)
    return model, model.table.get_weights()[0]


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_a_train_step_in_fit(make, run_eagerly):
    model, start = built(make(), run_eagerly=run_eagerly)
    losses = model.fit(IDS, Y, batch_size=4, epochs=3, shuffle=False, verbose=0).history["loss"]
    table, expected = by_hand(start, 3)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    np.testing.assert_allclose(model.table.get_weights()[0], table, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("in_graph", [False, True])
def test_a_loop(make, in_graph):
    layer = me.layers.Embedding(ROWS, DIM, combiner="sum", seed=1)
    layer.build()
    optimizer = make()
    optimizer.build(layer.trainable_variables)

    def step(ids, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((tf.reduce_sum(layer(ids), axis=1, keepdims=True) - y) ** 2)
        gradients = tape.gradient(loss, layer.trainable_variables)
        optimizer.apply(gradients, layer.trainable_variables)

    if in_graph:
        step = tf.function(step)
    table, _ = by_hand(layer.get_weights()[0], 3)
    for _ in range(3):
        step(tf.constant(IDS), tf.constant(Y))
    np.testing.assert_allclose(layer.get_weights()[0], table, rtol=1e-5, atol=1e-6)


def test_a_loop_within_the_graph(make):
    model, start = built(make())
    model.optimizer.build(model.trainable_variables)

    @tf.function
    def train(ids, y, steps):
        for _ in tf.range(steps):
            model.train_step((ids, y))

    train(tf.constant(IDS), tf.constant(Y), tf.constant(4))
    table, _ = by_hand(start, 4)
    np.testing.assert_allclose(model.table.get_weights()[0], table, rtol=1e-5, atol=1e-6)


def test_gradients_towards_the_table_and_a_penalty_on_them(make):
    """Two tapes in a step: the rows that one gives, scaled by hand, go to the optimizer."""
    model, start = built(make())
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(IDS) - Y) ** 2)
    [rows] = tape.gradient(loss, model.trainable_variables)
    assert isinstance(rows, tf.IndexedSlices)
    halved = tf.IndexedSlices(rows.values / 2, rows.indices, rows.dense_shape)
    model.optimizer.apply([halved], model.trainable_variables)
    table, _ = by_hand(start, 1, rate=0.05)
    np.testing.assert_allclose(model.table.get_weights()[0], table, rtol=1e-5, atol=1e-6)


def test_saved_models_train_on_in_another_process(tmp_path):
    """The table, its slots and the flags of changed rows go along."""
    ids, y = tf.constant(IDS), tf.constant(Y)
    expected = {}
    for name, make in OPTIMIZERS.items():
        model, start = built(make())
        model.optimizer.build(model.trainable_variables)
        model.step(ids, y)
        tf.saved_model.save(model, str(tmp_path / name))
        expected[name] = pytest.approx(by_hand(start, 4)[1][1:], rel=1e-5)
    losses = fresh.last_line_of(
        f"""
        import json
        import tensorflow as tf
        import merlin_embeddings

        ids, y = tf.constant({IDS.tolist()}, tf.int64), tf.constant({Y.tolist()})
        losses = {{}}
        for name in {list(OPTIMIZERS)}:
            model = tf.saved_model.load({str(tmp_path)!r} + "/" + name)
            losses[name] = [float(model.step(ids, y)) for _ in range(3)]
        print(json.dumps(losses))
        """
    )
    assert losses == expected


def test_checkpoints_are_without_flags(tmp_path):
    model, _ = built(me.optimizers.Adagrad(0.1))
    model.fit(IDS, Y, verbose=0)
    path = tf.train.Checkpoint(model=model, optimizer=model.optimizer).save(str(tmp_path / "c"))
    assert not [name for name, _ in tf.train.list_variables(path) if "changed" in name]
