"""`InputBlock` in models: functional and subclassed, trained, saved, exported, cloned."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import merlin_embeddings as me
from merlin_embeddings.data import Column, Domain

ITEM = Domain("item", 0, 10)
SCHEMA = (
    Column("user", ("categorical",), "int64", domain=Domain(None, 0, 99)),
    Column("history", ("categorical",), "int64", True, (0, None), ITEM),
    Column("last", ("categorical",), "int32", domain=ITEM),
    Column("age", ("continuous",), "float64"),
    Column("price", ("continuous",), "float32"),
)
B = 12
RNG = np.random.default_rng(0)
LENGTHS = RNG.integers(4, size=B)
BATCH = {
    "user": RNG.integers(100, size=B),
    "history": tf.RaggedTensor.from_row_lengths(RNG.integers(1, 11, size=LENGTHS.sum()), LENGTHS),
    "last": RNG.integers(11, size=B).astype(np.int32),
    "age": RNG.normal(size=B),
    "price": RNG.normal(size=B).astype(np.float32),
}
PAIR = {
    **{name: tensor for name, tensor in BATCH.items() if name != "history"},
    "history__values": BATCH["history"].values,
    "history__offsets": BATCH["history"].row_splits,
}


def block(**kwargs):
    features = me.features_from_schema(SCHEMA, 4, combiner={"history": "sqrtn"}, padding_id=0)
    mlp = keras.Sequential([keras.layers.Dense(5, "relu"), keras.layers.Dense(3)])
    return me.layers.InputBlock(
        SCHEMA,
        features,
        continuous=mlp,
        l2_batch_regularization_factor={"history": 0.01},
        **kwargs,
    )


def dataset():
    return tf.data.Dataset.from_tensor_slices((BATCH, RNG.normal(size=(B, 1)))).batch(4)


def functional():
    inputs = me.data.keras_inputs(SCHEMA)
    return keras.Model(inputs, keras.layers.Dense(1)(block()(inputs)))


@keras.utils.register_keras_serializable("merlin_embeddings_tests")
class Subclassed(keras.Model):
    """A model that leaves building to Keras."""

    def __init__(self, block, **kwargs):
        super().__init__(**kwargs)
        self.block = block
        self.top = keras.layers.Dense(1)

    def call(self, inputs):
        return self.top(self.block(inputs))

    def get_config(self):
        return {**super().get_config(), "block": keras.layers.serialize(self.block)}

    @classmethod
    def from_config(cls, config):
        return cls(keras.layers.deserialize(config.pop("block")), **config)


MODELS = {"functional": functional, "subclassed": lambda: Subclassed(block())}
WEIGHTS = ["user", "item", "kernel", "bias", "kernel", "bias", "kernel", "bias"]


@pytest.mark.parametrize("kind", MODELS)
def test_trained_saved_and_resumed(tmp_path, kind, recwarn):
    data = dataset().cache()
    model = MODELS[kind]()
    model.compile(me.optimizers.Adagrad(0.1), "mse")
    losses = model.fit(data, epochs=3, verbose=0, shuffle=False).history["loss"]
    assert losses[2] < losses[0]
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    names = [weight.name for weight in again.weights]
    assert sorted(names) == sorted(weight.name for weight in model.weights) == sorted(WEIGHTS)
    np.testing.assert_array_equal(again.predict(data, verbose=0), model.predict(data, verbose=0))
    resumed = [m.fit(data, epochs=2, verbose=0).history["loss"] for m in (model, again)]
    np.testing.assert_allclose(resumed[0], resumed[1], rtol=1e-5)
    assert not [w for w in recwarn if "build" in str(w.message) or "variable" in str(w.message)]


def test_losses_in_fit_and_after():
    model = functional()
    model.compile(keras.optimizers.SGD(0.0), "mse")
    data = tf.data.Dataset.from_tensor_slices((BATCH, model.predict(dataset(), verbose=0))).batch(B)
    [found] = model.fit(data, verbose=0).history["loss"]
    assert model.losses == []  # no dead symbols
    history = model.layers[-2].categorical(BATCH)["history"].numpy()
    np.testing.assert_allclose(found, 0.01 * np.sum(history**2), rtol=1e-5)


def test_a_subclassed_model_takes_merlin_s_pairs():
    model = Subclassed(block())
    np.testing.assert_array_equal(model(BATCH), model(PAIR))
    first = Subclassed(block())
    assert first(PAIR).shape == (B, 1)  # built from them too


def test_an_exported_functional_model(tmp_path):
    model = functional()
    expected = model.predict(dataset(), verbose=0)
    model.export(tmp_path / "export", verbose=False)
    served = tf.saved_model.load(tmp_path / "export")
    request = {name: tf.constant(BATCH[name]) for name in ("user", "last", "price")}
    request |= {"age": tf.constant(BATCH["age"], tf.float32)}
    # Exported signatures have no ragged tensors: padded, with the id that features skip.
    request |= {"history": BATCH["history"].to_tensor(0)}
    np.testing.assert_allclose(served.serve(request), expected, rtol=1e-5, atol=1e-6)


def test_an_exported_model_that_takes_merlin_s_pairs(tmp_path):
    model = Subclassed(block())
    expected = model(BATCH)
    signature = me.data.keras_inputs(SCHEMA)
    del signature["history"]
    signature["history__values"] = keras.Input((), dtype="int64", name="history__values")
    signature["history__offsets"] = keras.Input((), dtype="int64", name="history__offsets")
    model.export(tmp_path / "export", verbose=False, input_signature=[signature])
    served = tf.saved_model.load(tmp_path / "export")
    request = {name: tf.cast(PAIR[name], x.dtype) for name, x in signature.items()}
    np.testing.assert_allclose(served.serve(request), expected, rtol=1e-5, atol=1e-6)


def test_the_config_makes_the_same_layer():
    first = block(
        name="inputs",
        vectors=None,
        aggregation=me.layers.Concat(name="joined"),
        pre=keras.layers.Identity(name="before"),
        post=[me.layers.BroadcastToSequence(name="after")],
    )
    again = me.layers.InputBlock.from_config(first.get_config())
    assert again.columns == first.columns
    assert again.categorical.features == first.categorical.features
    names = [again.name, again.aggregation.name, again.pre[0].name, again.post[0].name]
    assert names == ["inputs", "joined", "before", "after"]
    assert again.vectors is None
    assert again.get_config() == first.get_config()
    assert again(BATCH).shape == first(BATCH).shape == (B, 15)


@pytest.mark.parametrize("given", [True, None])
def test_flags_in_the_config(given):
    first = me.layers.InputBlock(SCHEMA, continuous=given, aggregation=None)
    again = me.layers.InputBlock.from_config(first.get_config())
    assert again.continuous is given
    assert again.aggregation is None
    assert set(again(BATCH)) == set(first(BATCH))


def test_clone_model():
    model = functional()
    clone = keras.models.clone_model(model)
    assert [w.shape for w in clone.weights] == [w.shape for w in model.weights]
    clone.set_weights(model.get_weights())
    np.testing.assert_array_equal(
        clone.predict(dataset(), verbose=0), model.predict(dataset(), verbose=0)
    )


@pytest.mark.parametrize("aggregation", ["concat", None])
def test_symbols_say_what_values_are(aggregation):
    made = block(aggregation=aggregation)
    symbols = made(me.data.keras_inputs(SCHEMA))
    values = made(BATCH)
    if aggregation:
        symbols, values = {"all": symbols}, {"all": values}
    assert set(symbols) == set(values)
    for name, symbol in symbols.items():
        assert tuple(symbol.shape) == (None, *values[name].shape[1:])
        assert symbol.dtype == values[name].dtype.name


def test_one_block_in_two_places_of_a_model():
    made = block()
    inputs = me.data.keras_inputs(SCHEMA)
    other = {**inputs, "user": keras.Input((), name="other", dtype="int64")}
    model = keras.Model({**inputs, "other": other["user"]}, [made(inputs), made(other)])
    given = {
        name: x if isinstance(x, tf.RaggedTensor) else tf.constant(x) for name, x in BATCH.items()
    }
    one, two = model({**given, "other": given["user"][::-1]})
    np.testing.assert_array_equal(one, made(BATCH))
    np.testing.assert_array_equal(two[:, :11], one[:, :11])
    np.testing.assert_array_equal(two[:, 11:], one[::-1, 11:])
    assert len(model.weights) == 6


def test_what_passes_through_keeps_its_input():
    """A column that no part changes is still fed by its input."""
    inputs = {
        "image": keras.Input((3,), name="image"),
        "age": keras.Input((1,), name="age"),
    }
    schema = [Column("image", ("embedding",)), Column("age", ("continuous",))]
    made = me.layers.InputBlock(schema, aggregation=None)
    model = keras.Model(inputs, made(inputs))
    given = {"image": np.ones([2, 3], np.float32), "age": np.array([[1.0], [2.0]])}
    found = model(given)
    np.testing.assert_array_equal(found["image"], given["image"])
    np.testing.assert_array_equal(found["age"], given["age"])


def named(schema):
    """A model of these columns, trained for a step, and its inputs."""
    rng = np.random.default_rng(0)
    x = {column.name: rng.integers(10, size=8) for column in schema}
    inputs = me.data.keras_inputs(schema)
    vectors = me.layers.InputBlock(schema, me.features_from_schema(schema, 4))(inputs)
    model = keras.Model(inputs, keras.layers.Dense(1)(vectors))
    model.compile(me.optimizers.Adam(0.1), "mse")
    model.fit(x, np.ones(8), verbose=0)
    return model, x


def test_columns_of_any_name(tmp_path):
    """TensorFlow's variables and scopes have few characters; columns and tables have all."""
    schema = [
        Column("item id", ("categorical",), "int64", domain=Domain("x y", 0, 9)),
        Column("ärtikel: 50%", ("categorical",), "int64", domain=Domain("x_y", 0, 9)),
        Column("日本", ("categorical",), "int64", domain=Domain(None, 0, 9)),
        Column("東京", ("categorical",), "int64", domain=Domain(None, 0, 9)),
        Column("weight", ("continuous",), "float32"),
        Column("values", ("continuous",), "float32"),
    ]
    model, x = named(schema)
    assert len({weight.path for weight in model.weights}) == 6
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(model.predict(x, verbose=0), loaded.predict(x, verbose=0))
    loaded.compile("adam", "mse")
    loaded.fit(x, np.ones(8), verbose=0)


def test_domains_of_any_name_are_exported(tmp_path):
    """Names of columns are those of a signature's arguments, in which TensorFlow has no spaces."""
    model, x = named([Column("item", ("categorical",), "int64", domain=Domain("x y: 日", 0, 9))])
    model.export(tmp_path / "served", verbose=False)
    served = tf.saved_model.load(tmp_path / "served")
    scores = served.serve({name: tf.constant(values) for name, values in x.items()})
    np.testing.assert_allclose(scores, model.predict(x, verbose=0), rtol=1e-6)
