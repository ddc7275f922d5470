"""Keras's TensorBoard callback: metrics, histograms of tables and the model's structure."""

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import merlin_embeddings as me


def values_of(folder):
    """{tag: {step: array}} of all event files in a folder."""
    found = {}
    for path in sorted(Path(folder).glob("events.out.tfevents.*")):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                found.setdefault(value.tag, {})[event.step] = tf.make_ndarray(value.tensor)
    return found


@pytest.mark.parametrize(
    "make",
    [
        lambda: me.optimizers.Adagrad(0.25),
        lambda: me.optimizers.Split(keras.optimizers.SGD(0.25), me.optimizers.Adam(0.1)),
    ],
    ids=["adagrad", "split"],
)
def test_metrics_and_histograms(tmp_path, data, model_of, table_of, make):
    model = model_of(make())
    board = keras.callbacks.TensorBoard(tmp_path, histogram_freq=1, write_steps_per_second=True)
    history = model.fit(
        *data, validation_split=0.25, batch_size=8, epochs=2, verbose=0, callbacks=[board]
    ).history
    train, validation = values_of(tmp_path / "train"), values_of(tmp_path / "validation")
    for number in (0, 1):
        assert train["epoch_loss"][number] == pytest.approx(history["loss"][number])
        assert validation["epoch_loss"][number] == pytest.approx(history["val_loss"][number])
        assert train["epoch_learning_rate"][number] == 0.25
    # Buckets are [left, right, count]: as many numbers as the table has.
    histogram = train["table/embeddings/histogram"][1]
    assert histogram[:, 2].sum() == table_of(model).size
    assert histogram[0, 0] == pytest.approx(table_of(model).min(), rel=1e-5)
    structure = json.loads(train["keras"][0].item())
    assert "Embedding" in [layer["class_name"] for layer in structure["config"]["layers"]]


def test_by_batches_of_several_steps(tmp_path, data, model_of):
    model = model_of(me.optimizers.Adagrad(0.1), steps_per_execution=2)
    board = keras.callbacks.TensorBoard(tmp_path, update_freq="batch", profile_batch=0)
    model.fit(*data, batch_size=8, verbose=0, callbacks=[board])
    losses = values_of(tmp_path / "train")["batch_loss"]
    assert len(losses) == 2
    assert np.isfinite(list(losses.values())).all()
