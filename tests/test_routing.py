"""The local router: rows and lines of ids, padding, strings, hotness."""

import types

import numpy as np
import pytest
import tensorflow as tf

from merlin_embeddings import Bags
from merlin_embeddings.ids import Identity, Modulo
from merlin_embeddings.routing import LocalRouter, Query


def doubled():
    """A table that keeps row r at line 2 r."""
    return types.SimpleNamespace(resolve=lambda rows: tf.where(rows < 0, rows, 2 * rows))


def query(ids, bags, name="table 'item', feature 'history'"):
    return Query(doubled(), ids, bags, name)


def test_rows_and_lines_of_many_queries_in_their_order():
    queries = [
        query(Modulo(5).build(), Bags([7, -1, 3], [0, 2, 3], weights=[1, 2, 3])),
        query(Identity().build(9), Bags.of(tf.constant([[1, 8]]))),
        query(Modulo(2).build(), Bags.of(tf.constant([4, 5]))),
        query(Identity("zero").build(2), Bags.of(tf.constant([1, 2]))),
    ]
    routes = LocalRouter().route(queries, training=True)
    assert [r.rows.numpy().tolist() for r in routes] == [[2, 4, 3], [1, 8], [0, 1], [1, -1]]
    assert [r.lines.numpy().tolist() for r in routes] == [[4, 8, 6], [2, 16], [0, 2], [2, -1]]
    assert [r.hotness for r in routes] == [None, 2, 1, 1]
    assert routes[0].row_splits.numpy().tolist() == [0, 2, 3]
    assert routes[1].row_splits is None
    assert routes[0].weights.numpy().tolist() == [1, 2, 3]


@pytest.mark.parametrize("ids", [Identity(), Identity("zero"), Identity("clip"), Modulo(9)])
@pytest.mark.parametrize("padding_id", [0, 4, -1, 2**40])
@pytest.mark.parametrize("as_tensor", [False, True])
def test_padding_has_no_row_whether_it_is_an_id_or_not(ids, padding_id, as_tensor):
    values = np.array([[3, padding_id], [padding_id, 8]])
    given = tf.constant(padding_id, tf.int64) if as_tensor else padding_id
    [route] = LocalRouter().route([query(ids.build(9), Bags.of(values, padding_id=given))])
    assert route.rows.numpy().tolist() == [3, -1, -1, 8]


def test_a_bad_id_beside_padding_is_refused():
    bags = Bags.of(tf.constant([[3, -1], [-2, 8]]), padding_id=-1)
    with pytest.raises(tf.errors.InvalidArgumentError, match="-2"):
        LocalRouter().route([query(Identity().build(9), bags)])


def test_strings_need_ids_that_take_any_number():
    bags = Bags.of(tf.constant(["ann"]))
    with pytest.raises(ValueError, match=r"feature 'history': got strings.*ids.Modulo\(rows\)"):
        LocalRouter().route([query(Identity().build(9), bags)])
    [route] = LocalRouter().route([query(Modulo(9).build(), bags)])
    assert 0 <= int(route.rows[0]) < 9


def test_ids_in_range_pass_through():
    ids = tf.constant([3, 1], tf.int64)
    [route] = LocalRouter().route([query(Identity().build(9), Bags.of(ids))])
    np.testing.assert_array_equal(route.rows, ids)


def test_no_queries():
    assert LocalRouter().route([]) == []
