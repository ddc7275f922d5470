"""Weights of samples and classes, and splits of arrays: compared with steps made by hand."""

import numpy as np
import pytest
from tensorflow import keras

import merlin_embeddings as me

OPTIONS = dict(batch_size=8, epochs=2, shuffle=False, verbose=0)


def test_sample_weight(data, model_of, table_of, descended):
    weights = np.linspace(0, 2, 32)
    model = model_of(me.optimizers.SGD(0.1), dense=False)
    start = table_of(model)
    model.fit(*data, sample_weight=weights, **OPTIONS)
    expected = descended(start, *data, [0.1] * 8, weights=weights)
    np.testing.assert_allclose(table_of(model), expected, rtol=1e-5, atol=1e-6)


def test_class_weight(data, model_of, table_of, descended):
    ids, y = data
    classes = (y > 0).astype(np.float32)
    model = model_of(me.optimizers.SGD(0.1), dense=False)
    start = table_of(model)
    model.fit(ids, classes, class_weight={0: 0.5, 1: 3.0}, **OPTIONS)
    weights = np.where(classes[:, 0] > 0, 3.0, 0.5)
    expected = descended(start, ids, classes, [0.1] * 8, weights=weights)
    np.testing.assert_allclose(table_of(model), expected, rtol=1e-5, atol=1e-6)


def test_validation_split(data, model_of, table_of, descended):
    ids, y = data
    model = model_of(me.optimizers.SGD(0.1), dense=False)
    start = table_of(model)
    history = model.fit(ids, y, validation_split=0.25, **OPTIONS).history
    table = descended(start, ids[:24], y[:24], [0.1] * 6)
    np.testing.assert_allclose(table_of(model), table, rtol=1e-5, atol=1e-6)
    errors = table[ids[24:]].sum((1, 2)) - y[24:, 0]
    assert history["val_loss"][-1] == pytest.approx((errors**2).mean(), rel=1e-5)


def test_validation_split_of_dicts():
    rng = np.random.default_rng(0)
    ids = {"user": rng.integers(0, 9, 20), "item": rng.integers(0, 9, (20, 2))}
    features = {
        name: me.FeatureConfig(name, me.TableConfig(name, 9, 2), combiner="mean") for name in ids
    }
    symbols = {
        name: keras.Input(values.shape[1:], dtype="int64", name=name)
        for name, values in ids.items()
    }
    vectors = me.layers.Embeddings(features, name="tables")(symbols)
    model = keras.Model(symbols, keras.layers.Dense(1)(vectors["user"] + vectors["item"]))
    model.compile(me.optimizers.Adagrad(0.1), "mse")
    # Rows that only the part held back has stay as they are.
    ids["user"][16:] = 8
    ids["user"][:16] %= 8
    user = model.get_layer("tables").tables["user"].variable
    before = user.numpy()
    history = model.fit(ids, rng.normal(size=20), validation_split=0.2, epochs=2, verbose=0)
    assert len(history.history["val_loss"]) == 2
    np.testing.assert_array_equal(user.numpy()[8], before[8])
    assert not np.allclose(user.numpy()[ids["user"][0]], before[ids["user"][0]])
