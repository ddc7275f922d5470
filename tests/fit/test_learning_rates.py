"""Learning rates that change: the tables are where steps made by hand lead."""

import numpy as np
import pytest
from tensorflow import keras

import merlin_embeddings as me


def fit(model, data, epochs, *callbacks):
    return model.fit(
        *data, batch_size=8, epochs=epochs, shuffle=False, verbose=0, callbacks=list(callbacks)
    )


def split(rate):
    return me.optimizers.Split(keras.optimizers.SGD(rate), me.optimizers.SGD(rate))


@pytest.mark.parametrize("make", [me.optimizers.SGD, split])
def test_schedules(data, model_of, table_of, descended, make):
    model = model_of(make(keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)), dense=False)
    start = table_of(model)
    fit(model, data, 2)
    rates = [0.1 * 0.5 ** (step / 2) for step in range(8)]
    expected = descended(start, *data, rates)
    np.testing.assert_allclose(table_of(model), expected, rtol=1e-5, atol=1e-6)
    assert not np.allclose(expected, descended(start, *data, [0.1] * 8), atol=1e-3)


@pytest.mark.parametrize("steps_per_execution", [1, 4])
def test_learning_rate_scheduler(data, model_of, table_of, descended, steps_per_execution):
    model = model_of(me.optimizers.SGD(7.0), dense=False, steps_per_execution=steps_per_execution)
    start = table_of(model)
    by_epoch = [0.1, 0.02, 0.05]
    scheduler = keras.callbacks.LearningRateScheduler(lambda epoch: by_epoch[epoch])
    assert fit(model, data, 3, scheduler).history["learning_rate"] == pytest.approx(by_epoch)
    expected = descended(start, *data, np.repeat(by_epoch, 4))
    np.testing.assert_allclose(table_of(model), expected, rtol=1e-5, atol=1e-6)


def test_reduce_on_plateau(data, model_of, table_of, descended):
    model = model_of(me.optimizers.SGD(0.1), dense=False)
    start = table_of(model)
    # No improvement is enough: the rate is halved after every epoch but the first.
    plateau = keras.callbacks.ReduceLROnPlateau("loss", factor=0.5, patience=1, min_delta=1e9)
    fit(model, data, 4, plateau)
    rates = np.repeat([0.1, 0.1, 0.05, 0.025], 4)
    np.testing.assert_allclose(
        table_of(model), descended(start, *data, rates), rtol=1e-5, atol=1e-6
    )
    assert float(model.optimizer.learning_rate) == pytest.approx(0.0125)


def test_callbacks_change_all_parts_of_split(data, model_of, table_of, descended):
    optimizer = me.optimizers.Split(keras.optimizers.Adam(0.4), me.optimizers.SGD(0.1))
    model = model_of(optimizer, dense=False)
    start = table_of(model)
    scheduler = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate / (epoch + 1))
    fit(model, data, 3, scheduler)
    rates = np.repeat([0.1, 0.05, 0.05 / 3], 4)
    np.testing.assert_allclose(
        table_of(model), descended(start, *data, rates), rtol=1e-5, atol=1e-6
    )
    plateau = keras.callbacks.ReduceLROnPlateau("loss", factor=0.5, patience=1, min_delta=1e9)
    fit(model, data, 2, plateau)
    assert float(optimizer.embeddings.learning_rate) == pytest.approx(0.05 / 6)


def test_a_schedule_in_split_stays_as_it_is(data, model_of):
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)
    model = model_of(split(schedule))
    with pytest.raises(ValueError, match=r"schedules are at \['dense', 'embeddings'\]"):
        fit(model, data, 1, keras.callbacks.LearningRateScheduler(lambda epoch: 0.1))
