"""Clipping of gradients, some of which are rows of a table."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import tensorflow as tf

from merlin_embeddings import native

Gradient: TypeAlias = tf.Tensor | tf.IndexedSlices


def as_tensors(gradient: Gradient) -> Gradient:
    """The gradient with arrays made tensors; what already is one stays the same object."""
    if isinstance(gradient, tf.IndexedSlices):
        parts = (gradient.values, gradient.indices, gradient.dense_shape)
        return tf.IndexedSlices(*(x if x is None else tf.convert_to_tensor(x) for x in parts))
    return tf.convert_to_tensor(gradient)


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


def clip(
    gradients: Sequence[Gradient],
    scale: float,
    clipnorm: float | None,
    clipvalue: float | None,
    global_clipnorm: float | None,
) -> tuple[list[Gradient], tf.Tensor | float]:
    """Clips as Keras does, on summed rows, without making anything of a table's size.

    Args:
        gradients: one for each variable.
        scale: what they all have to be multiplied by first.
        clipnorm: largest norm of each gradient, or None.
        clipvalue: largest magnitude of each element, or None.
        global_clipnorm: largest norm of all gradients together, or None.

    Returns:
        The gradients, and the scale that is still to be applied to all of them. A global norm
        that isn't finite gives a scale of NaN, as in Keras.
    """
    if clipnorm:
        return [
            with_values(scaled(coalesced(g), scale), lambda v: tf.clip_by_norm(v, clipnorm))
            for g in gradients
        ], 1.0
    if clipvalue:
        return [
            with_values(
                scaled(coalesced(g), scale), lambda v: tf.clip_by_value(v, -clipvalue, clipvalue)
            )
            for g in gradients
        ], 1.0
    if global_clipnorm:
        gradients = [coalesced(g) for g in gradients]
        norm = tf.linalg.global_norm([_as_float32(g) for g in gradients]) * scale
        ratio = global_clipnorm / tf.maximum(norm, global_clipnorm)
        return gradients, scale * (ratio + (norm - norm))
    return list(gradients), scale


def _as_float32(gradient: Gradient) -> tf.Tensor:
    values = gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient
    return tf.cast(values, tf.float32)
