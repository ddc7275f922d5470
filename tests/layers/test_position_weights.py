"""`FeatureConfig.position_weights`: weights learned by position in the bag."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorflow import keras

import merlin_embeddings as me
from tests.bags import kinds

ITEM = me.TableConfig("item", 11, 3)
LISTS = st.lists(st.lists(st.integers(0, 10), max_size=5), max_size=4)
LEARNED = np.array([2.0, 0.5, -1.0, 3.0], np.float32)
RAGGED = [[3, 1, 4, 1, 5], [], [9]]


def layer_of(combiner="sum", position_weights=True, keep="first", learned=LEARNED, **more):
    feature = me.FeatureConfig(
        "clicks",
        ITEM,
        combiner,
        kinds.PADDING,
        max_length=len(learned),
        keep=keep,
        position_weights=position_weights,
    )
    layer = me.layers.Embeddings({"x": feature}, **more)
    layer.build()
    layer.set_weights([layer.get_weights()[0], learned])
    return layer


def kept(lists, keep, length):
    return [bag[:length] if keep == "first" else bag[max(0, len(bag) - length) :] for bag in lists]


def by_position(lists, count_from, learned=LEARNED):
    """The weight of each id of bags that aren't too long."""
    rows = [learned[: len(bag)].tolist() for bag in lists]
    return rows if count_from == "first" else [row[::-1] for row in rows]


def ragged(lists, dtype=tf.int64):
    return kinds.batch("ragged", lists, dtype)


