"""LAMB: Adam's direction, as long as the weights, row by row."""

from collections.abc import Sequence

import tensorflow as tf
from tensorflow import keras

from merlin_embeddings.optimizers.moments import MomentOptimizer
from merlin_embeddings.optimizers.slots import Rows, SlotSpec, Step


@keras.utils.register_keras_serializable(package="merlin_embeddings")
class Lamb(MomentOptimizer):
    """LAMB (You et al., 2020) with a trust ratio for each row of a table.

        m += (g - m) * (1 - beta_1)
        v += (g * g - v) * (1 - beta_2)
        u = m / (1 - beta_1**t) / (sqrt(v / (1 - beta_2**t)) + epsilon) + weight_decay * w
        w -= learning_rate * norm(w) / norm(u) * u

    g is the sum over all lookups of a row in the batch, t the number of the step, one for the
    whole model. The norms are a row's for tables, as in FBGEMM, and the whole variable's for
    everything else, as in `keras.optimizers.Lamb`. Where one of them is 0 the ratio is 1, as in
    Keras (in FBGEMM a row of zeros stays one). Weight decay is inside the ratio, as in the paper
    and in FBGEMM; Keras decays before it.

    Lazy: the moments of a row that isn't seen don't decay and don't move it. A step changes a row
    by `learning_rate` of its length, the first one too, whatever the gradient's size.

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
        >>> table = tf.keras.Variable([[1.0, 0.0], [3.0, 4.0]])
        >>> rows = tf.IndexedSlices([[2.0, 0.0]], [1], [2, 2])
        >>> me.optimizers.Lamb(0.1).apply([rows], [table])
        >>> print(table.numpy()[1].round(4))        # 0.1 * 5 along the gradient's sign
        [2.5 4. ]
    """

    rule = "lamb"
    trust_ratio = True

    def slot_specs(self) -> Sequence[SlotSpec]:
        return (SlotSpec("momentum"), SlotSpec("velocity"))

    def step(self, rows: Rows) -> Step:
        gradient = rows.gradient
        momentum = rows.slots[0] + (gradient - rows.slots[0]) * (1 - self.beta_1)
        velocity = rows.slots[1] + (gradient * gradient - rows.slots[1]) * (1 - self.beta_2)
        correction_1, correction_2 = self.corrections(rows.learning_rate.dtype)
        root = tf.sqrt(velocity * correction_2) + self.epsilon
        return trusted(rows, momentum * correction_1 / root), (momentum, velocity)


def trusted(rows: Rows, direction: tf.Tensor) -> tf.Tensor:
    """The weights after a step along `direction` and the decay, as long as the weights are.

    Args:
        rows: where the step starts.
        direction: [N, ...].

    Returns:
        [N, ...].
    """
    direction += rows.weights * tf.cast(rows.weight_decay, direction.dtype)
    lengths, own = rows.norm(rows.weights), rows.norm(direction)
    ratio = tf.where((lengths > 0) & (own > 0), tf.math.divide_no_nan(lengths, own), 1)
    return rows.weights - rows.learning_rate * ratio * direction
