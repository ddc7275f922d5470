"""`EmbeddingTable` beside merlin-models' own, on the same weights; numpy where that one refuses."""

import merlin.models.tf as mm
import numpy as np
import pytest
import tensorflow as tf
from merlin.models.utils.schema_utils import create_categorical_column
from merlin.schema import ColumnSchema, Schema, Tags
from tensorflow import keras

import merlin_embeddings as me
from merlin_embeddings.merlin import EmbeddingTable

WEIGHTS = np.random.default_rng(0).normal(size=(11, 3)).astype(np.float32)
ITEM = create_categorical_column("item", 10, tags=[Tags.ITEM])
BAGS = [[1, 2, 2], [0], [], [10, 3]]
DENSE = [[1, 2, 2], [0, 0, 5], [7, 0, 0], [10, 3, 9]]
RAGGED = tf.ragged.constant(BAGS, tf.int64)
LISTS = tf.expand_dims(RAGGED, -1)  # [B, None, 1], as PrepareFeatures makes it
KINDS = {
    "[B]": tf.constant([1, 2, 10, 2]),
    "[B, 1]": tf.constant([[1], [2], [10], [2]]),
    "[B, L]": tf.constant(DENSE),
    "[B, L, 1]": tf.expand_dims(DENSE, -1),
    "ragged [B, None]": RAGGED,
    "ragged [B, None, 1]": LISTS,
    "ragged [B, None, None]": tf.ragged.constant([[[i] for i in bag] for bag in BAGS]),
    "sparse [B, L]": RAGGED.to_sparse(),
    "sparse [B, L, 1]": LISTS.to_sparse(),
}


def bags_of(kind):
    if kind in ("[B]", "[B, 1]"):
        return [[1], [2], [10], [2]]
    return DENSE if kind.startswith("[") else BAGS


def pool(bags, combiner):
    how = {
        "sum": lambda v: v.sum(0),
        "mean": lambda v: v.mean(0),
        "sqrtn": lambda v: v.sum(0) / np.sqrt(len(v)),
        "max": lambda v: v.max(0),
    }[combiner]
    return np.array([how(WEIGHTS[bag]) if bag else np.zeros(3) for bag in bags])


def ours(*columns, weights=WEIGHTS, **kwargs):
    return EmbeddingTable(weights.shape[1], *(columns or [ITEM]), weights=weights, **kwargs)


def stock(*columns, weights=WEIGHTS, **kwargs):
    columns = columns or [ITEM]
    return mm.EmbeddingTable(weights.shape[1], *columns, weights=[weights], **kwargs)


def gradient_of(table, inputs, **kwargs):
    """The output and the gradient of the weights, dense, for a loss that tells vectors apart."""
    with tf.GradientTape() as tape:
        output = table(inputs, **kwargs)
        values = getattr(output, "flat_values", output)
        slope = tf.reshape(tf.range(tf.size(values), dtype=values.dtype), tf.shape(values))
        loss = tf.reduce_sum(values * tf.cos(slope))
    return output, tf.convert_to_tensor(tape.gradient(loss, table.table.embeddings))


def assert_same(found, expected):
    assert type(found) is type(expected)
    assert found.dtype == expected.dtype
    assert found.shape.as_list() == expected.shape.as_list()
    if isinstance(found, tf.RaggedTensor):
        np.testing.assert_array_equal(found.row_splits, expected.row_splits)
        found, expected = found.flat_values, expected.flat_values
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn", "max"])
@pytest.mark.parametrize("kind", KINDS)
def test_combiners_of_every_kind_of_ids(kind, combiner):
    found, gradient = gradient_of(ours(sequence_combiner=combiner), KINDS[kind])
    np.testing.assert_allclose(found, pool(bags_of(kind), combiner), rtol=1e-6, atol=1e-6)
    try:
        expected = gradient_of(stock(sequence_combiner=combiner), KINDS[kind])
    except (ValueError, tf.errors.InvalidArgumentError):
        assert kind not in ("[B]", "[B, 1]")
        assert combiner in ("sqrtn", "max") or kind in ("ragged [B, None]", "sparse [B, L]")
    else:
        assert_same(found, expected[0])
        if combiner != "max":  # of equal maxima ours takes the first, TensorFlow a part of each
            assert_same(gradient, expected[1])


@pytest.mark.parametrize("kind", [k for k in KINDS if not k.startswith("sparse")])
def test_without_combiner(kind):
    found, gradient = gradient_of(ours(), KINDS[kind])
    if kind.startswith("ragged"):
        np.testing.assert_array_equal(found.row_splits, RAGGED.row_splits)
        np.testing.assert_array_equal(found.flat_values, WEIGHTS[RAGGED.flat_values])
    else:
        ids = np.squeeze(KINDS[kind], -1) if kind.endswith("1]") else KINDS[kind]
        np.testing.assert_array_equal(found, WEIGHTS[ids])
    if kind not in ("ragged [B, None]", "ragged [B, None, None]"):
        expected = gradient_of(stock(), KINDS[kind])
        assert_same(found, expected[0])
        assert_same(gradient, expected[1])


