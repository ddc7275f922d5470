"""Row-wise Adam: one second moment for each row."""

from collections.abc import Sequence

import tensorflow as tf
from tensorflow import keras

from merlin_embeddings.optimizers.moments import MomentOptimizer
from merlin_embeddings.optimizers.slots import Rows, SlotSpec, Step


@keras.utils.register_keras_serializable(package="merlin_embeddings")
class RowwiseAdam(MomentOptimizer):
    """Adam (Kingma and Ba, 2015) with one second moment a row, as FBGEMM's partial row-wise Adam.

        m[row] += (g[row] - m[row]) * (1 - beta_1)
        v[row] += (mean(g[row] ** 2) - v[row]) * (1 - beta_2)
        w[row] -= learning_rate * m[row] / (1 - beta_1**t)
                  / (sqrt(v[row] / (1 - beta_2**t)) + epsilon)

    g is the sum over all lookups of a row in the batch, t the number of the step, one for the
    whole model. A table of D columns has D + 1 numbers of slots a row, where Adam has 2 D. There is
    no first moment of a row: it is a direction, which a mean over columns would lose.

    Lazy: the moments of a row that isn't seen don't decay and don't move it. The first step of a
    fresh row at step 1 has the root mean square `learning_rate`; late in training it is
    `(1 - beta_1) / sqrt(1 - beta_2)` of that. The epsilon stands beside the root of the corrected
    moment, as in the paper and in FBGEMM (Keras and `Adam` add it before the correction).

    Variables of higher rank have one second moment for each index of their first axis, those of
    rank 0 and 1 one for each element.

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
        >>> table = tf.keras.Variable([[0.0, 0.0], [0.0, 0.0]])
        >>> rows = tf.IndexedSlices([[1.0, 7.0]], [1], [2, 2])
        >>> me.optimizers.RowwiseAdam(0.5).apply([rows], [table])
        >>> print(table.numpy()[1].round(4))        # 0.5 * [1, 7] / sqrt((1 + 49) / 2)
        [-0.1 -0.7]
    """

    rule = "rowwise_adam"

    def slot_specs(self) -> Sequence[SlotSpec]:
        return (SlotSpec("momentum"), SlotSpec("velocity", per_row=True))

    def step(self, rows: Rows) -> Step:
        momentum = rows.slots[0] + (rows.gradient - rows.slots[0]) * (1 - self.beta_1)
        velocity = rows.slots[1] + (rows.mean_square() - rows.slots[1]) * (1 - self.beta_2)
        correction_1, correction_2 = self.corrections(rows.learning_rate.dtype)
        root = tf.sqrt(velocity * correction_2) + self.epsilon
        change = rows.learning_rate * correction_1 * momentum / rows.across(root)
        return rows.weights - change, (momentum, velocity)
