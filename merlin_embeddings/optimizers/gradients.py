"""Gradients as an optimizer gets them: dense tensors, and rows as IndexedSlices."""

import warnings
from collections.abc import Callable, Iterable
from typing import TypeAlias

import tensorflow as tf

from merlin_embeddings import native
from merlin_embeddings.tables import table_of

Gradient: TypeAlias = tf.Tensor | tf.IndexedSlices
Pair: TypeAlias = tuple[Gradient, tf.Variable]


def normalised(gradient: Gradient) -> Gradient:
    """The gradient with arrays made tensors, and half precision made float32 before any sum.

    Tensors in float32 stay the very objects that they are: the native update knows where they come
    from.
    """
    if isinstance(gradient, tf.IndexedSlices):
        parts = (gradient.values, gradient.indices, gradient.dense_shape)
        gradient = tf.IndexedSlices(*(x if x is None else tf.convert_to_tensor(x) for x in parts))
    else:
        gradient = tf.convert_to_tensor(gradient)
    if gradient.dtype in (tf.float16, tf.bfloat16):
        return with_values(gradient, lambda values: tf.cast(values, tf.float32))
    return gradient


def scaled(gradient: Gradient, scale: tf.Tensor) -> Gradient:
    """`gradient * scale`, rows staying rows."""
    return with_values(gradient, lambda values: values * tf.cast(scale, values.dtype))


def with_values(gradient: Gradient, function: Callable[[tf.Tensor], tf.Tensor]) -> Gradient:
    """The gradient whose values are `function(values)`."""
    if isinstance(gradient, tf.IndexedSlices):
        values = function(gradient.values)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return function(gradient)


def coalesced(gradient: Gradient) -> Gradient:
    """The gradient with duplicate rows summed, so that its norm is that of the dense one."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    if gradient.values.shape.rank == 2 and gradient.values.dtype == tf.float32:
        return native.coalesce(gradient)
    rows, position = tf.unique(gradient.indices)
    values = tf.math.unsorted_segment_sum(gradient.values, position, tf.size(rows))
    return tf.IndexedSlices(values, rows, gradient.dense_shape)


def as_rows(gradient: Gradient, variable: tf.Variable) -> Gradient:
    """The gradient of a table as rows: a dense one (tied softmax) has seen them all."""
    if isinstance(gradient, tf.IndexedSlices) or table_of(variable) is None:
        return gradient
    rows = tf.range(variable.shape[0], dtype=tf.int64)
    return tf.IndexedSlices(tf.cast(gradient, tf.float32), rows, tf.shape(gradient))


def rows_of(gradient: Gradient) -> tf.Tensor | None:
    """The rows [N] that a gradient has, duplicates included; None for a dense one."""
    return gradient.indices if isinstance(gradient, tf.IndexedSlices) else None


def is_native(gradient: Gradient, variable: tf.Variable) -> bool:
    """Whether the native update takes it: rows of a table, or of any matrix in float32."""
    if not isinstance(gradient, tf.IndexedSlices) or len(variable.shape) != 2:
        return False
    return table_of(variable) is not None or (
        tf.as_dtype(variable.dtype) == tf.float32 and gradient.values.dtype == tf.float32
    )


def existing(pairs: Iterable) -> list[Pair]:
    """The pairs that have a gradient, normalised; a warning names the variables of the others.

    Args:
        pairs: (gradient or None, variable).

    Raises:
        ValueError: none of them has one.
    """
    pairs = list(pairs)
    found = [
        (normalised(gradient), variable) for gradient, variable in pairs if gradient is not None
    ]
    if not found:
        raise ValueError("No gradients provided for any variable.")
    missing = [variable.name for gradient, variable in pairs if gradient is None]
    if missing:
        warnings.warn(
            f"Gradients do not exist for variables {missing} when minimizing the loss.",
            stacklevel=3,
        )
    return found


def without_overwritten(pairs: list[Pair]) -> list[Pair]:
    """Gives variables that are replaced by their gradient (float8 scales) their new value."""
    rest = []
    for gradient, variable in pairs:
        if getattr(variable, "overwrite_with_gradient", False):
            variable.assign(tf.cast(gradient, variable.dtype))
        else:
            rest.append((gradient, variable))
    return rest
