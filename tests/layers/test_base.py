"""What `Embedding` and `Embeddings` have in common: shapes before variables, saving, loading."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import merlin_embeddings as me

USER = me.FeatureConfig("user", me.TableConfig("user", None, 4, ids=me.ids.Modulo(50)), "sum")
ITEM = me.FeatureConfig("item", me.TableConfig("item", 11, 3), None)
BATCH = {"user": np.array(["ann", "bob"]), "item": np.array([[1, 2], [0, 10]])}


@keras.utils.register_keras_serializable("merlin_embeddings_tests")
class Tower(keras.Model):
    """A subclassed model that leaves building to Keras."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.embeddings = me.layers.Embeddings({"user": USER, "item": ITEM})
        self.single = me.layers.Embedding(11, 2, combiner="mean")
        self.dense = keras.layers.Dense(1)

    def call(self, inputs):
        vectors = self.embeddings(inputs)
        items = tf.reduce_sum(vectors["item"], axis=1)
        return self.dense(tf.concat([vectors["user"], items, self.single(inputs["item"])], axis=1))


def dataset():
    return tf.data.Dataset.from_tensor_slices((BATCH, np.ones((2, 1)))).batch(2)


def test_a_subclassed_model_is_built_from_shapes_saved_and_resumed(tmp_path, recwarn):
    model = Tower()
    model.compile(me.optimizers.Adagrad(0.1), "mse")
    model.fit(dataset(), epochs=2, verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    names = ["user", "item", "embeddings", "kernel", "bias"]
    assert [w.name for w in again.weights] == [w.name for w in model.weights] == names
    inputs = {key: tf.constant(value) for key, value in BATCH.items()}
    np.testing.assert_array_equal(again(inputs), model(inputs))
    losses = [m.fit(dataset(), epochs=3, verbose=0).history["loss"] for m in (model, again)]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)
    assert not [w for w in recwarn if "build" in str(w.message)]


