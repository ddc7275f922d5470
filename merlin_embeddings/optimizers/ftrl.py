"""FTRL: sparse weights from sums of gradients."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow import keras

from merlin_embeddings.optimizers.base import SparseOptimizer
from merlin_embeddings.optimizers.slots import Rows, SlotSpec, Step


@keras.utils.register_keras_serializable(package="merlin_embeddings")
class Ftrl(SparseOptimizer):
    """Follow the regularized leader (McMahan et al., 2013) as `keras.optimizers.Ftrl` writes it.

        n' = n + g * g
        z += g + 2 * l2_shrinkage * w - (n'**p - n**p) / learning_rate * w
        w = (clip(z, -l1, l1) - z) / (n'**p / learning_rate + beta / learning_rate + 2 * l2)
        n = n'

    g is the sum over all lookups of a row in the batch, p is -learning_rate_power; l1, l2 and
    l2_shrinkage are short for the arguments. Weights whose z is within l1 are exactly 0.

    w doesn't change without a gradient, so lazy and dense FTRL agree on every row that was seen
    once. They differ before that: Keras' sweep sets all weights that have no gradient yet to 0 in
    its first step, where a row that isn't seen keeps its initial value. The first step of a fresh
    row leaves of that `1 - (initial_accumulator_value / (initial_accumulator_value + g * g))**p`.
    An element whose accumulator is still 0 becomes 0 (in Keras NaN, from 0 / 0).

    Args:
        learning_rate: as in `SparseOptimizer`.
        learning_rate_power: <= 0; how fast the learning rate falls.
        initial_accumulator_value: what n starts from, >= 0. A value other than 0 is written to the
            whole slot when the optimizer is built.
        l1_regularization_strength: >= 0.
        l2_regularization_strength: >= 0; towards 0 from where all gradients point.
        l2_shrinkage_regularization_strength: >= 0; a penalty on the size of the weights, which
            counts as a gradient in z but not in n.
        beta: the paper's, >= 0.
        **kwargs: of `SparseOptimizer`.

    Raises:
        ValueError: an argument out of range.

    Example:
        >>> import tensorflow as tf
        >>> import merlin_embeddings as me
        >>> table = tf.keras.Variable([[1.0, 1.0], [0.0, 0.0]])
        >>> rows = tf.IndexedSlices([[0.5, 4.0]], [1], [2, 2])
        >>> ftrl = me.optimizers.Ftrl(
        ...     1.0, initial_accumulator_value=0.0, l1_regularization_strength=1.0
        ... )
        >>> ftrl.apply([rows], [table])
        >>> table.numpy().tolist()                   # row 1: 0, for |0.5| <= l1; -(4 - 1) / 4
        [[1.0, 1.0], [0.0, -0.75]]
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        learning_rate_power: float = -0.5,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0,
        l2_shrinkage_regularization_strength: float = 0.0,
        beta: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate, **kwargs)
        if learning_rate_power > 0:
            raise ValueError(
                f"Ftrl: learning_rate_power must not be positive, got {learning_rate_power}"
            )
        self.learning_rate_power = float(learning_rate_power)
        self.initial_accumulator_value = float(initial_accumulator_value)
        self.l1_regularization_strength = float(l1_regularization_strength)
        self.l2_regularization_strength = float(l2_regularization_strength)
        self.l2_shrinkage_regularization_strength = float(l2_shrinkage_regularization_strength)
        self.beta = float(beta)
        for argument, value in self._own().items():
            if value < 0 and argument != "learning_rate_power":
                raise ValueError(f"Ftrl: {argument} must not be negative, got {value}")

    @property
    def rule(self) -> str:
        return "ftrl" if self.learning_rate_power == -0.5 else "ftrl_power"

    def slot_specs(self) -> Sequence[SlotSpec]:
        return (SlotSpec("accumulator", fill=self.initial_accumulator_value), SlotSpec("linear"))

    def hyper(self, learning_rate: tf.Tensor) -> Sequence[tf.Tensor | float]:
        return (
            self.learning_rate_power,
            self.l1_regularization_strength,
            self._l2(learning_rate),
            self.l2_shrinkage_regularization_strength,
        )

    def step(self, rows: Rows) -> Step:
        learning_rate, power = rows.learning_rate, -self.learning_rate_power
        accumulator = rows.slots[0] + rows.gradient * rows.gradient
        before, after = tf.pow(rows.slots[0], power), tf.pow(accumulator, power)
        shrinkage = 2 * self.l2_shrinkage_regularization_strength * rows.weights
        linear = rows.slots[1] + (
            rows.gradient + shrinkage - (after - before) / learning_rate * rows.weights
        )
        l1 = self.l1_regularization_strength
        beyond = tf.clip_by_value(linear, -l1, l1) - linear
        quadratic = after / learning_rate + 2 * self._l2(learning_rate)
        return tf.math.divide_no_nan(beyond, quadratic), (accumulator, linear)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), **self._own()}

    def _own(self) -> dict[str, float]:
        return {
            "learning_rate_power": self.learning_rate_power,
            "initial_accumulator_value": self.initial_accumulator_value,
            "l1_regularization_strength": self.l1_regularization_strength,
            "l2_regularization_strength": self.l2_regularization_strength,
            "l2_shrinkage_regularization_strength": self.l2_shrinkage_regularization_strength,
            "beta": self.beta,
        }

    def _l2(self, learning_rate: tf.Tensor) -> tf.Tensor:
        return self.l2_regularization_strength + self.beta / (2 * learning_rate)
