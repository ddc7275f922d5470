"""The memory of a variable as an array."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from merlin_embeddings import compat


def view(variable: Any) -> np.ndarray:
    """What a variable holds now, without a copy.

    The array shares the variable's buffer: as long as it lives, the first write to the variable
    makes a copy of all of it (the array keeps what it shows). So let it go before training goes on.

    Args:
        variable: of a floating type, `[R, ...]`; of a mirrored one, the first part is shown.

    Returns:
        `[R, ...]`, read-only.

    >>> view(tf.Variable([[1.0, 2.0]])).tolist()
    [[1.0, 2.0]]
    """
    value = compat.raw_variable(variable).read_value()
    dtype = value.dtype.as_numpy_dtype
    if value.dtype == tf.bfloat16:  # which buffers have no letter for
        value = tf.bitcast(value, tf.uint16)
    return np.asarray(memoryview(value)).view(dtype)
