"""A way to build tables without a layer of the package."""

import pytest
from tensorflow import keras

from merlin_embeddings import tables
from merlin_embeddings.config import TableConfig


@pytest.fixture
def make_table():
    """make_table(rows, dim, **config) -> DenseTable; the layer that owns it is `table.owner`."""

    def make(rows=20, dim=4, name="item", **config):
        owner = keras.layers.Layer()
        config = TableConfig(name, rows, dim, **{"seed": 5, **config})
        table = tables.build(config, rows, owner.add_weight)
        table.owner = owner
        return table

    return make


@pytest.fixture
def slot():
    """slot(shape, value) -> a Keras variable as optimizers have them."""

    def make(shape, value=0.0):
        return keras.Variable(lambda s, dtype: keras.ops.full(s, value, dtype), shape=shape)

    return make
