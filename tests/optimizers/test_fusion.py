"""What is left to run in `fit`: one update for all tables, and no gradient values beside it."""

import collections

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import merlin_embeddings as me

ROWS, DIM, BATCH = 30, 4, 16
SHAPES = {"item": (ROWS, DIM), "user": (ROWS, 2 * DIM)}
ONE_EACH = [("item", "sum"), ("user", "mean")]


@pytest.fixture
def model_of(lookups):
    def make(wanted, optimizer, **compile_options):
        inputs = [keras.Input((2,), dtype="int64", name=f"f{i}") for i in range(len(wanted))]
        layer = lookups(SHAPES, wanted)
        head = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
        model = keras.Model(inputs, head(keras.layers.Concatenate()(layer(inputs))))
        model.compile(optimizer, "mse", **compile_options)
        return model, layer

    return make


def data(features):
    rng = np.random.default_rng(0)
    ids = [rng.integers(0, ROWS, (2 * BATCH, 2)) for _ in range(features)]
    return ids, rng.normal(size=(2 * BATCH, 1))


def ops_that_ran(model, folder):
    """The op types of the graphs that `fit` executed, as TensorFlow recorded them after pruning."""
    x, y = data(len(model.inputs))
    # TensorFlow goes on recording after a trace; what ran since the last one isn't asked for.
    with tf.summary.create_file_writer(f"{folder}_before").as_default():
        tf.summary.trace_on(graph=True, profiler=False)
        tf.summary.trace_export("before", step=0)
    writer = tf.summary.create_file_writer(str(folder))
    with writer.as_default():
        tf.summary.trace_on(graph=True, profiler=False)
        model.fit(x, y, batch_size=BATCH, verbose=0, shuffle=False)
        tf.summary.trace_export("fit", step=0)
    writer.close()
    counts = collections.Counter()
    for path in folder.iterdir():
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                record = tf.compat.v1.RunMetadata.FromString(value.tensor.string_val[0])
                for graph in record.function_graphs:
                    counts.update(node.op for node in graph.post_optimization_graph.node)
    return counts


def numpy_sgd(layer, wanted, x, y, learning_rate, change=lambda gradients: gradients):
    """The tables after one epoch of SGD; `change` maps the gradients of a step to others."""
    tables = {n: t.variable.numpy().astype(np.float64) for n, t in layer.by_name.items()}
    width = sum(SHAPES[name][1] for name, _ in wanted)
    kernel = np.ones((width, 1))
    for start in range(0, len(y), BATCH):
        rows = [ids[start : start + BATCH] for ids in x]
        pooled = [
            tables[name][r].sum(1) if combiner == "sum" else tables[name][r].mean(1)
            for (name, combiner), r in zip(wanted, rows, strict=True)
        ]
        features = np.concatenate(pooled, 1)
        slope = 2 * (features @ kernel - y[start : start + BATCH]) / BATCH
        back = slope @ kernel.T
        gradients = {name: np.zeros_like(table) for name, table in tables.items()}
        gradients["kernel"] = features.T @ slope
        at = 0
        for (name, combiner), r in zip(wanted, rows, strict=True):
            dim = SHAPES[name][1]
            share = 1.0 if combiner == "sum" else 0.5
            for place in range(2):
                np.add.at(gradients[name], r[:, place], share * back[:, at : at + dim])
            at += dim
        gradients = change(gradients)
        kernel -= learning_rate * gradients["kernel"]
        for name in tables:
            tables[name] -= learning_rate * gradients[name]
    return tables


def assert_tables(layer, expected):
    for name, table in layer.by_name.items():
        np.testing.assert_allclose(
            table.variable.numpy(), expected[name], rtol=1e-4, atol=1e-6, err_msg=name
        )


def shared(wanted):
    return pytest.param(wanted, id="+".join(name for name, _ in wanted))


