"""Vectors beside sequences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from tensorflow import keras


@keras.utils.register_keras_serializable(package="merlin_embeddings")
class BroadcastToSequence(keras.layers.Layer):
    """Gives every position of a sequence the vectors of its row, so that they can be joined.

    Takes a dict of vectors `[B, D]` and of sequences, ragged `[B, None, D]` or dense `[B, L, D]`;
    vectors become sequences of the same lengths. Without a sequence nothing changes. It is for
    `InputBlock(post=)`.

    >>> import tensorflow as tf
    >>> joined = BroadcastToSequence()({
    ...     "age": tf.constant([[7.0], [8.0]]),
    ...     "items": tf.ragged.constant([[[1.0], [2.0]], []], ragged_rank=1, inner_shape=(1,)),
    ... })
    >>> joined["age"].to_list()
    [[[7.0], [7.0]], []]
    """

    @tf.autograph.experimental.do_not_convert  # plain Python: no tensor decides what is done
    def call(self, inputs: Mapping[str, Any], training: bool | None = None) -> dict[str, Any]:
        """The inputs, all of them sequences."""
        del training
        like = _sequence(inputs)
        if like is None:
            return dict(inputs)
        return {name: _spread(tensor, like) for name, tensor in inputs.items()}

    def compute_output_spec(
        self, inputs: Mapping[str, Any], training: bool | None = None
    ) -> dict[str, keras.KerasTensor]:
        """Shapes and dtypes of the outputs for symbolic inputs."""
        del training
        like = _sequence(inputs)
        if like is None:
            return dict(inputs)
        return {name: _spread_spec(tensor, like) for name, tensor in inputs.items()}


def _sequence(inputs: Mapping[str, Any]) -> Any:
    """The first sequence by name."""
    return next((inputs[name] for name in sorted(inputs) if len(inputs[name].shape) == 3), None)


def _spread(tensor: Any, like: Any) -> Any:
    if len(tensor.shape) == 3:
        return tensor
    if isinstance(like, tf.RaggedTensor):
        return like.with_values(tf.gather(tensor, like.value_rowids()))
    return tf.repeat(tensor[:, None], tf.shape(like)[1], axis=1)


def _spread_spec(tensor: Any, like: Any) -> keras.KerasTensor:
    if len(tensor.shape) == 3:
        return tensor
    shape = (tensor.shape[0], like.shape[1], tensor.shape[1])
    return keras.KerasTensor(shape, dtype=tensor.dtype, ragged=bool(like.ragged))
