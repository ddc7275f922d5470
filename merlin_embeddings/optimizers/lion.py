"""Lion: the sign of a momentum."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow import keras

from merlin_embeddings.optimizers.base import SparseOptimizer
from merlin_embeddings.optimizers.slots import Rows, SlotSpec, Step


@keras.utils.register_keras_serializable(package="merlin_embeddings")
class Lion(SparseOptimizer):
    """Lion (Chen et al., 2023) as `keras.optimizers.Lion` writes it, on the rows seen.

        w -= learning_rate * sign(beta_1 * m + (1 - beta_1) * g)
        m = beta_2 * m + (1 - beta_2) * g

    g is the sum over all lookups of a row in the batch. Every element of a row that is seen moves
    by `learning_rate`, a fresh one too, unless both its gradient and its momentum are 0. Lazy: the
    momentum of a row that isn't seen neither decays nor moves the row, where Keras' Lion goes on
    moving it by the whole learning rate each step.

    Args:
        learning_rate: as in `SparseOptimizer`; about a tenth of Adam's.
        beta_1: the momentum's share in the sign, in (0, 1].
        beta_2: decay of the momentum, in [0, 1).
        **kwargs: of `SparseOptimizer`.

    Raises:
        ValueError: a beta out of range.

    Example:
        >>> import tensorflow as tf
        >>> import merlin_embeddings as me
        >>> table = tf.keras.Variable([[1.0, 1.0], [2.0, 2.0]])
        >>> rows = tf.IndexedSlices([[0.1, -7.0]], [1], [2, 2])
        >>> me.optimizers.Lion(0.5).apply([rows], [table])
        >>> table.numpy().tolist()
        [[1.0, 1.0], [1.5, 2.5]]
    """

    rule = "lion"

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.99,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate, **kwargs)
        if not 0 < beta_1 <= 1:
            raise ValueError(f"Lion: beta_1 must be in (0, 1], got {beta_1}")
        if not 0 <= beta_2 < 1:
            raise ValueError(f"Lion: beta_2 must be in [0, 1), got {beta_2}")
        self.beta_1 = float(beta_1)
        self.beta_2 = float(beta_2)

    def slot_specs(self) -> Sequence[SlotSpec]:
        return (SlotSpec("momentum"),)

    def hyper(self, learning_rate: tf.Tensor) -> Sequence[tf.Tensor | float]:
        return (self.beta_1, self.beta_2)

    def step(self, rows: Rows) -> Step:
        gradient, momentum = rows.gradient, rows.slots[0]
        ahead = self.beta_1 * momentum + (1 - self.beta_1) * gradient
        weights = rows.weights - rows.learning_rate * tf.sign(ahead)
        return weights, (self.beta_2 * momentum + (1 - self.beta_2) * gradient,)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "beta_1": self.beta_1, "beta_2": self.beta_2}
