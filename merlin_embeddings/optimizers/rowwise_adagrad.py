"""Row-wise Adagrad: a learning rate for each row."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow import keras

from merlin_embeddings.optimizers.base import SparseOptimizer
from merlin_embeddings.optimizers.slots import Rows, SlotSpec, Step


@keras.utils.register_keras_serializable(package="merlin_embeddings")
class RowwiseAdagrad(SparseOptimizer):
    """Adagrad with one accumulator a row (Naumov et al., DLRM, 2019).

        a[row] += mean(g[row] ** 2)
        w[row] -= learning_rate * g[row] / (sqrt(a[row]) + epsilon)

    g is the sum over all lookups of a row in the batch. A table of D columns needs 1/D of
    Adagrad's slot, and no memory for rows that were never seen. Rows that aren't seen need no
    update, so lazy and dense are the same. The first step of a fresh row has the root mean square
    `learning_rate`, whatever the size of the gradient.

    Variables of higher rank have one accumulator for each index of their first axis, those of
    rank 0 and 1 one for each element.

    Args:
        learning_rate: as in `SparseOptimizer`.
        initial_accumulator_value: what a starts from, >= 0.
        epsilon: beside the root.
        **kwargs: of `SparseOptimizer`.

    Raises:
        ValueError: a negative starting value.

    Example:
        >>> import tensorflow as tf
        >>> import merlin_embeddings as me
        >>> table = tf.keras.Variable([[0.0, 0.0], [0.0, 0.0]])
        >>> rows = tf.IndexedSlices([[1.0, 7.0]], [1], [2, 2])
        >>> me.optimizers.RowwiseAdagrad(0.5).apply([rows], [table])
        >>> print(table.numpy()[1].round(4))        # 0.5 * [1, 7] / sqrt((1 + 49) / 2)
        [-0.1 -0.7]
    """

    rule = "rowwise_adagrad"

    def __init__(
        self,
        learning_rate: Any = 0.01,
        initial_accumulator_value: float = 0.0,
        epsilon: float = 1e-10,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate, **kwargs)
        if initial_accumulator_value < 0:
            raise ValueError(
                "RowwiseAdagrad: initial_accumulator_value must not be negative, "
                f"got {initial_accumulator_value}"
            )
        self.initial_accumulator_value = float(initial_accumulator_value)
        self.epsilon = float(epsilon)

    def slot_specs(self) -> Sequence[SlotSpec]:
        return (SlotSpec("accumulator", fill=self.initial_accumulator_value, per_row=True),)

    def hyper(self, learning_rate: tf.Tensor) -> Sequence[tf.Tensor | float]:
        return (self.epsilon,)

    def step(self, rows: Rows) -> Step:
        accumulator = rows.slots[0] + rows.mean_square()
        step = rows.learning_rate / (tf.sqrt(accumulator) + self.epsilon)
        return rows.weights - rows.across(step) * rows.gradient, (accumulator,)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "initial_accumulator_value": self.initial_accumulator_value,
            "epsilon": self.epsilon,
        }
