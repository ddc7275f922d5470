"""A layer under MirroredStrategy with two replicas learns what it learns without one."""

import numpy as np

from tests import fresh

SCRIPT = """
    import json
    import numpy as np
    import tensorflow as tf
    from tensorflow import keras
    import merlin_embeddings as me

    # Must come before anything else runs, hence a process of its own.
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], two)
    table = np.linspace(-1, 1, 33, dtype=np.float32).reshape(11, 3)
    ids = np.array([[0, 1], [2, 3], [4, 5], [6, 7]])

    def trained():
        symbol = keras.Input((2,), dtype="int64")
        layer = me.layers.Embedding(11, 3, weights=table, combiner="sum")
        dense = keras.layers.Dense(1, kernel_initializer="ones")
        model = keras.Model(symbol, dense(layer(symbol)))
        model.compile(keras.optimizers.SGD(0.1), "mse")
        model.fit(ids, np.ones((4, 1)), batch_size=4, epochs=2, verbose=0)
        return layer.get_weights()[0].tolist()

    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        mirrored = trained()
    print(json.dumps([table.tolist(), trained(), mirrored]))
"""


def test_two_replicas_train_as_one():
    before, alone, mirrored = fresh.last_line_of(SCRIPT)
    np.testing.assert_allclose(mirrored, alone, rtol=1e-6)
    assert not np.allclose(before[:8], alone[:8])
