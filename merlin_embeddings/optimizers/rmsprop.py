"""RMSprop: a learning rate for each element, of recent gradients."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow import keras

from merlin_embeddings.optimizers.base import SparseOptimizer
from merlin_embeddings.optimizers.slots import Rows, SlotSpec, Step


@keras.utils.register_keras_serializable(package="merlin_embeddings")
class RMSprop(SparseOptimizer):
    """RMSprop (Tieleman and Hinton, 2012) as `keras.optimizers.RMSprop` writes it, on rows seen.

        v = rho * v + (1 - rho) * g * g
        a = rho * a + (1 - rho) * g                                 if centered (Graves, 2013)
        change = learning_rate * g / sqrt(v - a * a + epsilon)      a = 0 if not centered
        w -= change                                                 without momentum
        m = momentum * m + change;  w -= m                          with momentum

    g is the sum over all lookups of a row in the batch. Lazy: the means and the momentum of a row
    that isn't seen don't decay and don't move it. The first step of a fresh row is
    `learning_rate / sqrt(1 - rho)` for each element (3.2 times `learning_rate` with the defaults):
    v starts from 0 without a bias correction.

    Args:
        learning_rate: as in `SparseOptimizer`.
        rho: decay of the means, in [0, 1).
        momentum: in [0, 1]; 0 needs no slot.
        epsilon: under the root.
        centered: whether to divide by the gradients' deviation rather than by their size; needs a
            slot. v - a * a is not let fall below 0, where Keras may give NaN by rounding.
        **kwargs: of `SparseOptimizer`.

    Raises:
        ValueError: rho or momentum out of range.

    Example:
        >>> import tensorflow as tf
        >>> import merlin_embeddings as me
        >>> table = tf.keras.Variable([[1.0], [2.0]])
        >>> rows = tf.IndexedSlices([[3.0], [3.0]], [1, 1], [2, 1])
        >>> me.optimizers.RMSprop(0.5, rho=0.75).apply([rows], [table])
        >>> table.numpy().round(4).ravel().tolist()      # row 1: 2 - 0.5 * 6 / sqrt(0.25 * 36)
        [1.0, 1.0]
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        rho: float = 0.9,
        momentum: float = 0.0,
        epsilon: float = 1e-7,
        centered: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate, **kwargs)
        if not 0 <= rho < 1:
            raise ValueError(f"RMSprop: rho must be in [0, 1), got {rho}")
        if not 0 <= momentum <= 1:
            raise ValueError(f"RMSprop: momentum must be in [0, 1], got {momentum}")
        self.rho = float(rho)
        self.momentum = float(momentum)
        self.epsilon = float(epsilon)
        self.centered = bool(centered)

    @property
    def rule(self) -> str:
        centered = "_centered" if self.centered else ""
        return f"rmsprop{centered}{'_momentum' if self.momentum else ''}"

    def slot_specs(self) -> Sequence[SlotSpec]:
        names = ["velocity"]
        if self.momentum:
            names.append("momentum")
        if self.centered:
            names.append("average_gradient")
        return [SlotSpec(name) for name in names]

    def hyper(self, learning_rate: tf.Tensor) -> Sequence[tf.Tensor | float]:
        return (self.rho, self.momentum, self.epsilon)

    def step(self, rows: Rows) -> Step:
        gradient, rho = rows.gradient, self.rho
        velocity = rho * rows.slots[0] + (1 - rho) * gradient * gradient
        slots, square = [velocity], velocity
        if self.centered:
            average = rho * rows.slots[-1] + (1 - rho) * gradient
            square = tf.maximum(velocity - average * average, 0)
        change = rows.learning_rate * gradient / tf.sqrt(square + self.epsilon)
        if self.momentum:
            change = self.momentum * rows.slots[1] + change
            slots.append(change)
        if self.centered:
            slots.append(average)
        return rows.weights - change, slots

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "rho": self.rho,
            "momentum": self.momentum,
            "epsilon": self.epsilon,
            "centered": self.centered,
        }
