"""What values of bags are ids: strings by their hash, unsigned integers, and padding."""

import numpy as np
import pytest
import tensorflow as tf

from merlin_embeddings import Bags
from merlin_embeddings.bags import hash_strings

NAME = "table 'item', feature 'history'"


def test_strings_hash_by_farmhash_fingerprint64():
    words = ["", "ann", "Überraschung", "x" * 1000]
    # The fingerprint as eight little-endian bytes, reduced by Python's integers.
    prints = tf.fingerprint(tf.constant(words), "farmhash64").numpy()
    expected = [int.from_bytes(bytes(p), "little") % (2**63 - 1) for p in prints]
    assert hash_strings(tf.constant(words)).numpy().tolist() == expected
    bags = Bags.of(tf.ragged.constant([words, []]))
    assert bags.strings and bags.values.numpy().tolist() == expected
    assert not Bags.of(tf.constant([1])).strings


@pytest.mark.parametrize("graph", [False, True])
def test_unsigned_ids_are_int64_or_an_error(graph):
    def read(ids):
        return Bags.of(ids, name=NAME).values

    run = tf.function(read) if graph else read
    fine = np.array([[0, 2**63 - 1]], np.uint64)
    assert run(tf.constant(fine)).numpy().tolist() == [0, 2**63 - 1]
    for big in (2**63, 2**64 - 1):
        with pytest.raises(tf.errors.InvalidArgumentError) as error:
            run(tf.constant(np.array([[5, big]], np.uint64)))
        for part in (NAME, str(big), "tf.bitcast(ids, tf.int64)", "ids.Modulo(rows)"):
            assert part in error.value.message.replace("\\", "")
        assert "5" not in error.value.message.split("The ids:")[1].split(str(big))[0]


def test_the_way_out_for_unsigned_ids():
    ids = tf.bitcast(tf.constant(np.array([2**64 - 1, 3], np.uint64)), tf.int64)
    assert Bags.of(ids).values.numpy().tolist() == [-1, 3]


def test_padding_of_another_kind_than_the_ids():
    with pytest.raises(TypeError, match=r"history.*padding_id='' is a string, but the ids are int"):
        Bags.of(tf.constant([1]), padding_id="", name=NAME)
    for zero in (0, np.int64(0)):
        with pytest.raises(TypeError, match=r"history.*is an integer, but the ids are strings"):
            Bags.of(tf.constant(["a"]), padding_id=zero, name=NAME)
