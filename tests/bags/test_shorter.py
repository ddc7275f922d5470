"""Padding, lengths and positions of bags: each against Python lists, for every kind of input."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from merlin_embeddings import Bags
from merlin_embeddings.bags import positions, truncate, without_padding
from tests.bags import kinds

LISTS = st.lists(st.lists(st.integers(-5, 2**40), max_size=5), max_size=5)
NAME = "table 'item', feature 'history'"


def make(kind, lists, weighted):
    """Bags with padding among them where the kind has it, and weights that tell ids apart."""
    weights = None
    if weighted:
        numbers = iter(range(1000))
        weights = [[float(next(numbers)) for _ in bag] for bag in kinds.held(kind, lists)]
        weights = kinds.batch(kind, weights, tf.float32, fill=-1)
        weights = weights["values"] if isinstance(weights, dict) else weights
    padding_id = kinds.PADDING if "padded" in kind else None
    return Bags.of(kinds.batch(kind, lists), weights, padding_id, NAME)


def cut(bag, max_length, keep):
    return bag[:max_length] if keep == "first" else bag[max(0, len(bag) - max_length) :]


@given(LISTS, st.sampled_from(kinds.KINDS))
def test_without_padding_is_as_ragged(lists, kind):
    bags = without_padding(make(kind, lists, weighted=True))
    held = kinds.held(kind, lists)
    assert kinds.as_lists(bags.values, bags) == held
    assert bags.weights.numpy().tolist() == list(range(sum(map(len, held))))
    assert bags.padding_id is None


@given(
    LISTS,
    st.sampled_from(kinds.KINDS),
    st.integers(1, 6),
    st.sampled_from(["first", "last"]),
    st.booleans(),
)
def test_truncate(lists, kind, max_length, keep, weighted):
    bags = make(kind, lists, weighted)
    short = truncate(bags, max_length, keep)
    held = kinds.held(kind, lists)
    real = without_padding(short)
    assert kinds.as_lists(real.values, real) == [cut(bag, max_length, keep) for bag in held]
    if weighted:
        numbers = iter(range(1000))
        weights = [[float(next(numbers)) for _ in bag] for bag in held]
        kept = [cut(bag, max_length, keep) for bag in weights]
        assert kinds.as_lists(real.weights, real) == kept
    assert (short.inverse is None) == (bags.inverse is None)


@given(LISTS, st.sampled_from(kinds.KINDS), st.sampled_from(["first", "last"]))
def test_positions(lists, kind, count_from):
    bags = without_padding(make(kind, lists, weighted=False))
    expected = [list(range(len(bag))) for bag in kinds.held(kind, lists)]
    if count_from == "last":
        expected = [bag[::-1] for bag in expected]
    assert kinds.as_lists(positions(bags, count_from), bags) == expected


@pytest.mark.parametrize("keep, columns", [("first", [0, 1]), ("last", [2, 3])])
def test_dense_ids_stay_dense(keep, columns):
    ids = np.arange(12).reshape(3, 4)

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.int64)])
    def short(ids):
        bags = truncate(Bags.of(ids, ids), 2, keep)
        assert bags.hotness == 2
        return bags.values, bags.weights

    values, weights = short(ids)
    assert values.numpy().tolist() == weights.numpy().tolist() == ids[:, columns].ravel().tolist()


def test_dense_ids_that_are_short_are_not_touched():
    bags = Bags.of(tf.constant([[1, 0], [0, 2]]), padding_id=0)
    assert truncate(bags, 2) is bags


def test_dense_ids_of_a_length_known_only_at_run_time():
    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int64)])
    def short(ids):
        bags = truncate(Bags.of(ids), 2, "last")
        return bags.values, bags.row_splits

    for length, expected in [(0, [[], []]), (1, [[0], [1]]), (3, [[1, 2], [4, 5]])]:
        values, splits = short(np.arange(2 * length).reshape(2, length))
        bags = Bags(values, splits)
        assert kinds.as_lists(values, bags) == expected


def test_strings_stay_strings():
    bags = Bags.of(tf.constant([["a", "", "b", "c"]]), padding_id="", name=NAME)
    short = truncate(bags, 2)
    assert short.strings
    assert short.to_tensors()["values"].numpy().tolist() == [b"a", b"b"]
    assert short.values.numpy().tolist() == Bags(["a", "b"], hotness=2).values.numpy().tolist()
    assert truncate(Bags(["a", "b", "c"], hotness=3), 1).strings


def test_gradients_go_to_the_weights_that_are_kept():
    weights = tf.constant([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    ids = tf.constant([[7, 0, 3], [5, 6, 2]], tf.int64)
    with tf.GradientTape() as tape:
        tape.watch(weights)
        kept = truncate(Bags.of(ids, weights, padding_id=0), 2, "last").weights
        loss = tf.reduce_sum(kept * [10.0, 20.0, 30.0, 40.0])
    gradient = tf.convert_to_tensor(tape.gradient(loss, weights))
    np.testing.assert_array_equal(gradient, [[10, 0, 20], [0, 30, 40]])


@pytest.mark.parametrize("splits", [[0, 3, 2, 4], [0, 2, 5], [0, 2, 3], [1, 2, 4]])
@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize(
    "change",
    [
        lambda bags: truncate(bags, 1).values,
        lambda bags: truncate(bags, 1, "last").values,
        positions,
        lambda bags: without_padding(Bags.of(bags, padding_id=1, name=NAME)).values,
    ],
)
def test_broken_row_splits(splits, graph, change):
    def run(splits):
        return change(Bags([1, 2, 3, 4], splits, name=NAME))

    message = r"history.*row_splits must begin at 0, never fall, and end at the number of ids"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        (tf.function(run) if graph else run)(tf.constant(splits, tf.int64))
