"""`Embedding` through its life in Keras: config, files, export, precision, freezing, XLA."""

import json
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import merlin_embeddings as me
from merlin_embeddings import native
from merlin_embeddings.native import library

ROWS = 11
IDS = np.array([[1, 2], [3, 3], [0, 10]])


def model_of(layer, **kwargs):
    ids = keras.Input((2,), dtype="int64")
    x = layer(ids)
    if len(x.shape) == 3:
        x = keras.layers.Flatten()(x)
    return keras.Model(ids, keras.layers.Dense(1)(x), **kwargs)


CONFIGS = [
    {},
    {"combiner": "mean", "padding_id": 3, "seed": 5},
    {"combiner": "max", "ids": me.ids.Identity("zero"), "table_dtype": "bfloat16"},
    {"ids": me.ids.Modulo(7), "embeddings_initializer": me.initializers.Normal(stddev=0.5)},
    {"embeddings_initializer": keras.initializers.Constant(2.0), "mask_zero": False},
    {"embeddings_regularizer": "l2", "embeddings_constraint": keras.constraints.MaxNorm(2.0)},
    {"trainable": False, "dtype": "mixed_bfloat16", "table_dtype": "float16"},
]
# Without addresses, so that all processes find the same tests.
NAMES = ["-".join(kwargs) or "plain" for kwargs in CONFIGS]


@pytest.mark.parametrize("kwargs", CONFIGS, ids=NAMES)
def test_config_round_trip(kwargs):
    layer = me.layers.Embedding(ROWS, 3, **kwargs)
    config = layer.get_config()
    again = me.layers.Embedding.from_config(json.loads(json.dumps(config)))
    assert again.get_config() == config
    for key in ("combiner", "padding_id", "seed", "ids", "table_dtype", "trainable"):
        assert getattr(again, key) == getattr(layer, key)


@pytest.mark.parametrize("kwargs", CONFIGS, ids=NAMES)
def test_keras_file(tmp_path, kwargs):
    model = model_of(me.layers.Embedding(ROWS, 3, **kwargs))
    path = tmp_path / "model.keras"
    model.save(path)
    again = keras.models.load_model(path)
    np.testing.assert_array_equal(again(IDS), model(IDS))
    assert isinstance(again.layers[1], me.layers.Embedding)


