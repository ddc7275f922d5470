"""The process that serves: it knows NVTabular, TensorFlow and the op library, and no model code.

python movielens_server.py OP_LIBRARY WORKFLOW SAVED_MODEL RAW.parquet PREDICTIONS.npy
"""

import sys

import numpy as np
import nvtabular as nvt
import pandas as pd
import tensorflow as tf


def main(op_library: str, workflow: str, saved_model: str, raw: str, predictions: str) -> None:
    tf.load_op_library(op_library)
    model = tf.saved_model.load(saved_model)
    rows = nvt.Workflow.load(workflow).transform(pd.read_parquet(raw))
    batch = {name: tensor(column) for name, column in rows.items()}
    np.save(predictions, model.serve(batch).numpy())


def tensor(column: pd.Series) -> tf.Tensor:
    """Ids `[B]`, numbers `[B]`, or lists `[B, L]` of ids, padded with 0."""
    if column.dtype == object:
        return tf.ragged.constant(column, tf.int64).to_tensor()
    return tf.constant(column, tf.float32 if column.dtype.kind == "f" else tf.int64)


if __name__ == "__main__":
    main(*sys.argv[1:])
