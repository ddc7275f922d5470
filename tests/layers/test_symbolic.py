"""Mistakes that symbols show: found when the model is built, not when it runs."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import merlin_embeddings as me

ITEM = me.TableConfig("item", 11, 3)
HASHED = me.TableConfig("item", None, 3, ids=me.ids.Modulo(11))


def ids(*shape, dtype="int64", **kwargs):
    return keras.Input(shape, dtype=dtype, **kwargs)


MISTAKES = [
    ("max", {"table": ITEM}, ids(3), ids(3, dtype="float32"), ValueError, "'max' takes no weights"),
    (None, {"table": ITEM}, ids(3), ids(3, dtype="float32"), ValueError, "belong to a pool"),
    (
        "sum",
        {"table": ITEM},
        ids(3),
        ids(2, dtype="float32"),
        ValueError,
        r"weights have shape \(None, 2\), ids have shape \(None, 3\)",
    ),
    (
        "sum",
        {"table": ITEM},
        ids(3),
        ids(None, dtype="float32", ragged=True),
        TypeError,
        "ids are dense but weights are ragged",
    ),
    (
        "sum",
        {"table": ITEM},
        ids(3, sparse=True),
        ids(3, dtype="float32"),
        TypeError,
        "ids are sparse but weights are dense",
    ),
    ("sum", {"table": ITEM}, ids(3, dtype="string"), None, ValueError, r"strings.*ids.Modulo\("),
    (None, {"table": ITEM}, ids(3, dtype="string"), None, ValueError, r"strings.*ids.Modulo\("),
    (
        "sum",
        {"table": HASHED, "padding_id": 0},
        ids(3, dtype="string"),
        None,
        TypeError,
        "padding_id=0 is an integer, but the ids are strings",
    ),
    (
        "max",
        {"table": ITEM},
        {"values": ids(), "row_splits": ids(), "weights": ids(dtype="float32")},
        None,
        ValueError,
        "'max' takes no weights",
    ),
    ("sum", {"table": ITEM}, {"value": ids()}, None, ValueError, "bags given as a dict have"),
]


@pytest.mark.parametrize("combiner, config, symbols, weights, error, message", MISTAKES)
def test_mistakes_of_both_layers(combiner, config, symbols, weights, error, message):
    feature = me.FeatureConfig("item", combiner=combiner, **config)
    many = me.layers.Embeddings({"x": feature})
    table = feature.table
    one = me.layers.Embedding(
        table.vocabulary_size,
        3,
        ids=table.ids,
        combiner=combiner,
        padding_id=feature.padding_id,
        name="item",
    )
    with pytest.raises(error, match="feature 'item'.*" + message):
        many({"x": symbols}, weights=None if weights is None else {"x": weights})
    with pytest.raises(error, match="feature 'item'.*" + message):
        one(symbols, weights=weights)


@pytest.mark.parametrize(
    "combiner, symbols, message",
    [
        ("sum", ids(3, 4), r"ids have shape \(None, 3, 4\); bags are made from \[B\]"),
        (None, ids(3, 4), r"ids have shape \(None, 3, 4\); they are \[B\], \[B, L\] or ragged"),
        ("sum", ids(None, None, ragged=True), r"ids have shape \(None, None, None\)"),
        (None, ids(3, sparse=True), "sparse ids need a combiner"),
        ("sum", ids(3, 4, sparse=True), r"sparse ids have shape \(None, 3, 4\)"),
    ],
)
def test_ranks_of_embeddings(combiner, symbols, message):
    layer = me.layers.Embeddings({"x": me.FeatureConfig("x", ITEM, combiner)})
    with pytest.raises(ValueError, match="table 'item', feature 'x': " + message):
        layer({"x": symbols})


def test_mask_zero_of_strings():
    layer = me.layers.Embedding(None, 3, ids=me.ids.Modulo(5), mask_zero=True)
    with pytest.raises(ValueError, match="mask_zero=True masks id 0, but the ids are strings"):
        layer(ids(3, dtype="string"))


FINE = [
    ("sum", ids(3), ids(3, dtype="float32"), (None, 3)),
    ("sum", ids(), ids(1, dtype="float32"), (None, 3)),
    ("mean", ids(None), ids(4, dtype="float32"), (None, 3)),
    ("sum", ids(None, ragged=True), ids(None, dtype="float32", ragged=True), (None, 3)),
    ("sum", ids(5, sparse=True), ids(5, dtype="float32", sparse=True), (None, 3)),
    ("max", ids(3, 1), None, (None, 3)),
    (None, ids(3, 1), None, (None, 3, 3)),
    (None, ids(None, 1, ragged=True), None, (None, None, 3)),
    # Keras says float32 where it doesn't know.
    ("sum", ids(3, dtype="float32"), None, (None, 3)),
]


@pytest.mark.parametrize("combiner, symbols, weights, shape", FINE)
def test_what_is_fine(combiner, symbols, weights, shape):
    layer = me.layers.Embeddings({"x": me.FeatureConfig("x", ITEM, combiner)})
    got = layer({"x": symbols}, weights=None if weights is None else {"x": weights})
    # An inner dimension of 1 is kept by Keras where the output's is unknown.
    assert len(got["x"].shape) == len(shape) and got["x"].shape[-1] == 3


def test_strings_for_a_table_that_takes_them():
    model_input = ids(2, dtype="string")
    layer = me.layers.Embedding(None, 3, ids=me.ids.Modulo(5), combiner="sum", padding_id="")
    model = keras.Model(model_input, layer(model_input))
    got = model(tf.constant([["ann", ""], ["", ""]]))
    alone = layer(tf.constant(["ann"]))
    np.testing.assert_array_equal(got, [alone[0], np.zeros(3)])
