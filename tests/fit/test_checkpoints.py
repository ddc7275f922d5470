"""ModelCheckpoint: weights and whole models, by epoch, by batches, only the best."""

import numpy as np
import pytest
from tensorflow import keras

import merlin_embeddings as me

OPTIMIZERS = {
    "rowwise_adagrad": lambda: me.optimizers.RowwiseAdagrad(0.1),
    "split": lambda: me.optimizers.Split(keras.optimizers.Adam(0.1), me.optimizers.Adam(0.1)),
}


def fit(model, data, epochs, *callbacks):
    return model.fit(
        *data, batch_size=8, epochs=epochs, shuffle=False, verbose=0, callbacks=list(callbacks)
    )


def assert_same(these, those):
    for this, that in zip(these, those, strict=True):
        np.testing.assert_array_equal(this, that)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_whole_model_of_any_epoch_trains_on(tmp_path, data, model_of, state_of, name):
    path = str(tmp_path / "{epoch}.keras")
    model = model_of(OPTIMIZERS[name]())
    fit(model, data, 3, keras.callbacks.ModelCheckpoint(path))
    loaded = keras.models.load_model(path.format(epoch=2))
    fit(loaded, data, 1)
    assert_same(state_of(loaded), state_of(model))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_weights_of_any_epoch_train_on(tmp_path, data, model_of, state_of, name):
    path = str(tmp_path / "{epoch}.weights.h5")
    model = model_of(OPTIMIZERS[name]())
    fit(model, data, 3, keras.callbacks.ModelCheckpoint(path, save_weights_only=True))
    other = model_of(OPTIMIZERS[name]())
    other.optimizer.build(other.trainable_variables)
    other.load_weights(path.format(epoch=2))
    fit(other, data, 1)
    assert_same(state_of(other), state_of(model))


def test_by_batches(tmp_path, data, model_of, state_of):
    path = str(tmp_path / "{epoch}-{batch}.keras")
    model = model_of(me.optimizers.Adam(0.1))
    fit(model, data, 2, keras.callbacks.ModelCheckpoint(path, save_freq=3))
    # Four batches an epoch; after the third, sixth of all.
    assert sorted(p.name for p in tmp_path.iterdir()) == ["1-3.keras", "2-2.keras"]
    loaded = keras.models.load_model(tmp_path / "2-2.keras")
    ids, y = data
    fit(loaded, (ids[16:], y[16:]), 1)
    assert_same(state_of(loaded), state_of(model))


@pytest.mark.parametrize("suffix", [".keras", ".weights.h5"])
def test_only_the_best(tmp_path, data, model_of, state_of, suffix):
    path = str(tmp_path / f"best{suffix}")
    # Down for two epochs, then up again.
    rates = keras.callbacks.LearningRateScheduler(lambda epoch: [0.1, 0.1, -0.5, -0.5][epoch])
    model = model_of(me.optimizers.SGD(0.1))
    best = keras.callbacks.ModelCheckpoint(
        path, "loss", save_best_only=True, save_weights_only=suffix != ".keras"
    )
    losses = fit(model, data, 4, rates, best).history["loss"]
    number = int(np.argmin(losses))
    assert 0 < number < 3
    expected = model_of(me.optimizers.SGD(0.1))
    fit(expected, data, number + 1, rates)
    if suffix == ".keras":
        assert_same(state_of(keras.models.load_model(path)), state_of(expected))
    else:
        model.load_weights(path)
        assert_same(model.get_weights(), expected.get_weights())
