"""Optimizers, one training run and its measures."""

import time
from dataclasses import dataclass

import numpy as np
from tensorflow import keras

import merlin_embeddings as me
from movielens_data import Ratings, Split, batches
from movielens_models import KerasEmbeddings, build_model, merlin_embeddings

EMBEDDINGS = {"merlin": merlin_embeddings, "keras": KerasEmbeddings}
OPTIMIZERS = {
    "adam": {
        "merlin": lambda: me.optimizers.Adam(0.001),
        "keras": lambda: keras.optimizers.Adam(0.001),
    },
    "adagrad": {
        "merlin": lambda: me.optimizers.Adagrad(0.3),
        "keras": lambda: keras.optimizers.Adagrad(0.3),
    },
    "rowwise_adagrad": {  # Keras has no row-wise rule; its Adagrad is the nearest
        "merlin": lambda: me.optimizers.RowwiseAdagrad(0.02),
        "keras": lambda: keras.optimizers.Adagrad(0.3),
    },
    "sgd": {
        "merlin": lambda: me.optimizers.SGD(1.0),
        "keras": lambda: keras.optimizers.SGD(1.0),
    },
}


@dataclass(frozen=True)
class Settings:
    """What a run is made of, the same for both kinds of embeddings."""

    model: str = "dlrm"
    optimizer: str = "adam"
    dim: int = 16
    dropout: float = 0.3
    batch_size: int = 512
    epochs: int = 15
    patience: int | None = 3  # epochs without a better validation AUC; None trains all epochs


@dataclass(frozen=True)
class Run:
    """A trained model and how it got there."""

    embeddings: str
    seed: int
    model: keras.Model
    test_auc: float
    samples_per_second: float  # of training, the median of the epochs after the first
    loss: list[float]  # of training, one an epoch
    valid_auc: list[float]  # one an epoch


class Stopwatch(keras.callbacks.Callback):
    """The seconds each epoch spent in training, validation left out."""

    def __init__(self):
        super().__init__()
        self.seconds = []

    def on_epoch_begin(self, epoch, logs=None):
        self._start = time.perf_counter()

    def on_test_begin(self, logs=None):
        self.seconds.append(time.perf_counter() - self._start)


def create(embeddings: str, ratings: Ratings, settings: Settings, seed: int) -> keras.Model:
    """A compiled model. Its dense weights depend on the seed alone, not on the embeddings."""
    keras.utils.set_random_seed(seed)
    layer = EMBEDDINGS[embeddings](ratings.sizes, settings.dim, seed)
    model = build_model(settings.model, layer, ratings.sizes, settings.dim, settings.dropout, seed)
    model.compile(
        optimizer=OPTIMIZERS[settings.optimizer][embeddings](),
        loss="binary_crossentropy",
        metrics=[keras.metrics.AUC(name="auc")],
        jit_compile=False,
    )
    return model


def fit(model, embeddings: str, ratings: Ratings, split: Split, settings: Settings, seed: int,
        callbacks=()) -> Run:
    """Trains, keeps the epoch with the best validation AUC and measures that on the test part."""
    train = batches(ratings, split.train, settings.batch_size, shuffle_seed=seed)
    valid = batches(ratings, split.valid, 8192)
    stopwatch = Stopwatch()
    callbacks = [stopwatch, *callbacks]
    if settings.patience is not None:
        callbacks.append(
            keras.callbacks.EarlyStopping(
                "val_auc", mode="max", patience=settings.patience, restore_best_weights=True
            )
        )
    history = model.fit(
        train, validation_data=valid, epochs=settings.epochs, shuffle=False, verbose=0,
        callbacks=callbacks,
    ).history
    return Run(
        embeddings=embeddings,
        seed=seed,
        model=model,
        test_auc=auc(ratings.labels[split.test], predict(model, ratings, split.test)),
        samples_per_second=len(split.train) / np.median(stopwatch.seconds[1:] or stopwatch.seconds),
        loss=history["loss"],
        valid_auc=history["val_auc"],
    )


def predict(model, ratings: Ratings, rows) -> np.ndarray:
    """The probability `[B, 1]` of a like for each of the rows `[B]`."""
    return model.predict(batches(ratings, rows, 8192), verbose=0)


def auc(labels: np.ndarray, scores: np.ndarray) -> float:
    """The exact area under the ROC curve, from ranks: the Mann-Whitney statistic; ties count half.

    Keras's metric, good enough to watch the training, approximates it by 200 thresholds.
    """
    _, group, size = np.unique(scores.ravel(), return_inverse=True, return_counts=True)
    rank = (np.cumsum(size) - (size - 1) / 2)[group]
    positive = labels.ravel() > 0
    likes, dislikes = positive.sum(), (~positive).sum()
    return float((rank[positive].sum() - likes * (likes + 1) / 2) / (likes * dislikes))


def copy_weights(source: keras.Model, target: keras.Model) -> None:
    """Gives `target` (merlin) the weights of `source` (keras): each dense layer, each table."""
    for layer in source.layers:
        if not isinstance(layer, KerasEmbeddings):
            target.get_layer(layer.name).set_weights(layer.get_weights())
    tables = source.get_layer("embeddings").tables
    for weight in target.get_layer("embeddings").weights:
        weight.assign(tables[weight.name].embeddings)
