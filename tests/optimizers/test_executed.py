"""The native ops that a step of `fit` really executes, counted by TensorFlow's profiler."""

import collections

import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.tsl.profiler.protobuf import xplane_pb2

import merlin_embeddings as me

TABLES, STEPS = 3, 4


def executed(run, folder):
    """How often each native op ran while `run` did."""
    tf.profiler.experimental.start(str(folder))
    run()
    tf.profiler.experimental.stop()
    [path] = folder.rglob("*.xplane.pb")
    space = xplane_pb2.XSpace.FromString(path.read_bytes())
    counts = collections.Counter()
    for plane in space.planes:
        for line in plane.lines:
            for event in line.events:
                name = plane.event_metadata[event.metadata_id].name
                if "Merlin>" in name:
                    counts["Merlin>" + name.split("Merlin>")[1].split("#")[0].split(":")[0]] += 1
    return counts


def model_of(optimizer):
    features = {
        f"f{i}": me.FeatureConfig(f"f{i}", me.TableConfig(f"t{i}", 50, 8), combiner="sum")
        for i in range(TABLES)
    }
    inputs = {name: keras.Input((3,), dtype="int64", name=name) for name in features}
    vectors = list(me.layers.Embeddings(features)(inputs).values())
    model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Concatenate()(vectors)))
    model.compile(optimizer, "mse")
    rng = np.random.default_rng(0)
    x = {name: rng.integers(0, 50, (STEPS * 8, 3)) for name in features}
    y = rng.normal(size=(STEPS * 8, 1))
    return lambda: model.fit(x, y, batch_size=8, verbose=0, shuffle=False)


def test_a_plain_step_runs_one_of_each_and_no_values(tmp_path):
    fit = model_of(me.optimizers.Adagrad(0.1))
    fit()  # traces
    assert executed(fit, tmp_path) == {
        "Merlin>Lookup": STEPS,
        "Merlin>Group": STEPS,
        "Merlin>Update": STEPS,
    }


def test_a_stock_optimizer_runs_the_values(tmp_path):
    fit = model_of(keras.optimizers.SGD(0.1))
    fit()
    counts = executed(fit, tmp_path)
    assert counts["Merlin>Values"] == STEPS
    assert "Merlin>Update" not in counts


def test_an_input_block_costs_no_native_op_more(tmp_path):
    columns = [
        me.data.Column(
            f"f{i}", ("categorical",), "int64", i == 2, domain=me.data.Domain(f"t{i % 2}", 0, 49)
        )
        for i in range(TABLES)
    ]
    schema = [*columns, me.data.Column("age", ("continuous",))]
    inputs = me.data.keras_inputs(schema)
    block = me.layers.InputBlock(
        schema, continuous=keras.layers.Dense(8), l2_batch_regularization_factor=0.1
    )
    model = keras.Model(inputs, keras.layers.Dense(1)(block(inputs)))
    model.compile(me.optimizers.Adagrad(0.1), "mse")
    rng = np.random.default_rng(0)
    rows = STEPS * 8
    x = {column.name: rng.integers(0, 50, rows) for column in columns}
    x["f2"] = tf.RaggedTensor.from_row_lengths(rng.integers(0, 50, 3 * rows), [3] * rows)
    x["age"] = rng.normal(size=rows)
    data = tf.data.Dataset.from_tensor_slices((x, rng.normal(size=(rows, 1)))).batch(8)
    model.fit(data, verbose=0)
    assert executed(lambda: model.fit(data, verbose=0), tmp_path) == {
        "Merlin>Lookup": STEPS,
        "Merlin>Group": STEPS,
        "Merlin>Update": STEPS,
    }
