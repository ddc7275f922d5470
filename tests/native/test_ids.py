"""The pure id maps and row splits."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from merlin_embeddings import native

int64s = st.integers(-(2**63), 2**63 - 1)


@given(ids=st.lists(int64s, max_size=20), size=st.integers(1, 2**63 - 1))
def test_modulo_is_pythons(ids, size):
    [rows] = native.modulo([tf.constant(ids, tf.int64)], [size])
    assert rows.numpy().tolist() == [i % size for i in ids]


@given(ids=st.lists(int64s, max_size=20), size=st.integers(1, 2**40))
def test_range_policies(ids, size):
    tensor = tf.constant(ids, tf.int64)
    zero, clip = native.check_range([tensor] * 2, [size] * 2, ["zero", "clip"], ["a", "b"])
    assert zero.numpy().tolist() == [i if 0 <= i < size else -1 for i in ids]
    assert clip.numpy().tolist() == [min(max(i, 0), size - 1) for i in ids]


def test_an_id_outside_is_named():
    ids = [tf.constant([1], tf.int64), tf.constant([0, 9, 10], tf.int64)]
    message = r"feature 'b': id 10 at position 2 is outside \[0, 10\); raise vocabulary_size"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        native.check_range(ids, [10, 10], ["error"] * 2, ["feature 'a'", "feature 'b'"])


def test_many_ids_are_checked_to_the_last():
    ids = np.zeros(200_000, np.int64)
    ids[-1] = 7
    with pytest.raises(tf.errors.InvalidArgumentError, match="position 199999"):
        native.check_range([tf.constant(ids)], [7], ["error"], ["f"])


@given(rows=st.lists(st.integers(0, 6)), extra=st.integers(0, 3))
def test_row_splits(rows, extra):
    rows, count = sorted(rows), 7 + extra
    splits = native.row_splits(tf.constant(rows, tf.int64), tf.constant(count, tf.int64), "f")
    assert splits.numpy().tolist() == [sum(r < b for r in rows) for b in range(count + 1)]


@pytest.mark.parametrize("rows", [[1, 0], [0, 3], [-1]])
def test_bad_row_ids(rows):
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"f: entry .* rows must ascend"):
        native.row_splits(tf.constant(rows, tf.int64), tf.constant(3, tf.int64), "f")


@pytest.mark.parametrize("count", [2**63 - 1, 2**41, -1])
def test_a_batch_of_no_possible_size(count):
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"f: a batch of .* rows"):
        native.row_splits(tf.constant([], tf.int64), tf.constant(count, tf.int64), "f")
