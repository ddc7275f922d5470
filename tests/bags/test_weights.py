"""Weights that have the structure of their ids, and all that haven't."""

import numpy as np
import pytest
import tensorflow as tf

from merlin_embeddings.bags import check_like, check_pool, flat_weights

NAME = "table 'item', feature 'history'"
INVALID = tf.errors.InvalidArgumentError


def ragged(rows, rank=None):
    return tf.ragged.constant(rows, ragged_rank=rank)


def sparse(indices, values, shape):
    return tf.SparseTensor(indices, values, shape)


FITTING = [
    (tf.constant(1), tf.constant(4.0), [4]),
    (tf.constant([1, 2]), [4, 5], [4, 5]),
    (tf.constant([1, 2]), np.array([[4], [5]]), [4, 5]),
    (tf.constant([[1], [2]]), tf.constant([4.0, 5.0]), [4, 5]),
    (tf.constant([[[1, 2]], [[3, 4]]]), [[[4, 5]], [[6, 7]]], [4, 5, 6, 7]),
    (tf.zeros([2, 0, 3], tf.int64), tf.zeros([2, 0, 3]), []),
    (ragged([[1], [], [2, 3]]), ragged([[4.0], [], [5.0, 6.0]]), [4, 5, 6]),
    (ragged([[[1], [2, 3]], []]), ragged([[[4.0], [5.0, 6.0]], []]), [4, 5, 6]),
    (ragged([[[1, 2]], []], rank=1), ragged([[[4.0, 5.0]], []], rank=1), [4, 5]),
    (
        sparse([[0, 1], [1, 0]], [1, 2], [2, 2]),
        sparse([[0, 1], [1, 0]], [4.0, 5.0], [2, 2]),
        [4, 5],
    ),
]


def spec_of_unknown_sizes(value):
    """Rank and dtype of a tensor, nothing else."""
    if isinstance(value, tf.RaggedTensor):
        spec = tf.type_spec_from_value(value)
        sizes = [None] * value.shape.rank
        return tf.RaggedTensorSpec(sizes, value.dtype, spec.ragged_rank, spec.row_splits_dtype)
    if isinstance(value, tf.SparseTensor):
        return tf.SparseTensorSpec([None] * value.shape.rank, value.dtype)
    return tf.TensorSpec([None] * value.shape.rank, value.dtype)


def run(graph, ids, weights):
    """`flat_weights`, in a graph that knows ranks only if asked for."""
    if not graph:
        return flat_weights(ids, weights, NAME)
    composite = (tf.RaggedTensor, tf.SparseTensor)
    weights = weights if isinstance(weights, composite) else tf.convert_to_tensor(weights)
    signature = [spec_of_unknown_sizes(ids), spec_of_unknown_sizes(weights)]
    return tf.function(lambda i, w: flat_weights(i, w, NAME), input_signature=signature)(
        ids, weights
    )


@pytest.mark.parametrize("ids, weights, expected", FITTING)
def test_weights_are_flattened(ids, weights, expected):
    got = flat_weights(ids, weights, NAME)
    assert got.shape.rank == 1 and got.numpy().tolist() == expected


@pytest.mark.parametrize("ids, weights, expected", FITTING)
def test_weights_are_flattened_where_shapes_are_unknown(ids, weights, expected):
    if not isinstance(weights, (tf.RaggedTensor, tf.SparseTensor)):
        weights = tf.reshape(weights, tf.shape(ids))
    assert run(True, ids, weights).numpy().tolist() == expected