@settings(max_examples=150)
@given(
    LISTS,
    st.sampled_from(kinds.KINDS),
    st.sampled_from(["first", "last"]),
    st.sampled_from(["first", "last"]),
    st.sampled_from(["sum", "mean", "sqrtn"]),
)
def test_every_kind(pool, lists, kind, keep, count_from, combiner):
    """Padding has no position: padded ids are as ragged ones."""
    learned = np.abs(LEARNED)  # a mean's divisor may not cancel out
    layer = layer_of(combiner, me.PositionWeights(count_from=count_from), keep, learned)
    got = layer({"x": kinds.batch(kind, lists)})["x"]
    bags = kept(kinds.held(kind, lists), keep, 4)
    expected = pool(layer.get_weights()[0], bags, combiner, by_position(bags, count_from, learned))
    if kind == "distinct":
        expected = expected[::-1]
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_weights_of_the_call_multiply_them(pool):
    layer = layer_of()
    weights = [[1.0, 10.0, 100.0, 1000.0, 9.0], [], [7.0]]
    got = layer({"x": ragged(RAGGED)}, weights={"x": ragged(weights, tf.float32)})["x"]
    expected = pool(
        layer.get_weights()[0], [[3, 1, 4, 1], [], [9]], "sum", [[2, 5, -100, 3000], [], [14]]
    )
    np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_as_torchrec():
    """Figures of FeatureProcessedEmbeddingBagCollection, torchrec 1.8.0, for the same weights."""
    table = me.TableConfig("t", 4, 2, initializer=np.arange(1, 9, dtype=np.float32).reshape(4, 2))
    feature = me.FeatureConfig("f", table, "sum", max_length=3, position_weights=True)
    layer = me.layers.Embeddings(feature)
    layer.build()
    layer.set_weights([layer.get_weights()[0], np.array([1.0, 0.5, 0.25])])
    with tf.GradientTape() as tape:
        pooled = layer(ragged([[3, 0, 0], [], [1], [2, 2]]))
        loss = tf.reduce_sum(pooled * np.arange(1, 9, dtype=np.float32).reshape(4, 2))
    rows, learned = tape.gradient(loss, [w.value for w in layer.trainable_variables])
    np.testing.assert_allclose(pooled, [[7.75, 9.5], [0, 0], [3, 4], [7.5, 9]])
    np.testing.assert_allclose(learned, [145, 88, 5])
    np.testing.assert_allclose(
        tf.convert_to_tensor(rows), [[0.75, 1.5], [5, 6], [10.5, 12], [1, 2]]
    )


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("graph", [False, True])
def test_gradient_is_that_of_differences(combiner, graph):
    layer = layer_of(combiner, learned=np.abs(LEARNED))
    table = layer.get_weights()[0].astype(np.float64)
    upstream = np.random.default_rng(1).normal(size=(3, 3))

    def loss_of(learned):
        total = 0.0
        for b, bag in enumerate(kept(RAGGED, "first", 4)):
            w = learned[: len(bag)]
            divisor = {"sum": 1.0, "mean": w.sum(), "sqrtn": np.sqrt((w**2).sum())}[combiner]
            if bag:
                total += upstream[b] @ (table[bag] * w[:, None]).sum(0) / divisor
        return total

    def gradient_of(ids):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(ids)["x"] * upstream.astype(np.float32))
        return tape.gradient(loss, layer.trainable_variables[1].value)

    ids = {"x": ragged(RAGGED)}
    gradient = (tf.function(gradient_of) if graph else gradient_of)(ids)
    assert isinstance(gradient, tf.Tensor)  # dense, as every optimizer knows it
    at = np.abs(LEARNED).astype(np.float64)
    steps = 1e-4 * np.eye(4)
    expected = [(loss_of(at + step) - loss_of(at - step)) / 2e-4 for step in steps]
    np.testing.assert_allclose(gradient, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("empty", [[], [[], []]])
def test_empty_batches_and_bags(empty):
    layer = layer_of("mean")
    with tf.GradientTape() as tape:
        vectors = layer({"x": ragged(empty)})["x"]
        loss = tf.reduce_sum(vectors)
    np.testing.assert_array_equal(vectors, np.zeros((len(empty), 3)))
    np.testing.assert_array_equal(
        tape.gradient(loss, layer.trainable_variables[1].value), np.zeros(4)
    )


def test_weights_are_the_layers():
    layer = layer_of(name="embeddings")
    learned = layer.weights[1]
    assert [w.name for w in layer.weights] == ["item", "clicks_position_weights"]
    assert (tuple(learned.shape), learned.dtype) == ((4,), "float32")
    assert layer.count_params() == 11 * 3 + 4
    np.testing.assert_array_equal(me.layers.Embeddings(layer.features).weights, [])


def test_initial_values_and_what_else_keras_has():
    spec = me.PositionWeights(
        keras.initializers.Constant(-2.0), keras.regularizers.L2(0.25), keras.constraints.NonNeg()
    )
    plain = json.loads(json.dumps(keras.layers.serialize(layer_of(position_weights=spec))))
    again = keras.layers.deserialize(plain)
    again.build()
    learned = again.weights[1]
    np.testing.assert_array_equal(learned, np.full(4, -2.0))
    assert [float(loss) for loss in again.losses] == [0.25 * 4 * 4]
    assert isinstance(learned.constraint, keras.constraints.NonNeg)


def test_frozen():
    layer = layer_of(position_weights=me.PositionWeights(trainable=False))
    assert [w.name for w in layer.trainable_variables] == ["item"]
    got = layer({"x": ragged([[9]])})["x"]
    np.testing.assert_allclose(got, 2.0 * layer.get_weights()[0][[9]], rtol=1e-6)


def test_frozen_tables_beside_them():
    table = dataclasses.replace(ITEM, trainable=False)
    feature = me.FeatureConfig("f", table, "sum", max_length=2, position_weights=True)
    layer = me.layers.Embeddings(feature)
    layer.build()
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(ragged([[3, 1], [4]])))
    [learned] = layer.trainable_variables
    sums = layer.non_trainable_variables[0].numpy().sum(1)
    np.testing.assert_allclose(
        tape.gradient(loss, learned.value), [sums[3] + sums[4], sums[1]], rtol=1e-5
    )


def test_they_begin_as_ones():
    feature = me.FeatureConfig("f", ITEM, "sum", max_length=2, position_weights=True)
    layer = me.layers.Embeddings(feature)
    layer.build()
    np.testing.assert_array_equal(layer.weights[1], [1.0, 1.0])


