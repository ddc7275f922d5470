"""`EmbeddingTable` on batches that nobody thought of: of any kind, with empty lists or none."""

import functools

import hypothesis
import hypothesis.strategies as st
import merlin.models.tf as mm
import numpy as np
import tensorflow as tf
from merlin.models.utils.schema_utils import create_categorical_column

from merlin_embeddings.merlin import EmbeddingTable

WEIGHTS = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
COMBINERS = ("sum", "mean", "sqrtn", "max", None)
PADDING = 0
BAGS = st.lists(st.lists(st.integers(0, 6), max_size=4), max_size=4)
RECTANGLES = st.integers(0, 4).flatmap(
    lambda length: st.lists(
        st.lists(st.sampled_from([PADDING, 0, 1, 2, 6]), min_size=length, max_size=length),
        max_size=4,
    ).map(lambda rows: np.reshape(rows, [len(rows), length]).astype(np.int64))
)


@functools.cache
def table_of(combiner, padding_id, graph=False, kind=None):
    """A table, called eagerly or in a graph that doesn't know the sizes of batches of a kind."""
    del kind
    column = create_categorical_column("item", 6)
    table = EmbeddingTable(
        3, column, weights=WEIGHTS, sequence_combiner=combiner, padding_id=padding_id
    )
    table.build(None)
    return tf.function(lambda ids: table(ids), reduce_retracing=True) if graph else table


def pooled(bags, combiner):
    result = np.zeros((len(bags), 3))
    for vectors, bag in zip(result, bags, strict=True):
        if len(bag):
            total = WEIGHTS[bag].sum(0)
            vectors[:] = {
                "sum": total,
                "mean": total / len(bag),
                "sqrtn": total / np.sqrt(len(bag)),
                "max": WEIGHTS[bag].max(0),
            }[combiner]
    return result


def lists(bags, kind):
    flat = tf.constant([id for bag in bags for id in bag], tf.int64)
    ragged = tf.RaggedTensor.from_row_lengths(flat, tf.constant([len(b) for b in bags], tf.int64))
    if kind.endswith("1]"):
        ragged = ragged.with_values(flat[:, None])
    return ragged.to_sparse() if kind.startswith("sparse") else ragged


@hypothesis.given(
    BAGS,
    st.sampled_from(["ragged", "ragged [..., 1]", "sparse", "sparse [..., 1]"]),
    st.sampled_from(COMBINERS[:4]),
    st.sampled_from([None, PADDING]),
    st.booleans(),
)
@hypothesis.example([], "ragged", "mean", None, True)
@hypothesis.example([[], []], "sparse [..., 1]", "max", None, False)
@hypothesis.example([[0, 0], [0]], "ragged [..., 1]", "mean", PADDING, True)
def test_lists_of_any_length(bags, kind, combiner, padding_id, graph):
    found = table_of(combiner, padding_id, graph, kind)(lists(bags, kind))
    kept = [[id for id in bag if id != padding_id] for bag in bags]
    np.testing.assert_allclose(found, pooled(kept, combiner), rtol=1e-5, atol=1e-6)


@hypothesis.given(
    RECTANGLES,
    st.booleans(),
    st.sampled_from(COMBINERS),
    st.sampled_from([None, PADDING]),
    st.booleans(),
)
@hypothesis.example(np.zeros([0, 3], np.int64), True, "mean", None, True)
@hypothesis.example(np.zeros([2, 0], np.int64), False, "mean", None, True)
@hypothesis.example(np.zeros([2, 0], np.int64), True, None, None, False)
@hypothesis.example(np.zeros([2, 3], np.int64), False, "sqrtn", PADDING, False)
def test_rectangles_of_any_size(ids, expanded, combiner, padding_id, graph):
    found = table_of(combiner, padding_id, graph, expanded)(
        tf.constant(ids[..., None] if expanded else ids)
    )
    rows = WEIGHTS * (np.arange(7) != padding_id)[:, None]
    if combiner is None:
        # A last dimension of 1 is no list, as in merlin-models.
        scalars = ids.shape[1] == 1 and not expanded
        np.testing.assert_array_equal(found, rows[ids[:, 0]] if scalars else rows[ids])
    else:
        kept = [row[row != padding_id] if padding_id is not None else row for row in ids]
        np.testing.assert_allclose(found, pooled(kept, combiner), rtol=1e-5, atol=1e-6)


@hypothesis.given(BAGS.filter(len), st.sampled_from(["sum", "mean", "sqrtn"]), st.booleans())
def test_as_merlin_models_own(bags, combiner, is_sparse):
    """Outputs and gradients; merlin-models can't take a batch without samples."""
    ids = lists(bags, "sparse [..., 1]" if is_sparse else "ragged [..., 1]")
    slope = tf.cos(tf.reshape(tf.range(3.0 * len(bags)), [-1, 3]))
    results = []
    for table in (table_of(combiner, None), stock(combiner)):
        with tf.GradientTape() as tape:
            output = table(ids)
            loss = tf.reduce_sum(output * slope)
        gradient = tape.gradient(loss, table.table.embeddings)
        results.append((output, tf.convert_to_tensor(gradient)))
    for ours, expected in zip(*results, strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-6)


@functools.cache
def stock(combiner):
    column = create_categorical_column("item", 6)
    table = mm.EmbeddingTable(3, column, weights=[WEIGHTS], sequence_combiner=combiner)
    table(tf.constant([1]))
    return table
