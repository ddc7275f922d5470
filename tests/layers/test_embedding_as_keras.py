"""`Embedding` beside `keras.layers.Embedding`: what one takes and does, so does the other."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import merlin_embeddings as me

ROWS = 11
RAGGED = tf.ragged.constant([[1, 2], [], [0]])


def both(table, **kwargs):
    return (
        keras.layers.Embedding(ROWS, 3, weights=table, **kwargs),
        me.layers.Embedding(ROWS, 3, weights=table, **kwargs),
    )


def to_numpy(value):
    if isinstance(value, tf.RaggedTensor):
        return value.to_list()
    return value if value is None else np.asarray(value).tolist()


@pytest.mark.parametrize("mask_zero", [False, True])
@pytest.mark.parametrize(
    "ids",
    [
        np.array(3),
        np.array([1, 0, 10]),
        np.array([[1, 2], [0, 10]]),
        np.arange(8).reshape(2, 2, 2),
        np.zeros((0, 4), np.int64),
        np.zeros((2, 0), np.int32),
        np.array([[1, 2]], np.uint8),
        np.array([[1.7, 0.0, 9.9]], np.float32),
        np.array([[True, False]]),
        RAGGED,
    ],
    ids=str,
)
def test_outputs_and_masks(table, mask_zero, ids):
    theirs, ours = (layer(ids) for layer in both(table, mask_zero=mask_zero))
    assert to_numpy(theirs) == to_numpy(ours)
    masks = [getattr(output, "_keras_mask", None) for output in (theirs, ours)]
    assert to_numpy(masks[0]) == to_numpy(masks[1])
    assert (masks[1] is None) == (not mask_zero)


def test_sparse_ids_without_combiner_fill_with_id_0(table):
    ids = tf.sparse.from_dense([[1, 0], [2, 3], [0, 0]])
    theirs, ours = (layer(ids) for layer in both(table))
    assert to_numpy(theirs) == to_numpy(ours)


@pytest.mark.parametrize("fields", [{"ragged": True}, {"sparse": True}, {}])
def test_symbolic_outputs(table, fields):
    symbol = keras.Input((4,), dtype="int64", **fields)
    theirs, ours = (layer(symbol) for layer in both(table))
    assert (theirs.shape, theirs.dtype, theirs.ragged) == (ours.shape, ours.dtype, ours.ragged)


@pytest.mark.parametrize("shape", [(None,), (None, 4), (2, 3, 4), ()])
def test_compute_output_shape(table, shape):
    theirs, ours = both(table)
    assert ours.compute_output_shape(shape) == theirs.compute_output_shape(shape)


def test_mask_reaches_the_next_layer(table):
    ids = np.array([[1, 2, 0], [3, 0, 0]])
    outputs = [
        keras.Sequential([layer, keras.layers.GlobalAveragePooling1D()])(ids)
        for layer in both(table, mask_zero=True)
    ]
    np.testing.assert_allclose(*outputs, rtol=1e-6)
    np.testing.assert_allclose(outputs[1][0], table[[1, 2]].mean(axis=0), rtol=1e-6)


def dense():
    return keras.layers.Dense(1, kernel_initializer=keras.initializers.GlorotUniform(seed=0))


def functional(layer):
    ids = keras.Input((4,), dtype="int64")
    return keras.Model(ids, dense()(keras.layers.Flatten()(layer(ids))))


def sequential(layer):
    return keras.Sequential([layer, keras.layers.Flatten(), dense()])


class Subclassed(keras.Model):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        self.flatten = keras.layers.Flatten()
        self.dense = dense()

    def call(self, ids):
        return self.dense(self.flatten(self.layer(ids)))


@pytest.mark.parametrize("make", [functional, sequential, Subclassed])
@pytest.mark.parametrize("run_eagerly", [False, True])
@pytest.mark.parametrize("regularizer", [None, "l2"])
def test_training_with_a_keras_optimizer(table, make, run_eagerly, regularizer):
    rng = np.random.default_rng(3)
    # Each id once in the batch: Keras doesn't sum the gradients of an id that comes twice. And all
    # of them: Keras regularizes the whole table.
    ids = rng.permutation(12).reshape(3, 4)
    targets = rng.normal(size=(3, 1)).astype(np.float32)
    table = np.concatenate([table, table[:1]])
    tables = []
    for cls in (keras.layers.Embedding, me.layers.Embedding):
        model = make(cls(12, 3, weights=table, embeddings_regularizer=regularizer))
        model.compile("adagrad", "mse", run_eagerly=run_eagerly)
        history = model.fit(ids, targets, batch_size=3, epochs=3, shuffle=False, verbose=0)
        layer = next(layer for layer in model._flatten_layers() if isinstance(layer, cls))
        tables.append((layer.get_weights()[0], history.history["loss"]))
    np.testing.assert_allclose(tables[0][0], tables[1][0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(tables[0][1], tables[1][1], rtol=1e-5)
    assert not np.allclose(tables[1][0], table)


def test_config_of_keras_makes_our_layer():
    theirs = keras.layers.Embedding(
        ROWS,
        3,
        embeddings_initializer=keras.initializers.Constant(2.0),
        embeddings_regularizer="l1",
        embeddings_constraint="non_neg",
        activity_regularizer="l2",
        mask_zero=True,
        name="item",
        trainable=False,
    )
    ours = me.layers.Embedding.from_config(theirs.get_config())
    assert (ours.input_dim, ours.output_dim, ours.mask_zero, ours.name) == (ROWS, 3, True, "item")
    assert not ours.trainable
    assert isinstance(ours.embeddings_regularizer, keras.regularizers.L1)
    assert isinstance(ours.activity_regularizer, keras.regularizers.L2)
    assert isinstance(ours.embeddings_constraint, keras.constraints.NonNeg)
    np.testing.assert_array_equal(ours(np.array([4])), [[2, 2, 2]])


def test_weights_of_keras_load_into_our_layer(tmp_path, table):
    path = str(tmp_path / "model.weights.h5")
    theirs, ours = (
        sequential(cls(ROWS, 3)) for cls in (keras.layers.Embedding, me.layers.Embedding)
    )
    for model in (theirs, ours):
        model.build((None, 4))
    theirs.layers[0].set_weights([table])
    theirs.save_weights(path)
    ours.load_weights(path)
    np.testing.assert_array_equal(ours.layers[0].embeddings, table)
    ours.save_weights(path)
    theirs.layers[0].set_weights([table * 0])
    theirs.load_weights(path)
    np.testing.assert_array_equal(theirs.layers[0].embeddings, table)


def test_activity_regularizer(table):
    for layer in both(table, activity_regularizer=keras.regularizers.L2(1.0)):
        layer(np.array([[1, 2], [3, 4]]))
        [loss] = layer.losses
        np.testing.assert_allclose(loss, (table[1:5] ** 2).sum() / 2, rtol=1e-6)


@pytest.mark.parametrize("weights", [lambda t: t, lambda t: [t], lambda t: t.tolist(), tf.constant])
def test_initial_values(table, weights):
    layer = me.layers.Embedding(ROWS, 3, weights=weights(table))
    assert layer.built
    np.testing.assert_array_equal(layer.get_weights()[0], table)


def test_input_length_warns():
    with pytest.warns(UserWarning, match="`input_length` is deprecated"):
        me.layers.Embedding(ROWS, 3, input_length=4)


def test_embeddings_before_build():
    with pytest.raises(AttributeError, match="Build layer"):
        _ = me.layers.Embedding(ROWS, 3).embeddings


@pytest.mark.parametrize(
    "kwargs, message",
    [
        ({"input_dim": 0}, r"Embedding 'item': input_dim=0; it must be a positive integer"),
        ({"input_dim": 2.0}, r"input_dim=2.0"),
        ({"input_dim": None}, r"vocabulary_size=None; .*ids.Modulo\(rows\)"),
        ({"output_dim": -1}, r"Embedding 'item': output_dim=-1"),
        ({"output_dim": True}, r"output_dim=True"),
        ({"combiner": "avg"}, r"combiner='avg'; .*'sum', 'mean', 'sqrtn', 'max', None"),
        ({"weights": np.zeros((3, 3))}, r"shape \[3, 3\], the table is \[11, 3\]"),
        ({"table_dtype": "int8"}, r"dtype='int8'; .*'float32', 'bfloat16', 'float16'"),
        (
            {"dtype": "float64"},
            r"Embedding 'item': no table has rows of dtype 'float64'.*table_dtype='float32'",
        ),
        ({"lora_rank": 4}, r"Embedding has no lora_rank=4; keras.layers.Embedding has LoRA"),
        ({"nonesuch": 4}, r"nonesuch"),
        (
            {"embeddings_initializer": "nonesuch", "weights": None},
            r"unknown initializer 'nonesuch'",
        ),
    ],
)
def test_bad_arguments(kwargs, message):
    with pytest.raises(ValueError, match=message):
        me.layers.Embedding(
            **{"input_dim": ROWS, "output_dim": 3, "name": "item", **kwargs}
        ).build()
