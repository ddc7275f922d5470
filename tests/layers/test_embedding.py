"""Values of `Embedding` for every kind of input and combiner, against numpy."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import merlin_embeddings as me

ROWS = 11
COMBINERS = ["sum", "mean", "sqrtn", "max"]
PADDING = 10


@st.composite
def batches(draw):
    """Bags of rows, and positive weights (so that no divisor is 0)."""
    bags = draw(st.lists(st.lists(st.integers(0, ROWS - 1), max_size=4), min_size=1, max_size=6))
    weight = st.floats(0.125, 8, width=16)
    weights = [draw(st.lists(weight, min_size=len(bag), max_size=len(bag))) for bag in bags]
    return bags, weights


def flat(lists, dtype):
    return np.array(list(itertools.chain.from_iterable(lists)), dtype)


def splits(lists):
    return np.cumsum([0, *map(len, lists)])


def ragged(lists, dtype):
    return tf.RaggedTensor.from_row_splits(flat(lists, dtype), splits(lists))


def sparse(lists, dtype):
    indices = np.array([(b, i) for b, bag in enumerate(lists) for i in range(len(bag))], np.int64)
    shape = [len(lists), max(map(len, lists))]
    return tf.SparseTensor(indices.reshape(-1, 2), flat(lists, dtype), shape)


def padded(lists, dtype):
    """Dense [B, 4]; ids are padded with PADDING, weights with 1."""
    fill = PADDING if np.issubdtype(dtype, np.integer) else 1
    return tf.constant([bag + [fill] * (4 - len(bag)) for bag in lists], dtype)


def as_bags(lists, dtype):
    return me.Bags(flat(lists, dtype), splits(lists))


def as_tensors(lists, dtype):
    return {"values": tf.constant(flat(lists, dtype)), "row_splits": tf.constant(splits(lists))}


KINDS = {
    "ragged": (ragged, ragged),
    "sparse": (sparse, sparse),
    "padded": (padded, padded),
    "bags": (as_bags, flat),
    "tensors": (as_tensors, flat),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("combiner", COMBINERS)
@settings(max_examples=30)
@given(batch=batches(), id_type=st.sampled_from([np.int32, np.int64]))
def test_bags_of_every_kind(pool, table, kind, combiner, batch, id_type):
    bags, weights = batch
    make_ids, make_weights = KINDS[kind]
    layer = me.layers.Embedding(ROWS, 3, weights=table, combiner=combiner, padding_id=PADDING)
    ids = make_ids(bags, id_type)
    got = layer(ids)
    assert got.dtype == tf.float32
    np.testing.assert_allclose(
        got, pool(table, bags, combiner, None, PADDING), rtol=1e-5, atol=1e-6
    )
    if combiner != "max":
        got = layer(
            ids,
            weights=tf.nest.map_structure(
                tf.convert_to_tensor, make_weights(weights, np.float32), expand_composites=True
            ),
        )
        expected = pool(table, bags, combiner, weights, PADDING)
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("combiner", COMBINERS)
@pytest.mark.parametrize(
    "shape", [(5,), (5, 1), (5, 4), (2, 3, 4), (2, 1, 3, 2), (0, 3), (4, 0), (2, 0, 3), ()]
)
def test_dense_of_any_rank_pools_the_last_axis(pool, table, combiner, shape):
    ids = np.random.default_rng(1).integers(0, ROWS, shape)
    outer, length = (shape[:-1], shape[-1]) if len(shape) > 1 else (shape, 1)
    rows = ids.reshape(int(np.prod(outer)), length)
    expected = pool(table, rows.tolist(), combiner).reshape(*outer, 3)
    layer = me.layers.Embedding(ROWS, 3, weights=table, combiner=combiner)
    np.testing.assert_allclose(layer(ids), expected, rtol=1e-5, atol=1e-6)
    in_graph = tf.function(lambda x: layer(x))
    unknown = tf.TensorSpec([None] * len(shape), tf.int64)
    got = in_graph.get_concrete_function(unknown)(tf.constant(ids, tf.int64))
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_weights_of_any_rank(pool, table):
    rng = np.random.default_rng(2)
    ids, weights = rng.integers(0, ROWS, (2, 3, 4)), rng.uniform(0.5, 2, (2, 3, 4))
    layer = me.layers.Embedding(ROWS, 3, weights=table, combiner="mean")
    expected = pool(table, ids.reshape(6, 4).tolist(), "mean", weights.reshape(6, 4).tolist())
    np.testing.assert_allclose(
        layer(ids, weights=weights), expected.reshape(2, 3, 3), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("combiner", COMBINERS)
def test_nested_ragged_pools_the_innermost(pool, table, combiner):
    ids = [[[1, 2], [3]], [], [[4, 4, 0], []]]
    layer = me.layers.Embedding(ROWS, 3, weights=table, combiner=combiner)
    got = layer(tf.ragged.constant(ids, tf.int64, ragged_rank=2))
    assert got.shape.as_list() == [3, None, 3]
    assert got.row_lengths().numpy().tolist() == [2, 0, 2]
    expected = pool(table, [[1, 2], [3], [4, 4, 0], []], combiner)
    np.testing.assert_allclose(got.flat_values, expected, rtol=1e-5, atol=1e-6)


def test_nested_ragged_with_weights(pool, table):
    ids, weights = [[[1, 2], [3]], []], [[[0.5, 2.0], [3.0]], []]
    layer = me.layers.Embedding(ROWS, 3, weights=table, combiner="mean")
    got = layer(
        tf.ragged.constant(ids, tf.int64, ragged_rank=2),
        weights=tf.ragged.constant(weights, tf.float32, ragged_rank=2),
    )
    expected = pool(table, ids[0], "mean", weights[0])
    np.testing.assert_allclose(got.flat_values, expected, rtol=1e-5, atol=1e-6)


def test_sparse_of_rank_3(pool, table):
    dense = [[[1, 0], [2, 3]], [[0, 0], [4, 0]]]
    layer = me.layers.Embedding(ROWS, 3, weights=table, combiner="sum")
    got = layer(tf.sparse.from_dense(tf.constant(dense, tf.int64)))
    expected = pool(table, [[1], [2, 3], [], [4]], "sum").reshape(2, 2, 3)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(2, 2, 0), (2, 0, 3), (0, 2, 3), (0, 0, 0)])
def test_sparse_without_ids_is_as_dense(table, shape):
    layer = me.layers.Embedding(ROWS, 3, weights=table, combiner="mean")
    ids = tf.zeros(shape, tf.int64)
    got = layer(tf.sparse.from_dense(ids))
    np.testing.assert_array_equal(got, layer(ids))
    assert got.shape == (*shape[:2], 3)


def test_weights_of_rank_3_as_lists(pool, table):
    layer = me.layers.Embedding(ROWS, 3, weights=table, combiner="mean")
    got = layer(np.array([[[1, 2]], [[3, 4]]]), weights=[[[1.0, 2.0]], [[3.0, 4.0]]])
    expected = pool(table, [[1, 2], [3, 4]], "mean", [[1, 2], [3, 4]])
    np.testing.assert_allclose(got, expected[:, None], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("combiner", [None, *COMBINERS])
def test_variable_batch_by_inverse(pool, table, combiner):
    bags, inverse = [[1, 2], [], [3, 3, 4]], [2, 0, 0, 1, 2]
    layer = me.layers.Embedding(ROWS, 3, weights=table, combiner=combiner)
    got = layer(me.Bags(flat(bags, np.int64), splits(bags), inverse=inverse))
    if combiner is None:
        assert got.to_list() == [table[bags[i]].tolist() for i in inverse]
    else:
        expected = pool(table, bags, combiner)[inverse]
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_gradients_of_an_expanded_batch_reach_the_rows(table):
    layer = me.layers.Embedding(ROWS, 3, weights=table, combiner="sum")
    scale = tf.constant([[1.0], [10.0], [100.0]])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(scale * layer(me.Bags([5, 6, 7], [0, 2, 3], inverse=[1, 0, 1])))
    gradient = tf.convert_to_tensor(tape.gradient(loss, layer.trainable_variables[0].value))
    expected = np.zeros((ROWS, 3))
    expected[[5, 6]], expected[7] = 10, 101
    np.testing.assert_allclose(gradient, expected)


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn", None])
def test_gradient_of_the_table(table, combiner):
    ids = np.array([[1, 2], [2, 2], [0, 9]])
    factor = {"sum": 1.0, "mean": 0.5, "sqrtn": 0.5**0.5, None: 1.0}[combiner]
    layer = me.layers.Embedding(ROWS, 3, weights=table, combiner=combiner)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(ids))
    gradient = tf.convert_to_tensor(tape.gradient(loss, layer.trainable_variables[0].value))
    counts = np.bincount(ids.ravel(), minlength=ROWS)
    np.testing.assert_allclose(gradient, np.repeat(counts[:, None] * factor, 3, 1), rtol=1e-6)


def test_padding_without_combiner_is_zeros(table):
    layer = me.layers.Embedding(ROWS, 3, weights=table, padding_id=2)
    np.testing.assert_array_equal(layer(np.array([[1, 2]])), [[table[1], [0, 0, 0]]])


@pytest.mark.parametrize("ids", [None, me.ids.Identity("zero"), me.ids.Modulo(5)])
def test_padding_that_is_no_row(pool, table, ids):
    layer = me.layers.Embedding(
        ROWS,
        3,
        weights=table if ids is None or ids == me.ids.Identity("zero") else table[:5],
        combiner="mean",
        ids=ids,
        padding_id=-1,
    )
    got = layer(np.array([[1, -1, 3], [-1, -1, -1]]))
    np.testing.assert_allclose(got, pool(table, [[1, 3], []], "mean"), rtol=1e-5, atol=1e-6)


def test_mask_zero_leaves_0_out_of_a_pool(pool, table):
    layer = me.layers.Embedding(ROWS, 3, weights=table, combiner="mean", mask_zero=True)
    got = layer(np.array([[1, 0, 3], [0, 0, 0]]))
    np.testing.assert_allclose(got, pool(table, [[1, 3], []], "mean"), rtol=1e-5, atol=1e-6)
    assert getattr(got, "_keras_mask", None) is None


def test_ids_out_of_range_by_policy(table):
    ids = np.array([-3, 4, 11, 2**40])
    zero = me.layers.Embedding(ROWS, 3, weights=table, ids=me.ids.Identity("zero"))
    clip = me.layers.Embedding(ROWS, 3, weights=table, ids=me.ids.Identity("clip"))
    np.testing.assert_array_equal(zero(ids), [[0, 0, 0], table[4], [0, 0, 0], [0, 0, 0]])
    np.testing.assert_array_equal(clip(ids), table[[0, 4, 10, 10]])


def test_modulo_takes_any_integer(table):
    layer = me.layers.Embedding(None, 3, weights=table, ids=me.ids.Modulo(ROWS))
    ids = [-1, 5, 2**62, -(2**63)]
    np.testing.assert_array_equal(layer(np.array(ids)), table[[i % ROWS for i in ids]])


@pytest.mark.parametrize("combiner", [None, "sum"])
def test_strings(table, combiner):
    layer = me.layers.Embedding(None, 3, weights=table, ids=me.ids.Modulo(ROWS), combiner=combiner)
    words = ["ann", "bob", "ann"]
    prints = tf.fingerprint(tf.constant(words), "farmhash64").numpy()
    rows = [int.from_bytes(bytes(p), "little") % (2**63 - 1) % ROWS for p in prints]
    np.testing.assert_array_equal(layer(tf.constant(words)), table[rows])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_rows_in_half_precision(pool, table, dtype):
    layer = me.layers.Embedding(ROWS, 3, weights=table, combiner="sum", table_dtype=dtype)
    assert layer.embeddings.dtype == dtype
    got = layer(np.array([[1, 2, 3]]))
    assert got.dtype == tf.float32
    rounded = tf.cast(tf.cast(table, dtype), tf.float64).numpy()
    np.testing.assert_allclose(got, pool(rounded, [[1, 2, 3]], "sum"), rtol=1e-6)


def test_seed_gives_the_same_values_whatever_the_layers_name():
    a = me.layers.Embedding(50, 4, seed=7)
    b = me.layers.Embedding(50, 4, seed=7, name="other")
    c = me.layers.Embedding(50, 4, seed=8)
    for layer in (a, b, c):
        layer.build()
    np.testing.assert_array_equal(a.embeddings, b.embeddings)
    assert not np.array_equal(a.embeddings, c.embeddings)
    assert np.abs(a.embeddings).max() <= 0.05


def test_initializers():
    layer = me.layers.Embedding(4, 2, embeddings_initializer=me.initializers.Constant(3.0))
    np.testing.assert_array_equal(layer(np.array([0, 3])), [[3, 3], [3, 3]])
    layer = me.layers.Embedding(4, 2, embeddings_initializer="ones")
    np.testing.assert_array_equal(layer(np.array([1])), [[1, 1]])


def test_an_int64_vector_needs_no_op_but_the_lookup(table):
    layer = me.layers.Embedding(ROWS, 3, weights=table)
    step = tf.function(lambda ids: layer(ids), input_signature=[tf.TensorSpec([None], tf.int64)])
    kinds = {op.type for op in step.get_concrete_function().graph.get_operations()}
    ours = {kind for kind in kinds if kind.startswith("Merlin>")}
    assert ours == {"Merlin>Lookup"}
    # The variable marks itself as used (empty sparse read); the rest of a function is no work.
    no_work = {"Placeholder", "Const", "Identity", "NoOp", "ResourceGather"}
    assert kinds - ours <= no_work, kinds
