"""Updates in TensorFlow ops, for all that isn't a matrix of rows in float32."""

from collections.abc import Callable, Sequence

import tensorflow as tf

from merlin_embeddings import compat
from merlin_embeddings.optimizers.gradients import Gradient, coalesced
from merlin_embeddings.optimizers.slots import Step, slot_dtype


def update(
    gradient: Gradient,
    variable: tf.Variable,
    slots: Sequence[tf.Variable],
    step: Callable[..., Step],
    learning_rate: tf.Tensor,
    decay: float,
) -> None:
    """One step of a rule on one variable, decay and constraint included.

    Args:
        gradient: dense, or some rows of any rank; duplicate rows are summed first.
        variable: [R, ...] or a scalar.
        slots: the rule's.
        step: `SparseOptimizer.step`.
        learning_rate: scalar float32.
        decay: the decoupled weight decay of this variable.
    """
    raw = compat.raw_variable(variable)
    raw_slots = [compat.raw_variable(slot) for slot in slots]
    constraint = getattr(variable, "constraint", None) or (lambda weights: weights)
    if isinstance(gradient, tf.IndexedSlices):
        gradient = coalesced(gradient)
        rows = gradient.indices
        read = [state.sparse_read(rows) for state in (raw, *raw_slots)]
        weights, values = _stepped(gradient.values, read[0], read[1:], step, learning_rate, decay)
        raw.scatter_update(tf.IndexedSlices(constraint(weights), rows))
        for slot, value in zip(raw_slots, values, strict=True):
            slot.scatter_update(tf.IndexedSlices(value, rows))
    else:
        read = [tf.convert_to_tensor(state) for state in (raw, *raw_slots)]
        weights, values = _stepped(gradient, read[0], read[1:], step, learning_rate, decay)
        raw.assign(constraint(weights))
        for slot, value in zip(raw_slots, values, strict=True):
            slot.assign(value)


def _stepped(
    gradient: tf.Tensor,
    weights: tf.Tensor,
    slots: Sequence[tf.Tensor],
    step: Callable[..., Step],
    learning_rate: tf.Tensor,
    decay: float,
) -> tuple[tf.Tensor, Sequence[tf.Tensor]]:
    dtype = slot_dtype(weights)
    learning_rate = tf.cast(learning_rate, dtype)
    new_weights = tf.cast(weights, dtype)
    if decay:
        new_weights -= new_weights * tf.cast(decay, dtype) * learning_rate
    change, new_slots = step(tf.cast(gradient, dtype), slots, learning_rate)
    return tf.cast(new_weights - change, weights.dtype), new_slots
