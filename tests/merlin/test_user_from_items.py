"""Users from their items on Keras 2: one table for history, candidates and negatives."""

import copy

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import merlin_embeddings as me

ROWS, DIM = 11, 3
TABLE = np.random.default_rng(0).normal(size=(ROWS, DIM)).astype(np.float32)
HISTORY = np.array([[1, 2, 0], [3, 3, 4], [0, 0, 0]])
ITEM = np.array([5, 1, 7])
S = me.layers.samplers


def items_of(**more):
    return me.layers.Embedding(ROWS, DIM, weights=TABLE, padding_id=0, name="items", **more)


def test_pools():
    items, ragged = items_of(), tf.ragged.constant([[1, 2], [], [4]], tf.int64)
    mean = me.layers.UserFromItems(items)
    np.testing.assert_allclose(
        mean(HISTORY), [TABLE[[1, 2]].mean(0), TABLE[[3, 3, 4]].mean(0), np.zeros(DIM)], rtol=1e-6
    )
    recent = me.layers.UserFromItems(items, me.layers.RecencyWeighted(1, age_half_life=2.0))
    ages = tf.ragged.constant([[4.0, 0.0], [], [9.0]])
    expected = [(TABLE[1] / 8 + TABLE[2]) / (9 / 8), np.zeros(DIM), TABLE[4]]
    np.testing.assert_allclose(recent(ragged, ages=ages), expected, rtol=1e-5)
    target = me.layers.UserFromItems(items, me.layers.TargetAttention((4,), softmax=True))
    np.testing.assert_allclose(
        target(ragged, query=items(ITEM))[1:], [np.zeros(DIM), TABLE[4]], rtol=1e-5
    )


def test_full_softmax_and_top_k():
    items, users = items_of(), TABLE[:3] + 1
    dots = users @ TABLE[1:].T
    logits = me.layers.SampledSoftmax(items, S.Uniform(10, first=1))(users, ITEM)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
    expected = np.log(np.exp(dots).sum(1)) - dots[np.arange(3), ITEM - 1]
    np.testing.assert_allclose(loss(np.zeros(3), logits), expected, rtol=1e-5)
    dots[0, 4] = -np.inf  # item 5
    seen = tf.constant([[5], [0], [0]])
    _, ids = me.layers.TopK(items, 2, first=1, chunk_size=4)(users, exclude=seen)
    np.testing.assert_array_equal(ids, 1 + np.argsort(-dots, 1)[:, :2])


@pytest.mark.parametrize(
    "save_format, make",
    [
        ("h5", lambda: S.LogUniform(4, first=1)),
        ("keras_v3", lambda: S.InBatch()),
        ("tf", lambda: S.Unigram(4, [0] + 10 * [1])),
    ],
)
def test_a_retrieval_model_trains_saves_and_loads(tmp_path, save_format, make):
    items = items_of()
    history = keras.Input((3,), dtype="int64", name="history")
    item = keras.Input((), dtype="int64", name="item")
    pooling = me.layers.RecencyWeighted(2.0, learned=True)
    user = me.layers.UserFromItems(items, pooling, name="user")(history)
    logits = me.layers.SampledSoftmax(items, make(), name="softmax")(user, item)
    model = keras.Model([history, item], logits)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.5), loss)
    model.fit([HISTORY, ITEM], np.zeros(3), epochs=2, verbose=0)
    assert np.any(items.get_weights()[0] != TABLE)
    path = tmp_path / ("model" if save_format == "tf" else "model.keras")
    model.save(path, save_format=save_format)
    for again in (keras.models.load_model(path), copy.deepcopy(model)):
        assert again.get_layer("user").items is again.get_layer("softmax").items
        for layer in ("user", "softmax"):
            ours, theirs = model.get_layer(layer), again.get_layer(layer)
            assert [w.shape for w in theirs.weights] == [w.shape for w in ours.weights]
            for a, b in zip(theirs.get_weights(), ours.get_weights(), strict=True):
                np.testing.assert_array_equal(a, b)


def test_a_ranking_model_is_served(tmp_path):
    items = items_of()
    inputs = {
        "history": keras.Input((3,), dtype="int64", name="history"),
        "item": keras.Input((), dtype="int64", name="item"),
    }
    query = items(inputs["item"])
    user = me.layers.UserFromItems(items, me.layers.TargetAttention((4,)), name="user")
    x = keras.layers.Concatenate()([user(inputs["history"], query=query), query])
    model = keras.Model(inputs, keras.layers.Dense(1)(x))
    batch = {"history": HISTORY, "item": ITEM}
    model.compile("adam", "mse")
    losses = model.fit(batch, np.ones((3, 1)), epochs=3, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    tf.saved_model.save(model, str(tmp_path))
    served = tf.saved_model.load(str(tmp_path)).signatures["serving_default"]
    [output] = served(**{k: tf.constant(v) for k, v in batch.items()}).values()
    np.testing.assert_allclose(output, model(batch), rtol=1e-5)