@pytest.mark.parametrize(
    "layer, spec, shape",
    [
        (lambda: me.layers.Embedding(9, 3), tf.TensorSpec([None, 4], tf.int64), [None, 4, 3]),
        (
            lambda: me.layers.Embedding(9, 3, combiner="max"),
            tf.TensorSpec([2, 4], tf.int64),
            [2, 3],
        ),
        (
            lambda: me.layers.Embedding(9, 3, combiner="sum"),
            tf.RaggedTensorSpec([None, None], tf.int64),
            [None, 3],
        ),
    ],
)
def test_symbols_in_a_lambda_have_the_right_shape(layer, spec, shape):
    """Keras calls `call` itself, in a graph, before there are variables."""

    class Wrapped(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.inner = layer()

        def call(self, inputs):
            return self.inner(inputs)

    wrapped = Wrapped()
    ragged = isinstance(spec, tf.RaggedTensorSpec)
    symbol = keras.Input(spec.shape[1:], dtype="int64", ragged=ragged, batch_size=spec.shape[0])
    assert list(wrapped(symbol).shape) == shape
    assert wrapped.inner.embeddings.shape == (9, 3)


def test_stateless_call_is_refused(table):
    layer = me.layers.Embedding(11, 3, weights=table)
    with pytest.raises(ValueError, match="Table 'embeddings' is looked up in its own memory"):
        layer.stateless_call([tf.constant(table)], [], tf.constant([1]))


def test_a_file_with_other_tables(tmp_path):
    path = str(tmp_path / "model.weights.h5")

    def model(*names):
        features = {n: me.FeatureConfig(n, me.TableConfig(n, 9, 2), "sum") for n in names}
        symbols = {n: keras.Input((), dtype="int64", name=n) for n in names}
        return keras.Model(symbols, me.layers.Embeddings(features, name="e")(symbols))

    model("a", "b").save_weights(path)
    with pytest.raises(ValueError, match=r"Layer 'e' has the weights \['a', 'c'\].*\['a', 'b'\]"):
        model("a", "c").load_weights(path)


def test_a_file_with_tables_of_other_shapes_writes_nothing(tmp_path):
    path = str(tmp_path / "model.weights.h5")

    def model(rows, value):
        features = {
            name: me.FeatureConfig(name, me.TableConfig(name, count, 2, initializer=value), "sum")
            for name, count in rows.items()
        }
        symbols = {name: keras.Input((), dtype="int64", name=name) for name in rows}
        return keras.Model(symbols, me.layers.Embeddings(features, name="e")(symbols))

    model({"a": 4, "b": 5, "c": 6}, "ones").save_weights(path)
    other = model({"a": 4, "b": 4, "c": 7}, "zeros")
    message = (
        r"Layer 'e' .*'b' is \[4, 2\], in the file \[5, 2\].*'c' is \[7, 2\], in the file \[6, 2\]"
    )
    with pytest.raises(ValueError, match=message):
        other.load_weights(path)
    assert not any(np.any(values) for values in other.get_weights())


NAMES = [
    "set",
    "_set",
    "a.b",
    "a b",
    "a:0",
    "ü",
    "class",
    "name",
    "call",
    "0",
    "_table_set",
    "build",
]


@pytest.mark.parametrize("name", NAMES)
def test_tables_of_any_name(tmp_path, name):
    def make():
        table = me.TableConfig(name, 9, 2)
        symbols = {"x": keras.Input((2,), dtype="int64", name="x")}
        layer = me.layers.Embeddings({"x": me.FeatureConfig("x", table)}, name="e")
        return keras.Model(symbols, layer(symbols))

    batch = {"x": tf.constant([[1, 2]], tf.int64)}
    first = make()
    first.save(tmp_path / "model.keras")
    np.testing.assert_array_equal(
        keras.models.load_model(tmp_path / "model.keras")(batch)["x"], first(batch)["x"]
    )
    path = tf.train.Checkpoint(model=first).save(str(tmp_path / "checkpoint"))
    assert any(
        f"table:{name.replace('.', '..')}/" in key for key, _ in tf.train.list_variables(path)
    )
    second = make()
    tf.train.Checkpoint(model=second).restore(path).assert_existing_objects_matched()
    np.testing.assert_array_equal(second(batch)["x"], first(batch)["x"])


def test_initial_arrays_are_saved_once_as_weights(tmp_path):
    values = np.random.default_rng(0).normal(size=(2000, 16)).astype(np.float32)
    table = me.TableConfig("item", 2000, 16, initializer=values)
    features = [me.FeatureConfig("a", table, "sum"), me.FeatureConfig("b", table)]
    symbols = [keras.Input((2,), dtype="int64", name=name) for name in "ab"]
    single = me.layers.Embedding(2000, 16, embeddings_initializer=values, combiner="sum")
    outputs = [*me.layers.Embeddings(features)(symbols), single(symbols[0])]
    model = keras.Model(symbols, outputs)
    batch = [tf.constant([[1, 2]], tf.int64), tf.constant([[3, 1999]], tf.int64)]
    wanted = [values[1] + values[2], (values[3] + values[1999]) / 2, values[1] + values[2]]
    path = tmp_path / "model.keras"
    model.save(path)
    assert path.stat().st_size < 2 * values.nbytes + 100_000
    again = keras.models.load_model(path)
    for got in (model(batch), again(batch)):
        for vectors, expected in zip(got, wanted, strict=True):
            np.testing.assert_allclose(vectors[0], expected, rtol=1e-6)


def test_tables_with_other_arrays_are_not_one():
    def feature(name, value):
        table = me.TableConfig("item", 2, 3, initializer=np.full([2, 3], value, np.float32))
        return me.FeatureConfig(name, table)

    layer = me.layers.Embeddings([feature("a", 1), feature("b", 1)])
    layer.build()
    assert len(layer.weights) == 1
    with pytest.raises(ValueError, match="Table 'item' has two configs"):
        me.layers.Embeddings([feature("a", 1), feature("b", 2)])


def test_big_tables_load_in_blocks(tmp_path):
    path = str(tmp_path / "model.weights.h5")
    rows = 2 * 65536 + 3
    values = np.arange(rows, dtype=np.float32)[:, None]
    model = keras.Sequential([me.layers.Embedding(rows, 1, weights=values)])
    model.build((None, 1))
    model.save_weights(path)
    other = keras.Sequential([me.layers.Embedding(rows, 1, embeddings_initializer="zeros")])
    other.build((None, 1))
    mark = other.layers[0].table.mark()
    other.load_weights(path)
    np.testing.assert_array_equal(other.layers[0].get_weights()[0], values)
    changed = sum(len(entries) for entries in other.layers[0].table.entries(since=mark))
    assert changed == rows
