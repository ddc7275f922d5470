"""The hyper-parameters that the rules with two moments share."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from merlin_embeddings.optimizers.base import SparseOptimizer


class MomentOptimizer(SparseOptimizer):
    """A rule with decaying means of gradients and of their squares.

    Args:
        learning_rate: as in `SparseOptimizer`.
        beta_1: decay of the first moment, in [0, 1).
        beta_2: decay of the second moment, in [0, 1).
        epsilon: beside the root.
        **kwargs: of `SparseOptimizer`.

    Raises:
        ValueError: a beta out of range.
    """

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
                raise ValueError(
                    f"{type(self).__name__}: {argument} must be in [0, 1), got {value}"
                )
        self.beta_1 = float(beta_1)
        self.beta_2 = float(beta_2)
        self.epsilon = float(epsilon)

    def hyper(self, learning_rate: tf.Tensor) -> Sequence[tf.Tensor | float]:
        return (self.beta_1, self.beta_2, self.epsilon, *self.corrections(learning_rate.dtype))

    def corrections(self, dtype: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """What the moments of this step are multiplied by, since they start from 0.

        Args:
            dtype: of the result.

        Returns:
            1 / (1 - beta_1**t) and 1 / (1 - beta_2**t), t the number of the step.
        """
        step = tf.cast(self.steps() + 1, dtype)
        power_1 = tf.pow(tf.cast(self.beta_1, dtype), step)
        power_2 = tf.pow(tf.cast(self.beta_2, dtype), step)
        return 1 / (1 - power_1), 1 / (1 - power_2)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "epsilon": self.epsilon,
        }
