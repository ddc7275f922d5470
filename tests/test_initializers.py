"""Initializers: names, laws, rows equal to those of whole tables, refusals."""

import json
import math

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

from merlin_embeddings import initializers
from merlin_embeddings.config import from_plain, to_plain
from merlin_embeddings.initializers import (
    Constant,
    FromArray,
    Normal,
    TruncatedNormal,
    Uniform,
    Xavier,
)

ROWS, DIM = 4000, 16
ARRAY = np.arange(12.0).reshape(4, 3)


def table(initializer, rows=ROWS, dim=DIM, dtype="float32", seed=3):
    return initializer.table(rows, dim, dtype, seed, "item")


@pytest.mark.parametrize(
    "name, expected",
    [
        ("uniform", Uniform(-0.05, 0.05)),
        ("normal", Normal(0.0, 0.05)),
        ("truncated_normal", TruncatedNormal(0.0, 0.05)),
        ("xavier", Xavier()),
        ("glorot_uniform", Xavier()),
        ("zeros", Constant(0.0)),
        ("ones", Constant(1.0)),
    ],
)
def test_names(name, expected):
    assert initializers.get(name) == expected
    assert initializers.get(expected) is expected


@pytest.mark.parametrize(
    "initializer, mean, stddev, low, high",
    [
        (Uniform(-1, 3), 1.0, 4 / math.sqrt(12), -1, 3),
        (Normal(2.0, 0.5), 2.0, 0.5, -1, 5),
        # A normal cut at two standard deviations keeps 0.8796 of its own.
        (TruncatedNormal(2.0, 0.5), 2.0, 0.5 * 0.8796, 1, 3),
        (Xavier(), 0.0, math.sqrt(2 / (ROWS + DIM)), -math.sqrt(6 / 4016), math.sqrt(6 / 4016)),
        (Constant(0.25), 0.25, 0.0, 0.25, 0.25),
    ],
)
def test_laws(initializer, mean, stddev, low, high):
    values = table(initializer).numpy()
    assert values.shape == (ROWS, DIM) and values.dtype == np.float32
    assert values.min() >= low - 1e-6 and values.max() <= high + 1e-6
    # 64,000 draws: their mean lies within five of its own standard deviations.
    assert abs(values.mean() - mean) <= 5 * stddev / math.sqrt(values.size) + 1e-7
    assert values.std() == pytest.approx(stddev, rel=0.02)


