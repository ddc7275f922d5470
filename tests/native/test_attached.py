"""Rows that start anew together with all that is attached to them."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import tensorflow as tf

from merlin_embeddings import native

LAW = ("uniform", (-1.0, 1.0), 3)


def longs(values):
    return tf.constant(values, tf.int64)


def table_of(rows, dim=3, dtype=tf.float32):
    return tf.Variable(tf.cast(tf.fill([rows, dim], 9.0), dtype))


def expected_rows(keys, dim=3, dtype=tf.float32):
    kind, params, seed = LAW
    return native.initial_rows(longs(keys), dim, dtype, kind, params, seed, "item").numpy()


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16, tf.float16])
def test_vectors_depend_on_the_key_and_slots_get_their_fill(dtype):
    table, attached = table_of(6, dtype=dtype), native.Attached("item")
    slots = {
        "float": (tf.Variable(tf.ones([6, 3])), 0.1),
        "half": (tf.Variable(tf.ones([6], tf.float16)), 0.5),
        "bfloat16": (tf.Variable(tf.ones([6], tf.bfloat16)), 0.25),
        "double": (tf.Variable(tf.ones([6, 2, 2], tf.float64)), -2.0),
        "flags": (tf.Variable(tf.zeros([6], tf.uint8)), 1),
        "int": (tf.Variable(tf.zeros([6], tf.int32)), 7),
        "long": (tf.Variable(tf.zeros([6], tf.int64)), -7),
    }
    before = {name: variable.numpy() for name, (variable, _) in slots.items()}
    for variable, fill in slots.values():
        attached.attach(variable, fill)
    attached.reset_rows(table, longs([4, 0]), longs([-(2**62), 11]), *LAW)
    wanted = np.full([6, 3], 9, table.numpy().dtype)
    wanted[[4, 0]] = expected_rows([-(2**62), 11], dtype=dtype)
    np.testing.assert_array_equal(table.numpy(), wanted)
    for name, (variable, fill) in slots.items():
        wanted = before[name]
        wanted[[4, 0]] = fill
        np.testing.assert_array_equal(variable.numpy(), wanted, err_msg=name)


def test_many_rows():
    table, attached = table_of(50_000), native.Attached("item")
    rows = np.random.default_rng(0).permutation(50_000)[:40_000]
    attached.reset_rows(table, longs(rows), longs(rows * 7), *LAW)
    wanted = np.full([50_000, 3], 9, np.float32)
    wanted[rows] = expected_rows(rows * 7)
    np.testing.assert_array_equal(table.numpy(), wanted)


def test_a_function_traced_before_the_slot_existed_fills_it():
    table, attached = table_of(4), native.Attached("item")

    @tf.function
    def reset(rows):
        attached.reset_rows(table, rows, rows, *LAW)

    reset(longs([0]))
    slot = tf.Variable([5.0] * 4)

    @tf.function
    def trace():
        attached.attach(slot, 0.5)  # as an optimizer that is built while a step is traced

    trace()
    reset(longs([2]))
    assert slot.numpy().tolist() == [5, 5, 0.5, 5]
    attached.attach(slot, 0.25)
    reset(longs([1]))
    assert slot.numpy().tolist() == [5, 0.25, 0.5, 5]
    attached.detach(slot)
    attached.detach(slot)
    reset(longs([0]))
    assert slot.numpy().tolist() == [5, 0.25, 0.5, 5]


def test_slots_of_an_optimizer_that_is_gone_are_left_out():
    table, attached = table_of(4), native.Attached("item")
    for _ in range(3):  # the next one may get the address of the last
        slot = tf.Variable(tf.ones([5]))
        attached.attach(slot, 0.0)
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"slot of shape \[5\]"):
            attached.reset_rows(table, longs([0]), longs([0]), *LAW)
        del slot
        gc.collect()
    attached.reset_rows(table, longs([0]), longs([0]), *LAW)
    np.testing.assert_array_equal(table.numpy()[0], expected_rows([0])[0])


def test_what_was_read_before_stays_as_it_was():
    table, attached, slot = table_of(4), native.Attached("item"), tf.Variable(tf.ones([4]))
    attached.attach(slot, 0.0)
    vectors, values = table.read_value(), slot.read_value()
    attached.reset_rows(table, longs([1]), longs([1]), *LAW)
    assert np.all(vectors.numpy() == 9) and np.all(values.numpy() == 1)
    assert slot.numpy().tolist() == [1, 0, 1, 1]


def test_two_tables_of_one_name_are_apart():
    one, other = native.Attached("item"), native.Attached("item")
    slot, table = tf.Variable(tf.ones([4])), table_of(4)
    one.attach(slot, 0.0)
    other.reset_rows(table, longs([0]), longs([0]), *LAW)
    assert slot.numpy().tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("rows", "keys", "message"),
    [
        ([1, 4], [0, 0], r"table 'item': row 4 is outside the table's 4 rows"),
        ([1, -1], [0, 0], r"table 'item': row -1 is outside"),
        ([1, 2], [0], r"table 'item': rows of shape \[2\] and keys of shape \[1\]"),
    ],
)
def test_bad_input_writes_nothing(rows, keys, message):
    table, attached, slot = table_of(4), native.Attached("item"), tf.Variable(tf.ones([4]))
    attached.attach(slot, 0.0)
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        attached.reset_rows(table, longs(rows), longs(keys), *LAW)
    assert np.all(table.numpy() == 9) and np.all(slot.numpy() == 1)


def test_a_slot_that_cannot_be_filled():
    table, attached, slot = table_of(4), native.Attached("item"), tf.Variable([True] * 4)
    attached.attach(slot, 0.0)
    with pytest.raises(tf.errors.InvalidArgumentError, match="slot of bool can't be filled"):
        attached.reset_rows(table, longs([0]), longs([0]), *LAW)
    assert np.all(table.numpy() == 9)


class Optimizer:
    """Stands for one: an object that can be held weakly."""


def test_claims_live_as_long_as_their_owners():
    attached, other = native.Attached("item"), native.Attached("item")
    one, two = Optimizer(), Optimizer()
    assert not attached.claimed()
    attached.claim(one)
    attached.claim(one)
    attached.claim(two)
    assert attached.claimed() and not other.claimed()
    attached.unclaim(one)
    attached.unclaim(one)
    assert attached.claimed()
    del two
    gc.collect()
    assert not attached.claimed()


def test_a_gradient_goes_on_if_it_is_claimed():
    attached, owner = native.Attached("item"), Optimizer()

    @tf.function
    def step(gradient, used):
        checked = attached.require_claimed(gradient, "table 'item': use Split")
        return checked * 2.0 if used else gradient

    gradient = tf.constant([1.0, 2.0])
    assert step(gradient, used=False).numpy().tolist() == [1, 2]
    with pytest.raises(tf.errors.InvalidArgumentError, match="table 'item': use Split"):
        step(gradient, used=True)
    attached.claim(owner)
    assert step(gradient, used=True).numpy().tolist() == [2, 4]


def test_a_list_goes_with_its_table():
    attached = native.Attached("item")
    name, owner = attached.name, Optimizer()
    attached.claim(owner)
    again = native.Attached("item")
    again.name = name
    assert again.claimed()
    del attached
    gc.collect()
    assert not again.claimed()
