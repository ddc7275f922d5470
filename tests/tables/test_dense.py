"""DenseTable: its weight, its slots, reading, writing and resetting rows."""

import gc

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorflow import keras

from merlin_embeddings import tables
from merlin_embeddings.config import TableConfig
from merlin_embeddings.tables import Entries


def test_owns_one_weight_under_its_name(make_table):
    table = make_table(dtype="bfloat16", trainable=False)
    assert [v.name for v in table.owner.weights] == ["item"]
    assert tuple(table.variable.shape) == (20, 4)
    assert table.variable.dtype == "bfloat16"
    assert not table.variable.trainable
    assert repr(table) == "DenseTable('item', [20, 4] bfloat16)"


def test_mixed_precision_does_not_cast_the_weight(make_table):
    keras.mixed_precision.set_dtype_policy("mixed_float16")
    try:
        table = make_table()
    finally:
        keras.mixed_precision.set_dtype_policy("float32")
    assert table.variable.dtype == "float32"
    assert not table.variable._autocast


def test_table_of_finds_the_owner_and_does_not_keep_it(make_table):
    table = make_table()
    variable = table.variable
    assert tables.table_of(variable) is table
    assert tables.table_of(keras.Variable(1.0)) is None
    del table
    gc.collect()
    assert tables.table_of(variable) is None


def test_seed_decides_the_values(make_table):
    one, same, other = make_table(seed=1), make_table(seed=1), make_table(seed=2)
    np.testing.assert_array_equal(one.variable.numpy(), same.variable.numpy())
    assert (one.variable.numpy() != other.variable.numpy()).any()


def test_without_a_seed_keras_seed_decides(make_table):
    values = []
    for seed in (1, 1, 2):
        keras.utils.set_random_seed(seed)
        values.append(
            (make_table(seed=None).variable.numpy(), make_table(seed=None).variable.numpy())
        )
    np.testing.assert_array_equal(values[0], values[1])
    assert (values[0][0] != values[2][0]).any()
    assert (values[0][0] != values[0][1]).any()


def test_rows_are_lines(make_table):
    rows = tf.constant([3, -1, 0], tf.int64)
    assert make_table().resolve(rows) is rows


def test_slots_are_attached_and_let_go(make_table, slot):
    table = make_table()
    accumulator = slot((20,))
    table.attach("accumulator", accumulator, 0.5)
    assert table.slots["accumulator"] == (accumulator, 0.5)
    with pytest.raises(TypeError):
        table.slots["other"] = accumulator
    with pytest.raises(ValueError, match=r"slot 'm' has shape \[19, 4\].* 20 rows"):
        table.attach("m", slot((19, 4)), 0.0)
    assert table.attach("accumulator", accumulator, 0.5) == "accumulator"
    assert list(table.slots) == ["accumulator"]


def test_slots_live_as_long_as_their_owner(make_table, slot):
    class Optimizer:
        pass

    table, first, second = make_table(), Optimizer(), Optimizer()
    assert table.attach("momentum", slot((20,), 1.0), 0.0, owner=first) == "momentum"
    assert table.attach("momentum", slot((20,), 2.0), 0.0, owner=second) == "momentum_1"
    table.reset([3])
    assert [float(s.variable[3]) for s in table.slots.values()] == [0.0, 0.0]
    del first
    gc.collect()
    assert list(table.slots) == ["momentum_1"]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("chunk", [1, 7, 20, 1000])
def test_entries_round_trip(make_table, slot, dtype, chunk):
    source, target = make_table(dtype=dtype, seed=1), make_table(dtype=dtype, seed=2)
    rng = np.random.default_rng(0)
    for table in (source, target):
        table.attach("row", slot((20,)), 0.25)
        table.attach("element", slot((20, 4)), 0.0)
    source.slots["row"].variable.assign(rng.normal(size=20))
    source.slots["element"].variable.assign(rng.normal(size=(20, 4)))
    parts = list(source.entries(chunk=chunk))
    assert [len(part) for part in parts] == [min(chunk, 20 - at) for at in range(0, 20, chunk)]
    assert np.concatenate([part.keys for part in parts]).tolist() == list(range(20))
    for part in reversed(parts):
        target.write(part)
    np.testing.assert_array_equal(target.variable.numpy(), source.variable.numpy())
    for name in ("row", "element"):
        np.testing.assert_array_equal(
            target.slots[name].variable.numpy(), source.slots[name].variable.numpy()
        )


def test_entries_of_chosen_keys_keep_their_order(make_table):
    table = make_table()
    [part] = table.entries(keys=[7, 2, 19])
    assert part.keys.tolist() == [7, 2, 19]
    np.testing.assert_array_equal(part.vectors, table.variable.numpy()[[7, 2, 19]])
    assert list(table.entries(keys=[])) == []