def test_keras_file_after_training_continues(tmp_path, table):
    def new():
        model = model_of(me.layers.Embedding(ROWS, 3, weights=table, combiner="sum"))
        model.layers[-1].set_weights([np.ones((3, 1)), np.zeros(1)])
        model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse")
        return model

    def train(model):
        model.fit(IDS, np.ones((3, 1)), batch_size=3, epochs=2, shuffle=False, verbose=0)

    straight, stopped = new(), new()
    train(straight)
    train(straight)
    train(stopped)
    stopped.save(tmp_path / "model.keras")
    resumed = keras.models.load_model(tmp_path / "model.keras")
    train(resumed)
    for a, b in zip(straight.get_weights(), resumed.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("table_dtype", ["float32", "bfloat16", "float16"])
def test_weights_file(tmp_path, table, table_dtype):
    path = str(tmp_path / "model.weights.h5")
    model = model_of(me.layers.Embedding(ROWS, 3, weights=table, table_dtype=table_dtype))
    model.save_weights(path)
    other = model_of(me.layers.Embedding(ROWS, 3, table_dtype=table_dtype))
    other.load_weights(path)
    np.testing.assert_array_equal(other(IDS), model(IDS))


def test_loading_writes_into_the_tables_memory(tmp_path, table):
    path = str(tmp_path / "model.weights.h5")
    model = model_of(me.layers.Embedding(ROWS, 3, weights=table))
    model.save_weights(path)
    layer = model.layers[1]
    raw = layer.embeddings.value
    before = native.buffer_serial(raw).numpy()
    model.load_weights(path)
    assert native.buffer_serial(raw).numpy() == before


def test_loading_another_shape(tmp_path):
    path = str(tmp_path / "model.weights.h5")
    model_of(me.layers.Embedding(ROWS, 3)).save_weights(path)
    with pytest.raises(ValueError, match=r"\[12, 3\].*\[11, 3\]"):
        model_of(me.layers.Embedding(12, 3)).load_weights(path)


@pytest.mark.parametrize("kwargs", [{}, {"combiner": "mean", "padding_id": 3}])
def test_export_serves_in_a_process_with_the_op_library_only(tmp_path, table, kwargs):
    model = model_of(me.layers.Embedding(ROWS, 3, weights=table, **kwargs))
    model.export(str(tmp_path / "export"), verbose=False)
    script = f"""
        import sys
        import tensorflow as tf
        tf.load_op_library({str(library.PATH)!r})
        served = tf.saved_model.load({str(tmp_path / "export")!r})
        print(served.serve(tf.constant({IDS.tolist()}, tf.int64)).numpy().tolist())
        assert "merlin_embeddings" not in sys.modules
    """
    done = subprocess.run(
        [sys.executable, "-I", "-c", textwrap.dedent(script)],
        check=True,
        capture_output=True,
        text=True,
    )
    np.testing.assert_allclose(json.loads(done.stdout), model(IDS), rtol=1e-6)


def test_saved_model_of_a_subclassed_layer(tmp_path, table):
    class Tower(tf.Module):
        def __init__(self):
            super().__init__()
            self.layer = me.layers.Embedding(ROWS, 3, weights=table, combiner="sum")
            self.variables_ = self.layer.variables

        @tf.function(input_signature=[tf.RaggedTensorSpec([None, None], tf.int64)])
        def serve(self, ids):
            return self.layer(ids)

    tower = Tower()
    tf.saved_model.save(tower, str(tmp_path))
    ids = tf.ragged.constant([[1, 2], [], [3]], tf.int64)
    served = tf.saved_model.load(str(tmp_path))
    np.testing.assert_array_equal(served.serve(ids), tower.serve(ids))


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16", "bfloat16", "float16"])
@pytest.mark.parametrize("combiner", [None, "mean"])
def test_half_precision_policies(table, policy, combiner):
    compute = policy.removeprefix("mixed_")
    layer = me.layers.Embedding(ROWS, 3, weights=table, combiner=combiner, dtype=policy)
    rows = "float32" if policy.startswith("mixed") else compute
    assert layer.embeddings.dtype == rows
    got = layer(IDS)
    assert got.dtype == compute
    values = tf.cast(tf.cast(table, rows), tf.float64).numpy()
    exact = values[IDS] if combiner is None else values[IDS].mean(axis=1)
    np.testing.assert_array_equal(got, tf.cast(tf.cast(exact, tf.float32), compute))


def test_big_ids_survive_half_precision_policies():
    layer = me.layers.Embedding(5000, 1, dtype="mixed_float16", table_dtype="float32", seed=0)
    ids = np.array([2049, 4097, 4999])  # float16 has no 2049
    values = np.asarray(layer(ids))
    np.testing.assert_array_equal(values, layer.get_weights()[0][ids].astype(np.float16))


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_training_in_mixed_precision(table, policy):
    layer = me.layers.Embedding(ROWS, 3, weights=table, combiner="sum", dtype=policy)
    model = model_of(layer)
    model.compile(keras.optimizers.SGD(0.1), "mse")
    history = model.fit(IDS, np.ones((3, 1)), epochs=20, verbose=0)
    assert history.history["loss"][-1] < history.history["loss"][0] / 2
    moved = np.any(layer.get_weights()[0] != table, axis=1)
    assert set(np.flatnonzero(moved)) <= set(IDS.ravel())
    assert moved.any()


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_frozen_and_thawed(table, run_eagerly):
    layer = me.layers.Embedding(ROWS, 3, weights=table, combiner="sum", trainable=False)
    model = model_of(layer)

    def train():
        model.compile(keras.optimizers.SGD(0.1), "mse", run_eagerly=run_eagerly)
        model.fit(IDS, np.ones((3, 1)), verbose=0)
        return layer.get_weights()[0]

    assert not layer.trainable_variables
    frozen = train()
    np.testing.assert_array_equal(frozen, table)
    layer.trainable = True
    thawed = train()
    assert not np.array_equal(thawed, table)
    layer.trainable = False
    np.testing.assert_array_equal(train(), thawed)


def test_jit_compile_is_turned_off_with_one_warning(recwarn, table):
    model = model_of(me.layers.Embedding(ROWS, 3, weights=table))
    model.compile("sgd", "mse", jit_compile=True)
    model.fit(IDS, np.ones((3, 1)), epochs=2, verbose=0)
    assert not model.jit_compile
    about = [str(w.message) for w in recwarn if "jit_compile" in str(w.message)]
    assert len(about) == 1


def test_model_copies_and_summaries(table):
    model = model_of(me.layers.Embedding(ROWS, 3, weights=table, combiner="sum"))
    copy = keras.models.clone_model(model)
    copy.set_weights(model.get_weights())
    np.testing.assert_array_equal(copy(IDS), model(IDS))
    assert model.layers[1].count_params() == ROWS * 3
    [weight] = model.layers[1].weights
    assert weight.name == "embeddings"
    assert weight.path.endswith("embeddings")


def test_one_layer_called_twice_shares_its_table(table):
    layer = me.layers.Embedding(ROWS, 3, weights=table, combiner="sum")
    a, b = keras.Input((2,), dtype="int64"), keras.Input((2,), dtype="int64")
    model = keras.Model([a, b], layer(a) - layer(b))
    np.testing.assert_allclose(
        model([IDS, IDS[::-1]])[0], table[[1, 2]].sum(0) - table[[0, 10]].sum(0), rtol=1e-5
    )
    assert len(model.weights) == 1


def test_symbolic_weights_and_ragged_ids(pool, table):
    ids, weights = (
        keras.Input((None,), dtype="int64", ragged=True),
        keras.Input((None,), ragged=True),
    )
    layer = me.layers.Embedding(ROWS, 3, weights=table, combiner="mean")
    model = keras.Model([ids, weights], layer(ids, weights=weights))
    got = model([tf.ragged.constant([[1, 2], []]), tf.ragged.constant([[1.0, 3.0], []])])
    np.testing.assert_allclose(got, pool(table, [[1, 2], []], "mean", [[1, 3], []]), rtol=1e-6)


def test_predict_and_fit_on_a_dataset_of_ragged_ids(table):
    ids = tf.ragged.constant([[1, 2], [], [3], [4, 4, 5]], tf.int64)
    data = tf.data.Dataset.from_tensor_slices((ids, tf.ones([4, 1]))).batch(2)
    model = keras.Sequential(
        [me.layers.Embedding(ROWS, 3, weights=table, combiner="mean"), keras.layers.Dense(1)]
    )
    model.compile("sgd", "mse")
    model.fit(data, verbose=0)
    assert model.predict(data, verbose=0).shape == (4, 1)


@pytest.mark.parametrize("compiled", [False, True])
def test_tensorflow_checkpoints_hold_the_table(tmp_path, compiled):
    def make():
        model = keras.Sequential(
            [keras.Input((3,), dtype="int64"), me.layers.Embedding(10, 4, combiner="sum")]
        )
        if compiled:
            model.compile(optimizer=me.optimizers.Adam(0.1), loss="mse")
            model.fit(ids, np.ones([1, 4]), verbose=0)
        return model

    ids = np.array([[1, 2, 3]])
    first = make()
    path = tf.train.Checkpoint(model=first).save(str(tmp_path / "checkpoint"))
    second = make()
    tf.train.Checkpoint(model=second).restore(path).assert_existing_objects_matched()
    np.testing.assert_array_equal(second(ids), first(ids))
