"""ids.count: the distinct ids of data, by frequency."""

from collections import Counter

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from merlin_embeddings.ids import count, counting

INT64 = st.integers(-(2**63), 2**63 - 1)


def wanted(flat):
    """By Counter: the most frequent first, then the lower id."""
    pairs = sorted(Counter(flat).items(), key=lambda pair: (-pair[1], pair[0]))
    return [id for id, _ in pairs], [number for _, number in pairs]


def as_lists(counted):
    return [part.tolist() for part in counted]


@given(st.lists(st.lists(st.integers(-3, 3) | INT64, max_size=8), max_size=5))
def test_integers(batches):
    flat = [id for batch in batches for id in batch]
    arrays = [np.array(batch, np.int64) for batch in batches]
    assert as_lists(count(arrays)) == list(wanted(flat))
    ragged = tf.ragged.constant(batches, dtype=tf.int64, ragged_rank=1)
    assert as_lists(count(ragged)) == list(wanted(flat))


@given(st.lists(st.lists(st.sampled_from(["a", "b", "", "ä"]), min_size=1), min_size=1, max_size=5))
def test_strings(batches):
    flat = [text.encode() for batch in batches for text in batch]
    assert as_lists(count(batches)) == list(wanted(flat))
    assert as_lists(count([tf.constant(batch) for batch in batches])) == list(wanted(flat))


def test_many_parts_are_summed_in_between(monkeypatch):
    monkeypatch.setattr(counting, "_PENDING", 10)
    parts = np.random.default_rng(0).integers(50, size=[40, 7])
    assert as_lists(count(iter(parts))) == list(wanted(parts.ravel().tolist()))


def test_a_dataset_sparse_ids_single_ids_and_padding():
    data = tf.data.Dataset.from_tensor_slices([[5, 0], [7, 5]]).batch(2)
    assert as_lists(count(data, padding_id=0)) == [[5, 7], [2, 1]]
    assert as_lists(count(tf.sparse.from_dense([[0, 3], [3, 0]]))) == [[3], [2]]
    assert as_lists(count(["a", "b", "a"], padding_id="a")) == [[b"b"], [1]]
    assert as_lists(count([])) == [[], []]
    assert as_lists(count(pd.Series(["b", "a", "b"]))) == [[b"b", b"a"], [2, 1]]


@pytest.mark.parametrize(
    "data", [[1.5], [1, "a"], [["a"], [1]], 3.0, None, [True, False], {"a": [1]}]
)
def test_no_ids(data):
    with pytest.raises(TypeError, match=r"integers or .*strings|both integers and strings"):
        count(data)