def test_no_weights():
    assert flat_weights(tf.constant([1]), None, NAME) is None


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize(
    "ids, weights, what",
    [
        (tf.ones([2, 3], tf.int64), tf.ones([3, 2]), "shape"),
        (tf.ones([2, 3, 4], tf.int64), tf.ones([2, 4, 3]), "shape"),
        (tf.ones([2, 1], tf.int64), tf.ones([1, 2]), "shape"),
        (ragged([[1], [2, 3]]), ragged([[1.0, 2.0], [3.0]]), "row_splits"),
        (ragged([[1], [2, 3]]), ragged([[1.0, 2.0, 3.0]]), "row_splits"),
        (ragged([[[1], [], []]]), ragged([[[1.0], []]]), "row_splits"),
        (
            tf.RaggedTensor.from_row_splits(tf.zeros([0], tf.int64), [0]),
            tf.RaggedTensor.from_row_splits(tf.zeros([0]), [0, 0, 0]),
            "row_splits",
        ),
        (ragged([[[1], [2]], [[3]]]), ragged([[[1.0]], [[2.0], [3.0]]]), "row_splits"),
        (ragged([[[1], [2, 3]]]), ragged([[[1.0, 2.0], [3.0]]]), "row_splits"),
        (ragged([[[1, 2, 3], [1, 2, 3]]], 1), ragged([[[1.0, 2.0]] * 2], 1), "shape"),
        (
            sparse([[0, 0], [1, 1]], [1, 2], [2, 2]),
            sparse([[0, 0], [1, 0]], [1.0, 2.0], [2, 2]),
            "indices",
        ),
        (
            sparse([[0, 0], [1, 1]], [1, 2], [2, 2]),
            sparse([[0, 0], [1, 1]], [1.0, 2.0], [3, 2]),
            "dense shapes",
        ),
        (
            sparse([[0, 0, 1]], [1], [1, 2, 2]),
            sparse([[0, 1, 0]], [1.0], [1, 2, 2]),
            "indices",
        ),
    ],
)
def test_weights_of_another_structure(graph, ids, weights, what):
    with pytest.raises((ValueError, INVALID), match=rf"history.*{what}") as error:
        run(graph, ids, weights)
    assert "give one weight an id" in str(error.value)


@pytest.mark.parametrize(
    "ids, weights, error, message",
    [
        (tf.constant([[1, 2]]), [[1.0], [2.0]], ValueError, r"shape \(2, 1\), .*shape \(1, 2\)"),
        (tf.constant([[1, 2]]), [[1.0], [2.0, 3.0]], ValueError, "weights aren't a tensor"),
        (tf.constant([1]), tf.constant(1.0), ValueError, r"shape \(\), ids have shape \(1,\)"),
        (ragged([[1]]), tf.constant([[1.0]]), TypeError, "ids are ragged but weights are dense"),
        (ragged([[1]]), [[1.0]], TypeError, "ids are ragged but weights are dense"),
        (
            sparse([[0, 0]], [1], [1, 1]),
            ragged([[1.0]]),
            TypeError,
            "ids are sparse but weights are ragged",
        ),
        (tf.constant([1]), ragged([[1.0]]), TypeError, "ids are dense but weights are ragged"),
        (ragged([[[1]]]), ragged([[[1.0]]], 1), ValueError, "2 ragged dimensions, weights have 1"),
    ],
)
def test_mistakes_known_before_values(ids, weights, error, message):
    with pytest.raises(error, match="'history': .*" + message):
        flat_weights(ids, weights, NAME)


def test_check_like_needs_no_values():
    check_like(tf.TensorSpec([None, 3]), tf.TensorSpec([2, 3, 1]), NAME)
    check_like(ragged([[1]]), ragged([[2.0, 3.0]]), NAME)
    with pytest.raises(ValueError, match=r"shape \(None, 2\), ids have shape \(None, 3\)"):
        check_like(tf.TensorSpec([None, 3]), tf.TensorSpec([None, 2]), NAME)
    with pytest.raises(TypeError, match="ids are dense but weights are ragged"):
        check_like(tf.TensorSpec([None, 3]), ragged([[1.0]]), NAME)


def test_combiners_that_take_no_weights():
    for combiner in ("sum", "mean", "sqrtn"):
        check_pool(combiner, 1.0, NAME)
    check_pool("max", None, NAME)
    with pytest.raises(ValueError, match="'history': combiner='max' takes no weights"):
        check_pool("max", 1.0, NAME)
    with pytest.raises(ValueError, match="'history': weights belong to a pool"):
        check_pool(None, 1.0, NAME)
