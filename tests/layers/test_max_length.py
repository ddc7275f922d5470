"""`FeatureConfig.max_length`: bags cut to their first or last ids."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorflow import keras

import merlin_embeddings as me
from tests.bags import kinds

ITEM = me.TableConfig("item", 11, 3)
LISTS = st.lists(st.lists(st.integers(0, 10), max_size=5), max_size=4)
PAD = kinds.PADDING


def layer_of(combiner, max_length=None, keep="first", padding_id=PAD, table=ITEM, **more):
    feature = me.FeatureConfig("f", table, combiner, padding_id, max_length, keep, **more)
    layer = me.layers.Embeddings({"x": feature})
    layer.build()
    return layer


def cut(bag, max_length, keep):
    return bag[:max_length] if keep == "first" else bag[max(0, len(bag) - max_length) :]


@settings(max_examples=150)
@given(
    LISTS,
    st.sampled_from(kinds.KINDS),
    st.integers(1, 6),
    st.sampled_from(["first", "last"]),
    st.sampled_from(["sum", "mean", "sqrtn", "max"]),
)
def test_pools_of_every_kind(pool, lists, kind, max_length, keep, combiner):
    layer = layer_of(combiner, max_length, keep)
    table = layer.get_weights()[0]
    got = layer({"x": kinds.batch(kind, lists)})["x"]
    expected = pool(table, [cut(b, max_length, keep) for b in kinds.held(kind, lists)], combiner)
    if kind == "distinct":
        expected = expected[::-1]
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


@given(
    LISTS,
    st.sampled_from([kind for kind in kinds.KINDS if kind != "sparse"]),
    st.integers(1, 6),
    st.sampled_from(["first", "last"]),
)
def test_single_vectors_of_every_kind(lists, kind, max_length, keep):
    layer = layer_of(None, max_length, keep)
    table = layer.get_weights()[0]
    inputs = kinds.batch(kind, lists)
    got = layer({"x": inputs})["x"]
    kept = [cut(bag, max_length, keep) for bag in kinds.held(kind, lists)]
    if kind == "distinct":
        kept = kept[::-1]
    if isinstance(got, tf.RaggedTensor):
        assert got.to_list() == [[table[i].tolist() for i in bag] for bag in kept]
        return
    width = min(inputs.shape[1], max_length)
    assert got.shape == (len(kept), width, 3)
    if kind == "padded before" and inputs.shape[1] <= max_length:  # nothing is cut: as it was
        kept = [[PAD] * (width - len(bag)) + bag for bag in kept]
    expected = np.zeros((len(kept), width, 3))
    for b, bag in enumerate(kept):
        for at, i in enumerate(bag):
            expected[b, at] = 0 if i == PAD else table[i]
    np.testing.assert_array_equal(got, expected)


def test_one_id_a_bag_is_short_enough():
    layer = layer_of(None, 1)
    table = layer.get_weights()[0]
    np.testing.assert_array_equal(layer({"x": tf.constant([3, 1])})["x"], table[[3, 1]])
    np.testing.assert_array_equal(
        layer({"x": tf.constant([[3, 1], [4, 2]])})["x"], table[[[3], [4]]]
    )


@pytest.mark.parametrize("padding_id", [None, 0])
def test_lengths_known_only_at_run_time(padding_id):
    layer = layer_of(None, 2, "last", padding_id)
    table = layer.get_weights()[0]
    step = tf.function(
        lambda ids: layer({"x": ids})["x"],
        input_signature=[tf.TensorSpec([None, None], tf.int64)],
    )
    assert step.get_concrete_function().structured_outputs.shape.as_list() == [None, None, 3]
    ids = np.array([[4, 3, 7], [1, 2, 9]])
    np.testing.assert_array_equal(step(ids), table[ids[:, 1:]])
    np.testing.assert_array_equal(step(ids[:, :1]), table[ids[:, :1]])
    assert step(ids[:0]).shape == (0, 2, 3)


@pytest.mark.parametrize(
    "symbol, combiner, shape",
    [
        (keras.Input((5,), dtype="int64"), None, (None, 2, 3)),
        (keras.Input((1,), dtype="int64"), None, (None, 1, 3)),
        (keras.Input((None,), dtype="int64"), None, (None, None, 3)),
        (keras.Input((None,), dtype="int64", ragged=True), None, (None, None, 3)),
        (keras.Input((5,), dtype="int64"), "sum", (None, 3)),
        (keras.Input((), dtype="int64"), None, (None, 3)),
    ],
)
@pytest.mark.parametrize("padding_id", [None, 0])
def test_symbols_and_functions_have_the_shapes_that_come_out(symbol, combiner, shape, padding_id):
    layer = layer_of(combiner, 2, padding_id=padding_id)
    assert layer({"x": symbol})["x"].shape == shape
    spec = tf.TensorSpec(symbol.shape, tf.int64)
    if symbol.ragged:
        spec = tf.RaggedTensorSpec(symbol.shape, tf.int64)
    traced = tf.function(lambda ids: layer({"x": ids})["x"]).get_concrete_function(spec)
    assert tuple(traced.structured_outputs.shape) == shape


@pytest.mark.parametrize("keep, rows", [("first", [1, 2, 5]), ("last", [2, 3, 5])])
@pytest.mark.parametrize("optimizer", ["sgd", "ours"])
def test_training_touches_the_kept_rows_only(keep, rows, optimizer):
    layer = layer_of("sum", 2, keep)
    model = keras.Sequential([layer, keras.layers.Lambda(lambda v: tf.reduce_sum(v["x"], 1))])
    model.compile(me.optimizers.SGD(0.1) if optimizer == "ours" else "sgd", "mse")
    before = layer.get_weights()[0]
    ids = {"x": tf.ragged.constant([[1, 2, 3], [5]], tf.int64)}
    model.fit(tf.data.Dataset.from_tensors((ids, tf.constant([9.0, 9.0]))), verbose=0)
    moved = np.flatnonzero(np.any(layer.get_weights()[0] != before, axis=1))
    assert moved.tolist() == rows


def test_weights_are_cut_with_their_ids(pool):
    layer = layer_of("mean", 2, "last")
    table = layer.get_weights()[0]
    ids = {"x": tf.ragged.constant([[1, 2, 3], [], [5]], tf.int64)}
    got = layer(ids, weights={"x": tf.ragged.constant([[9.0, 1.0, 3.0], [], [2.0]])})["x"]
    expected = pool(table, [[2, 3], [], [5]], "mean", [[1, 3], [], [2]])
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_ids_that_are_cut_off_may_be_anything():
    layer = layer_of("sum", 1)
    got = layer({"x": tf.ragged.constant([[1, 99], [2]], tf.int64)})["x"]
    np.testing.assert_array_equal(got, layer.get_weights()[0][[1, 2]])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"feature 'f'.*id 99"):
        layer({"x": tf.ragged.constant([[99, 1]], tf.int64)})


def test_strings():
    table = me.TableConfig("word", None, 3, ids=me.ids.Modulo(11))
    for combiner in ("sum", None):
        layer = layer_of(combiner, 1, padding_id="", table=table)
        words = layer({"x": tf.constant([["", "ann", "bob"], ["eve", "", ""]])})["x"]
        alone = layer({"x": tf.constant(["ann", "eve"])})["x"]
        np.testing.assert_array_equal(np.reshape(words, [2, 3]), alone)
