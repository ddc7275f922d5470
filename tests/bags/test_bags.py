"""Bags from every kind of input: values, row_splits, weights, inverse; and what is refused."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from merlin_embeddings import Bags

NAME = "table 'item', feature 'history'"
LISTS = st.lists(st.lists(st.integers(-5, 2**40), max_size=4), max_size=5)


def joined(lists):
    return list(itertools.chain.from_iterable(lists))


def ragged(lists, dtype=tf.int64):
    return tf.RaggedTensor.from_row_lengths(
        tf.constant(joined(lists), dtype, shape=[len(joined(lists))]),
        tf.constant([len(bag) for bag in lists], tf.int64, shape=[len(lists)]),
    )


def sparse(lists, dtype=tf.int64):
    indices = [[b, i] for b, bag in enumerate(lists) for i in range(len(bag))]
    return tf.SparseTensor(
        tf.constant(indices, tf.int64, shape=[len(indices), 2]),
        tf.constant(joined(lists), dtype, shape=[len(indices)]),
        [len(lists), max(map(len, lists), default=0)],
    )


def as_lists(bags):
    values, splits = bags.values.numpy(), bags.row_splits.numpy()
    return [values[a:b].tolist() for a, b in itertools.pairwise(splits)]


@given(LISTS)
def test_ragged_and_sparse_hold_the_bags(lists):
    for inputs in (ragged(lists), sparse(lists)):
        bags = Bags.of(inputs)
        assert as_lists(bags) == lists
        assert bags.hotness is None
        assert bags.values.dtype == bags.row_splits.dtype == tf.int64


@given(LISTS)
def test_weights_follow_their_ids(lists):
    weights = [[float(i) / 2 for i in range(len(bag))] for bag in lists]
    for make in (ragged, sparse):
        bags = Bags.of(make(lists), make(weights, tf.float64))
        assert bags.weights.dtype == tf.float32
        assert bags.weights.numpy().tolist() == joined(weights)


@pytest.mark.parametrize("dtype", [tf.int8, tf.uint8, tf.int32, tf.uint32, tf.int64])
def test_dense(dtype):
    one = Bags.of(tf.constant([3, 1], dtype))
    assert (one.hotness, as_lists(one)) == (1, [[3], [1]])
    column = Bags.of(tf.constant([[3], [1]], dtype))
    assert (column.hotness, as_lists(column)) == (1, [[3], [1]])
    two = Bags.of(tf.constant([[3, 1], [4, 1]], dtype))
    assert (two.hotness, as_lists(two)) == (2, [[3, 1], [4, 1]])
    deep = Bags.of(tf.constant([[[3], [1]]], dtype))
    assert (deep.hotness, as_lists(deep)) == (2, [[3, 1]])
    assert {b.values.dtype for b in (one, column, two, deep)} == {tf.int64}


def test_int64_vector_is_not_touched():
    ids = tf.constant([3, 1], tf.int64)
    assert Bags.of(ids).values is ids


@pytest.mark.parametrize("length", [0, 1, 3])
def test_dense_of_a_length_known_only_at_run_time(length):
    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int64)])
    def split(ids):
        bags = Bags.of(ids)
        assert bags.hotness is None
        return bags.values, bags.row_splits

    values, row_splits = split(tf.ones([2, length], tf.int64))
    assert values.numpy().tolist() == [1] * (2 * length)
    assert row_splits.numpy().tolist() == [0, length, 2 * length]


def test_bags_of_static_length_0():
    assert as_lists(Bags.of(tf.zeros([3, 0], tf.int64))) == [[], [], []]


def test_empty_batches():
    assert as_lists(Bags.of(tf.zeros([0], tf.int64))) == []
    assert as_lists(Bags.of(tf.zeros([0, 3], tf.int64))) == []
    assert as_lists(Bags.of(ragged([]))) == []
    assert as_lists(Bags.of(sparse([]))) == []


def test_ragged_with_a_last_dimension_of_1():
    ids = tf.RaggedTensor.from_row_splits(tf.constant([[7], [3], [1]]), [0, 2, 2, 3])
    assert as_lists(Bags.of(ids)) == [[7, 3], [], [1]]


def test_values_and_offsets():
    bags = Bags(np.array([7, 3, 1], np.int32), np.array([0, 2, 2, 3], np.int32), weights=[1, 2, 3])
    assert as_lists(bags) == [[7, 3], [], [1]]
    assert bags.weights.numpy().tolist() == [1, 2, 3]


def test_padding():
    assert Bags.of(tf.constant([[1, 0]]), padding_id=0).is_padding.numpy().tolist() == [0, 1]
    assert Bags.of(tf.constant([[1, 0]])).is_padding.numpy().tolist() == [0, 0]
    words = Bags.of(tf.constant([["a", ""], ["", "b"]]), padding_id="")
    assert words.is_padding.numpy().tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize(
    "bags",
    [
        Bags([7, 3, 1], [0, 2, 3], weights=[1, 2, 3], inverse=[1, 0, 1]),
        Bags([7, 3, 1, 4], hotness=2, weights=[1, 2, 3, 4], padding_id=4),
        Bags([5, 6], hotness=1),
    ],
)
def test_to_tensors_and_back(bags):
    tensors = bags.to_tensors()
    assert all(isinstance(tensor, tf.Tensor) for tensor in tensors.values())
    again = Bags.of(tensors)
    assert as_lists(again) == as_lists(bags) and again.hotness == bags.hotness
    for field in ("weights", "inverse", "padding_id"):
        before, after = getattr(bags, field), getattr(again, field)
        assert (before is None) == (after is None)
        if before is not None:
            np.testing.assert_array_equal(after, before)


def test_of_a_dict_with_any_kind_of_values():
    bags = Bags.of({"values": ragged([[1, 2], []]), "inverse": tf.constant([1, 0, 0])})
    assert as_lists(bags) == [[1, 2], []]
    assert bags.expand(tf.constant([[5.0], [6.0]])).numpy().tolist() == [[6], [5], [5]]


def test_of_bags_adds_what_they_have_not():
    bags = Bags.of(Bags([1, 2], hotness=2), weights=tf.constant([[3, 4]]), padding_id=2)
    assert bags.weights.numpy().tolist() == [3, 4] and bags.padding_id == 2
    assert Bags.of(Bags([1, 2], hotness=2, padding_id=1), padding_id=2).padding_id == 1


def test_weights_of_bags_keep_their_structure():
    by_two = Bags([1, 2, 3, 4], hotness=2)
    splits = Bags([1, 2, 3, 4], [0, 3, 4])
    for bags, weights in [
        (by_two, [[1, 2], [3, 4]]),
        (by_two, [1, 2, 3, 4]),
        (splits, [1, 2, 3, 4]),
        (splits, tf.ragged.constant([[1.0, 2.0, 3.0], [4.0]])),
    ]:
        assert Bags.of(bags, weights).weights.numpy().tolist() == [1, 2, 3, 4]
    with pytest.raises(ValueError, match=r"history.*weights have shape \(4, 1\)"):
        Bags.of(by_two, tf.ones([4, 1]), name=NAME)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"history.*different row_splits"):
        Bags.of(splits, tf.ragged.constant([[1.0], [2.0, 3.0, 4.0]]), name=NAME)


def test_strings_of_bags_stay_strings():
    bags = Bags(["ann", "", "bob"], [0, 2, 3])
    for again in (Bags.of(bags, padding_id=""), Bags.of(bags.to_tensors(), padding_id="")):
        assert again.strings and as_lists(again) == as_lists(bags)
        assert again.is_padding.numpy().tolist() == [False, True, False]


def test_singles():
    bags = Bags([7, 3, 1], [0, 2, 3], weights=[1, 2, 3], inverse=[1, 0], padding_id=3).singles()
    assert as_lists(bags) == [[7], [3], [1]] and bags.hotness == 1
    assert bags.weights is None and bags.inverse is None and bags.padding_id == 3


def test_expand_without_inverse_changes_nothing():
    vectors = tf.constant([[5.0], [6.0]])
    assert Bags([1, 2], hotness=1).expand(vectors) is vectors


def test_expand_ragged():
    vectors = tf.ragged.constant([[1.0, 2.0], []])
    bags = Bags([1, 2], [0, 2, 2], inverse=[1, 0])
    assert bags.expand(vectors).to_list() == [[], [1.0, 2.0]]


@pytest.mark.parametrize("inverse", [[0, 2], [-1, 0]])
@pytest.mark.parametrize("graph", [False, True])
def test_inverse_out_of_range(inverse, graph):
    def expand(vectors):
        return Bags([1, 2], hotness=1, inverse=inverse, name=NAME).expand(vectors)

    run = tf.function(expand) if graph else expand
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"history.*: inverse has values"):
        run(tf.ones([2, 3]))


@pytest.mark.parametrize(
    "make, error, message",
    [
        (
            lambda: Bags.of(tf.constant([1.0]), name=NAME),
            TypeError,
            r"'history': ids have dtype float32; .*tf.cast\(ids, tf.int64\)",
        ),
        (lambda: Bags.of(tf.constant([True]), name=NAME), TypeError, "ids have dtype bool"),
        (lambda: Bags.of(tf.constant(1), name=NAME), ValueError, r"'history': ids have shape \(\)"),
        (
            lambda: Bags.of(tf.ones([2, 3, 2], tf.int64), name=NAME),
            ValueError,
            r"ids have shape \(2, 3, 2\); .*Reshape",
        ),
        (
            lambda: Bags.of(tf.ragged.constant([[[1]]]), name=NAME),
            ValueError,
            "2 ragged dimensions",
        ),
        (
            lambda: Bags.of(tf.sparse.from_dense([[[1]]]), name=NAME),
            ValueError,
            r"'history': sparse ids have shape \(1, 1, 1\)",
        ),
        (
            lambda: Bags([1], name=NAME),
            ValueError,
            "'history': bags have either row_splits or a hotness",
        ),
        (lambda: Bags([], hotness=0, name=NAME), ValueError, "hotness=0"),
        (lambda: Bags([1], np.zeros(0, int), name=NAME), ValueError, "row_splits is empty"),
        (lambda: Bags([1], [0.0, 1.0], name=NAME), TypeError, "row_splits has dtype float32"),
        (lambda: Bags([1], [[0, 1]], name=NAME), ValueError, r"row_splits has shape \(1, 2\)"),
        (
            lambda: Bags([1, 2], hotness=1, weights=[1.0], name=NAME),
            ValueError,
            "'history': 1 weights for 2 ids",
        ),
        (
            lambda: Bags([1], hotness=1, weights=["a"], name=NAME),
            TypeError,
            "weights have dtype string",
        ),
        (
            lambda: Bags([1], hotness=1, padding_id="", name=NAME),
            TypeError,
            "padding_id='' is a string",
        ),
        (
            lambda: Bags.of({"values": [1], "offsets": [0, 1]}, name=NAME),
            ValueError,
            r"'history': bags given as a dict have 'values'.*\['offsets', 'values'\]",
        ),
        (
            lambda: Bags.of(Bags([1], hotness=1, weights=[1.0]), tf.constant([1.0]), name=NAME),
            ValueError,
            "weights were given twice",
        ),
    ],
)
def test_bad_input_is_named(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_unsorted_sparse_indices():
    ids = tf.SparseTensor([[1, 0], [0, 0]], tf.constant([1, 2], tf.int64), [2, 1])
    with pytest.raises(tf.errors.InvalidArgumentError, match="'history'"):
        Bags.of(ids, name=NAME)


def test_prints():
    assert "hotness=2" in repr(Bags([1, 2], hotness=2))
    assert "inverse=..." in repr(Bags([1, 2], [0, 2], inverse=[0]))
