"""Gradients that tapes make up for outputs that nothing depends on."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from merlin_embeddings.compat import is_symbolic


def is_absent(gradient: tf.Tensor | tf.IndexedSlices | None) -> bool:
    """Whether nothing depends on an output: tapes hand over None, or zeros that they made.

    Zeros must not go on: decay and moments would move rows that the loss never saw. A gradient
    that was computed and is zero does go on.
    """
    if gradient is None:
        return True
    if isinstance(gradient, tf.IndexedSlices):
        return False
    if not is_symbolic(gradient):
        return _is_made_up(gradient)
    if gradient.op.type == "Fill":
        gradient = gradient.op.inputs[1]
    if gradient.op.type == "Const":
        return not np.any(tf.get_static_value(gradient))
    return gradient.op.type == "ZerosLike"


def _is_made_up(gradient: tf.Tensor) -> bool:
    """Whether an eager tensor is the very one that tapes hand over for want of a gradient.

    They keep one tensor of zeros for each shape, so two calls in a row get the same one.
    """
    return not np.any(gradient) and gradient is _made_up(gradient)


def _made_up(like: tf.Tensor) -> Any:
    """What a tape hands over for an output of that shape and dtype that nothing depends on."""
    handed_over = []

    @tf.custom_gradient
    def two_outputs(x: tf.Tensor) -> Any:
        def gradient(of_used: tf.Tensor, of_unused: tf.Tensor) -> tf.Tensor:
            handed_over.append(of_unused)
            return of_used

        return (tf.identity(x), tf.identity(like)), gradient

    x = tf.constant(0.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        used, _ = two_outputs(x)
    tape.gradient(used, x)
    return handed_over[0]
