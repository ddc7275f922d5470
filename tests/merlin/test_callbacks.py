"""TableSummaries on Keras 2."""

import numpy as np
import tensorflow as tf

import merlin_embeddings as me


def test_summaries(tmp_path):
    layer = me.layers.Embedding(9, 4, combiner="sum", name="item")
    model = tf.keras.Sequential([tf.keras.Input((2,), dtype="int64"), layer])
    model.compile(tf.keras.optimizers.SGD(0.1), "mse")
    summaries = me.callbacks.TableSummaries(tmp_path)
    ids = np.array([[1, 2], [2, 3]])
    model.fit(ids, np.ones((2, 4)), verbose=0, callbacks=[summaries])
    assert summaries.latest["item/embeddings/rows_seen/number"] == 3
    norms = np.linalg.norm(layer.get_weights()[0], axis=1)
    assert np.isclose(summaries.latest["item/embeddings/row_norm/mean"], norms.mean())
    assert list((tmp_path / "tables").iterdir())
