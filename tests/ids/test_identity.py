"""Identity: row = id, and what ids out of range are."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from merlin_embeddings.ids import Identity
from merlin_embeddings.ids.identity import IdentityMap

INT64 = st.integers(-(2**63), 2**63 - 1)


def int64(values):
    return tf.constant(values, tf.int64, shape=[len(values)])


def test_rows_in_range_are_the_ids():
    rows, changes = Identity().build(5).assign(int64([4, 0, 4]))
    assert rows.numpy().tolist() == [4, 0, 4]
    assert changes is None


def test_no_ids():
    assert Identity().build(5).assign(int64([]))[0].shape == [0]


@given(st.lists(INT64 | st.integers(-3, 12), max_size=20), st.integers(1, 10))
def test_zero_and_clip(ids, size):
    array = np.array(ids, np.int64)
    zero, _ = Identity("zero").build(size).assign(int64(ids))
    clip, _ = Identity("clip").build(size).assign(int64(ids))
    np.testing.assert_array_equal(zero, np.where((array >= 0) & (array < size), array, -1))
    np.testing.assert_array_equal(clip, np.clip(array, 0, size - 1))


@pytest.mark.parametrize("bad", [5, -1, -(2**63), 2**63 - 1])
def test_error_names_what_and_value(bad):
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        Identity().build(5).assign(int64([1, bad]), name="table 'item', feature 'history'")
    for part in ["table 'item', feature 'history'", str(bad), "5"]:
        assert part in error.value.message


def test_many_maps_in_one_call():
    maps = [Identity("zero").build(2), Identity("error").build(9), Identity("clip").build(3)]
    rows = IdentityMap.assign_each(maps, [int64([5]), int64([8, 0]), int64([7])], ["a", "b", "c"])
    assert [r.numpy().tolist() for r in rows] == [[-1], [8, 0], [2]]


def test_refuses():
    assert [Identity().build(3).refuses(i) for i in (-1, 0, 2, 3)] == [True, False, False, True]
    assert not Identity("zero").build(3).refuses(9)


def test_bad_specs():
    with pytest.raises(ValueError, match=r"out_of_range='wrap'; .*'error', 'zero', 'clip'"):
        Identity("wrap")
    with pytest.raises(ValueError, match=r"not None; .*ids.Modulo\(rows\)"):
        Identity().build(None)
