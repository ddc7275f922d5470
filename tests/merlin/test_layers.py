"""The layers on Keras 2: eager, functional, trained by Keras, saved and loaded."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import merlin_embeddings as me

TABLE = np.random.default_rng(0).normal(size=(11, 3)).astype(np.float32)
IDS = np.array([[1, 2], [3, 10]])
FEATURES = {
    "user": me.FeatureConfig("user", me.TableConfig("user", None, 4, ids=me.ids.Modulo(50))),
    "item": me.FeatureConfig("item", me.TableConfig("item", 11, 3), "max"),
}


def test_vectors_and_pools():
    np.testing.assert_array_equal(me.layers.Embedding(11, 3, weights=TABLE)(IDS), TABLE[IDS])
    total = me.layers.Embedding(11, 3, weights=TABLE, combiner="sum")
    np.testing.assert_allclose(total(IDS), TABLE[IDS].sum(axis=1), rtol=1e-6)
    ragged = total(tf.ragged.constant([[1, 2], []]))
    np.testing.assert_allclose(ragged, [TABLE[1] + TABLE[2], np.zeros(3)], rtol=1e-6)


@pytest.mark.parametrize("policy, compute", [("mixed_float16", "float16"), ("float16", "float16")])
def test_half_precision(policy, compute):
    layer = me.layers.Embedding(5000, 1, dtype=policy, table_dtype="float32")
    ids = np.array([2049, 4999])  # float16 has no 2049
    got = layer(ids)
    assert got.dtype == compute
    np.testing.assert_array_equal(got, layer.get_weights()[0][ids].astype(compute))


def test_mask():
    output = me.layers.Embedding(11, 3, mask_zero=True)(np.array([[1, 0]]))
    np.testing.assert_array_equal(output._keras_mask, [[True, False]])


def test_functional_model_trains_saves_and_loads(tmp_path):
    ids = keras.Input((2,), dtype="int64")
    layer = me.layers.Embedding(11, 3, weights=TABLE, combiner="sum", embeddings_regularizer="l2")
    model = keras.Model(ids, keras.layers.Dense(1)(layer(ids)))
    model.compile("adagrad", "mse")
    losses = model.fit(IDS, np.ones((2, 1)), epochs=5, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    moved = np.any(layer.get_weights()[0] != TABLE, axis=1)
    assert np.flatnonzero(moved).tolist() == [1, 2, 3, 10]
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again(IDS), model(IDS))


def test_structures_of_features():
    symbols = {
        "user": keras.Input((), dtype="string"),
        "item": keras.Input((None,), dtype="int64", ragged=True),
    }
    layer = me.layers.Embeddings(FEATURES)
    model = keras.Model(symbols, layer(symbols))
    item = layer.get_weights()[1]
    got = model(
        {"user": tf.constant(["a", "b"]), "item": tf.ragged.constant([[1, 2], []], tf.int64)}
    )
    assert got["user"].shape == (2, 4)
    np.testing.assert_array_equal(got["item"], [item[[1, 2]].max(axis=0), np.zeros(3)])
    again = me.layers.Embeddings.from_config(layer.get_config())
    assert again.features == FEATURES


def test_mistakes_are_found_when_the_model_is_built():
    ids, weights = keras.Input((2,), dtype="int64"), keras.Input((2,))
    with pytest.raises(ValueError, match="combiner='max' takes no weights"):
        me.layers.Embedding(11, 3, combiner="max")(ids, weights=weights)
    with pytest.raises(ValueError, match="one weight an id"):
        me.layers.Embedding(11, 3, combiner="sum")(ids, weights=keras.Input((3,)))
    with pytest.raises(ValueError, match="got strings"):
        me.layers.Embedding(11, 3)(keras.Input((2,), dtype="string"))
    with pytest.raises(ValueError, match="mask_zero=True masks id 0"):
        hashed = me.layers.Embedding(None, 3, ids=me.ids.Modulo(5), mask_zero=True)
        hashed(keras.Input((2,), dtype="string"))


def test_a_table_named_set_that_starts_from_an_array(tmp_path):
    def make():
        table = me.TableConfig("set", 11, 3, initializer=TABLE)
        symbols = {"x": keras.Input((2,), dtype="int64", name="x")}
        layer = me.layers.Embeddings({"x": me.FeatureConfig("x", table, "sum")}, name="e")
        return keras.Model(symbols, layer(symbols))

    model = make()
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again({"x": IDS})["x"], model({"x": IDS})["x"])
    path = tf.train.Checkpoint(model=model).save(str(tmp_path / "checkpoint"))
    model.set_weights([np.zeros((11, 3))])
    tf.train.Checkpoint(model=model).restore(path).assert_existing_objects_matched()
    np.testing.assert_array_equal(model.get_weights()[0], TABLE)


def test_lengths_position_weights_and_missing_features(tmp_path):
    clicks = me.FeatureConfig(
        "clicks", FEATURES["item"].table, "sum", max_length=2, keep="last", position_weights=True
    )
    tag = me.FeatureConfig("tag", me.TableConfig("tag", 5, 3), missing="zeros")
    symbols = {"clicks": keras.Input((None,), dtype="int64", ragged=True, name="clicks")}
    layer = me.layers.Embeddings({"clicks": clicks, "tag": tag}, name="e")
    vectors = layer(symbols)
    model = keras.Model(symbols, vectors["clicks"] + vectors["tag"])
    item, tags, _ = layer.get_weights()
    layer.set_weights([item, tags, np.array([2.0, -1.0])])
    batch = {"clicks": tf.ragged.constant([[9, 1, 2], [], [3]], tf.int64)}
    expected = [2 * item[1] - item[2], np.zeros(3), 2 * item[3]]
    np.testing.assert_allclose(model(batch), expected, rtol=1e-6)
    model.compile("adam", "mse")
    model.fit(tf.data.Dataset.from_tensors((batch, np.ones((3, 3)))), verbose=0)
    moved = [weight.numpy() for weight in layer.weights]
    assert np.flatnonzero(np.any(moved[0] != item, axis=1)).tolist() == [1, 2, 3]
    assert np.all(moved[2] != [2.0, -1.0])
    np.testing.assert_array_equal(moved[1], tags)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again(batch), model(batch))
