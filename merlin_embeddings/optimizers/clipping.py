"""Clipping of gradients, some of which are rows of a table."""

from collections.abc import Sequence

import tensorflow as tf

from merlin_embeddings.optimizers.gradients import Gradient, coalesced, scaled, with_values


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
