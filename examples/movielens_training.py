"""Optimizers, one training run and its measures."""

import time
from dataclasses import dataclass

import numpy as np
from movielens_models import build_model, keras_layer, merlin_layer
from movielens_workflow import Prepared
from sklearn.metrics import roc_auc_score
from tensorflow import keras

import merlin_embeddings as me

EMBEDDINGS = {"merlin": merlin_layer, "keras": keras_layer}
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
class Experiment:
    """What the runs have in common, whatever their embeddings and seeds."""

    ratings: Prepared
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


def create(experiment: Experiment, embeddings: str, seed: int) -> keras.Model:
    """A compiled model; its dense weights and dropout depend on the seed, not on the embeddings."""
    keras.utils.set_random_seed(seed)
    ratings, dim = experiment.ratings, experiment.dim
    layer = EMBEDDINGS[embeddings](ratings.schema, dim, seed)
    model = build_model(experiment.model, ratings, layer, dim, experiment.dropout, seed)
    model.compile(
        optimizer=OPTIMIZERS[experiment.optimizer][embeddings](),
        loss="binary_crossentropy",
        metrics=[keras.metrics.AUC(name="auc")],
        jit_compile=False,
    )
    return model


def fit(experiment: Experiment, embeddings: str, seed: int, model, callbacks=()) -> Run:
    """Trains, goes back to the epoch with the best validation AUC, and tests that one."""
    ratings = experiment.ratings
    stopwatch = Stopwatch()
    callbacks = [stopwatch, *callbacks]
    if experiment.patience is not None:
        callbacks.append(
            keras.callbacks.EarlyStopping(
                "val_auc", mode="max", patience=experiment.patience, restore_best_weights=True
            )
        )
    history = model.fit(
        ratings.batches("train", experiment.batch_size, seed),
        validation_data=ratings.batches("valid"),
        epochs=experiment.epochs,
        callbacks=callbacks,
        shuffle=False,
        verbose=0,
    ).history
    seconds = np.median(stopwatch.seconds[1:] or stopwatch.seconds)
    return Run(
        embeddings=embeddings,
        seed=seed,
        model=model,
        test_auc=roc_auc_score(ratings.likes("test"), predict(model, ratings, "test")),
        samples_per_second=len(ratings.likes("train")) / seconds,
        loss=history["loss"],
        valid_auc=history["val_auc"],
    )


def predict(model: keras.Model, ratings: Prepared, part: str) -> np.ndarray:
    """The probability of a like, `[N, 1]`, for each rating of a part."""
    return model.predict(ratings.batches(part), verbose=0)


def copy_weights(source: keras.Model, target: keras.Model) -> None:
    """Gives a model what another one has: both have the same weights in the same order."""
    target.set_weights(source.get_weights())
