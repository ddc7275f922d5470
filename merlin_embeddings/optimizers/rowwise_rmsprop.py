"""Row-wise RMSprop: a learning rate for each row, of recent gradients."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow import keras

from merlin_embeddings.optimizers.base import SparseOptimizer
from merlin_embeddings.optimizers.slots import Rows, SlotSpec, Step


@keras.utils.register_keras_serializable(package="merlin_embeddings")
class RowwiseRMSprop(SparseOptimizer):
    """`RMSprop` (Tieleman and Hinton, 2012) with one mean of squares a row.

        v[row] = rho * v[row] + (1 - rho) * mean(g[row] ** 2)
        w[row] -= learning_rate * g[row] / sqrt(v[row] + epsilon)

    One number a row, as in `RowwiseAdagrad`, whose learning rate doesn't fall for ever: for tables
    whose ids go on changing their meaning. g is the sum over all lookups of a row in the batch.
    Lazy: v of a row that isn't seen doesn't decay. The first step of a fresh row has the root mean
    square `learning_rate / sqrt(1 - rho)`, whatever the gradient's size.

    Variables of higher rank have one mean for each index of their first axis, those of rank 0 and
    1 one for each element.

    Args:
        learning_rate: as in `SparseOptimizer`.
        rho: decay of the mean, in [0, 1).
        epsilon: under the root, as in `RMSprop` (FBGEMM's row-wise RMSprop has it beside).
        **kwargs: of `SparseOptimizer`.

    Raises:
        ValueError: rho out of range.

    Example:
        >>> import tensorflow as tf
        >>> import merlin_embeddings as me
        >>> table = tf.keras.Variable([[0.0, 0.0], [0.0, 0.0]])
        >>> rows = tf.IndexedSlices([[1.0, 7.0]], [1], [2, 2])
        >>> me.optimizers.RowwiseRMSprop(0.5, rho=0.75).apply([rows], [table])
        >>> print(table.numpy()[1].round(4))        # 0.5 * [1, 7] / sqrt(0.25 * 25)
        [-0.2 -1.4]
    """

    rule = "rowwise_rmsprop"

    def __init__(
        self, learning_rate: Any = 0.001, rho: float = 0.9, epsilon: float = 1e-7, **kwargs: Any
    ) -> None:
        super().__init__(learning_rate, **kwargs)
        if not 0 <= rho < 1:
            raise ValueError(f"RowwiseRMSprop: rho must be in [0, 1), got {rho}")
        self.rho = float(rho)
        self.epsilon = float(epsilon)

    def slot_specs(self) -> Sequence[SlotSpec]:
        return (SlotSpec("velocity", per_row=True),)

    def hyper(self, learning_rate: tf.Tensor) -> Sequence[tf.Tensor | float]:
        return (self.rho, self.epsilon)

    def step(self, rows: Rows) -> Step:
        velocity = self.rho * rows.slots[0] + (1 - self.rho) * rows.mean_square()
        step = rows.across(rows.learning_rate / tf.sqrt(velocity + self.epsilon))
        return rows.weights - step * rows.gradient, (velocity,)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "rho": self.rho, "epsilon": self.epsilon}
