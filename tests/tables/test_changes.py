"""Which rows were written since a mark."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import merlin_embeddings as me
from merlin_embeddings.tables import Entries


def since(table, mark):
    return [key for part in table.entries(since=mark, chunk=3) for key in part.keys.tolist()]


def train(table, optimizer, rows):
    slices = tf.IndexedSlices(
        tf.ones([len(rows), table.dim]), tf.constant(rows, tf.int64), [table.rows, table.dim]
    )
    optimizer.apply([slices], [table.variable])


def write(table, *keys):
    table.write(Entries(keys, np.zeros((len(keys), table.dim), np.float32)))


@pytest.fixture
def tracked(make_table):
    table = make_table()
    optimizer = me.optimizers.SGD(0.1, momentum=0.9)
    optimizer.build([table.variable])
    return table, optimizer


def test_updates_writes_and_resets_are_seen(tracked):
    table, optimizer = tracked
    mark = table.mark()
    assert since(table, mark) == []
    train(table, optimizer, [7, 3, 7])
    assert since(table, mark) == [3, 7]
    write(table, 11)
    table.reset([0])
    assert since(table, mark) == [0, 3, 7, 11]


def test_each_mark_has_its_own_view(tracked):
    table, optimizer = tracked
    train(table, optimizer, [1])
    marks = [table.mark()]
    for row in (2, 3, 4):
        train(table, optimizer, [row, 5])
        marks.append(table.mark())
    assert [since(table, mark) for mark in marks] == [[2, 3, 4, 5], [3, 4, 5], [4, 5], []]
    train(table, optimizer, [1])
    assert [since(table, mark) for mark in marks] == [[1, 2, 3, 4, 5], [1, 3, 4, 5], [1, 4, 5], [1]]


def test_keys_and_since_together(tracked):
    table, _ = tracked
    mark = table.mark()
    write(table, 2, 4, 6)
    [part] = table.entries(keys=[6, 5, 2], since=mark)
    assert part.keys.tolist() == [6, 2]


def test_many_marks_never_miss_a_row(tracked):
    table, _ = tracked
    write(table, 19)
    old = table.mark()
    write(table, 3)
    for _ in range(600):
        recent = table.mark()
    write(table, 4)
    assert set(since(table, old)) >= {3, 4}
    assert since(table, recent) == [4]


def test_before_any_optimizer_every_row_counts(make_table):
    table = make_table()
    mark = table.mark()
    assert since(table, mark) == list(range(20))
    me.optimizers.SGD().build([table.variable])
    assert since(table, mark) == list(range(20))
    assert since(table, table.mark()) == []


def test_a_new_buffer_means_every_row(tracked):
    table, optimizer = tracked
    mark = table.mark()
    train(table, optimizer, [1])
    table.variable.assign(np.ones((20, 4)))
    assert since(table, mark) == list(range(20))
    mark = table.mark()
    train(table, optimizer, [2])
    assert since(table, mark) == [2]


def test_a_write_that_had_to_copy_is_still_known(tracked):
    table, _ = tracked
    mark = table.mark()
    held = table.variable.value.read_value()
    write(table, 2)
    assert since(table, mark) == [2]
    assert held.shape == (20, 4)


def test_constrained_rows_are_seen(make_table):
    table = make_table(constraint=keras.constraints.NonNeg())
    optimizer = me.optimizers.SGD(0.1)
    optimizer.build([table.variable])
    mark = table.mark()
    train(table, optimizer, [5])
    assert since(table, mark) == [5]
    assert (table.variable.numpy()[5] >= 0).all()


def test_marks_of_other_tables_are_refused(tracked, make_table):
    table, _ = tracked
    with pytest.raises(ValueError, match=r"table 'item': since=.* is no mark of this table"):
        table.entries(since=make_table(name="user").mark())
    with pytest.raises(ValueError, match="since=3 is no mark"):
        table.entries(since=3)


def test_two_assigns_in_a_row_are_seen(make_table):
    # The second buffer may lie where the one before the first did.
    table = make_table()
    me.optimizers.SGD().build([table.variable])
    for _ in range(20):
        mark = table.mark()
        for value in (1.0, 2.0):
            table.variable.assign(np.full((table.rows, table.dim), value, np.float32))
        assert since(table, mark) == list(range(table.rows))


def test_a_reader_does_not_make_every_row_count(tracked):
    table, optimizer = tracked
    mark = table.mark()
    held = table.variable.value.read_value()
    train(table, optimizer, [3])
    assert since(table, mark) == [3]
    assert held.shape == (table.rows, table.dim)
