"""A run that goes on from a checkpoint is the run that never stopped, to the bit."""

import numpy as np
import pytest
from tensorflow import keras

import merlin_embeddings as me
from tests.saving import models

OPTIMIZERS = {
    "adam": lambda: me.optimizers.Adam(0.125),
    "split": lambda: me.optimizers.Split(
        dense=keras.optimizers.Adam(0.125),
        embeddings=me.optimizers.RowwiseAdagrad(0.125, initial_accumulator_value=0.5),
        overrides={"item": me.optimizers.SGD(0.125, momentum=0.5)},
    ),
    # Averages of rows, and sums of gradients: 3 is between two batches of one step.
    "averaged": lambda: me.optimizers.SGD(
        0.125, use_ema=True, ema_momentum=0.5, gradient_accumulation_steps=2
    ),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_to_the_bit(tmp_path, name):
    """From the middle of an epoch, and from its end."""
    whole = models.model_of(OPTIMIZERS[name]())
    at_save = {}
    for begin, stop in ((0, 3), (3, models.BATCHES)):
        models.train(whole, begin, stop)
        saved = me.save(whole, tmp_path / f"{stop}", batch=stop, metadata={"note": [1, "a"]})
        at_save[stop] = models.state_of(whole)
    models.train(whole)
    users = whole.get_layer(index=models._at(whole)).tables["user"]
    assert int(users.ids.statistics()["evicted"]) > 3
    for stop in at_save:
        resumed = models.model_of(OPTIMIZERS[name]())
        loaded = me.load(resumed, tmp_path / f"{stop}")
        assert (loaded.batch, loaded.metadata) == (stop, {"note": [1, "a"]})
        assert loaded.left == [] and saved.full
        np.testing.assert_equal(models.state_of(resumed), at_save[stop])
        if stop < models.BATCHES:
            models.train(resumed, stop)
        models.train(resumed)
        np.testing.assert_equal(models.state_of(resumed), models.state_of(whole))
