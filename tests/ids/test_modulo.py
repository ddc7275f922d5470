"""Modulo: row = id mod rows for every int64."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from merlin_embeddings.ids import Modulo
from merlin_embeddings.ids.modulo import ModuloMap


def int64(values):
    return tf.constant(values, tf.int64, shape=[len(values)])


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20), st.integers(1, 2**40))
def test_floored_modulo_of_any_int64(ids, size):
    rows, changes = Modulo(size).build().assign(int64(ids))
    # Python's integers don't overflow, and its % is floored.
    assert rows.numpy().tolist() == [i % size for i in ids]
    assert changes is None


def test_many_maps_in_one_call():
    maps = [Modulo(2).build(), Modulo(10).build(vocabulary_size=7)]
    rows = ModuloMap.assign_each(maps, [int64([5]), int64([-1, 23])], ["a", "b"])
    assert [r.numpy().tolist() for r in rows] == [[1], [9, 3]]


@pytest.mark.parametrize("rows", [0, -1, 2.0, None, True])
def test_bad_rows(rows):
    with pytest.raises(ValueError, match=f"ids.Modulo: rows={rows}; it must be a positive"):
        Modulo(rows)


def test_numpy_rows():
    assert Modulo(np.int64(3)).build().rows == 3