def test_writing_without_a_slot_starts_it_again(make_table, slot):
    table = make_table()
    table.attach("a", slot((20,), 3.0), 0.5)
    table.write(Entries([4], np.full((1, 4), 2.0, np.float32)))
    expected = np.full(20, 3.0)
    expected[4] = 0.5
    np.testing.assert_array_equal(table.slots["a"].variable.numpy(), expected)
    np.testing.assert_array_equal(table.variable.numpy()[4], 2.0)


@pytest.mark.parametrize("rows", [[5], [19, 0, 3], []])
def test_reset_gives_the_first_values_again(make_table, slot, rows):
    table = make_table(initializer="normal")
    first = table.variable.numpy()
    table.attach("a", slot((20, 4), 3.0), 0.5)
    table.variable.assign(np.ones((20, 4)))
    table.reset(rows)
    expected, slots = np.ones((20, 4), np.float32), np.full((20, 4), 3.0)
    expected[rows], slots[rows] = first[rows], 0.5
    np.testing.assert_array_equal(table.variable.numpy(), expected)
    np.testing.assert_array_equal(table.slots["a"].variable.numpy(), slots)


def test_erased_rows_are_reset(make_table):
    table = make_table()
    first = table.variable.numpy()
    table.variable.assign(np.ones((20, 4)))
    table.write(Entries([1], np.full((1, 4), 9.0, np.float32), erased=[2]))
    assert table.variable.numpy()[:4, 0].tolist() == [1, 9, first[2, 0], 1]


def test_a_value_held_does_not_change(make_table):
    table = make_table()
    held = table.variable.value.read_value()
    before = held.numpy().copy()
    table.write(Entries([1], np.full((1, 4), 9.0, np.float32)))
    table.reset([2])
    np.testing.assert_array_equal(held.numpy(), before)
    assert table.variable.numpy()[1].tolist() == [9.0] * 4


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"vectors": np.ones((2, 5))}, "table 'item': the vectors to write have 5 columns, .* 4"),
        ({"keys": [0, 20]}, r"table 'item': key 20 is out of range; the table has rows 0..19"),
        ({"keys": [-1, 0]}, "key -1 is out of range"),
        ({"erased": [99]}, "key 99 is out of range"),
        ({"slots": {"velocity": np.ones(2)}}, "unknown slot 'velocity'; attached slots: 'a'"),
        ({"slots": {"a": np.ones((2, 3))}}, r"slot 'a' has rows of shape \[3\], expected \[\]"),
    ],
)
def test_nothing_is_written_when_anything_is_wrong(make_table, slot, fields, message):
    table = make_table()
    table.attach("a", slot((20,), 3.0), 0.0)
    before = table.variable.numpy()
    with pytest.raises(ValueError, match=message):
        table.write(Entries(**{"keys": [0, 1], "vectors": np.ones((2, 4)), **fields}))
    np.testing.assert_array_equal(table.variable.numpy(), before)
    assert (table.slots["a"].variable.numpy() == 3.0).all()


def test_bad_requests(make_table):
    table = make_table()
    with pytest.raises(ValueError, match="chunk must be at least 1, got 0"):
        table.entries(chunk=0)
    with pytest.raises(ValueError, match="key 20 is out of range"):
        table.entries(keys=[3, 20])
    with pytest.raises(ValueError, match="keys must be a list of integers, got float64"):
        table.reset([1.5])
    with pytest.raises(ValueError, match="a table needs rows and columns"):
        tables.build(TableConfig("item", 5, 4), 0, table.owner.add_weight)


def test_single_rows_of_a_keras_initializer_cannot_be_reset(make_table):
    table = make_table(initializer=keras.initializers.Orthogonal(seed=1))
    before = table.variable.numpy()
    np.testing.assert_allclose(before.T @ before, np.eye(4), atol=1e-5)
    with pytest.raises(ValueError, match=r"table 'item': its initializer .*Orthogonal"):
        table.reset([1])
    np.testing.assert_array_equal(table.variable.numpy(), before)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(data=st.data())
def test_any_sequence_of_writes_and_resets(data):
    rows, dim = data.draw(st.integers(1, 30)), data.draw(st.integers(1, 9))
    owner = keras.layers.Layer()
    table = tables.build(TableConfig("t", rows, dim, seed=3), rows, owner.add_weight)
    first = table.variable.numpy()
    expected = first.copy()
    some_rows = st.lists(st.integers(0, rows - 1), unique=True, max_size=rows)
    for number in range(data.draw(st.integers(1, 5))):
        keys = data.draw(some_rows)
        if data.draw(st.booleans()):
            table.reset(keys)
            expected[keys] = first[keys]
        else:
            table.write(Entries(keys, np.full((len(keys), dim), number, np.float32)))
            expected[keys] = number
    np.testing.assert_array_equal(table.variable.numpy(), expected)