def test_a_batch_of_one_keeps_its_axis():
    assert ours()(tf.constant([3])).shape == (1, 3)
    assert ours(sequence_combiner="mean")(tf.constant([[[3]]])).shape == (1, 3)


@pytest.mark.parametrize("combiner", [None, "mean"])
@pytest.mark.parametrize("shape", [(4,), (4, 1), (4, 5), (None, 1), (4, 5, 1), (None, None, 1)])
def test_the_shape_of_the_output(shape, combiner):
    shapes = [
        make(sequence_combiner=combiner).compute_output_shape(tf.TensorShape(shape))
        for make in (ours, stock)
    ]
    assert shapes[0].as_list() == shapes[1].as_list()
    if None not in shape:
        assert ours(sequence_combiner=combiner)(tf.zeros(shape, tf.int64)).shape == shapes[0]


HISTORY = create_categorical_column("history", 10, domain_name="item")


@pytest.mark.parametrize("combiner", [None, "mean"])
def test_dicts_and_shared_domains(combiner):
    inputs = {"history": LISTS, "item": KINDS["[B, 1]"], "unknown": tf.constant([99])}
    outputs = []
    for make in (ours, stock):
        table = make(ITEM, sequence_combiner=combiner)
        table.add_feature(HISTORY)
        assert table.table_name == "item"
        assert table.input_dim == 11
        outputs.append(table(inputs))
        shapes = table.compute_output_shape({name: t.shape for name, t in inputs.items()})
        assert list(shapes) == list(outputs[-1]) == ["item", "history"]
    for name in outputs[0]:
        assert_same(outputs[0][name], outputs[1][name])


def test_features_that_share_a_table_have_one_lookup(executed_ops):
    table = ours(ITEM, HISTORY, sequence_combiner="mean")
    calls = []

    @tf.function
    def both(inputs):
        with tf.GradientTape() as tape:
            loss = sum(tf.reduce_sum(v) for v in table(inputs).values())
        calls.append(tape.gradient(loss, table.table.embeddings))
        return loss

    inputs = {"history": LISTS, "item": KINDS["[B, 1]"]}
    with executed_ops() as ops:
        both(inputs)
    assert "Merlin>Lookup" in ops
    [gradient] = calls  # of distinct rows: no concatenation of two
    assert gradient.values.op.type == "Merlin>Values"


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_vectors_have_the_compute_dtype_and_ids_stay_integers(policy):
    weights = np.random.default_rng(1).normal(size=(5001, 1)).astype(np.float32)
    column = create_categorical_column("item", 5000)
    dtype = keras.mixed_precision.Policy(policy).compute_dtype
    for ids in (tf.constant([[2049], [4999]]), tf.constant([[2049.0], [4999.0]])):
        found = ours(column, weights=weights, dtype=policy)(ids)  # float16 has no 2049
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, tf.cast(weights[[2049, 4999]], dtype))
    pooled = ours(column, weights=weights, dtype=policy, sequence_combiner="mean")
    assert pooled(LISTS).dtype == dtype
    assert pooled.table.embeddings.dtype == "float32"


@pytest.mark.parametrize("kind", ["[B, 1]", "[B, L]", "ragged [B, None, 1]"])
@pytest.mark.parametrize("combiner", [None, "sum"])
def test_l2_of_the_batch(kind, combiner):
    losses = []
    for make in (ours, stock):
        table = make(sequence_combiner=combiner, l2_batch_regularization_factor=0.3)
        table(KINDS[kind])
        losses.append(table.losses)
    np.testing.assert_allclose(*losses, rtol=1e-6)


@pytest.mark.parametrize("kind", ["[B, 1]", "[B, L]"])
@pytest.mark.parametrize("combiner", [None, "sum"])
def test_activity_regularizer(kind, combiner):
    losses = []
    for make in (ours, stock):
        table = make(sequence_combiner=combiner, activity_regularizer="l2")
        table(KINDS[kind])
        losses.append(table.losses)
    np.testing.assert_allclose(*losses, rtol=1e-6)


@pytest.mark.parametrize("combiner", [None, "sum"])
def test_activity_regularizer_of_lists(combiner):
    table = ours(sequence_combiner=combiner, activity_regularizer=keras.regularizers.L2(0.1))
    table(LISTS)
    squares = np.square(WEIGHTS[RAGGED.flat_values]).sum()
    np.testing.assert_allclose(table.losses, [0.1 * squares / len(BAGS)], rtol=1e-6)


def test_embeddings_regularizer_acts_on_the_rows_looked_up():
    table = ours(sequence_combiner="sum", embeddings_regularizer=keras.regularizers.L2(0.1))
    table(LISTS)
    rows = [0, 1, 2, 3, 10]
    np.testing.assert_allclose(table.losses, [0.1 * np.square(WEIGHTS[rows]).sum()], rtol=1e-6)


def test_constraint_belongs_to_the_weight():
    table = ours(embeddings_constraint="non_neg")
    assert isinstance(table.table.embeddings.constraint, keras.constraints.NonNeg)


