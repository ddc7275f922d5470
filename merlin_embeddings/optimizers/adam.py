"""Adam, lazy on tables."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow import keras

from merlin_embeddings.optimizers.base import SparseOptimizer
from merlin_embeddings.optimizers.slots import SlotSpec, Step


@keras.utils.register_keras_serializable(package="merlin_embeddings")
class Adam(SparseOptimizer):
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

    rule = "adam"

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate, **kwargs)
        for argument, value in (("beta_1", beta_1), ("beta_2", beta_2)):
            if not 0 <= value < 1:
                raise ValueError(f"Adam: {argument} must be in [0, 1), got {value}")
        self.beta_1 = float(beta_1)
        self.beta_2 = float(beta_2)
        self.epsilon = float(epsilon)

    def slot_specs(self) -> Sequence[SlotSpec]:
        return (SlotSpec("momentum"), SlotSpec("velocity"))

    def hyper(self, learning_rate: tf.Tensor) -> Sequence[tf.Tensor | float]:
        return (self.beta_1, self.beta_2, self.epsilon, self._alpha(learning_rate))

    def step(self, gradient: tf.Tensor, slots: Sequence[tf.Tensor], learning_rate: Any) -> Step:
        momentum = slots[0] + (gradient - slots[0]) * (1 - self.beta_1)
        velocity = slots[1] + (gradient * gradient - slots[1]) * (1 - self.beta_2)
        alpha = self._alpha(learning_rate)
        return alpha * momentum / (tf.sqrt(velocity) + self.epsilon), (momentum, velocity)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "epsilon": self.epsilon,
        }

    def _alpha(self, learning_rate: tf.Tensor) -> tf.Tensor:
        """The learning rate with both bias corrections of this step."""
        step = tf.cast(tf.convert_to_tensor(self.iterations) + 1, learning_rate.dtype)
        power_1 = tf.pow(tf.cast(self.beta_1, step.dtype), step)
        power_2 = tf.pow(tf.cast(self.beta_2, step.dtype), step)
        return learning_rate * tf.sqrt(1 - power_2) / (1 - power_1)
