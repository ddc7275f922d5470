"""Adagrad: a learning rate for each element."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow import keras

from merlin_embeddings.optimizers.base import SparseOptimizer
from merlin_embeddings.optimizers.slots import Rows, SlotSpec, Step


@keras.utils.register_keras_serializable(package="merlin_embeddings")
class Adagrad(SparseOptimizer):
    """Adagrad (Duchi, Hazan and Singer, 2011) as `keras.optimizers.Adagrad` writes it.

        a += g * g
        w -= learning_rate * g / sqrt(a + epsilon)

    g is the sum over all lookups of a row in the batch. Rows that aren't seen need no update, so
    lazy and dense Adagrad are the same. With a gradient large against the starting value, the
    first step of a fresh row is about `learning_rate` for each element.

    Args:
        learning_rate: as in `SparseOptimizer`.
        initial_accumulator_value: what a starts from, >= 0. A value other than 0 is written to
            the whole slot when the optimizer is built.
        epsilon: under the root.
        **kwargs: of `SparseOptimizer`.

    Raises:
        ValueError: a negative starting value.

    Example:
        >>> import tensorflow as tf
        >>> import merlin_embeddings as me
        >>> table = tf.keras.Variable([[1.0], [2.0]])
        >>> rows = tf.IndexedSlices([[2.0], [2.0]], [1, 1], [2, 1])
        >>> me.optimizers.Adagrad(1.0, initial_accumulator_value=9.0).apply([rows], [table])
        >>> round(float(table[1, 0]), 4)      # 2 - 4 / sqrt(9 + 16)
        1.2
    """

    rule = "adagrad"

    def __init__(
        self,
        learning_rate: Any = 0.001,
        initial_accumulator_value: float = 0.1,
        epsilon: float = 1e-7,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate, **kwargs)
        if initial_accumulator_value < 0:
            raise ValueError(
                "Adagrad: initial_accumulator_value must not be negative, "
                f"got {initial_accumulator_value}"
            )
        self.initial_accumulator_value = float(initial_accumulator_value)
        self.epsilon = float(epsilon)

    def slot_specs(self) -> Sequence[SlotSpec]:
        return (SlotSpec("accumulator", fill=self.initial_accumulator_value),)

    def hyper(self, learning_rate: tf.Tensor) -> Sequence[tf.Tensor | float]:
        return (self.epsilon,)

    def step(self, rows: Rows) -> Step:
        accumulator = rows.slots[0] + rows.gradient * rows.gradient
        change = rows.learning_rate * rows.gradient / tf.sqrt(accumulator + self.epsilon)
        return rows.weights - change, (accumulator,)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "initial_accumulator_value": self.initial_accumulator_value,
            "epsilon": self.epsilon,
        }
