"""What docs/from-merlin-models.md says of rows in half precision."""

import merlin.models.tf as mm
import numpy as np
import pytest
import tensorflow as tf
from merlin.models.utils.schema_utils import create_categorical_column
from tensorflow import keras

import merlin_embeddings as me
import merlin_embeddings.merlin as mem

ITEM = create_categorical_column("item", 10)
HALF = ("bfloat16", "float16")
ERRORS = (TypeError, ValueError, tf.errors.InvalidArgumentError)


class Tied(keras.Model):
    def __init__(self, dtype, tied):
        super().__init__()
        self.table = mem.EmbeddingTable(3, ITEM, table_dtype=dtype)
        self.out = mm.CategoricalOutput(self.table) if tied else keras.layers.Dense(11)

    def call(self, ids):
        return self.out(self.table(ids))


def first_step(optimizer, dtype, tied=False):
    model = Tied(dtype, tied)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, run_eagerly=True)
    ids = np.arange(4)[:, None]
    model.fit(ids, np.arange(4), verbose=0)
    return model


@pytest.mark.parametrize("dtype", HALF)
def test_rows_in_half(dtype):
    assert first_step(me.optimizers.Adam(0.1), dtype).table.table.embeddings.dtype == dtype
    for optimizer in (
        keras.optimizers.Adam(),
        keras.optimizers.legacy.Adagrad(),
        keras.optimizers.legacy.SGD(),
    ):
        with pytest.raises(ERRORS, match=r"bfloat16|float16|half"):
            first_step(optimizer, dtype)
    with pytest.raises(ERRORS, match=r"float|half"):
        first_step(me.optimizers.Adam(0.1), dtype, tied=True)
    first_step(me.optimizers.Adam(0.1), "float32", tied=True)


@pytest.mark.parametrize("dtype", HALF)
def test_half_in_files(dtype, tmp_path):
    def model_with(layer):
        ids = keras.Input([2], dtype="int64")
        return keras.Model(ids, layer(ids))

    def ours():
        return model_with(me.layers.Embedding(11, 3, table_dtype=dtype))

    for make in (ours, lambda: model_with(keras.layers.Embedding(11, 3, dtype=dtype))):
        first, second = make(), make()
        first.save_weights(tmp_path / "checkpoint")
        second.load_weights(tmp_path / "checkpoint")
        np.testing.assert_array_equal(second.weights[0], first.weights[0])
        first.save_weights(tmp_path / "weights.h5")
        third = make()
        if dtype == "bfloat16":
            with pytest.raises(ValueError, match="No cast function available"):
                third.load_weights(tmp_path / "weights.h5")
        else:
            third.load_weights(tmp_path / "weights.h5")
            np.testing.assert_array_equal(third.weights[0], first.weights[0])
    first = ours()
    first.save(tmp_path / "model")
    again = keras.models.load_model(tmp_path / "model")
    np.testing.assert_array_equal(again.weights[0], first.weights[0])
