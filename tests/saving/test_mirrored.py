"""Checkpoints of models whose variables are mirrored."""

from tests import fresh

SCRIPT = """
    import json
    import tempfile
    import numpy as np
    import tensorflow as tf
    from tensorflow import keras
    import merlin_embeddings as me

    # Must come before anything else runs, hence a process of its own.
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], two)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    folder = tempfile.mkdtemp()
    ids, y = np.arange(32).reshape(16, 2) % 20, np.ones((16, 1))

    def model_of():
        item = me.layers.Embedding(20, 4, combiner="sum", name="item")
        model = keras.Sequential([keras.Input((2,), dtype="int64"), item, keras.layers.Dense(1)])
        model.compile(me.optimizers.Adam(0.125), "mse")
        return model

    def train(model, *callbacks):
        model.fit(ids, y, batch_size=8, shuffle=False, verbose=0, callbacks=list(callbacks))

    with strategy.scope():
        first, second = model_of(), model_of()
    checkpoints = me.callbacks.Checkpoint(folder, every=1, full_every=2)
    train(first, checkpoints)
    checkpoints.restore(second)
    alone = model_of()
    steps = [checkpoints.restore(alone).step, checkpoints.folder.steps()]
    before = [np.array_equal(a, b) for a, b in zip(first.get_weights(), alone.get_weights())]
    train(first)
    train(second)
    weights = [model.weights[0] for model in (first, second)]
    tables = [
        [part.numpy() for part in strategy.experimental_local_results(one)]
        for one in (one if callable(one.value) else one.value for one in weights)
    ]
    after = [np.array_equal(tables[0][0], part) for of_one in tables for part in of_one]
    print(json.dumps({"steps": steps, "before": before, "after": after}))
"""


def test_goes_on_to_the_bit():
    """In another model with replicas, which was never trained; and as it was, in one without."""
    found = fresh.last_line_of(SCRIPT)
    assert found["steps"] == [2, [1, 2]]
    assert all(found["before"]) and all(found["after"])
