"""Losses that layers add."""

from __future__ import annotations

import tensorflow as tf
from tensorflow import keras

from merlin_embeddings import compat


class LossLayer(keras.layers.Layer):
    """A layer that adds losses in `call`; none is left of a graph that is done."""

    def _get_own_losses(self) -> list[tf.Tensor]:
        # What a call in a graph has added stands for nothing once the graph is done.
        losses = super()._get_own_losses()
        if not tf.executing_eagerly():
            return losses
        return [loss for loss in losses if not compat.is_symbolic(loss)]
