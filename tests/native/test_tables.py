"""Initial values, huge pages and writes in place."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tensorflow as tf

from merlin_embeddings import native

GOLDEN, MASK32, MASK64 = 0x9E3779B9, 2**32 - 1, 2**64 - 1


def mix(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK64
    return x ^ (x >> 31)


def bits(seed, table, key, column):
    """The 32 random bits of a number, written down a second time."""
    name = 0xCBF29CE484222325
    for byte in table.encode():
        name = ((name ^ byte) * 0x100000001B3) & MASK64
    row = mix(name ^ (seed * 0x9E3779B97F4A7C15 & MASK64) ^ mix(key & MASK64))
    x = (row + column * GOLDEN) & MASK32
    x = ((x ^ (x >> 16)) * 0x85EBCA6B) & MASK32
    x ^= row >> 32
    x = ((x ^ (x >> 13)) * 0xC2B2AE35) & MASK32
    return x ^ (x >> 16)


def test_uniform_is_the_stated_function_of_seed_table_key_and_column():
    keys = [0, 1, 2**40, -5]
    values = native.initial_rows(
        tf.constant(keys, tf.int64), 5, tf.float32, "uniform", (-2.0, 3.0), 7, "item"
    )
    expected = [
        [-2 + 5 * ((bits(7, "item", key, d) >> 8) + 0.5) * 2.0**-24 for d in range(5)]
        for key in keys
    ]
    np.testing.assert_allclose(values, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16, tf.float16])
@pytest.mark.parametrize(
    ("kind", "params"),
    [
        ("uniform", (-0.1, 0.3)),
        ("normal", (1.0, 2.0)),
        ("truncated_normal", (0.0, 0.5)),
        ("constant", (0.25, 0.0)),
    ],
)
def test_table_and_rows_agree(dtype, kind, params):
    table = native.initial_table(300, 17, dtype, kind, params, 3, "t")
    keys = [299, 0, 17, 0]
    rows = native.initial_rows(tf.constant(keys, tf.int64), 17, dtype, kind, params, 3, "t")
    np.testing.assert_array_equal(
        tf.cast(rows, tf.float32), tf.cast(tf.gather(table, keys), tf.float32)
    )


@pytest.mark.parametrize(
    ("kind", "params", "mean", "stddev", "low", "high"),
    [
        ("uniform", (-1.0, 3.0), 1.0, 4 / np.sqrt(12), -1.0, 3.0),
        ("normal", (1.0, 2.0), 1.0, 2.0, -11.0, 13.0),
        # The variance of a normal cut at two standard deviations is 0.7737 of the whole.
        ("truncated_normal", (0.0, 1.0), 0.0, 0.8796, -2.0, 2.0),
    ],
)
def test_moments_and_limits(kind, params, mean, stddev, low, high):
    values = native.initial_table(20_000, 16, tf.float32, kind, params, 1, "t").numpy()
    assert abs(values.mean() - mean) < 0.01 * stddev
    assert abs(values.std() / stddev - 1) < 0.01
    assert low <= values.min() and values.max() <= high
    for axis in (0, 1):  # neighbours must not move together
        x = np.moveaxis(values, axis, 0)
        correlation = np.corrcoef(x[:-1].ravel(), x[1:].ravel())[0, 1]
        assert abs(correlation) < 0.01


def test_normal_follows_the_normal_distribution():
    values = np.sort(
        native.initial_table(50_000, 4, tf.float32, "normal", (0.0, 1.0), 1, "t").numpy().ravel()
    )
    # Quantiles of the standard normal, from tables.
    for share, quantile in [
        (0.001, -3.0902),
        (0.025, -1.95996),
        (0.5, 0.0),
        (0.84134, 1.0),
        (0.999, 3.0902),
    ]:
        assert abs(values[int(share * len(values))] - quantile) < 0.05


def test_seed_and_name_tell_tables_apart():
    def first(seed, name):
        return native.initial_table(10, 4, tf.float32, "uniform", (0.0, 1.0), seed, name).numpy()

    assert (first(1, "a") == first(1, "a")).all()
    assert not (first(1, "a") == first(2, "a")).any()
    assert not (first(1, "a") == first(1, "b")).any()


def resident_bytes():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


def huge_page_bytes():
    with open("/proc/self/smaps") as smaps:
        return 1024 * sum(
            int(size) for size in re.findall(r"AnonHugePages:\s+(\d+) kB", smaps.read())
        )


def test_zeros_cost_no_memory():
    before = resident_bytes()
    table = native.initial_table(1 << 22, 64, tf.float32, "constant", (0.0, 0.0), 0, "t")  # 1 GiB
    assert resident_bytes() - before < 64 << 20
    np.testing.assert_array_equal(table[123456], np.zeros(64))


def test_large_tables_lie_on_huge_pages():
    with open("/sys/kernel/mm/transparent_hugepage/enabled") as enabled:
        granted = "[never]" not in enabled.read()
    before = huge_page_bytes()
    variable = tf.Variable(
        native.initial_table(1 << 19, 64, tf.float32, "uniform", (0.0, 1.0), 0, "t")
    )  # 128 MiB
    if granted:
        assert huge_page_bytes() - before > 100 << 20
    assert 0 <= float(variable[77, 5]) <= 1


def test_to_huge_pages_copies():
    values = tf.random.uniform([3000, 200])
    np.testing.assert_array_equal(native.to_huge_pages(values), values)


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16, tf.float16, tf.uint8])
def test_write_rows(dtype):
    variable = tf.Variable(tf.zeros([5, 3], dtype))
    address = int(native.buffer_serial(variable))
    native.write_rows(
        variable, tf.constant([4, 1], tf.int64), tf.cast([[1, 2, 3], [4, 5, 6]], dtype)
    )
    np.testing.assert_array_equal(
        tf.cast(variable, tf.float32), [[0, 0, 0], [4, 5, 6], [0, 0, 0], [0, 0, 0], [1, 2, 3]]
    )
    assert int(native.buffer_serial(variable)) == address


def test_write_leaves_a_held_value_alone():
    variable = tf.Variable(tf.zeros([5, 3]))
    held = variable.read_value()
    native.write_rows(variable, tf.constant([1], tf.int64), tf.ones([1, 3]))
    np.testing.assert_array_equal(held, np.zeros([5, 3]))
    np.testing.assert_array_equal(variable[1], [1, 1, 1])


@pytest.mark.parametrize(
    ("rows", "shape", "message"),
    [
        ([0, 5], [2, 3], "item: row 5 is outside the table's 5 rows"),
        ([-1], [1, 3], "item: row -1"),
        ([0, 1], [1, 3], "item: values of shape"),
        ([0], [1, 4], "item: values of shape"),
    ],
)
def test_bad_writes_write_nothing(rows, shape, message):
    variable = tf.Variable(tf.zeros([5, 3]))
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        native.write_rows(variable, tf.constant(rows, tf.int64), tf.ones(shape), name="item")
    np.testing.assert_array_equal(variable, np.zeros([5, 3]))


def test_a_serial_number_is_never_given_twice():
    variable = tf.Variable(tf.zeros([64, 64]))
    seen = {int(native.buffer_serial(variable))}
    for value in range(20):
        # Two in a row: the second may get the memory that the first one left.
        variable.assign(tf.fill([64, 64], -1.0))
        variable.assign(tf.fill([64, 64], float(value)))
        seen.add(int(native.buffer_serial(variable)))
        assert float(variable[5, 5]) == value
    assert len(seen) == 21


def test_a_copy_made_for_a_reader_keeps_the_serial_number():
    variable = tf.Variable(native.initial_table(5, 3, tf.float32, "constant", (1.0, 0.0), 0, "t"))
    serial = int(native.buffer_serial(variable))
    held = variable.read_value()
    native.write_rows(variable, tf.constant([1], tf.int64), tf.zeros([1, 3]))
    assert int(native.buffer_serial(variable)) == serial
    np.testing.assert_array_equal(held, np.ones([5, 3]))


@pytest.mark.parametrize("rows", [2**60, 2**45])
def test_a_table_beyond_all_memory_is_refused(rows):
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"table 'item'.*can address"):
        native.initial_table(rows, 16, tf.float32, "constant", (0.0, 0.0), 0, "item")
