"""EarlyStopping puts the best tables back; a table knows that it was replaced."""

import numpy as np
import pytest
from tensorflow import keras

import merlin_embeddings as me


def keys_since(table, mark):
    return np.concatenate([part.keys for part in table.entries(since=mark)]).tolist()


@pytest.mark.parametrize("optimizer", [me.optimizers.SGD, me.optimizers.Adam])
def test_restore_best_weights(data, model_of, optimizer):
    rates = keras.callbacks.LearningRateScheduler(lambda epoch: 0.1 if epoch < 2 else -0.5)
    options = dict(batch_size=8, shuffle=False, verbose=0)
    model = model_of(optimizer(0.1))
    stop = keras.callbacks.EarlyStopping("loss", patience=2, restore_best_weights=True)
    losses = model.fit(*data, epochs=9, callbacks=[rates, stop], **options).history["loss"]
    assert len(losses) == stop.best_epoch + 3 < 9
    expected = model_of(optimizer(0.1))
    expected.fit(*data, epochs=stop.best_epoch + 1, callbacks=[rates], **options)
    for restored, best in zip(model.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_array_equal(restored, best)


def test_weights_that_were_set_count_as_written(data, model_of):
    model = model_of(me.optimizers.Adagrad(0.1))
    model.fit(*data, batch_size=8, verbose=0)
    table = model.get_layer("table").table
    mark = table.mark()
    weights = [np.full_like(weight, 2.0) for weight in model.get_weights()]
    model.set_weights(weights)
    assert keys_since(table, mark) == list(range(table.rows))
    assert (table.variable.numpy() == 2.0).all()
    mark = table.mark()
    model.fit(data[0][:8], data[1][:8], batch_size=8, verbose=0)
    assert keys_since(table, mark) == sorted(set(data[0][:8].ravel()))
