"""LARS: momentum whose learning rate follows the length of each row."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow import keras

from merlin_embeddings.optimizers.base import SparseOptimizer
from merlin_embeddings.optimizers.slots import Rows, SlotSpec, Step


@keras.utils.register_keras_serializable(package="merlin_embeddings")
class Lars(SparseOptimizer):
    """LARS (You, Gitman and Ginsburg, 2017) with a trust ratio for each row of a table.

        ratio = trust_coefficient * norm(w) / (norm(g) + weight_decay * norm(w))
        v = momentum * v + learning_rate * ratio * (g + weight_decay * w)
        w -= v

    g is the sum over all lookups of a row in the batch. The norms are a row's for tables, as in
    FBGEMM's LARS-SGD, and the whole variable's for everything else. Where one of them is 0 the
    ratio is 1 (in FBGEMM a row of zeros stays one). Keras has no LARS.

    Lazy: the velocity of a row that isn't seen neither decays nor moves the row. The first step of
    a fresh row is `learning_rate * trust_coefficient` of its length, whatever the gradient's size.

    Args:
        learning_rate: as in `SparseOptimizer`.
        momentum: in [0, 1].
        trust_coefficient: how far to trust a row's length, > 0; eta in the paper and in FBGEMM.
        **kwargs: of `SparseOptimizer`.

    Raises:
        ValueError: momentum or trust_coefficient out of range.

    Example:
        >>> import tensorflow as tf
        >>> import merlin_embeddings as me
        >>> table = tf.keras.Variable([[1.0, 0.0], [3.0, 4.0]])
        >>> rows = tf.IndexedSlices([[6.0, 8.0]], [1], [2, 2])
        >>> me.optimizers.Lars(1.0, trust_coefficient=0.1).apply([rows], [table])
        >>> print(table.numpy()[1].round(4))        # 0.1 * 5 along [0.6, 0.8]
        [2.7 3.6]
    """

    rule = "lars"
    trust_ratio = True

    def __init__(
        self,
        learning_rate: Any = 0.01,
        momentum: float = 0.9,
        trust_coefficient: float = 0.001,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate, **kwargs)
        if not 0 <= momentum <= 1:
            raise ValueError(f"Lars: momentum must be in [0, 1], got {momentum}")
        if not trust_coefficient > 0:
            raise ValueError(f"Lars: trust_coefficient must be positive, got {trust_coefficient}")
        self.momentum = float(momentum)
        self.trust_coefficient = float(trust_coefficient)

    def slot_specs(self) -> Sequence[SlotSpec]:
        return (SlotSpec("velocity"),)

    def hyper(self, learning_rate: tf.Tensor) -> Sequence[tf.Tensor | float]:
        return (self.momentum, self.trust_coefficient)

    def step(self, rows: Rows) -> Step:
        decay = tf.cast(rows.weight_decay, rows.gradient.dtype)
        lengths, slope = rows.norm(rows.weights), rows.norm(rows.gradient)
        ratio = tf.where(
            (lengths > 0) & (slope > 0),
            self.trust_coefficient * tf.math.divide_no_nan(lengths, slope + decay * lengths),
            1,
        )
        change = rows.learning_rate * ratio * (rows.gradient + decay * rows.weights)
        velocity = self.momentum * rows.slots[0] + change
        return rows.weights - velocity, (velocity,)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "momentum": self.momentum,
            "trust_coefficient": self.trust_coefficient,
        }
