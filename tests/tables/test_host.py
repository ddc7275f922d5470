"""Tables lie where the ops run, whatever device TensorFlow would choose."""

from tests import fresh

# A second CPU stands for a GPU: a device that variables are placed on by default.
SCRIPT = """
    import json
    import numpy as np
    import tensorflow as tf
    from tensorflow import keras
    import merlin_embeddings as me

    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], two)
    with tf.device("CPU:1"):
        layer = me.layers.Embedding(11, 4, combiner="sum")
        model = keras.Sequential([keras.Input((2,), dtype="int64"), layer])
        optimizer = me.optimizers.Adagrad(0.1)
        model.compile(optimizer, "mse")
        model.fit(np.array([[1, 2], [3, 4]]), np.ones([2, 4]), verbose=0)
        free = tf.Variable(0.0).device
    slot = layer.table.slots["accumulator"].variable
    print(json.dumps([free, layer.embeddings.value.device, slot.value.device]))
"""


def test_tables_and_slots_are_made_on_the_host():
    free, table, slot = fresh.last_line_of(SCRIPT)
    assert free.endswith("CPU:1")
    assert table.endswith("CPU:0")
    assert slot.endswith("CPU:0")
