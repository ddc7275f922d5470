"""A small model whose steps of gradient descent can be made by hand."""

import numpy as np
import pytest
from tensorflow import keras

import merlin_embeddings as me

ROWS, DIM = 20, 4


@pytest.fixture(scope="session")
def data():
    """Ids [32, 3], some of them twice in a row and all of them in several, and targets [32, 1]."""
    rng = np.random.default_rng(0)
    return rng.integers(0, ROWS, (32, 3)), rng.normal(size=(32, 1)).astype(np.float32)


def _model_of(optimizer, dense=True, **options):
    keras.utils.set_random_seed(1)
    symbol = keras.Input((3,), dtype="int64")
    vectors = me.layers.Embedding(ROWS, DIM, combiner="sum", name="table", seed=1)(symbol)
    last = keras.layers.Dense(1, name="dense", trainable=dense)
    if not dense:
        last = keras.layers.Dense(
            1, kernel_initializer="ones", use_bias=False, trainable=False, name="dense"
        )
    model = keras.Model(symbol, last(vectors))
    model.compile(optimizer, "mse", **options)
    return model


@pytest.fixture(scope="session")
def model_of():
    """model_of(optimizer, dense=True, **of compile): bags of ids, summed, to a number.

    Every call gives the same model. With dense=False only the table trains, and a prediction is the
    sum of all elements of the bag's vectors.
    """
    return _model_of


@pytest.fixture(scope="session")
def descended():
    """descended(table, ids, y, rates, batch_size=8, weights=None): gradient descent by hand.

    The table [R, D] after one step for each of `rates`, on batches in order, round and round, of a
    model made with dense=False; `weights` [N] are those of the samples.
    """

    def steps(table, ids, y, rates, batch_size=8, weights=None):
        table = np.array(table, np.float64)
        weights = np.ones(len(ids)) if weights is None else weights
        for number, rate in enumerate(rates):
            at = np.arange(number * batch_size, (number + 1) * batch_size) % len(ids)
            errors = table[ids[at]].sum((1, 2)) - y[at, 0]
            slopes = 2 * errors * weights[at] / batch_size
            np.subtract.at(table, ids[at], rate * slopes[:, None, None])
        return table

    return steps


@pytest.fixture(scope="session")
def table_of():
    """The values of a model's table."""
    return lambda model: model.get_layer("table").get_weights()[0]


@pytest.fixture(scope="session")
def state_of():
    """Everything that a model and its optimizer hold."""
    return lambda model: [v.numpy() for v in [*model.weights, *model.optimizer.variables]]
