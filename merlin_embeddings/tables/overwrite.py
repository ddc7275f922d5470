"""New values for a whole variable, in the memory that it has."""

from typing import Any

import tensorflow as tf

from merlin_embeddings import compat, native

_BLOCK = 65536


def overwrite(variable: tf.Variable, values: Any, name: str) -> None:
    """Writes all rows block by block.

    `assign` would bind a new buffer: for a moment two tables in memory, then one off the huge
    pages that the library put it on.

    Args:
        variable: [R, ...], float32, bfloat16 or float16.
        values: [R, ...]: an array, or whatever gives arrays for slices, like a data set in a file.
        name: what errors call the variable.

    Raises:
        ValueError: values of another shape; nothing is written then.
    """
    raw = compat.raw_variable(variable)
    if tuple(values.shape) != tuple(raw.shape):
        raise ValueError(
            f"{name} has shape {list(raw.shape)}, the values for it have {list(values.shape)}"
        )
    for start in range(0, raw.shape[0], _BLOCK):
        stop = min(start + _BLOCK, raw.shape[0])
        block = tf.cast(tf.convert_to_tensor(values[start:stop]), raw.dtype)
        for part in compat.replicas_of(variable):
            native.write_rows(part, tf.range(start, stop, dtype=tf.int64), block)
