"""A DCN-v2 over any ids, and two ways to train it: once through a stream, or by epochs."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from auc import auc
from movielens_models import CrossNetwork, mlp
from streaming_data import Stream, score_of
from tensorflow import keras

import merlin_embeddings as me

RATE = 0.05  # of Adagrad, for embeddings: best for own rows and for modulo alike
PATIENCE = 4  # epochs without a better one


def tables_of(stream: Stream, ids: dict, dim: int) -> dict[str, me.FeatureConfig]:
    """A table a column; `ids` says which row an id has, where it isn't the id."""
    return {
        name: me.FeatureConfig(
            name,
            me.TableConfig(
                name, stream.vocabulary.get(name), dim, ids=ids.get(name), seed=at
            ),
        )
        for at, name in enumerate(stream.ids)
    }  # fmt: skip


def dcn(stream: Stream, ids: dict, dim: int, dropout: float = 0.0, seed: int = 0) -> keras.Model:
    """DCN-v2 (Wang et al., 2021, https://arxiv.org/abs/2008.13535): `{column: [B]}`, numbers
    `[B, K]` and scores of ids, where the stream has some, to the probability `[B, 1]`."""
    keras.utils.set_random_seed(seed)
    inputs = {name: keras.Input((), dtype="int64", name=name) for name in stream.ids}
    scores = {name: keras.Input((), dtype="int64", name=score_of(name)) for name in stream.scores}
    tables = me.layers.Embeddings(tables_of(stream, ids, dim), name="tables")
    parts = list(tables(inputs, scores=scores or None).values())
    inputs |= {score_of(name): symbol for name, symbol in scores.items()}
    if count := stream.numbers.shape[1]:
        inputs["numbers"] = keras.Input((count,), name="numbers")
        parts.append(inputs["numbers"])
    x0 = keras.layers.Concatenate()(parts)
    x = mlp([64, 32], "deep", dropout, seed)(CrossNetwork(depth=2, name="cross")(x0))
    return keras.Model(inputs, keras.layers.Dense(1, "sigmoid", name="like")(x))


@keras.utils.register_keras_serializable("streaming")
class Scores(keras.metrics.Metric):
    """Keeps the prediction for each of N samples, made before the step learns from it.

    "Progressive validation" (Blum, Kalai and Langford, 1999): each sample is a test, once.
    """

    def __init__(self, samples: int, **kwargs):
        super().__init__(**kwargs)
        self.samples = samples
        self.next = self.add_weight(shape=(), dtype="int64", name="next", initializer="zeros")
        self.scores = self.add_weight(shape=(samples,), name="scores", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        count = tf.size(y_pred, tf.int64)
        places = self.next + tf.range(count)
        self.scores.value.scatter_update(tf.IndexedSlices(tf.reshape(y_pred, [-1]), places))
        self.next.assign_add(count)

    def result(self):
        return tf.cast(self.next, tf.float32)

    def get_config(self):
        return super().get_config() | {"samples": self.samples}


class Days(keras.callbacks.Callback):
    """Calls `begins(day)` before the first batch of each day."""

    def __init__(self, stream: Stream, batch: int, begins: Callable[[int], None]):
        super().__init__()
        self.stream, self.size, self.begins, self.day = stream, batch, begins, -1

    def on_train_batch_begin(self, batch, logs=None):
        while self.stream.days[self.day + 1] <= batch * self.size:
            self.day += 1
            self.begins(self.day)


def train_once(model: keras.Model, stream: Stream, batch: int, callbacks=()) -> np.ndarray:
    """Goes once through the stream; what the model said of each sample, `[N]`."""
    # The gradient of a mean over a thousand samples is so small that the usual start of Adagrad's
    # sums, 0.1, would outweigh whatever a stream as short as this one adds to them.
    embeddings = me.optimizers.Adagrad(RATE, initial_accumulator_value=1e-7)
    optimizer = me.optimizers.Split(dense=keras.optimizers.Adam(0.001), embeddings=embeddings)
    scores = Scores(len(stream), name="scores")
    model.compile(optimizer, "binary_crossentropy", metrics=[scores], jit_compile=False)
    model.fit(
        stream.inputs(), stream.labels, batch, shuffle=False, verbose=0, callbacks=list(callbacks)
    )
    return np.asarray(scores.scores)


@dataclass(frozen=True)
class Reached:
    """AUCs of a model that was trained by epochs."""

    valid: float  # of the best epoch
    test: float  # of the same epoch
    by_epoch: list[float]  # in validation


def train_epochs(
    model: keras.Model, stream: Stream, batch: int, epochs: int, callbacks=()
) -> Reached:
    """Trains on the first of three days; the test's AUC after the epoch best in validation."""
    train, valid, test = (
        slice(first, end) for first, end in zip(stream.days, stream.days[1:], strict=False)
    )
    inputs = {part: stream.inputs(rows) for part, rows in (("v", valid), ("t", test))}
    by_epoch: list[float] = []
    tested: dict[int, float] = {}

    def score(part, rows):
        return auc(stream.labels[rows], model.predict(inputs[part], 8192, verbose=0)[:, 0])

    def after_epoch(epoch, logs):
        by_epoch.append(score("v", valid))
        best = int(np.argmax(by_epoch))
        if best == epoch:
            tested[epoch] = score("t", test)
        elif epoch >= best + PATIENCE:
            model.stop_training = True

    model.compile(me.optimizers.Adam(0.001), "binary_crossentropy", jit_compile=False)
    watch = keras.callbacks.LambdaCallback(on_epoch_end=after_epoch)
    model.fit(
        stream.inputs(train), stream.labels[train], batch, epochs, verbose=0,
        callbacks=[watch, *callbacks],
    )  # fmt: skip
    best = int(np.argmax(by_epoch))
    return Reached(by_epoch[best], tested[best], by_epoch)
