"""`Embeddings`: structures of features, shared tables, every kind of input at once."""

import json

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import merlin_embeddings as me

ITEM = me.TableConfig("item", 11, 3)
USER = me.TableConfig("user", None, 2, ids=me.ids.Modulo(5), dtype="bfloat16")
SHOP = me.TableConfig("shop", 7, 4, ids=me.ids.Identity("zero"), dtype="float16")
FEATURES = {
    "history": me.FeatureConfig("history", ITEM, "mean"),
    "last": me.FeatureConfig("last", ITEM, "sum", padding_id=0),
    "user": me.FeatureConfig("user", USER, "max"),
    "side": (
        me.FeatureConfig("shop", SHOP, "sqrtn"),
        [me.FeatureConfig("clicks", ITEM, None)],
    ),
}


def inputs():
    return {
        "history": tf.ragged.constant([[3, 1, 4], []], tf.int64),
        "last": tf.constant([[5, 0], [0, 0]], tf.int32),
        "user": tf.constant([-1, 2**40], tf.int64),
        "side": (
            tf.sparse.from_dense(tf.constant([[1, 9], [2, 3]], tf.int64)),
            [tf.constant([[1, 2, 3], [4, 5, 6]], tf.int64)],
        ),
    }


def expected(layer, pool):
    item, user, shop = (
        np.asarray(tf.cast(layer.tables[name].variable.value, tf.float32))
        for name in ("item", "user", "shop")
    )
    return {
        "history": pool(item, [[3, 1, 4], []], "mean"),
        "last": pool(item, [[5], []], "sum"),
        "user": pool(user, [[4], [2**40 % 5]], "max"),
        "side": (pool(shop, [[1], [2, 3]], "sqrtn"), [item[[[1, 2, 3], [4, 5, 6]]]]),
    }


