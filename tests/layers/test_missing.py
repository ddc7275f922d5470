"""Features that a batch hasn't: an error, or zeros where the config says so."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import merlin_embeddings as me

ITEM = me.TableConfig("item", 11, 3)
TAG = me.TableConfig("tag", 7, 2)
FEATURES = {
    "last": me.FeatureConfig("last", ITEM, "sum"),
    "tags": me.FeatureConfig("tags", TAG, "mean", missing="zeros"),
    "clicks": me.FeatureConfig("clicks", ITEM, None, missing="zeros"),
}
LAST = tf.constant([4, 9, 1], tf.int64)
BATCHES = [{"last": LAST}, {"last": LAST, "tags": None, "clicks": None, "price": LAST}]


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("graph", [False, True])
def test_zeros_for_as_many_samples_as_others_have(batch, graph):
    layer = me.layers.Embeddings(FEATURES)
    layer.build()
    got = (tf.function(lambda x: layer(x)) if graph else layer)(batch)
    assert list(got) == list(FEATURES)
    np.testing.assert_array_equal(got["last"], layer.get_weights()[0][LAST])
    np.testing.assert_array_equal(got["tags"], np.zeros((3, 2)))
    assert got["clicks"].to_list() == [[], [], []]
    assert got["clicks"].flat_values.shape == (0, 3)


def test_batch_size_known_only_at_run_time():
    layer = me.layers.Embeddings(FEATURES)
    layer.build()
    spec = {"last": tf.TensorSpec([None], tf.int64)}
    step = tf.function(lambda x: layer(x), input_signature=[spec])
    for size in (0, 2):
        got = step({"last": tf.zeros([size], tf.int64)})
        assert got["tags"].shape == (size, 2)
        assert got["clicks"].nrows() == size


def test_samples_of_distinct_and_of_ragged_bags():
    layer = me.layers.Embeddings(FEATURES)
    bags = me.Bags([3, 1, 4], [0, 2, 3], inverse=[1, 0, 0, 1])
    assert layer({"last": bags})["tags"].shape == (4, 2)
    only_clicks = me.layers.Embeddings({key: FEATURES[key] for key in ("tags", "clicks")})
    assert only_clicks({"clicks": tf.ragged.constant([[1], [2, 3]])})["tags"].shape == (2, 2)


def test_dtype_is_the_layers():
    layer = me.layers.Embeddings(FEATURES, dtype="mixed_float16")
    assert {v.dtype for v in layer({"last": LAST}).values()} == {tf.float16}


def test_an_error_unless_the_config_says_so():
    layer = me.layers.Embeddings(FEATURES)
    message = r"feature 'last' isn't in the inputs, which have \['tags'\].*missing='zeros'"
    with pytest.raises(ValueError, match=message):
        layer({"tags": LAST})
    with pytest.raises(ValueError, match=r"feature 'last' is None; give ids, or.*missing='zeros'"):
        layer({"last": None, "tags": LAST})


def test_half_a_pair_is_an_error():
    layer = me.layers.Embeddings(FEATURES)
    with pytest.raises(ValueError, match=r"only 'tags__values'. Give 'tags'"):
        layer({"last": LAST, "tags__values": LAST})


def test_all_missing():
    layer = me.layers.Embeddings({key: FEATURES[key] for key in ("tags", "clicks")})
    with pytest.raises(ValueError, match=r"none of the features \['tags', 'clicks'\].*how many"):
        layer({"price": LAST})
    with pytest.raises(ValueError, match="none of the features"):
        me.layers.Embeddings([FEATURES["tags"]])([None])


def test_weights_of_what_is_missing():
    layer = me.layers.Embeddings(FEATURES)
    with pytest.raises(ValueError, match=r"table 'tag', feature 'tags': weights without ids"):
        layer({"last": LAST}, weights={"tags": tf.ones([3])})


def test_nested_features():
    side = [FEATURES["tags"], (dataclasses.replace(FEATURES["clicks"], combiner="max"),)]
    layer = me.layers.Embeddings({"last": FEATURES["last"], "side": side})
    for batch in ({"last": LAST}, {"last": LAST, "side": [None, (None,)]}):
        tags, (clicks,) = layer(batch)["side"]
        assert (tags.shape, clicks.shape) == ((3, 2), (3, 3))
    needed = me.layers.Embeddings({"a": FEATURES["tags"], "side": [FEATURES["last"]]})
    with pytest.raises(ValueError, match="feature 'side' isn't in the inputs"):
        needed({"a": LAST})


@pytest.mark.parametrize("optimizer", [lambda: keras.optimizers.Adam(0.1), me.optimizers.Adam])
def test_tables_without_features_do_not_move(optimizer):
    """Not by moments either: Keras's Adam would move all rows of a table whose gradient is 0."""

    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.embeddings = me.layers.Embeddings(FEATURES)

        def call(self, inputs):
            vectors = self.embeddings(inputs)
            return tf.reduce_sum(vectors["last"], 1) + tf.reduce_sum(vectors["tags"], 1)

    model = Model()
    model.compile(optimizer(), "mse")
    full = {"last": LAST, "tags": tf.constant([1, 2, 3], tf.int64)}
    target = tf.constant([1.0, 2.0, 3.0])
    model.fit(tf.data.Dataset.from_tensors((full, target)), verbose=0)
    item, tag = model.embeddings.get_weights()
    lacking = {"last": LAST, "tags": None}
    model.fit(tf.data.Dataset.from_tensors((lacking, target)), verbose=0)
    assert np.any(model.embeddings.get_weights()[0] != item)
    np.testing.assert_array_equal(model.embeddings.get_weights()[1], tag)


