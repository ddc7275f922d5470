"""Checkpoints in `fit`, and how a training that died goes on."""

import errno
import os
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import merlin_embeddings as me
from merlin_embeddings.saving import background
from tests.saving import models


class PowerCut(keras.callbacks.Callback):
    def __init__(self, epoch, batch):
        super().__init__()
        self.when, self.epoch = (epoch, batch), 0

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if (self.epoch, batch) == self.when:
            raise RuntimeError("power cut")


class States(keras.callbacks.Callback):
    """What the model is after each step; whoever sleeps may wake up eight times meanwhile."""

    def __init__(self):
        super().__init__()
        self.of, self._gate = {}, threading.Semaphore(0)

    def sleep(self, seconds):
        del seconds
        self._gate.acquire(timeout=1)

    def on_train_batch_end(self, batch, logs=None):
        self.of[int(self.model.optimizer.iterations)] = models.state_of(self.model)
        self._gate.release(8)


def shuffled(epoch):
    data = models.data().unbatch().shuffle(100, seed=epoch).batch(models.BATCH)
    # Where Keras doesn't know it, a step that finds no batch counts among the optimizer's.
    return data.apply(tf.data.experimental.assert_cardinality(models.BATCHES))


@pytest.mark.parametrize("every", ["epoch", 2])
def test_a_training_that_died_ends_where_an_uninterrupted_one_does(tmp_path, every):
    whole = models.model_of(me.optimizers.Adam(0.125))
    me.save(whole, tmp_path / "start")
    for epoch in range(3):
        whole.fit(shuffled(epoch), verbose=0)
    died = models.model_of(me.optimizers.Adam(0.125))
    me.load(died, tmp_path / "start")
    saved = me.callbacks.Checkpoint(tmp_path / "run", every=every, keep=2)
    with pytest.raises(RuntimeError, match="power cut"):
        saved.resume(died, shuffled, 3, callbacks=[PowerCut(1, 4)], verbose=0)
    resumed = models.model_of(me.optimizers.Adam(0.125))
    again = me.callbacks.Checkpoint(tmp_path / "run", every=every, keep=2)
    at = again.restore(resumed)
    assert (at.epoch, at.batch) == {"epoch": (1, 0), 2: (1, 4)}[every]
    history = again.resume(resumed, shuffled, 3, verbose=0)
    assert history.epoch == [1, 2]
    np.testing.assert_equal(models.state_of(resumed), models.state_of(whole))
    assert again.folder.steps() == {"epoch": [12, 18], 2: [16, 18]}[every]
    assert again.resume(resumed, shuffled, 3, verbose=0).epoch == []


def test_in_the_background_and_in_increments(tmp_path, monkeypatch):
    """Whatever steps are made while rows are written: a checkpoint is of one of them."""
    model, states = models.model_of(me.optimizers.Adam(0.125)), States()
    monkeypatch.setattr(background, "_AT_ONCE", 64)  # a row at a time
    clock = SimpleNamespace(sleep=states.sleep, monotonic=time.monotonic)
    monkeypatch.setattr(background, "time", clock)
    checkpoints = me.callbacks.Checkpoint(tmp_path, every=2, background=True, full_every=2)
    data = models.data()
    model.fit(data, epochs=5, verbose=0, callbacks=[states, checkpoints])
    steps = checkpoints.folder.steps()
    chains = [len(me.checkpoint.Checkpoint(checkpoints.folder.at(s)).chain) for s in steps]
    assert {2, 3} <= set(chains) and any(step % 2 for step in steps)
    target = models.model_of(me.optimizers.Adam(0.125))
    for step in steps:
        loaded = me.load(target, checkpoints.folder.at(step))
        assert loaded.step == step
        assert loaded.epoch * models.BATCHES + loaded.batch == step
        np.testing.assert_equal(models.state_of(target), states.of[step])
    [rows, *_] = sorted(tmp_path.glob("*.rows"))
    with pytest.raises(ValueError, match="no checkpoint by itself"):
        me.load(target, rows)
    checkpoints.folder.keep(1)
    assert checkpoints.folder.steps()[-1] == steps[-1] and len(checkpoints.folder.steps()) <= 2
    me.load(target, checkpoints.folder.newest())


def test_a_disk_that_fails_in_the_background_is_told(tmp_path, monkeypatch):
    model = models.model_of(me.optimizers.Adam(0.125))

    def fail(*arguments, **more):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(background.checkpoint, "commit", fail)
    checkpoints = me.callbacks.Checkpoint(tmp_path, every=2, background=True)
    with pytest.raises(OSError, match="No space left"):
        model.fit(models.data(), epochs=2, verbose=0, callbacks=[checkpoints])
    assert checkpoints.folder.steps() == []


@pytest.mark.parametrize(
    "arguments",
    [{"every": 0}, {"every": "batch"}, {"keep": 0}, {"full_every": 0}, {"share": 0}],
)
def test_arguments(arguments):
    with pytest.raises(ValueError, match=next(iter(arguments))):
        me.callbacks.Checkpoint("somewhere", **arguments)


def test_nothing_to_go_on_from(tmp_path):
    model = models.model_of(me.optimizers.Adam(0.125))
    checkpoints = me.callbacks.Checkpoint(tmp_path / "none")
    assert checkpoints.restore(model) is None
    assert checkpoints.folder.newest() is None and not (tmp_path / "none").exists()
