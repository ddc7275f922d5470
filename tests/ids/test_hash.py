"""Hash: row = XXH64 of the id's bytes, brought into range."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from merlin_embeddings.bags import hash_strings
from merlin_embeddings.ids import Hash
from merlin_embeddings.ids.hash import HashMap
from tests.ids.xxh64 import row_of, xxh64

INT64 = st.integers(-(2**63), 2**63 - 1)


def int64(values):
    return tf.constant(values, tf.int64, shape=[len(values)])


def test_the_oracle_gives_what_is_published():
    # Of xxHash's own sanity tests, and its README.
    assert xxh64(b"") == 0xEF46DB3751D8E999
    assert xxh64(b"a") == 0xD24EC4F1A98C6E5B
    assert xxh64(b"abc") == 0x44BC2CF5AD770999


@given(st.lists(INT64, max_size=20), st.integers(1, 2**63 - 1), INT64)
def test_any_int64(ids, rows, salt):
    found, changes = Hash(rows, salt).build().assign(int64(ids))
    assert found.numpy().tolist() == [row_of(id, rows, salt) for id in ids]
    assert changes is None


def test_numbers_that_never_change():
    ids = int64([0, 1, 2, -1, 2**63 - 1, -(2**63)])
    assert Hash(2**63 - 1).build().assign(ids)[0].numpy().tolist() == [
        1901844396197645789,
        5734460614224530633,
        8458779485497726679,
        4821274198456001379,
        9203218195332676485,
        2279154934853837423,
    ]
    # As docs/ids.md has them.
    four = int64([0, 1, -1, 2**63 - 1])
    for salt, rows in ((0, [206198, 621731, 522723, 997814]), (7, [521036, 268757, 470294, 35405])):
        assert Hash(10**6, salt).build().assign(four)[0].numpy().tolist() == rows


def test_strings_are_fingerprints_first():
    # FarmHash's Fingerprint64 modulo 2**63 - 1, as bags make ids of them.
    ids = hash_strings(tf.constant(["Hello", "TensorFlow"]))
    assert ids.numpy().tolist() == [6181326957702750344, 4265654129848386254]
    rows, _ = Hash(10**6, salt=3).build().assign(ids)
    assert rows.numpy().tolist() == [row_of(id, 10**6, 3) for id in ids.numpy().tolist()]


def test_many_maps_in_one_call():
    maps = [Hash(5).build(), Hash(7, salt=2).build(vocabulary_size=3)]
    rows = HashMap.assign_each(maps, [int64([5, 6]), int64([-1])], ["a", "b"])
    assert [r.numpy().tolist() for r in rows] == [[row_of(5, 5), row_of(6, 5)], [row_of(-1, 7, 2)]]


def test_more_ids_than_a_thread_takes():
    ids = np.arange(300_000)
    rows = Hash(1000).build().assign(int64(ids))[0].numpy()
    for at in (0, 131_071, 131_072, 299_999):
        assert rows[at] == row_of(at, 1000)
    assert np.bincount(rows, minlength=1000).min() > 200  # 300 on average


def test_nothing_is_refused():
    assert not Hash(3).build().refuses(-(2**63))


@pytest.mark.parametrize("rows", [0, -1, 2.0, None, True, 2**63])
def test_bad_rows(rows):
    with pytest.raises(ValueError, match=f"ids.Hash: rows={rows}; it must be a positive"):
        Hash(rows)


@pytest.mark.parametrize("salt", [2**63, 0.5, "a", None])
def test_bad_salt(salt):
    with pytest.raises(ValueError, match=r"ids.Hash: salt=.*; it must be an int64"):
        Hash(3, salt)