def test_gradient_is_none():
    layer = me.layers.Embeddings(FEATURES)
    layer.build()
    with tf.GradientTape() as tape:
        vectors = layer({"last": LAST})
        loss = tf.reduce_sum(vectors["last"]) + tf.reduce_sum(vectors["tags"])
    item, tag = tape.gradient(loss, [w.value for w in layer.trainable_variables])
    assert item is not None and tag is None


def test_functional_models(tmp_path):
    """Keras wants a symbol for each key: an optional one takes None; what has none is missing."""
    symbols = {
        "last": keras.Input((), dtype="int64", name="last"),
        "tags": keras.Input((2,), dtype="int64", name="tags", optional=True),
    }
    vectors = me.layers.Embeddings(FEATURES)(symbols)
    assert {key: v.shape for key, v in vectors.items()} == {
        "last": (None, 3),
        "tags": (None, 2),
        "clicks": (None, None, 3),
    }
    model = keras.Model(symbols, keras.layers.Concatenate()([vectors["last"], vectors["tags"]]))
    tags = tf.constant([[1, 2], [3, 4], [5, 6]], tf.int64)
    with_tags = model({"last": LAST, "tags": tags})
    without = model({"last": LAST, "tags": None})
    np.testing.assert_array_equal(without[:, :3], with_tags[:, :3])
    np.testing.assert_array_equal(without[:, 3:], np.zeros((3, 2)))
    assert np.all(with_tags[:, 3:] != 0)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again({"last": LAST, "tags": None}), without)


def test_position_weights_of_what_is_missing_get_no_gradient():
    feature = me.FeatureConfig(
        "tags", TAG, "sum", max_length=2, position_weights=True, missing="zeros"
    )
    layer = me.layers.Embeddings({"last": FEATURES["last"], "tags": feature})
    layer.build()
    with tf.GradientTape() as tape:
        loss = sum(tf.reduce_sum(v) for v in layer({"last": LAST}).values())
    gradients = tape.gradient(loss, [w.value for w in layer.trainable_variables])
    assert [g is None for g in gradients] == [False, True, True]
