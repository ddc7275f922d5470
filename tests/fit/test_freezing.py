"""Frozen layers and tables: before and after compile, and thawed again."""

import numpy as np
import pytest
from tensorflow import keras

import merlin_embeddings as me

OPTIMIZERS = {
    "keras": lambda: keras.optimizers.Adagrad(0.1),
    "adagrad": lambda: me.optimizers.Adagrad(0.1),
    "split": lambda: me.optimizers.Split(keras.optimizers.Adam(0.1), me.optimizers.Adagrad(0.1)),
}


def fit(model, data):
    model.fit(*data, batch_size=8, shuffle=False, verbose=0)


@pytest.fixture(params=OPTIMIZERS)
def make(request):
    return OPTIMIZERS[request.param]


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_frozen_thawed_and_frozen_again(data, model_of, table_of, make, run_eagerly):
    model = model_of(make())
    layer = model.get_layer("table")
    tables = [table_of(model)]
    for trainable in (False, True, False):
        layer.trainable = trainable
        model.compile(make(), "mse", run_eagerly=run_eagerly)
        fit(model, data)
        tables.append(table_of(model))
    np.testing.assert_array_equal(tables[1], tables[0])
    assert not np.allclose(tables[2], tables[1])
    np.testing.assert_array_equal(tables[3], tables[2])


def test_a_change_after_compile_waits_for_the_next_compile(data, model_of, table_of, make):
    """As everywhere in Keras: what trains is decided when the step is traced."""
    model = model_of(make())
    fit(model, data)
    before = table_of(model)
    model.get_layer("table").trainable = False
    fit(model, data)
    assert not np.allclose(table_of(model), before)


def test_freezing_between_compile_and_fit(data, model_of, table_of, make):
    model = model_of(make())
    before = table_of(model)
    model.get_layer("table").trainable = False
    fit(model, data)
    np.testing.assert_array_equal(table_of(model), before)


def test_one_frozen_table_beside_another(make):
    ids = np.array([[1, 2], [2, 3]])

    def tables_of(layer):
        return {name: table.variable.numpy() for name, table in layer.tables.items()}

    features = {
        name: me.FeatureConfig(
            name, me.TableConfig(name, 9, 4, trainable=name == "moving"), combiner="sum"
        )
        for name in ("moving", "fixed")
    }
    symbols = {name: keras.Input((2,), dtype="int64", name=name) for name in features}
    layer = me.layers.Embeddings(features)
    vectors = layer(symbols)
    model = keras.Model(symbols, keras.layers.Dense(1)(vectors["moving"] + vectors["fixed"]))
    model.compile(make(), "mse")
    before = tables_of(layer)
    model.fit({"moving": ids, "fixed": ids}, np.ones((2, 1)), verbose=0)
    after = tables_of(layer)
    np.testing.assert_array_equal(after["fixed"], before["fixed"])
    moved = (after["moving"] != before["moving"]).any(axis=1)
    assert np.flatnonzero(moved).tolist() == [1, 2, 3]
    # The layer as a whole, frozen and thawed: the table that never trains stays fixed.
    for trainable in (False, True):
        layer.trainable = trainable
        model.compile(make(), "mse")
        model.fit({"moving": ids, "fixed": ids}, np.ones((2, 1)), verbose=0)
        np.testing.assert_array_equal(tables_of(layer)["fixed"], before["fixed"])
        same = np.array_equal(tables_of(layer)["moving"], after["moving"])
        assert same is not trainable


def test_a_frozen_model_around_a_table(data, model_of, table_of, make):
    inner = model_of(make())
    symbol = keras.Input((3,), dtype="int64")
    inner.trainable = False
    model = keras.Model(symbol, keras.layers.Dense(1)(inner(symbol)))
    model.compile(make(), "mse")
    before = table_of(inner)
    fit(model, data)
    np.testing.assert_array_equal(table_of(inner), before)
