"""Grouping of lookups: order, values, and how many native calls there are."""

import types

import numpy as np
import tensorflow as tf

from merlin_embeddings.tables import Request, lookup


def route(lines, hotness=None, row_splits=None, weights=None):
    return types.SimpleNamespace(
        lines=tf.constant(lines, tf.int64),
        hotness=hotness,
        strict=False,
        row_splits=None if row_splits is None else tf.constant(row_splits, tf.int64),
        weights=None if weights is None else tf.constant(weights, tf.float32),
    )


def as_float32(table):
    return tf.cast(table.variable.value, tf.float32).numpy()


def test_order_values_and_one_call_a_group(make_table):
    item = make_table(name="item", dim=4)
    half = make_table(name="half", dim=3, dtype="bfloat16")
    frozen = make_table(name="frozen", dim=2, trainable=False)
    requests = [
        Request(half, route([1, 2, 3, -1], hotness=2), "mean", "a"),
        Request(item, route([5, 6, 7], row_splits=[0, 0, 3]), "sum", "b"),
        Request(frozen, route([1, -1]), None, "c"),
        Request(item, route([5, 6], hotness=1, weights=[2.0, 3.0]), "sum", "d"),
    ]
    graph = tf.function(lambda: lookup(requests)).get_concrete_function()
    calls = [op for op in graph.graph.get_operations() if op.type == "Merlin>Lookup"]
    assert len(calls) == 3
    a, b, c, d = (result.numpy() for result in graph())
    h, i, f = as_float32(half), as_float32(item), as_float32(frozen)
    np.testing.assert_allclose(a, [(h[1] + h[2]) / 2, h[3]], rtol=1e-6)
    np.testing.assert_allclose(b, [np.zeros(4), i[5] + i[6] + i[7]], rtol=1e-6)
    np.testing.assert_allclose(c, [f[1], np.zeros(2)], rtol=1e-6)
    np.testing.assert_allclose(d, [2 * i[5], 3 * i[6]], rtol=1e-6)


def test_nothing_to_look_up():
    assert lookup([]) == []
