"""Batches for all competitors, from the Parquet files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import tensorflow as tf
from criteo_data import CATEGORICAL, LABEL, NUMERIC


def batches(folder: Path, schema, size: int) -> tf.data.Dataset:
    """(features, labels [B]) in the order of the files; scalars [B], lists ragged [B, None]."""
    lists = {name for name in CATEGORICAL if schema[name].is_list}

    def generate():
        for path in sorted(Path(folder).glob("*.parquet")):
            for batch in pq.ParquetFile(path).iter_batches(size):
                yield (
                    {name: _column(batch[name]) for name in NUMERIC + CATEGORICAL},
                    batch[LABEL].to_numpy(),
                )

    def signature(name):
        dtype = tf.float32 if name in NUMERIC else tf.int64
        if name in lists:
            return tf.RaggedTensorSpec([None, None], dtype, row_splits_dtype=tf.int32)
        return tf.TensorSpec([None], dtype)

    features = {name: signature(name) for name in NUMERIC + CATEGORICAL}
    spec = (features, tf.TensorSpec([None], tf.int32))
    return tf.data.Dataset.from_generator(generate, output_signature=spec).prefetch(2)


def _column(array):
    if hasattr(array, "offsets"):
        array = array.flatten() if False else array
        offsets = array.offsets.to_numpy()
        values = array.values.to_numpy()[offsets[0] : offsets[-1]]
        return tf.RaggedTensor.from_row_splits(values, (offsets - offsets[0]).astype(np.int32))
    return array.to_numpy()
