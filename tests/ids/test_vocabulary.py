"""Vocabulary and the maps by frequency: rows of known ids, against a dict."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import merlin_embeddings as me
from merlin_embeddings.ids import FrequencyHash, Vocabulary
from tests.ids.xxh64 import row_of

INT64 = st.integers(-(2**63), 2**63 - 1)


def int64(values):
    return tf.constant(values, tf.int64, shape=[len(values)])


def rows(spec, ids):
    return me.layers.MapIds(spec)(ids).numpy().tolist()


@given(
    st.lists(INT64, min_size=1, max_size=40, unique=True),
    st.lists(INT64, max_size=20),
    st.integers(0, 5),
    INT64,
)
@settings(max_examples=40)
def test_rows_are_places(known, others, oov_rows, salt):
    place = {id: at for at, id in enumerate(known)}
    asked = [*others, *known[::2]]
    spec = Vocabulary(known, oov_rows=oov_rows, unknown="zero", salt=salt)
    hashed = [len(known) + row_of(id, oov_rows, salt) if oov_rows else -1 for id in asked]
    wanted = [place.get(id, other) for id, other in zip(asked, hashed, strict=True)]
    assert rows(spec, int64(asked)) == wanted
    assert spec.rows_of(None) == len(known) + oov_rows


def test_every_one_of_a_million_ids_is_found():
    known = np.random.default_rng(0).permutation(10_000_000)[:1_000_000] * 7 - 12345
    layer = me.layers.MapIds(Vocabulary(known, unknown="zero"))
    np.testing.assert_array_equal(layer(known), np.arange(1_000_000))
    assert (layer(known + 1).numpy() == -1).all()


def test_strings():
    spec = Vocabulary(["Rome", b"Oslo", ""], oov_rows=2, salt=4)
    bonn = 3 + row_of(int(me.bags.hash_strings(tf.constant("Bonn"))), 2, 4)
    assert rows(spec, tf.constant(["", "Bonn", "Rome", "Oslo"])) == [2, bonn, 0, 1]
    assert Vocabulary(tf.constant(["Rome", "Oslo", ""]), oov_rows=2, salt=4) == spec


def test_frequent_ids_first_then_shared_rows():
    spec = FrequencyHash({70: 5, 10: 9, 30: 1}, hashed_rows=4, top=2)
    assert rows(spec, [10, 70, 30]) == [0, 1, 2 + row_of(30, 4)]
    cap = me.ids.FrequencyCap({70: 5, 10: 9, 30: 1}, min_count=2, oov_rows=0)
    assert rows(cap, [10, 70, 30]) == [0, 1, -1]


def test_an_unknown_id_is_named():
    layer = me.layers.Embedding(None, 2, ids=Vocabulary([5, 6]), table_name="item")
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"(?s)table 'item'.*none of the 2 .*oov_rows=.*\n7, 9"
    ):
        layer(np.array([5, 7, 6, 9]))


@pytest.mark.parametrize(
    ("ids", "asked", "message"),
    [
        ([5, 6], tf.constant(["5"]), r"got strings, .* vocabulary of integers"),
        (["5", "6"], tf.constant([5]), r"got integers, .* vocabulary of strings"),
    ],
)
def test_ids_of_another_kind(ids, asked, message):
    for layer in (
        me.layers.Embedding(None, 2, ids=Vocabulary(ids, oov_rows=1)),
        me.layers.MapIds(Vocabulary(ids, oov_rows=1)),
    ):
        with pytest.raises(ValueError, match=message):
            layer(asked)


def test_padding_need_not_be_known():
    layer = me.layers.Embedding(None, 2, ids=Vocabulary([5, 6]), combiner="sum", padding_id=0)
    found = layer(np.array([[5, 0], [0, 0]]))
    np.testing.assert_array_equal(found, [layer.embeddings[0], [0, 0]])


def test_adapt():
    data = tf.data.Dataset.from_tensor_slices([[7, 3, 0], [7, 5, 0], [7, 3, 0]]).batch(2)
    assert Vocabulary.adapt(data).ids.keys.tolist() == [0, 7, 3, 5]
    small = Vocabulary.adapt(data, max_size=2, padding_id=0, oov_rows=3)
    assert (small.ids.keys.tolist(), small.oov_rows) == ([7, 3], 3)
    assert Vocabulary.adapt(data, min_count=2, padding_id=0).ids.keys.tolist() == [7, 3]
    with pytest.raises(ValueError, match=r"no id of the data comes 9 times"):
        Vocabulary.adapt(data, min_count=9)
    with pytest.raises(ValueError, match=r"max_size=0; it must be a positive integer"):
        Vocabulary.adapt(data, max_size=0)


def test_from_files(tmp_path):
    text = tmp_path / "cities.txt"
    text.write_bytes("Rome\nOslo\r\nÄ b\n".encode())
    assert Vocabulary.from_file(text) == Vocabulary(["Rome", "Oslo", "Ä b"])
    text.write_text("12\n-5\n")
    assert Vocabulary.from_file(text, "integers", oov_rows=2) == Vocabulary([12, -5], oov_rows=2)
    assert Vocabulary.from_file(text) == Vocabulary(["12", "-5"])
    np.save(tmp_path / "ids.npy", np.array([3, 1]))
    assert Vocabulary.from_file(tmp_path / "ids.npy") == Vocabulary([3, 1])
    text.write_text("1\n\n2\n")
    with pytest.raises(ValueError, match=r"line 2 of '.*cities.txt' is empty"):
        Vocabulary.from_file(text)
    text.write_text("1\nx\n")
    with pytest.raises(ValueError, match=r"line 2 of .* is 'x', no integer; kind='strings'"):
        Vocabulary.from_file(text, "integers")
    with pytest.raises(ValueError, match=r"kind='ints'; it must be 'strings' or 'integers'"):
        Vocabulary.from_file(text, "ints")


def test_the_list_is_no_part_of_plain_data():
    spec = Vocabulary(range(100_000), oov_rows=1)
    assert len(str(me.config.to_plain(spec))) < 300
    assert spec != Vocabulary(range(1, 100_001), oov_rows=1)
    assert me.config.from_plain(me.config.to_plain(spec)) == spec


@pytest.mark.parametrize(
    ("ids", "error", "message"),
    [
        ([], ValueError, r"ids.Vocabulary: ids is empty"),
        ([1, 2, 1], ValueError, r"id 1 comes twice"),
        (["a", "b", "a"], ValueError, r"id 'a' comes twice"),
        ([[1, 2]], ValueError, r"ids have shape \[1, 2\]; they are a vector"),
        ([1.5], TypeError, r"ids have dtype float64; they are integers or strings"),
        ([1, "a"], TypeError, r"id 1 is a int; ids are all integers or all strings"),
        (np.array([2**63], np.uint64), ValueError, r"9223372036854775808, which is no int64"),
        ("Rome", TypeError, r"ids='Rome'; they are a list"),
        (None, TypeError, r"ids=None; they are a list"),
        ([None], TypeError, r"id None is a NoneType"),
    ],
)
def test_mistakes(ids, error, message):
    with pytest.raises(error, match=message):
        Vocabulary(ids)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("oov_rows", -1, r"oov_rows=-1; it must be an integer of 0 or more"),
        ("oov_rows", True, r"oov_rows=True"),
        ("unknown", "clip", r"unknown='clip'; it must be one of 'error', 'zero'"),
        ("salt", 2**63, r"salt=9223372036854775808; it must be an int64"),
    ],
)
def test_bad_fields(field, value, message):
    with pytest.raises(ValueError, match=message):
        Vocabulary([1], **{field: value})