@pytest.mark.parametrize(
    "wanted", [shared(ONE_EACH), shared([("item", "sum"), ("item", "mean"), ("user", "sum")])]
)
@pytest.mark.parametrize("options", [{}, {"loss_scale_factor": 128.0}])
def test_fit_runs_one_update_and_no_values(model_of, tmp_path, wanted, options):
    model, layer = model_of(wanted, me.optimizers.SGD(0.05, **options))
    expected = numpy_sgd(layer, wanted, *data(len(wanted)), 0.05)
    ran = ops_that_ran(model, tmp_path)
    assert ran["Merlin>Update"] == 1
    assert ran["Merlin>Values"] == 0
    assert_tables(layer, expected)


def test_two_calls_on_one_table_stay_fused(lookups, tmp_path):
    """The gradients of two layer calls arrive concatenated."""
    layer = lookups({"item": (ROWS, DIM)}, [("item", "sum")])
    inputs = [keras.Input((2,), dtype="int64") for _ in range(2)]
    pooled = [layer([one])[0] for one in inputs]
    model = keras.Model(inputs, keras.layers.Dot(axes=1)(pooled))
    model.compile(me.optimizers.Adagrad(0.05), "mse")
    table = layer.by_name["item"].variable.numpy().astype(np.float64)
    accumulator = np.full_like(table, 0.1)
    x, y = data(2)
    for start in range(0, len(y), BATCH):
        a, b = (ids[start : start + BATCH] for ids in x)
        left, right = table[a].sum(1), table[b].sum(1)
        slope = 2 * ((left * right).sum(1, keepdims=True) - y[start : start + BATCH]) / BATCH
        gradient = np.zeros_like(table)
        for place in range(2):
            np.add.at(gradient, a[:, place], slope * right)
            np.add.at(gradient, b[:, place], slope * left)
        accumulator += gradient**2
        table -= 0.05 * gradient / np.sqrt(accumulator + 1e-7)
    ran = ops_that_ran(model, tmp_path)
    assert ran["Merlin>Update"] == 1
    assert ran["Merlin>Values"] == 0
    np.testing.assert_allclose(layer.by_name["item"].variable.numpy(), table, rtol=1e-4, atol=1e-6)


def test_a_frozen_table_costs_no_gradient(lookups, tmp_path):
    layer = lookups({"item": (ROWS, DIM)}, [("item", "sum")], trainable=False)
    before = layer.by_name["item"].variable.numpy()
    inputs = [keras.Input((2,), dtype="int64")]
    model = keras.Model(inputs, keras.layers.Dense(1)(layer(inputs)[0]))
    model.compile(me.optimizers.SGD(0.05), "mse")
    ran = ops_that_ran(model, tmp_path)
    assert ran["Merlin>Lookup"] == 1
    assert ran["Merlin>Update"] == ran["Merlin>Values"] == ran["Merlin>Group"] == 0
    np.testing.assert_array_equal(layer.by_name["item"].variable.numpy(), before)


def test_run_eagerly_gives_the_same(model_of):
    model, layer = model_of(ONE_EACH, me.optimizers.SGD(0.05), run_eagerly=True)
    x, y = data(2)
    expected = numpy_sgd(layer, ONE_EACH, x, y, 0.05)
    model.fit(x, y, batch_size=BATCH, verbose=0, shuffle=False)
    assert_tables(layer, expected)


def test_steps_per_execution(model_of):
    model, layer = model_of(ONE_EACH, me.optimizers.SGD(0.05), steps_per_execution=2)
    x, y = data(2)
    expected = numpy_sgd(layer, ONE_EACH, x, y, 0.05)
    model.fit(x, y, batch_size=BATCH, verbose=0, shuffle=False)
    assert_tables(layer, expected)


def test_features_outside_the_loss_stand_still(lookups):
    layer = lookups(SHAPES, ONE_EACH)
    inputs = [keras.Input((2,), dtype="int64") for _ in ONE_EACH]
    used, _ = layer(inputs)
    model = keras.Model(inputs, keras.layers.Dense(1)(used))
    model.compile(me.optimizers.Adam(0.1, weight_decay=0.5), "mse")
    before = layer.by_name["user"].variable.numpy()
    x, y = data(2)
    model.fit(x, y, batch_size=BATCH, verbose=0)
    np.testing.assert_array_equal(layer.by_name["user"].variable.numpy(), before)