def test_mask_zero():
    for make in (ours, stock):
        found = make(mask_zero=True)(KINDS["[B, L]"])
        np.testing.assert_array_equal(found._keras_mask, np.array(DENSE) != 0)
        ragged = make(mask_zero=True)(LISTS)._keras_mask
        np.testing.assert_array_equal(ragged.flat_values, RAGGED.flat_values != 0)
        pooled = make(mask_zero=True, sequence_combiner="mean")(KINDS["[B, L]"])
        np.testing.assert_allclose(pooled, pool(DENSE, "mean"), rtol=1e-6)


def test_masks_of_inputs_are_carried_over():
    for make in (ours, stock):
        ids = tf.constant(DENSE)
        ids._keras_mask = ids > 2
        found = make()({"item": ids})["item"]
        np.testing.assert_array_equal(found._keras_mask, np.array(DENSE) > 2)


def test_padding_has_no_vector():
    without = [[i for i in bag if i != 0] for bag in DENSE]
    for combiner in ("sum", "mean", "sqrtn", "max"):
        table = ours(sequence_combiner=combiner, padding_id=0)
        expected = pool(without, combiner)
        np.testing.assert_allclose(table(KINDS["[B, L]"]), expected, rtol=1e-6, atol=1e-6)
    expected = np.where(np.array(DENSE)[..., None] == 0, 0, WEIGHTS[DENSE])
    np.testing.assert_array_equal(ours(padding_id=0)(KINDS["[B, L]"]), expected)


class Weighted(keras.layers.Layer):
    """A combiner that asks for a mask."""

    def call(self, inputs, mask=None):
        return tf.reduce_sum(inputs * tf.cast(mask, tf.float32)[..., None], 1)


@pytest.mark.parametrize("kind", ["[B, 1]", "[B, L]", "ragged [B, None, 1]"])
def test_layers_combine(kind):
    for make in (ours, stock):
        table = make(sequence_combiner=mm.SequenceAggregator("sum"))
        expected = pool(bags_of(kind), "sum")
        np.testing.assert_allclose(table(KINDS[kind]), expected, rtol=1e-5, atol=1e-6)


def test_a_layer_combines_by_another_feature_and_by_the_mask():
    weights = tf.constant(np.random.default_rng(2).uniform(size=(4, 3)), tf.float32)
    expected = (WEIGHTS[DENSE] * weights.numpy()[..., None]).sum(1)
    expected /= weights.numpy().sum(1, keepdims=True)
    for make in (ours, stock):
        table = make(sequence_combiner=mm.AverageEmbeddingsByWeightFeature("weight"))
        found = table(KINDS["[B, L]"], features={"weight": weights})
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        masked = make(sequence_combiner=Weighted(), mask_zero=True)(KINDS["[B, L]"])
        without = [[i for i in bag if i != 0] for bag in DENSE]
        np.testing.assert_allclose(masked, pool(without, "sum"), rtol=1e-5)


def test_ids_of_any_number_and_strings():
    column = ColumnSchema("user", [Tags.CATEGORICAL], dtype=str)
    table = EmbeddingTable(4, column, ids=me.ids.Modulo(50), sequence_combiner="sum", seed=3)
    assert table.input_dim == 50
    found = table({"user": tf.ragged.constant([["a", "b"], []])})["user"]
    single = table(tf.constant(["a", "b"])).numpy()
    np.testing.assert_allclose(found, [single.sum(0), np.zeros(4)], rtol=1e-6)
    small = EmbeddingTable(4, ITEM, ids=me.ids.Modulo(3))
    np.testing.assert_array_equal(small(tf.constant([10])), small(tf.constant([1])))
    assert small.table.embeddings.shape == (3, 4)


def test_axes_of_each_column_through_embeddings():
    user = create_categorical_column("user", 10)
    block = mm.Embeddings(
        Schema([ITEM, user]),
        table_cls=EmbeddingTable,
        ids={"user": me.ids.Modulo(4)},
        table_dtype={"item": "bfloat16"},
        placement="host",
        padding_id={"item": 0},
        seed=7,
        trainable={"user": False},
    )
    vectors = block({"item": LISTS, "user": KINDS["[B, 1]"]})
    assert vectors["item"].shape == vectors["user"].shape == (4, 8)  # as infer_embedding_dim says
    item, user = block["item"].table, block["user"].table
    assert (item.embeddings.dtype, user.embeddings.dtype) == ("bfloat16", "float32")
    assert (item.table.rows, user.table.rows) == (11, 4)
    assert (item.padding_id, user.padding_id) == (0, None)
    assert (block["item"].trainable, block["user"].trainable) == (True, False)
    assert [w.shape for w in block.trainable_weights] == [(11, 8)]
    assert block["item"].sequence_combiner == "mean"
    same_seed = np.asarray(tf.cast(item.embeddings, tf.float32))[:4]
    assert np.abs(same_seed - user.embeddings).min() > 1e-6  # tables of other names differ
