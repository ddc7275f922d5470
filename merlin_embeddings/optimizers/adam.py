"""Adam, lazy on tables."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow import keras

from merlin_embeddings.optimizers.moments import MomentOptimizer
from merlin_embeddings.optimizers.slots import Rows, SlotSpec, Step


@keras.utils.register_keras_serializable(package="merlin_embeddings")
class Adam(MomentOptimizer):
    """Adam (Kingma and Ba, 2015) as `keras.optimizers.Adam` writes it, on the rows seen.

        m += (g - m) * (1 - beta_1)
        v += (g * g - v) * (1 - beta_2)
        w -= learning_rate * sqrt(1 - beta_2**t) / (1 - beta_1**t) * m / (sqrt(v) + epsilon)

    g is the sum over all lookups of a row in the batch, t the number of the step, one for the
    whole model. Lazy: the moments of a row that isn't seen don't decay and don't move it, where
    Keras' Adam sweeps the table each step. The first step of a fresh row at step 1 is
    `learning_rate` for each element; seen for the first time late in training, when the bias
    corrections have gone, it is `(1 - beta_1) / sqrt(1 - beta_2)` of that (3.2 times with the
    defaults). When each step sees every row, both are the same.

    Args:
        learning_rate: as in `SparseOptimizer`.
        beta_1: decay of the first moment, in [0, 1).
        beta_2: decay of the second moment, in [0, 1).
        epsilon: beside the root.
        amsgrad: whether to divide by the largest v so far (Reddi, Kale and Kumar, 2018), which
            needs a third slot.
        **kwargs: of `SparseOptimizer`.

    Raises:
        ValueError: a beta out of range.

    Example:
        >>> import tensorflow as tf
        >>> import merlin_embeddings as me
        >>> table = tf.keras.Variable([[1.0], [2.0]])
        >>> rows = tf.IndexedSlices([[3.0], [3.0]], [1, 1], [2, 1])
        >>> me.optimizers.Adam(0.5).apply([rows], [table])
        >>> table.numpy().round(4).ravel().tolist()
        [1.0, 1.5]
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        amsgrad: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate, beta_1, beta_2, epsilon, **kwargs)
        self.amsgrad = bool(amsgrad)

    @property
    def rule(self) -> str:
        return "amsgrad" if self.amsgrad else "adam"

    def slot_specs(self) -> Sequence[SlotSpec]:
        largest = (SlotSpec("velocity_hat"),) if self.amsgrad else ()
        return (SlotSpec("momentum"), SlotSpec("velocity"), *largest)

    def hyper(self, learning_rate: tf.Tensor) -> Sequence[tf.Tensor | float]:
        return (self.beta_1, self.beta_2, self.epsilon, self._alpha(learning_rate))

    def step(self, rows: Rows) -> Step:
        gradient = rows.gradient
        momentum = rows.slots[0] + (gradient - rows.slots[0]) * (1 - self.beta_1)
        velocity = rows.slots[1] + (gradient * gradient - rows.slots[1]) * (1 - self.beta_2)
        slots = [momentum, velocity]
        if self.amsgrad:
            velocity = tf.maximum(rows.slots[2], velocity)
            slots.append(velocity)
        alpha = self._alpha(rows.learning_rate)
        return rows.weights - alpha * momentum / (tf.sqrt(velocity) + self.epsilon), slots

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "amsgrad": self.amsgrad}

    def _alpha(self, learning_rate: tf.Tensor) -> tf.Tensor:
        """The learning rate with both bias corrections of this step."""
        correction_1, correction_2 = self.corrections(learning_rate.dtype)
        return learning_rate * correction_1 / tf.sqrt(correction_2)
