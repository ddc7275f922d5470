"""Entries: what may stand in them."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from merlin_embeddings.tables import Entries


def test_fields_are_normalised():
    entries = Entries(keys=[3, 1], vectors=np.ones((2, 4)), slots={"a": [0.5, 0.25]})
    assert entries.keys.dtype == np.int64 and entries.keys.tolist() == [3, 1]
    assert entries.slots["a"].tolist() == [0.5, 0.25]
    assert entries.erased.dtype == np.int64 and entries.erased.size == 0
    assert (len(entries), entries.dim, entries.scores) == (2, 4, None)
    with pytest.raises(dataclasses.FrozenInstanceError):
        entries.keys = [1]


def test_nothing_at_all_is_valid():
    entries = Entries(keys=[], vectors=np.zeros((0, 4), np.float32), erased=[7])
    assert len(entries) == 0
    assert entries.erased.tolist() == [7]


def test_bfloat16_is_floating_point():
    vectors = tf.ones([1, 2], tf.bfloat16).numpy()
    assert Entries(keys=[0], vectors=vectors).vectors.dtype == vectors.dtype


def test_prints_shapes_and_no_values():
    entries = Entries([1], np.zeros((1, 4), "float32"), {"m": np.zeros((1, 4))}, [2], [5, 6])
    assert repr(entries) == ("Entries(1 keys, vectors [1, 4] float32, m [1, 4], scores, 2 erased)")


@pytest.mark.parametrize(
    "fields, error, message",
    [
        ({"keys": [0.5, 1.0]}, TypeError, "keys must be integers, got float64"),
        ({"keys": [[0, 1]]}, ValueError, r"keys must have one axis, got shape \[1, 2\]"),
        ({"keys": [4, 4]}, ValueError, "keys holds 4 more than once"),
        ({"keys": np.array([0, 2**63], np.uint64)}, ValueError, "holds 9223372036854775808"),
        ({"erased": [5, 5]}, ValueError, "erased holds 5 more than once"),
        ({"erased": [1]}, ValueError, "key 1 is both written and erased"),
        ({"vectors": np.ones((3, 4))}, ValueError, r"N = 2 keys, got shape \[3, 4\]"),
        ({"vectors": np.ones(2)}, ValueError, r"vectors must be \[N, D\]"),
        ({"vectors": np.ones((2, 4), int)}, TypeError, "vectors must be floating point, got int64"),
        ({"slots": {"m": np.ones(3)}}, ValueError, r"slot 'm' .* each of 2 keys, got shape \[3\]"),
        ({"slots": {"m": np.ones(2, int)}}, TypeError, "slot 'm' must be floating point"),
        ({"scores": np.ones(1)}, ValueError, "scores .* each of 2 keys"),
    ],
)
def test_refusals(fields, error, message):
    with pytest.raises(error, match=message):
        Entries(**{"keys": [0, 1], "vectors": np.ones((2, 4)), **fields})
