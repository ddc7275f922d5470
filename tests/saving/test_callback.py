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


def small(**compile_arguments):
    item = me.layers.Embedding(20, 4, combiner="sum", name="item")
    model = keras.Sequential([keras.Input((2,), dtype="int64"), item, keras.layers.Dense(1)])
    model.compile(me.optimizers.SGD(0.125), "mse", **compile_arguments)
    return model


def batches(count=4):
    ids = np.arange(4 * count).reshape(-1, 2) % 20
    return tf.data.Dataset.from_tensor_slices((ids, np.ones((2 * count, 1)))).batch(2)


class At(keras.callbacks.Callback):
    """Does something after a step."""

    def __init__(self, step, what):
        super().__init__()
        self.step, self.what = step, what

    def on_train_batch_end(self, batch, logs=None):
        if int(self.model.optimizer.iterations) == self.step:
            self.what(self.model)


def stop(model):
    model.stop_training = True


def test_a_folder_of_another_training(tmp_path):
    """Or `keep` would remove each of the new one's, and leave the old one's."""
    small().fit(batches(), epochs=2, verbose=0, callbacks=[me.callbacks.Checkpoint(tmp_path)])
    checkpoints = me.callbacks.Checkpoint(tmp_path, keep=1)
    with pytest.raises(ValueError, match=r"step-0000000008 is of a later step than the model's, 0"):
        small().fit(batches(), verbose=0, callbacks=[checkpoints])
    assert checkpoints.folder.steps() == [4, 8]


def test_the_newest_cannot_be_opened(tmp_path):
    """It doesn't count, and goes as soon as another one has come."""
    small().fit(batches(), epochs=3, verbose=0, callbacks=[me.callbacks.Checkpoint(tmp_path)])
    (tmp_path / "step-0000000012" / "manifest.json").write_text("{")
    for name in ("step-0000000009", "step-0000000011.rows"):
        (tmp_path / f".{name}.partial").mkdir()  # of who was killed
    checkpoints = me.callbacks.Checkpoint(tmp_path, every=1, keep=2)
    history = checkpoints.resume(small(), batches(), epochs=4, verbose=0)
    assert history.epoch == [2, 3] and checkpoints.folder.steps() == [15, 16]
    assert sorted(os.listdir(tmp_path)) == ["step-0000000015", "step-0000000016"]


def test_what_an_increment_was_to_go_on_from_is_gone(tmp_path):
    model = small()
    checkpoints = me.callbacks.Checkpoint(tmp_path, every=1, full_every=100)
    gone = At(2, lambda _: (tmp_path / "step-0000000001").rename(tmp_path / "elsewhere"))
    model.fit(batches(), verbose=0, callbacks=[gone, checkpoints])
    chains = [len(me.checkpoint.Checkpoint(checkpoints.folder.at(s)).chain) for s in (2, 3, 4)]
    assert chains == [1, 2, 3]


def test_the_process_goes_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    for background_ in (False, True):
        checkpoints = me.callbacks.Checkpoint(f"run-{background_}", every=2, background=background_)
        model = small()
        model.fit(
            batches(),
            verbose=0,
            callbacks=[At(1, lambda _: monkeypatch.chdir(tmp_path / "elsewhere")), checkpoints],
        )
        assert os.listdir(tmp_path / "elsewhere") == [] and 4 in checkpoints.folder.steps()
        monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("function", [False, True])
def test_stopped_by_another_callback(tmp_path, function):
    """In the middle of an epoch: there it stands, and goes on from there."""
    checkpoints = me.callbacks.Checkpoint(tmp_path, every="epoch")
    data = (lambda epoch: batches()) if function else batches()
    model = small()
    history = checkpoints.resume(model, data, 3, callbacks=At(6, stop), verbose=0)
    assert history.epoch == [0, 1] and checkpoints.folder.steps() == [4, 6]
    again = small()
    at = checkpoints.restore(again)
    assert (at.epoch, at.batch) == (1, 2)
    history = checkpoints.resume(again, data, 3, callbacks=[checkpoints], verbose=0)
    assert history.epoch == [1, 2] and checkpoints.folder.steps() == [4, 6, 8, 12]
    unknown = batches().filter(lambda x, y: True)  # nobody knows whether this was its end
    again.fit(unknown, verbose=0, callbacks=[checkpoints, At(14, stop)])
    assert checkpoints.restore(again).batch == 0


def test_several_steps_a_call(tmp_path):
    checkpoints = me.callbacks.Checkpoint(tmp_path, every=3)
    small(steps_per_execution=3).fit(batches(), epochs=2, verbose=0, callbacks=[checkpoints])
    found = [me.load(small(), checkpoints.folder.at(step)) for step in checkpoints.folder.steps()]
    assert [(one.step, one.epoch, one.batch) for one in found] == [(3, 0, 3), (7, 1, 3)]


def test_an_interrupted_rest_of_an_epoch(tmp_path):
    """What is saved afterwards doesn't count the batches that were left out before."""
    checkpoints = me.callbacks.Checkpoint(tmp_path, every=3)
    small().fit(batches(), verbose=0, callbacks=[checkpoints])
    model = small()
    with pytest.raises(ZeroDivisionError):
        checkpoints.resume(model, batches(), 2, callbacks=[At(4, lambda _: 1 / 0)], verbose=0)
    model.fit(batches(), verbose=0, callbacks=[checkpoints])
    at = checkpoints.restore(small())
    assert (at.step, at.epoch, at.batch) == (7, 0, 3)


def test_arguments_of_resume(tmp_path):
    checkpoints = me.callbacks.Checkpoint(tmp_path, every=3)
    for name in ("steps_per_epoch", "initial_epoch"):
        with pytest.raises(ValueError, match=f"resume: {name}=4"):
            checkpoints.resume(small(), batches().repeat(), 2, **{name: 4})
    assert checkpoints.resume(small(), batches(), 1, callbacks=None, verbose=0).epoch == [0]

    class Sequence(keras.utils.Sequence):
        pass

    with pytest.raises(TypeError, match="at batch 3 of epoch 0, and a Sequence can't begin there"):
        checkpoints.resume(small(), Sequence(), 2)


def test_what_another_model_left_in_the_background(tmp_path):
    checkpoints = me.callbacks.Checkpoint(tmp_path, every=1, background=True, share=0.001)
    with pytest.raises(ZeroDivisionError):
        small().fit(batches(), verbose=0, callbacks=[checkpoints, At(1, lambda _: 1 / 0)])
    model = small()
    model.fit(batches(), verbose=0, callbacks=[checkpoints])
    again = small()
    assert me.load(again, checkpoints.folder.at(4)).step == 4
    np.testing.assert_array_equal(again.get_weights()[0], model.get_weights()[0])


def test_a_save_that_fails_at_its_end_leaves_nothing(tmp_path, monkeypatch):
    def fail(*arguments, **more):
        raise KeyboardInterrupt

    model = small()
    running = background.BackgroundSave(model, tmp_path / "a", share=1.0)
    while not running.ready:
        time.sleep(0.01)
    assert os.listdir(tmp_path) == ["a.rows"]
    monkeypatch.setattr(background, "save", fail)
    with pytest.raises(KeyboardInterrupt):
        running.finish()
    assert os.listdir(tmp_path) == []
