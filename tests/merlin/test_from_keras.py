"""What docs/from-keras.md says of Keras 2."""

import numpy as np
import pytest
from tensorflow import keras

import merlin_embeddings as me

IDS = np.random.default_rng(0).integers(50, size=[64, 3])


def model_with(embedding):
    ids = keras.Input([3], dtype="int64")
    vectors = embedding(50, 4, name="item")(ids)
    x = keras.layers.GlobalAveragePooling1D()(vectors)
    return keras.Model(ids, keras.layers.Dense(1, name="score")(x))


@pytest.fixture(scope="module")
def old():
    model = model_with(keras.layers.Embedding)
    model.compile("adagrad", "mse")
    model.fit(IDS, np.ones(64), verbose=0)
    return model


@pytest.mark.parametrize("file", ["old.keras", "old.h5", "old.weights.h5", "old"])
def test_weights_of_files(tmp_path, old, file):
    path = str(tmp_path / file)
    (old.save_weights if ".weights." in file else old.save)(path)
    model = model_with(me.layers.Embedding)
    if file in ("old.keras", "old"):  # Keras 2 reads no weights alone from these
        model.set_weights(keras.models.load_model(path).get_weights())
    else:
        model.load_weights(path)
    np.testing.assert_array_equal(model.predict(IDS, verbose=0), old.predict(IDS, verbose=0))


def test_clone(old):
    def ours(layer):
        embedding = isinstance(layer, keras.layers.Embedding)
        return (me.layers.Embedding if embedding else type(layer)).from_config(layer.get_config())

    changed = keras.models.clone_model(old, clone_function=ours)
    changed.set_weights(old.get_weights())
    assert isinstance(changed.get_layer("item"), me.layers.Embedding)
    np.testing.assert_array_equal(changed.predict(IDS, verbose=0), old.predict(IDS, verbose=0))


def test_optimizer(old):
    model = model_with(me.layers.Embedding)
    model.set_weights(old.get_weights())
    model.compile(me.optimizers.Adagrad(0.1), "mse")
    assert isinstance(model.optimizer, keras.optimizers.Optimizer)
    reference = keras.models.clone_model(old)
    reference.set_weights(old.get_weights())
    reference.compile(keras.optimizers.Adagrad(0.1), "mse")
    for each in (model, reference):
        each.fit(IDS, np.ones(64), batch_size=16, shuffle=False, verbose=0)
    for ours, theirs in zip(model.get_weights(), reference.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
