"""What docs/from-keras.md says: its programs run as they stand, its statements hold."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import merlin_embeddings as me
from tests.documented import names_of

TABLE = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
BOTH = [keras.layers.Embedding, me.layers.Embedding]


def embedding(make, **kwargs):
    layer = make(6, 3, name="item", **kwargs)
    layer.build((None,))
    layer.set_weights([TABLE])
    return layer


def test_programs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = names_of("docs/from-keras.md")
    old, model, viewed = names["old"], names["model"], names["viewed"]
    expected = old.predict(viewed, verbose=0)
    np.testing.assert_array_equal(names["predicted"], expected)
    assert isinstance(names["changed"].get_layer("item"), me.layers.Embedding)
    np.testing.assert_array_equal(names["changed"].predict(viewed, verbose=0), expected)
    # Trained on since then, and the pooled model has the trained weights.
    assert np.abs(model.predict(viewed, verbose=0) - expected).max() > 1e-3
    np.testing.assert_allclose(names["shorter"](viewed), model(viewed), rtol=1e-4, atol=1e-6)
    served = tf.saved_model.load("served")
    np.testing.assert_allclose(served.serve(viewed), model(viewed), rtol=1e-5, atol=1e-6)
    assert Path(names["library"]).is_file()
    # All three files, and the way back.
    for file in ("old.keras", "old.weights.h5", "old.h5"):
        again = names["model_with"](me.layers.Embedding)
        again.load_weights(file)
        np.testing.assert_array_equal(again.get_weights()[0], old.get_weights()[0])
    model.save_weights("model.weights.h5")
    old.load_weights("model.weights.h5")
    np.testing.assert_array_equal(old.get_weights()[0], model.get_weights()[0])
    custom = {"Embedding": me.layers.Embedding}
    loaded = keras.models.load_model("old.keras", custom_objects=custom)
    assert type(loaded.get_layer("item")) is keras.layers.Embedding


def one_step(make, optimizer, ids, slope):
    """The rows after a step on the loss sum(slope * vectors)."""
    layer = embedding(make)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(slope * layer(ids))
    optimizer.apply(tape.gradient(loss, layer.trainable_variables), layer.trainable_variables)
    return layer.get_weights()[0]


def test_ids_that_come_twice():
    ids = np.array([[1, 4, 1]])
    slope = np.random.default_rng(1).normal(size=(1, 3, 3)).astype(np.float32)
    gradient = np.zeros_like(TABLE)
    np.add.at(gradient, ids[0], slope[0])
    accumulator = np.float32(0.1) + gradient**2
    expected = TABLE - 0.5 * gradient / np.sqrt(accumulator + 1e-7)
    for make, optimizer, right in [
        (me.layers.Embedding, me.optimizers.Adagrad(0.5), True),
        (me.layers.Embedding, keras.optimizers.Adagrad(0.5), True),
        (keras.layers.Embedding, keras.optimizers.Adagrad(0.5), False),
        (keras.layers.Embedding, me.optimizers.Adagrad(0.5), True),
    ]:
        got = one_step(make, optimizer, ids, slope)
        assert (np.abs(got - expected).max() < 1e-5) == right, (make, optimizer)


def test_initial_values():
    ours, theirs = (make(500, 20) for make in BOTH[::-1])
    for layer in (ours, theirs):
        layer.build((None,))
        values = layer.get_weights()[0]
        assert -0.05 <= values.min() < -0.049 and 0.049 < values.max() <= 0.05
    ours, theirs = (
        make(50, 20, embeddings_initializer=keras.initializers.RandomNormal(seed=3))
        for make in BOTH[::-1]
    )
    for layer in (ours, theirs):
        layer.build((None,))
    np.testing.assert_array_equal(ours.get_weights()[0], theirs.get_weights()[0])


def test_ids_out_of_range():
    theirs = embedding(keras.layers.Embedding)
    np.testing.assert_array_equal(theirs(np.array([-1])), TABLE[[5]])
    with pytest.raises(tf.errors.InvalidArgumentError):
        theirs(np.array([6]))
    assert tf.function(theirs, jit_compile=True)(tf.constant([6])).shape == (1, 3)
    ours = embedding(me.layers.Embedding)
    for bad in (-1, 6):
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"feature 'item': id {bad} "):
            ours(np.array([bad]))
    zero = embedding(me.layers.Embedding, ids=me.ids.Identity("zero"))
    np.testing.assert_array_equal(zero(np.array([-1, 6, 2])), [[0] * 3, [0] * 3, TABLE[2]])
    clip = embedding(me.layers.Embedding, ids=me.ids.Identity("clip"))
    np.testing.assert_array_equal(clip(np.array([-1, 6, 2])), TABLE[[0, 5, 2]])
    modulo = me.layers.Embedding(None, 3, ids=me.ids.Modulo(6))
    modulo.build((None,))
    modulo.set_weights([TABLE])
    np.testing.assert_array_equal(modulo(np.array([-1, 6, 2])), TABLE[[5, 0, 2]])


def test_strings():
    words = tf.constant(["shoe", "hat"])
    with pytest.raises(Exception, match=r"(?i)string"):
        embedding(keras.layers.Embedding)(words)
    hashed = me.layers.Embedding(None, 3, ids=me.ids.Modulo(1_000))(words)
    assert hashed.shape == (2, 3) and np.any(hashed[0] != hashed[1])
    lookup = keras.layers.StringLookup(vocabulary=["hat", "shoe"])
    np.testing.assert_array_equal(embedding(me.layers.Embedding)(lookup(words)), TABLE[[2, 1]])


def test_mask_zero():
    ids = np.array([[2, 0], [3, 4]])
    masks = [embedding(make, mask_zero=True)(ids)._keras_mask for make in BOTH]
    np.testing.assert_array_equal(*masks)
    pooled = embedding(me.layers.Embedding, mask_zero=True, combiner="mean")(ids)
    masked = keras.layers.GlobalAveragePooling1D()(
        embedding(keras.layers.Embedding, mask_zero=True)(ids)
    )
    np.testing.assert_allclose(pooled, [TABLE[2], (TABLE[3] + TABLE[4]) / 2], rtol=1e-6)
    np.testing.assert_allclose(pooled, masked, rtol=1e-6)


def test_regularizer():
    ids = np.array([[2, 2, 3]])
    ours, theirs = (embedding(make, embeddings_regularizer="l2") for make in BOTH[::-1])
    ours(ids), theirs(ids)
    np.testing.assert_allclose(theirs.losses, [0.01 * np.sum(TABLE**2)], rtol=1e-5)
    np.testing.assert_allclose(ours.losses, [0.01 * np.sum(TABLE[2:4] ** 2)], rtol=1e-5)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision(policy):
    ids = np.array([2, 5])
    for make in BOTH:
        layer = embedding(make, dtype=policy)
        assert layer.embeddings.dtype == "float32"
        assert layer(ids).dtype == policy.removeprefix("mixed_")
    half = embedding(me.layers.Embedding, dtype=policy, table_dtype="bfloat16")
    assert half.embeddings.dtype == "bfloat16"
    assert half(ids).dtype == policy.removeprefix("mixed_")
