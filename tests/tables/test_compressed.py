"""Compressed tables: composed for each id before pooling, trained as rows of parameters."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import merlin_embeddings as me
from merlin_embeddings.tables import Bloom, DoubleHash
from tests.ids.xxh64 import row_of
from tests.tables.composed import pooled, rows_of, vector_of

ROWS, DIM = 11, 4
SPECS = [
    Bloom(ROWS),
    Bloom(ROWS, hashes=3, combine="mean", salt=-5),
    Bloom(ROWS, hashes=1),
    DoubleHash(ROWS, salt=9),
    DoubleHash(ROWS, combine="concat"),
]
COMBINERS = ["sum", "mean", "sqrtn", "max"]
# Far below and above 0, so that neither hides a mistake in what a maximum takes for missing.
PARAMETERS = {
    dim: np.random.default_rng(dim).normal(size=[ROWS, dim]).astype(np.float32)
    for dim in (DIM, DIM // 2)
}
BAGS = st.lists(st.lists(st.tuples(st.integers(0, 49), st.floats(0.25, 4.0)), max_size=4))


def layer_of(spec, combiner=None, vocabulary=50, **kwargs):
    parameters = PARAMETERS[spec.shape(DIM)[1]]
    return me.layers.Embedding(
        vocabulary, DIM, compression=spec, combiner=combiner, weights=parameters, **kwargs
    )


def ragged(bags, column, dtype):
    flat = [pair[column] for bag in bags for pair in bag]
    splits = np.cumsum([0, *map(len, bags)])
    return tf.RaggedTensor.from_row_splits(tf.constant(flat, dtype, shape=[len(flat)]), splits)


def wanted(spec, bags, combiner, number=lambda id: id):
    parameters = PARAMETERS[spec.shape(DIM)[1]]
    return np.array(
        [
            pooled(
                [vector_of(parameters, number(id), spec) for id, _ in bag],
                [weight for _, weight in bag],
                combiner,
                DIM,
            )
            for bag in bags
        ]
    ).reshape([len(bags), DIM])


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("combiner", COMBINERS)
@given(bags=BAGS)
@settings(max_examples=15)
def test_pools_what_is_composed(spec, combiner, bags):
    if combiner == "max":
        bags = [[(id, 1.0) for id, _ in bag] for bag in bags]
        weights = None
    else:
        weights = ragged(bags, 1, tf.float32)
    found = layer_of(spec, combiner)(ragged(bags, 0, tf.int64), weights=weights)
    np.testing.assert_allclose(found, wanted(spec, bags, combiner), rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_bags_of_one_length_padding_and_single_vectors(spec):
    ids = np.array([[3, 0, 49], [0, 0, 7], [0, 0, 0]])
    bags = [[(id, 1.0) for id in bag if id] for bag in ids]
    for combiner in COMBINERS:
        found = layer_of(spec, combiner, padding_id=0)(ids)
        np.testing.assert_allclose(found, wanted(spec, bags, combiner), rtol=2e-5, atol=1e-5)
    single = layer_of(spec, padding_id=0)(ids).numpy()
    singles = [[(id, 1.0)] if id else [] for id in ids.ravel()]
    np.testing.assert_allclose(
        single.reshape([-1, DIM]), wanted(spec, singles, "sum"), rtol=2e-5, atol=1e-5
    )


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_any_id_of_an_open_space(spec):
    ids = [-1, 0, 2**63 - 1, -(2**63)]
    found = layer_of(spec, "sum", vocabulary=None)(tf.constant(ids, tf.int64))
    bags = [[(id, 1.0)] for id in ids]
    expected = wanted(spec, bags, "sum", lambda id: row_of(id, 2**63 - 1))
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-5)


def test_strings_of_an_open_space():
    layer = layer_of(Bloom(ROWS), vocabulary=None)
    number = row_of(int(me.bags.hash_strings(tf.constant("Rome"))), 2**63 - 1)
    found = layer(tf.constant(["Rome"]))
    np.testing.assert_allclose(found[0], vector_of(PARAMETERS[DIM], number, Bloom(ROWS)), rtol=1e-5)
    with pytest.raises(ValueError, match="got strings"):
        layer_of(Bloom(ROWS))(tf.constant(["Rome"]))


def test_ids_may_be_mapped_before():
    layer = layer_of(Bloom(ROWS), vocabulary=None, ids=me.ids.Modulo(5))
    np.testing.assert_array_equal(layer(np.array([3])), layer(np.array([8])))
    np.testing.assert_allclose(
        layer(np.array([8]))[0], vector_of(PARAMETERS[DIM], 3, Bloom(ROWS)), rtol=1e-5
    )


def test_an_id_out_of_range_is_named():
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"table 'embeddings'.*id 50 at"):
        layer_of(Bloom(ROWS), "sum")(np.array([[1, 50]]))


def gradient_of(spec, bags, combiner, upstream):
    """Of the parameters, in numpy: by differences, as every pooling but max is linear in them."""
    parameters = PARAMETERS[spec.shape(DIM)[1]].astype(np.float64)
    result = np.zeros_like(parameters)
    for row in range(parameters.shape[0]):
        for column in range(parameters.shape[1]):
            sides = []
            for step in (1e-4, -1e-4):
                moved = parameters.copy()
                moved[row, column] += step
                out = [
                    pooled(
                        [vector_of(moved, id, spec) for id, _ in bag],
                        [w for _, w in bag],
                        combiner,
                        DIM,
                    )
                    for bag in bags
                ]
                sides.append(np.sum(np.array(out) * upstream))
            result[row, column] = (sides[0] - sides[1]) / 2e-4
    return result


TRAINED = [[(3, 1.0), (4, 2.0), (3, 0.5)], [], [(20, 1.5)], [(4, 1.0), (30, 3.0)]]


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("combiner", COMBINERS)
def test_gradients_reach_the_parameters(spec, combiner):
    bags = TRAINED
    if combiner == "max":
        bags = [[(id, 1.0) for id, _ in bag] for bag in bags]
    weights = None if combiner == "max" else ragged(bags, 1, tf.float32)
    upstream = np.random.default_rng(3).normal(size=[len(bags), DIM])
    layer = layer_of(spec, combiner)
    before = layer.embeddings.numpy()
    with tf.GradientTape() as tape:
        vectors = layer(ragged(bags, 0, tf.int64), weights=weights)
        loss = tf.reduce_sum(vectors * tf.constant(upstream, tf.float32))
    [gradient] = tape.gradient(loss, layer.trainable_variables)
    expected = gradient_of(spec, bags, combiner, upstream)
    np.testing.assert_allclose(tf.convert_to_tensor(gradient), expected, rtol=1e-3, atol=2e-4)
    me.optimizers.SGD(0.5).apply([gradient], layer.trainable_variables)
    np.testing.assert_allclose(layer.embeddings, before - 0.5 * expected, rtol=1e-3, atol=2e-4)


def test_of_equal_maxima_the_first_has_the_gradient():
    layer = layer_of(Bloom(ROWS), "max")
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(np.array([[7, 7, 7]])))
    [gradient] = tape.gradient(loss, layer.trainable_variables)
    expected = np.zeros([ROWS, DIM])
    for row in rows_of(7, ROWS, 2, 0):
        expected[row] += 1
    np.testing.assert_allclose(tf.convert_to_tensor(gradient), expected)


def test_gradients_of_weights():
    layer = layer_of(Bloom(ROWS), "mean")
    ids = tf.constant([[3, 4]])
    weights = tf.Variable([[1.0, 3.0]])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(ids, weights=weights))
    a, b = (vector_of(PARAMETERS[DIM], id, Bloom(ROWS)).sum() for id in (3, 4))
    # Of (a w + b v) / (w + v): (a - b) v / (w + v)**2, and the like.
    np.testing.assert_allclose(
        tape.gradient(loss, weights), [[(a - b) * 3 / 16, (b - a) * 1 / 16]], rtol=1e-4
    )