@pytest.mark.parametrize(
    "initializer", [Uniform(), Normal(), TruncatedNormal(), Xavier(), Constant(2.0)]
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_rows_equal_those_of_the_table(initializer, dtype):
    keys = [0, 3999, 17, 17, 1024]
    whole = tf.cast(table(initializer, dtype=dtype), tf.float32).numpy()
    some = initializer.rows(tf.constant(keys, tf.int64), DIM, dtype, 3, "item", ROWS)
    assert some.dtype == dtype
    np.testing.assert_array_equal(tf.cast(some, tf.float32).numpy(), whole[keys])


def test_seeds_differ():
    one, other = table(Uniform(), seed=1).numpy(), table(Uniform(), seed=2).numpy()
    assert (one != other).mean() > 0.99


def test_arrays():
    for given in (ARRAY, tf.constant(ARRAY)):
        initializer = initializers.get(given)
        np.testing.assert_array_equal(table(initializer, 4, 3).numpy(), ARRAY)
        rows = initializer.rows(tf.constant([2, 0], tf.int64), 3, "float32", 0, "item", 4)
        np.testing.assert_array_equal(rows.numpy(), ARRAY[[2, 0]])
    with pytest.raises(ValueError, match=r"table 'item': initial values have shape \[4, 3\]"):
        table(FromArray(ARRAY), 5, 3)
    with pytest.raises(ValueError, match="two axes"):
        FromArray(np.zeros(3))
    assert FromArray(ARRAY) == FromArray(ARRAY.copy()) != FromArray(ARRAY + 1)


def test_arrays_compare_by_their_values():
    other = ARRAY.copy()
    other[3, 2] += 1
    same, different = FromArray(ARRAY.copy()), FromArray(other)
    assert FromArray(ARRAY) == same and hash(FromArray(ARRAY)) == hash(same)
    assert FromArray(ARRAY) != different
    assert FromArray(ARRAY) != FromArray(ARRAY.astype(np.float32))
    assert FromArray(np.array([[0.0]])) == FromArray(np.array([[-0.0]]))
    assert hash(FromArray(np.array([[0.0]]))) == hash(FromArray(np.array([[-0.0]])))
    assert len({FromArray(ARRAY), same, different}) == 2
    assert repr(same) == "FromArray(float64 [4, 3])"


def test_plain_data_of_an_array_have_no_values():
    big = np.ones([10_000, 8], np.float32)
    plain = json.loads(json.dumps(to_plain(FromArray(big))))
    assert plain == {"class": "FromArray", "object": {"shape": [10_000, 8], "dtype": "float32"}}
    again = from_plain(plain)
    assert again == from_plain(plain) != FromArray(big)
    assert hash(again) == hash(from_plain(plain))
    assert to_plain(again) == plain and repr(again) == repr(FromArray(big))
    values = table(again, 10_000, 8, dtype="bfloat16")
    assert values.dtype == tf.bfloat16 and not np.any(tf.cast(values, tf.float32))
    with pytest.raises(ValueError, match=r"table 'item': initial values have shape \[10000, 8\]"):
        table(again, 9_999, 8)
    with pytest.raises(ValueError, match=r"table 'item': its initial values were an array.*reset"):
        again.rows(tf.constant([0], tf.int64), 8, "float32", 0, "item", 10_000)


@pytest.mark.parametrize("array", [np.array([["a"]]), np.array([[True]])])
def test_arrays_of_no_numbers(array):
    with pytest.raises(ValueError, match="FromArray: the array must hold numbers"):
        FromArray(array)


def test_a_memory_mapped_array(tmp_path):
    np.save(tmp_path / "array.npy", ARRAY)
    mapped = np.load(tmp_path / "array.npy", mmap_mode="r")
    np.testing.assert_array_equal(table(initializers.get(mapped), 4, 3), ARRAY)


def test_what_stands_in_a_config():
    assert initializers.as_spec("uniform") == "uniform"
    assert initializers.as_spec(ARRAY) == FromArray(ARRAY)
    own = keras.initializers.HeNormal(seed=1)
    assert initializers.as_spec(own) is own
    plain = initializers.as_spec(keras.initializers.serialize(own))
    assert isinstance(plain, keras.initializers.HeNormal)
    with pytest.raises(ValueError, match="unknown initializer 'unifrom'"):
        initializers.as_spec("unifrom")


def test_keras_initializers_are_called_once_with_the_whole_shape():
    own = keras.initializers.RandomNormal(seed=4)
    values = table(initializers.get(own), 6, 3).numpy()
    np.testing.assert_array_equal(values, own((6, 3)).numpy())
    with pytest.raises(ValueError, match=r"table 'item': its initializer .* whole tables only"):
        initializers.get(own).rows(tf.constant([0], tf.int64), 3, "float32", 0, "item", 6)
    by_name = table(initializers.get("identity"), 3, 3, dtype="bfloat16")
    np.testing.assert_array_equal(tf.cast(by_name, tf.float32).numpy(), np.eye(3))


@pytest.mark.parametrize("unknown", ["unifrom", 3, {"class_name": "Nothing"}])
def test_unknown_initializers(unknown):
    with pytest.raises(ValueError, match=r"unknown initializer .*glorot_uniform"):
        initializers.get(unknown)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Uniform(1.0, 0.0), "low=1.0 is above high=0.0"),
        (lambda: Normal(stddev=-1.0), "Normal: stddev must not be negative"),
        (lambda: TruncatedNormal(mean=math.inf), "TruncatedNormal: mean must be finite"),
        (lambda: Constant(math.nan), "Constant: value must be finite"),
    ],
)
def test_bad_parameters(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    "initializer", [Uniform(-1, 2), Normal(1, 2), TruncatedNormal(), Xavier(), Constant(3.0)]
)
def test_plain_data_and_back(initializer):
    assert from_plain(to_plain(initializer)) == initializer
