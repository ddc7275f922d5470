"""Clones, copies and pickles: tables of their own, shared where the original shares them."""

import copy
import pickle

import numpy as np
import pytest
from tensorflow import keras

import merlin_embeddings as me

IDS = {"item": np.array([[1, 2], [3, 3]]), "other": np.array([[4, 5], [1, 1]])}


def shared(**layer):
    item = me.TableConfig("item", 9, 4, seed=1)
    features = {name: me.FeatureConfig(name, item, combiner="sum") for name in IDS}
    symbols = {name: keras.Input((2,), dtype="int64", name=name) for name in IDS}
    vectors = me.layers.Embeddings(features, name="tables", **layer)(symbols)
    output = keras.layers.Dense(1, kernel_initializer="ones")(vectors["item"] - vectors["other"])
    model = keras.Model(symbols, output)
    model.compile(me.optimizers.Adagrad(0.1), "mse")
    return model


def train(model):
    model.fit(IDS, np.array([[1.0], [-1.0]]), epochs=2, shuffle=False, verbose=0)


def table_of(model):
    return model.get_layer("tables").get_weights()[0]


def test_a_clone_starts_afresh_and_is_independent():
    model = shared()
    start = table_of(model)
    train(model)
    trained = table_of(model)
    clone = keras.models.clone_model(model)
    [weight] = clone.get_layer("tables").weights  # one table for two features, as before
    # With a seed, fresh values are the same ones.
    np.testing.assert_array_equal(weight.numpy(), start)
    clone.compile(me.optimizers.Adagrad(0.1), "mse")
    train(clone)
    np.testing.assert_array_equal(table_of(clone), trained)
    train(clone)
    np.testing.assert_array_equal(table_of(model), trained)
    assert not np.allclose(table_of(clone), trained)


def test_one_layer_called_twice_is_one_layer_in_the_clone():
    layer = me.layers.Embedding(9, 4, combiner="sum", name="tables", seed=3)
    symbols = [keras.Input((2,), dtype="int64") for _ in range(2)]
    model = keras.Model(symbols, keras.layers.Dense(1)(layer(symbols[0]) * layer(symbols[1])))
    clone = keras.models.clone_model(model)
    assert len(clone.get_layer("tables").weights) == 1
    assert len(clone.weights) == 3
    np.testing.assert_array_equal(table_of(clone), table_of(model))
    assert clone.get_layer("tables").table is not layer.table


def copied_by_pickle(thing):
    return pickle.loads(pickle.dumps(thing))


@pytest.mark.parametrize("copied", [copy.deepcopy, copied_by_pickle])
def test_copies_of_models_train_on_alone(copied):
    model = shared()
    train(model)
    twin = copied(model)
    before = table_of(model)
    np.testing.assert_array_equal(table_of(twin), before)
    train(twin)
    np.testing.assert_array_equal(table_of(model), before)
    train(model)
    np.testing.assert_array_equal(table_of(twin), table_of(model))


@pytest.mark.parametrize("copied", [copy.deepcopy, copied_by_pickle])
@pytest.mark.parametrize("built", [False, True])
def test_copies_of_layers(copied, built):
    layer = me.layers.Embedding(9, 4, combiner="mean", padding_id=0)
    if built:
        layer.build()
    twin = copied(layer)
    assert twin.get_config() == layer.get_config()
    assert twin.built == built
    if built:
        np.testing.assert_array_equal(twin.embeddings.numpy(), layer.embeddings.numpy())
        twin.set_weights([np.zeros((9, 4))])
        assert layer.embeddings.numpy().any()
        assert me.tables.table_of(twin.embeddings) is twin.table is not layer.table


@pytest.mark.parametrize("copied", [copy.deepcopy, copied_by_pickle])
def test_copies_of_optimizers(copied):
    optimizer = me.optimizers.Adam(0.1, beta_1=0.8, clipnorm=2.0)
    twin = copied(optimizer)
    assert twin.get_config() == optimizer.get_config()
    assert not twin.built
