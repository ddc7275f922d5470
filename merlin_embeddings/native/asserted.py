"""A value that is used only once a condition is known to hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf


def asserted(value: tf.Tensor, fine: Any, data: Sequence[Any]) -> tf.Tensor:
    """The value; whoever uses it waits for the check.

    Args:
        value: any tensor.
        fine: scalar bool.
        data: the message, and tensors to print behind it.

    Raises:
        tf.errors.InvalidArgumentError: `fine` is False.
    """
    check = tf.debugging.Assert(fine, data)
    with tf.control_dependencies([] if check is None else [check]):  # eager: checked already
        return tf.identity(value)
