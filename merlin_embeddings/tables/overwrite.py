"""New values for a whole variable, or for some of its rows, in the memory that it has."""

from typing import Any

import numpy as np
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
    write_some(variable, np.arange(raw.shape[0]), values, name)


def write_some(variable: tf.Variable, rows: np.ndarray, values: Any, name: str) -> None:
    """Writes some rows block by block.

    Args:
        variable: [R, ...], float32, bfloat16 or float16.
        rows: [N] int64 in [0, R).
        values: [N, ...]: an array, or whatever gives arrays for slices.
        name: what errors call the variable.

    Raises:
        ValueError: values of another shape, or a row out of range; nothing is written then.
    """
    check_some(variable, rows, values, name)
    for start in range(0, len(rows), _BLOCK):
        some = slice(start, start + _BLOCK)
        block = values[some]
        for part in compat.replicas_of(variable):
            # An array goes to the op as it is; `convert_to_tensor` would copy it.
            if not isinstance(block, np.ndarray) or block.dtype != part.dtype.as_numpy_dtype:
                block = tf.cast(tf.convert_to_tensor(block), part.dtype)
            native.write_rows(part, tf.constant(rows[some], tf.int64), block, name)


def check_some(variable: tf.Variable, rows: np.ndarray, values: Any, name: str) -> None:
    """Raises ValueError unless `write_some` can write."""
    shape = list(compat.raw_variable(variable).shape)
    if list(values.shape) != [len(rows), *shape[1:]]:
        raise ValueError(
            f"{name} has shape {shape}, so the values for {len(rows)} of its rows have "
            f"{[len(rows), *shape[1:]]}, not {list(values.shape)}"
        )
    if len(rows) and (rows.min() < 0 or rows.max() >= shape[0]):
        bad = rows[(rows < 0) | (rows >= shape[0])]
        raise ValueError(f"{name} has shape {shape}; row {bad[0]} is outside of it")
