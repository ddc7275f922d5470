"""Bad input: an exception that names table, feature, value and the way out, and nothing written."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import merlin_embeddings as me

ITEM = me.TableConfig("item", 11, 3)
HISTORY = me.FeatureConfig("history", ITEM, "mean")
INVALID = tf.errors.InvalidArgumentError


def layer_of(**changes):
    return me.layers.Embeddings({"history": dataclasses.replace(HISTORY, **changes)})


def look_up(layer, ids, weights=None, graph=False):
    weights = None if weights is None else {"history": weights}
    layer.build()  # variables are made outside of functions
    call = tf.function(lambda x, w: layer(x, weights=w)) if graph else layer
    return call({"history": ids}, weights)


def bags(splits, weights=None):
    """Four ids in bags."""
    return me.Bags([1, 2, 3, 4], splits, weights=weights).to_tensors()


RUN_TIME = [
    (
        "id out of range",
        tf.constant([[1, 11]]),
        None,
        r"id 11 at position 1 is outside \[0, 11\); raise vocabulary_size, or choose ids=",
    ),
    ("negative id", tf.constant([-1]), None, r"id -1 at position 0 is outside \[0, 11\)"),
    ("unsorted row_splits", bags([0, 3, 2, 4]), None, "row_splits"),
    ("overrunning row_splits", bags([0, 2, 5]), None, "row_splits"),
    ("row_splits that end early", bags([0, 2, 3]), None, "row_splits"),
    ("row_splits that start late", bags([1, 2, 4]), None, "row_splits"),
    (
        "NaN weight",
        tf.constant([[1, 2]]),
        tf.constant([[1.0, np.nan]]),
        "weight 1 is nan; weights must be finite",
    ),
    ("infinite weight", bags([0, 4]), tf.constant([1.0, 1.0, np.inf, 1.0]), "weight 2 is inf"),
]


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize(
    "ids, weights, message", [case[1:] for case in RUN_TIME], ids=[case[0] for case in RUN_TIME]
)
def test_found_when_it_runs(graph, ids, weights, message):
    with pytest.raises(INVALID, match=message) as error:
        look_up(layer_of(), ids, weights, graph)
    assert "table 'item', feature 'history'" in error.value.message.replace("\\", "")


@pytest.mark.parametrize("graph", [False, True])
def test_unsorted_sparse_ids(graph):
    ids = tf.SparseTensor([[1, 0], [0, 0]], tf.constant([1, 2], tf.int64), [2, 1])
    with pytest.raises(INVALID, match=r"table 'item', feature 'history'.*tf.sparse.reorder"):
        look_up(layer_of(), ids, None, graph)


def test_number_of_weights_known_only_when_it_runs():
    layer = layer_of()
    layer.build()
    ids = {
        "history__values": tf.TensorSpec([None], tf.int64),
        "history__offsets": tf.TensorSpec([None], tf.int64),
    }
    step = tf.function(
        lambda x, w: layer(x, weights={"history": w}),
        input_signature=[ids, tf.TensorSpec([None], tf.float32)],
    )
    batch = {
        "history__values": tf.constant([1, 2], tf.int64),
        "history__offsets": tf.constant([0, 2], tf.int64),
    }
    with pytest.raises(INVALID, match=r"table 'item', feature 'history'"):
        step(batch, tf.constant([1.0, 2.0, 3.0]))


@pytest.mark.parametrize(
    "ids, weights, error, message",
    [
        (
            tf.constant([1.0]),
            None,
            TypeError,
            r"ids have dtype float32; .*tf.cast\(ids, tf.int64\)",
        ),
        (tf.constant([[[1, 2]]]), None, ValueError, r"ids have shape \(1, 1, 2\); .*Reshape"),
        (tf.ragged.constant([[[1]]]), None, ValueError, r"merge_dims\(1, -1\)"),
        (tf.constant(["ann"]), None, ValueError, r"got strings, .*ids.Modulo\(rows\)"),
        (
            tf.constant([[1, 2]]),
            tf.constant([[1.0]]),
            ValueError,
            r"weights have shape \(1, 1\), ids have shape \(1, 2\)",
        ),
        (
            tf.constant([[1, 2]]),
            tf.ragged.constant([[1.0]]),
            TypeError,
            "ids are dense but weights are ragged",
        ),
        (tf.constant([1]), tf.constant(["x"]), TypeError, "weights have dtype string"),
    ],
)
@pytest.mark.parametrize("graph", [False, True])
def test_found_when_it_is_called(ids, weights, error, message, graph):
    with pytest.raises(error, match=r"table 'item', feature 'history'.*" + message):
        look_up(layer_of(), ids, weights, graph)


def test_max_with_weights():
    layer = layer_of(combiner="max")
    message = r"table 'item', feature 'history': combiner='max' takes no weights"
    for ids, weights in [
        (tf.constant([1]), tf.constant([1.0])),
        (me.Bags([1], hotness=1, weights=[1.0]), None),
    ]:
        with pytest.raises(ValueError, match=message):
            look_up(layer, ids, weights)


def test_weights_without_combiner():
    message = r"feature 'history': weights belong to a pool.*Give a combiner"
    with pytest.raises(ValueError, match=message):
        look_up(layer_of(combiner=None), tf.constant([1]), tf.constant([1.0]))
    with pytest.raises(ValueError, match=message):
        look_up(layer_of(combiner=None), me.Bags([1], hotness=1, weights=[1.0]))
    with pytest.raises(ValueError, match=r"feature 'item': weights belong to a pool"):
        me.layers.Embedding(11, 3, name="item")(np.array([1]), weights=np.array([1.0]))


def test_sparse_without_combiner():
    with pytest.raises(ValueError, match=r"'history': sparse ids need a combiner.*from_sparse"):
        look_up(layer_of(combiner=None), tf.sparse.from_dense([[1]]))


@pytest.mark.parametrize("ids", [None, me.ids.Identity("clip"), me.ids.Modulo(11)])
def test_unsigned_ids_that_are_no_int64(ids, table):
    """Wrapped they would be negative: another row by clipping, and by modulo too."""
    layer = me.layers.Embedding(11, 3, weights=table, ids=ids, name="item")
    np.testing.assert_array_equal(layer(np.array([3], np.uint64)), table[[3]])
    with pytest.raises(INVALID, match=r"feature 'item.*uint64 ids of 2\*\*63"):
        layer(np.array([2**64 - 1], np.uint64))


def test_strings_in_bags_are_strings_still():
    layer = layer_of(table=dataclasses.replace(ITEM, ids=me.ids.Identity("clip")))
    for ids in (me.Bags(["ann"], hotness=1), {"values": tf.constant(["ann"])}):
        with pytest.raises(ValueError, match="feature 'history': got strings"):
            look_up(layer, ids)


@pytest.mark.parametrize("combiner", [None, "sum"])
def test_mask_zero_of_strings(combiner):
    layer = me.layers.Embedding(None, 3, ids=me.ids.Modulo(5), mask_zero=True, combiner=combiner)
    for ids in (np.array([["ann", ""]]), me.Bags(["ann"], hotness=1)):
        with pytest.raises(ValueError, match=r"mask_zero=True masks id 0.*padding_id=''"):
            layer(ids)


def test_capacity_0():
    with pytest.raises(ValueError, match=r"'item': vocabulary_size=0; it must be a positive"):
        me.TableConfig("item", 0, 3)
    with pytest.raises(ValueError, match=r"ids.Modulo: rows=0; it must be a positive"):
        me.ids.Modulo(0)


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn", "max"])
def test_empty_bags_are_zeros(combiner):
    got = look_up(layer_of(combiner=combiner), tf.ragged.constant([[], [1], []], tf.int64))
    np.testing.assert_array_equal(got["history"][::2], np.zeros((2, 3)))
    assert np.any(got["history"][1] != 0)


@pytest.mark.parametrize("combiner", ["mean", "sqrtn"])
def test_weights_that_sum_to_0_are_no_nan(combiner):
    got = look_up(layer_of(combiner=combiner), tf.constant([[1, 2]]), tf.constant([[0.0, 0.0]]))
    np.testing.assert_array_equal(got["history"], np.zeros((1, 3)))


def test_a_bad_batch_in_training_writes_nothing(table):
    layer = me.layers.Embedding(11, 3, weights=table, combiner="sum", name="item")
    model = keras.Sequential([layer, keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with pytest.raises(INVALID, match=r"feature 'item'.*id 11"):
        model.fit(np.array([[1, 2], [3, 11]]), np.ones((2, 1)), verbose=0)
    np.testing.assert_array_equal(layer.get_weights()[0], table)
