"""What a step costs doesn't depend on the table: nothing of its size is made or swept."""

import re
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import merlin_embeddings as me

ROWS, DIM = 10_000_000, 16
MEGABYTE = 1 << 20
OPTIMIZERS = {
    "sgd": lambda **k: me.optimizers.SGD(0.1, **k),
    "momentum": lambda **k: me.optimizers.SGD(0.1, momentum=0.9, **k),
    # A starting value other than 0 fills the slot once, when it is built.
    "adagrad": lambda **k: me.optimizers.Adagrad(0.1, initial_accumulator_value=0.0, **k),
    "rowwise_adagrad": lambda **k: me.optimizers.RowwiseAdagrad(0.1, **k),
    "adam": lambda **k: me.optimizers.Adam(0.1, **k),
    "rowwise_lamb": lambda **k: me.optimizers.RowwiseLamb(0.1, **k),
    "ftrl": lambda **k: me.optimizers.Ftrl(0.1, initial_accumulator_value=0.0, **k),
    "rmsprop": lambda **k: me.optimizers.RMSprop(0.1, momentum=0.9, centered=True, **k),
}
OPTIONS = {
    "plain": {},
    "clipnorm": {"clipnorm": 0.1, "weight_decay": 0.1, "l2": 0.1, "max_norm": 10.0},
    "clipvalue": {"clipvalue": 0.1, "loss_scale_factor": 8.0},
    "global_clipnorm": {"global_clipnorm": 0.1},
    "use_ema": {"use_ema": True},
}


def resident(field):
    """A memory figure of this process in bytes: VmRSS is now, VmHWM the most since a reset."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(rf"{field}:\s+(\d+) kB", status)[1]) * 1024


def reset_peak():
    Path("/proc/self/clear_refs").write_text("5")


def step_of(layer, optimizer, **options):
    @tf.function(autograph=False)
    def step(ids):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(ids))
            if hasattr(optimizer, "scale_loss"):  # Keras 2's own have none
                loss = optimizer.scale_loss(loss)
        variables = layer.trainable_variables
        gradients = tape.gradient(loss, variables)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))

    return step


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("options", OPTIONS)
def test_ten_million_rows_stay_untouched(name, options):
    constraint = keras.constraints.NonNeg() if options == "clipnorm" else None
    layer = me.layers.Embedding(
        ROWS, DIM, "zeros", combiner="sum", embeddings_constraint=constraint
    )
    layer.build()
    optimizer = OPTIMIZERS[name](**OPTIONS[options])
    optimizer.build(layer.trainable_variables)
    step = step_of(layer, optimizer)
    # Some rows at both ends: huge pages make 2 MiB resident for the first row seen in them.
    ids = tf.constant(np.r_[0:1000, ROWS - 1000 : ROWS].reshape(-1, 4))
    graph = step.get_concrete_function(ids).graph
    reset_peak()
    before = resident("VmRSS")
    for _ in range(3):
        step(ids)
    grown = resident("VmHWM") - before
    # The table alone is 640 MB; two ends of four arrays are 8 huge pages.
    assert grown < 64 * MEGABYTE
    assert not [
        (op.name, output.shape)
        for op in graph.get_operations()
        for output in op.outputs
        if output.shape.rank and output.shape[0] == ROWS
    ]
    value = next(layer.table.entries(keys=[0, ROWS // 2, ROWS - 1])).vectors
    expected_sign = 0 if constraint else -1
    np.testing.assert_array_equal(np.sign(value[:, 0]), [expected_sign, 0, expected_sign])


def test_a_sweep_would_be_seen():
    """The measure itself: Keras' SGD with weight decay goes over all rows."""
    layer = me.layers.Embedding(ROWS, DIM, "zeros", combiner="sum")
    layer.build()
    optimizer = keras.optimizers.SGD(0.1, weight_decay=0.1)
    optimizer.build(layer.trainable_variables)
    step = step_of(layer, optimizer)
    ids = tf.zeros([1, 4], tf.int64)
    step.get_concrete_function(ids)
    reset_peak()
    before = resident("VmRSS")
    step(ids)
    assert resident("VmHWM") - before > 500 * MEGABYTE