def assert_close(got, wanted):
    tf.nest.assert_same_structure(got, wanted)
    for a, b in zip(tf.nest.flatten(got), tf.nest.flatten(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_same_structure_of_vectors(pool):
    layer = me.layers.Embeddings(FEATURES)
    assert_close(layer(inputs()), expected(layer, pool))


def test_in_a_tf_function(pool):
    layer = me.layers.Embeddings(FEATURES)
    layer.build()
    assert_close(tf.function(lambda x: layer(x))(inputs()), expected(layer, pool))


def test_a_table_by_name_is_one_weight():
    layer = me.layers.Embeddings(FEATURES)
    layer.build()
    assert {w.name: (tuple(w.shape), w.dtype) for w in layer.weights} == {
        "item": ((11, 3), "float32"),
        "user": ((5, 2), "bfloat16"),
        "shop": ((7, 4), "float16"),
    }


def test_a_single_feature_and_a_list():
    feature = me.FeatureConfig("f", ITEM, "sum")
    single, listed = me.layers.Embeddings(feature), me.layers.Embeddings([feature])
    assert single(tf.constant([1, 2])).shape == (2, 3)
    [vectors] = listed([tf.constant([1, 2])])
    assert vectors.shape == (2, 3)


def test_one_native_call_for_tables_of_one_dtype():
    features = {
        name: me.FeatureConfig(name, me.TableConfig(name, 9, dim), combiner)
        for name, dim, combiner in [
            ("a", 1, "sum"),
            ("b", 8, "max"),
            ("c", 5, None),
            ("d", 8, "mean"),
        ]
    }
    layer = me.layers.Embeddings(features)
    layer.build()
    spec = {name: tf.TensorSpec([None], tf.int64) for name in features}
    graph = tf.function(lambda x: layer(x)).get_concrete_function(spec).graph
    ours = [op.type for op in graph.get_operations() if op.type.startswith("Merlin>")]
    assert ours == ["Merlin>Lookup"]  # which checks the ids


def test_symbolic_shapes():
    layer = me.layers.Embeddings(FEATURES)
    symbols = {
        "history": keras.Input((None,), dtype="int64", ragged=True),
        "last": keras.Input((2,), dtype="int32"),
        "user": keras.Input((), dtype="int64"),
        "side": (
            keras.Input((9,), dtype="int64", sparse=True),
            [keras.Input((3,), dtype="int64")],
        ),
    }
    shapes = tf.nest.map_structure(lambda x: tuple(x.shape), layer(symbols))
    assert shapes == {
        "history": (None, 3),
        "last": (None, 3),
        "user": (None, 2),
        "side": ((None, 4), [(None, 3, 3)]),
    }


def test_functional_model_trains_saves_and_loads(tmp_path):
    symbols = {
        "history": keras.Input((None,), dtype="int64", ragged=True, name="history"),
        "user": keras.Input((), dtype="int64", name="user"),
    }
    features = {key: FEATURES[key] for key in symbols}
    vectors = me.layers.Embeddings(features, name="embeddings")(symbols)
    x = keras.layers.Concatenate()([vectors["history"], vectors["user"]])
    model = keras.Model(symbols, keras.layers.Dense(1)(x))
    model.compile("adagrad", "mse")
    batch = {key: inputs()[key] for key in symbols}
    model.fit(tf.data.Dataset.from_tensors((batch, tf.ones([2, 1]))).repeat(3), verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again(batch), model(batch))


@pytest.mark.parametrize("key", ["values", "offsets"])
def test_merlin_pairs(pool, key):
    layer = me.layers.Embeddings({"history": FEATURES["history"]})
    pair = {
        "history__values": tf.constant([3, 1, 4], tf.int64),
        "history__offsets": tf.constant([0, 3, 3], tf.int32),
        "price": tf.constant([1.0, 2.0]),
    }
    got = layer(pair)
    item = layer.tables["item"].variable.numpy()
    assert_close(got, {"history": pool(item, [[3, 1, 4], []], "mean")})
    del pair[f"history__{key}"]
    with pytest.raises(ValueError, match="feature 'history' isn't in the inputs"):
        layer(pair)


def test_merlin_prepared_features(pool):
    features = {
        "history": FEATURES["history"],
        "clicks": FEATURES["side"][1][0],
        "one": me.FeatureConfig("one", ITEM),
    }
    layer = me.layers.Embeddings(features)
    three = tf.RaggedTensor.from_row_splits(tf.constant([[3], [1], [4]], tf.int64), [0, 3, 3])
    got = layer({"history": three, "clicks": three, "one": tf.constant([[7], [8]])})
    item = layer.tables["item"].variable.numpy()
    assert_close(got["history"], pool(item, [[3, 1, 4], []], "mean"))
    assert got["clicks"].to_list() == [item[[3, 1, 4]].tolist(), []]
    assert_close(got["one"], item[[7, 8]])


def test_batch_size_of_each_feature(pool):
    features = {"history": FEATURES["history"], "user": FEATURES["user"]}
    layer = me.layers.Embeddings(features)
    got = layer(
        {
            "history": me.Bags([3, 1, 4], [0, 2, 3], inverse=[1, 0, 0, 1]),
            "user": {"values": tf.constant([[1], [2], [3]]), "inverse": tf.constant([2, 2, 0, 1])},
        }
    )
    item, user = (
        np.asarray(tf.cast(layer.tables[n].variable.value, tf.float32)) for n in ("item", "user")
    )
    assert_close(got["history"], pool(item, [[3, 1], [4]], "mean")[[1, 0, 0, 1]])
    assert_close(got["user"], user[[3, 3, 1, 2]])


def test_batch_size_of_each_feature_in_a_functional_model(pool):
    symbols = {
        "history": {
            "values": keras.Input((), dtype="int64"),
            "row_splits": keras.Input((), dtype="int64"),
            "inverse": keras.Input((), dtype="int64"),
        }
    }
    layer = me.layers.Embeddings({"history": FEATURES["history"]})
    model = keras.Model(symbols, layer(symbols))
    got = model({"history": me.Bags([3, 1, 4], [0, 2, 3], inverse=[1, 0, 0, 1]).to_tensors()})
    item = layer.tables["item"].variable.numpy()
    assert_close(got["history"], pool(item, [[3, 1], [4]], "mean")[[1, 0, 0, 1]])


def test_weights_for_some_features(pool):
    features = {key: FEATURES[key] for key in ("history", "last", "user")}
    layer = me.layers.Embeddings(features)
    ids = {key: inputs()[key] for key in features}
    weights = {
        "history": tf.ragged.constant([[1.0, 2.0, 5.0], []]),
        "last": np.array([[2, 9], [9, 9]]),
    }
    got = layer(ids, weights=weights)
    item = layer.tables["item"].variable.numpy()
    assert_close(got["history"], pool(item, [[3, 1, 4], []], "mean", [[1, 2, 5], []]))
    assert_close(got["last"], pool(item, [[5], []], "sum", [[2], []]))
    assert_close(got["user"], layer(ids)["user"])


def test_weights_of_merlin_pairs(pool):
    layer = me.layers.Embeddings({"history": FEATURES["history"]})
    pair = {"history__values": tf.constant([3, 1]), "history__offsets": tf.constant([0, 2])}
    got = layer(pair, weights={"history": tf.constant([1.0, 3.0])})
    item = layer.tables["item"].variable.numpy()
    assert_close(got["history"], pool(item, [[3, 1]], "mean", [[1, 3]]))


def test_config_round_trip():
    layer = me.layers.Embeddings(FEATURES, name="both", dtype="mixed_bfloat16")
    config = keras.layers.serialize(layer)
    again = keras.layers.deserialize(json.loads(json.dumps(config)))
    assert again.features == FEATURES
    assert (again.name, again.compute_dtype) == ("both", "bfloat16")


def test_file_of_tables_with_every_kind_of_object(tmp_path):
    table = me.TableConfig(
        "item",
        11,
        3,
        initializer=me.initializers.Normal(stddev=0.5),
        regularizer=keras.regularizers.L1L2(0.25, 0.5),
        constraint=keras.constraints.MaxNorm(2.0, axis=1),
    )
    tag = me.TableConfig("tag", 5, 3, initializer=keras.initializers.Orthogonal(seed=1))
    features = ({"item": me.FeatureConfig("item", table)}, [me.FeatureConfig("tag", tag)])
    symbols = (
        {"item": keras.Input((2,), dtype="int64", name="item")},
        [keras.Input((), dtype="int64", name="tag")],
    )
    model = keras.Model(symbols, me.layers.Embeddings(features)(symbols))
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    layer = next(layer for layer in again.layers if isinstance(layer, me.layers.Embeddings))
    item = layer.features[0]["item"].table
    assert item.initializer == me.initializers.Normal(stddev=0.5)
    assert (item.regularizer.l1, item.regularizer.l2) == (0.25, 0.5)
    assert item.constraint.max_value == 2.0
    batch = ({"item": tf.constant([[1, 2]], tf.int64)}, [tf.constant([4], tf.int64)])
    # Keras itself makes lists of a functional model's tuples when it loads it.
    assert_close(tf.nest.flatten(again(batch)), tf.nest.flatten(model(batch)))


def test_compute_dtype():
    layer = me.layers.Embeddings(FEATURES, dtype="mixed_float16")
    assert {v.dtype for v in tf.nest.flatten(layer(inputs()))} == {tf.float16}


def test_weights_file_is_by_table_name(tmp_path):
    """So a frozen table, which Keras lists after the others, changes no place."""
    import dataclasses

    path = str(tmp_path / "model.weights.h5")

    def model(trainable):
        item = dataclasses.replace(ITEM, trainable=trainable)
        features = {
            "item": me.FeatureConfig("item", item),
            "tag": me.FeatureConfig("tag", me.TableConfig("tag", 11, 3)),
        }
        symbols = {key: keras.Input((), dtype="int64") for key in features}
        return keras.Model(symbols, me.layers.Embeddings(features, name="e")(symbols))

    a, b = model(True), model(False)
    a.save_weights(path)
    b.load_weights(path)
    ids = {key: tf.constant([1, 10], tf.int64) for key in ("item", "tag")}
    assert_close(b(ids), a(ids))


def test_frozen_tables_beside_others():
    import dataclasses

    frozen = dataclasses.replace(ITEM, trainable=False)
    features = {
        "a": me.FeatureConfig("a", frozen),
        "b": me.FeatureConfig("b", me.TableConfig("t", 9, 3)),
    }
    layer = me.layers.Embeddings(features)
    layer.build()
    assert [w.name for w in layer.trainable_variables] == ["t"]
    with tf.GradientTape() as tape:
        loss = sum(
            tf.reduce_sum(v) for v in layer({"a": tf.constant([1]), "b": tf.constant([2])}).values()
        )
    gradient = tf.convert_to_tensor(tape.gradient(loss, layer.trainable_variables[0].value))
    np.testing.assert_array_equal(gradient, np.eye(9)[2][:, None] * np.ones(3))


def test_a_shared_tables_gradient_sums_its_features():
    features = [me.FeatureConfig("a", ITEM, "sum"), me.FeatureConfig("b", ITEM, "mean")]
    layer = me.layers.Embeddings(features)
    layer.build()
    with tf.GradientTape() as tape:
        a, b = layer([tf.constant([[1, 2]]), tf.constant([[2, 3]])])
        loss = tf.reduce_sum(a) + tf.reduce_sum(b)
    gradient = tape.gradient(loss, layer.trainable_variables[0].value)
    assert isinstance(gradient, tf.IndexedSlices)
    assert gradient.indices.numpy().tolist() == [1, 2, 3]
    np.testing.assert_allclose(gradient.values[:, 0], [1, 1.5, 0.5])


def test_empty_batches():
    layer = me.layers.Embeddings(FEATURES)
    got = layer(
        {
            "history": tf.RaggedTensor.from_row_splits(tf.zeros([0], tf.int64), [0]),
            "last": tf.zeros([0, 2], tf.int64),
            "user": tf.zeros([0], tf.int64),
            "side": (
                tf.sparse.from_dense(tf.zeros([0, 2], tf.int64)),
                [tf.zeros([0, 3], tf.int64)],
            ),
        }
    )
    shapes = tf.nest.map_structure(lambda v: tuple(v.shape), got)
    assert shapes == {
        "history": (0, 3),
        "last": (0, 3),
        "user": (0, 2),
        "side": ((0, 4), [(0, 3, 3)]),
    }