def model_of(layer, symbol=None):
    if symbol is None:
        symbol = keras.Input((None,), dtype="int64", ragged=True, name="x")
    symbols = {"x": symbol}
    total = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones", trainable=False)
    return keras.Model(symbols, total(layer(symbols)["x"]))


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda: keras.optimizers.SGD(0.25),
        lambda: me.optimizers.SGD(0.25),
        lambda: me.optimizers.Split(
            dense=keras.optimizers.SGD(0.25), embeddings=me.optimizers.SGD(0.0)
        ),
    ],
)
def test_every_optimizer_trains_them(optimizer):
    layer = layer_of(name="embeddings")
    model = model_of(layer)
    model.compile(optimizer(), "mse")
    table = layer.get_weights()[0].astype(np.float64)
    sums = table.sum(1)
    targets = np.array([1.0, 2.0, 3.0])
    batch = tf.data.Dataset.from_tensors(({"x": ragged(RAGGED)}, targets[:, None]))
    model.fit(batch, verbose=0)
    gradient = np.zeros(4)
    for bag, target in zip(kept(RAGGED, "first", 4), targets, strict=True):
        error = 2 / 3 * (LEARNED[: len(bag)] @ sums[bag] - target) if bag else 0.0
        for position, item in enumerate(bag):
            gradient[position] += error * sums[item]
    np.testing.assert_allclose(layer.get_weights()[1], LEARNED - 0.25 * gradient, rtol=1e-4)


def test_slots_of_ours_are_dense():
    layer = layer_of(name="embeddings")
    model = model_of(layer)
    model.compile(me.optimizers.Adagrad(0.1), "mse")
    batch = tf.data.Dataset.from_tensors(({"x": ragged([[9]])}, [[3.0]]))
    model.fit(batch, verbose=0)
    learned = layer.get_weights()[1]
    assert learned[0] != LEARNED[0]
    np.testing.assert_array_equal(learned[1:], LEARNED[1:])  # Adagrad: no gradient, no step


def test_saved_and_loaded(tmp_path):
    model = model_of(layer_of(name="embeddings"))
    batch = {"x": ragged(RAGGED)}
    expected = model(batch)

    model.save(tmp_path / "model.keras")
    np.testing.assert_array_equal(
        keras.models.load_model(tmp_path / "model.keras")(batch), expected
    )

    model.save_weights(tmp_path / "model.weights.h5")
    other = model_of(layer_of(learned=np.zeros(4, np.float32), name="embeddings"))
    other.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(other(batch), expected)

    path = tf.train.Checkpoint(model).write(str(tmp_path / "checkpoint"))
    other = model_of(layer_of(learned=np.zeros(4, np.float32), name="embeddings"))
    tf.train.Checkpoint(other).read(path).assert_existing_objects_matched()
    np.testing.assert_array_equal(other(batch), expected)


def test_exported(tmp_path):
    model = model_of(layer_of(), keras.Input((5,), dtype="int64", name="x"))
    model.export(str(tmp_path), verbose=False)
    batch = {"x": kinds.batch("padded", RAGGED)}
    served = tf.saved_model.load(str(tmp_path))
    np.testing.assert_allclose(served.serve(batch), model(batch), rtol=1e-6)


def test_a_file_of_another_length_writes_nothing(tmp_path):
    path = str(tmp_path / "model.weights.h5")
    model_of(layer_of(name="e")).save_weights(path)
    other = layer_of(learned=np.zeros(3, np.float32), name="e")
    before = other.get_weights()
    message = r"Layer 'e' .*weight 'clicks_position_weights' is \[3\], in the file \[4\]"
    with pytest.raises(ValueError, match=message):
        model_of(other).load_weights(path)
    np.testing.assert_array_equal(other.get_weights()[0], before[0])


def test_a_table_of_that_name():
    features = [
        me.FeatureConfig("clicks", ITEM, "sum", max_length=2, position_weights=True),
        me.FeatureConfig("f", me.TableConfig("clicks_position_weights", 3, 2)),
    ]
    with pytest.raises(ValueError, match=r"feature 'clicks'.*'clicks_position_weights'; rename"):
        me.layers.Embeddings(features)


def test_weights_that_are_no_number_any_more():
    layer = layer_of(learned=np.array([1.0, np.nan], np.float32))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"feature 'clicks': weight 1 is nan"):
        layer({"x": ragged([[1, 2]])})
