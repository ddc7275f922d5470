"""Row-wise LAMB: one second moment for each row."""

from collections.abc import Sequence

import tensorflow as tf
from tensorflow import keras

from merlin_embeddings.optimizers.lamb import trusted
from merlin_embeddings.optimizers.moments import MomentOptimizer
from merlin_embeddings.optimizers.slots import Rows, SlotSpec, Step


@keras.utils.register_keras_serializable(package="merlin_embeddings")
class RowwiseLamb(MomentOptimizer):
    """`Lamb` (You et al., 2020) with one second moment a row, as FBGEMM's partial row-wise LAMB.

        m[row] += (g[row] - m[row]) * (1 - beta_1)
        v[row] += (mean(g[row] ** 2) - v[row]) * (1 - beta_2)
        u = m[row] / (1 - beta_1**t) / (sqrt(v[row] / (1 - beta_2**t)) + epsilon)
            + weight_decay * w[row]
        w[row] -= learning_rate * norm(w[row]) / norm(u) * u

    A table of D columns has D + 1 numbers of slots a row, where `Lamb` has 2 D. All else is as
    there: the norms are a row's for tables and the whole variable's for everything else, a norm of
    0 makes the ratio 1, and rows that aren't seen stand still. Since all elements of a row are
    divided by one root, the first step is along the gradient itself.

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
        >>> rows = tf.IndexedSlices([[6.0, 8.0]], [1], [2, 2])
        >>> me.optimizers.RowwiseLamb(0.1).apply([rows], [table])
        >>> print(table.numpy()[1].round(4))        # 0.1 * 5 along [0.6, 0.8]
        [2.7 3.6]
    """

    rule = "rowwise_lamb"
    trust_ratio = True

    def slot_specs(self) -> Sequence[SlotSpec]:
        return (SlotSpec("momentum"), SlotSpec("velocity", per_row=True))

    def step(self, rows: Rows) -> Step:
        momentum = rows.slots[0] + (rows.gradient - rows.slots[0]) * (1 - self.beta_1)
        velocity = rows.slots[1] + (rows.mean_square() - rows.slots[1]) * (1 - self.beta_2)
        correction_1, correction_2 = self.corrections(rows.learning_rate.dtype)
        root = rows.across(tf.sqrt(velocity * correction_2) + self.epsilon)
        return trusted(rows, momentum * correction_1 / root), (momentum, velocity)
