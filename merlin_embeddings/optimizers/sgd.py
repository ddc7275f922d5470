"""Stochastic gradient descent, plain or with momentum."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow import keras

from merlin_embeddings.optimizers.base import SparseOptimizer
from merlin_embeddings.optimizers.slots import Rows, SlotSpec, Step


@keras.utils.register_keras_serializable(package="merlin_embeddings")
class SGD(SparseOptimizer):
    """Gradient descent as `keras.optimizers.SGD` writes it, on the rows seen.

        w -= learning_rate * g                                  without momentum
        v = momentum * v - learning_rate * g;  w += v           with momentum (Polyak, 1964)
        v = momentum * v - learning_rate * g;  w += momentum * v - learning_rate * g    nesterov

    g is the sum over all lookups of a row in the batch. Lazy: the velocity of a row that isn't
    seen neither decays nor moves the row; the first step of a fresh row (v = 0) is that of plain
    SGD.

    Args:
        learning_rate: as in `SparseOptimizer`.
        momentum: in [0, 1]; 0 needs no slot.
        nesterov: whether to look ahead (Nesterov, 1983).
        **kwargs: of `SparseOptimizer`.

    Raises:
        ValueError: momentum out of range.

    Example:
        >>> import tensorflow as tf
        >>> import merlin_embeddings as me
        >>> table = tf.keras.Variable([[1.0], [2.0], [3.0]])
        >>> rows = tf.IndexedSlices([[1.0], [1.0]], [2, 2], [3, 1])     # row 2, twice
        >>> me.optimizers.SGD(0.5).apply([rows], [table])
        >>> table.numpy().ravel().tolist()
        [1.0, 2.0, 2.0]
    """

    def __init__(
        self,
        learning_rate: Any = 0.01,
        momentum: float = 0.0,
        nesterov: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate, **kwargs)
        if not 0 <= momentum <= 1:
            raise ValueError(f"SGD: momentum must be in [0, 1], got {momentum}")
        self.momentum = float(momentum)
        self.nesterov = bool(nesterov)

    @property
    def rule(self) -> str:
        return "momentum" if self.momentum else "sgd"

    def slot_specs(self) -> Sequence[SlotSpec]:
        return (SlotSpec("velocity"),) if self.momentum else ()

    def hyper(self, learning_rate: tf.Tensor) -> Sequence[tf.Tensor | float]:
        return (self.momentum, float(self.nesterov)) if self.momentum else ()

    def step(self, rows: Rows) -> Step:
        change = rows.learning_rate * rows.gradient
        if not self.momentum:
            return rows.weights - change, ()
        velocity = self.momentum * rows.slots[0] - change
        if self.nesterov:
            return rows.weights + self.momentum * velocity - change, (velocity,)
        return rows.weights + velocity, (velocity,)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "momentum": self.momentum, "nesterov": self.nesterov}
