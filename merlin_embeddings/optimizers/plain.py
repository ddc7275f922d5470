"""Updates in TensorFlow ops, for all that isn't a matrix of rows in float32."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

from merlin_embeddings import compat
from merlin_embeddings.optimizers.gradients import Gradient, coalesced
from merlin_embeddings.optimizers.slots import Rows, Step, length, slot_dtype


class Shared(NamedTuple):
    """What happens to one variable around every rule, natively and here alike.

    Attributes:
        weight_decay: decoupled.
        l2: coupled: the gradient gets `l2 * weights`.
        max_norm: the largest length of a row, 0 for any.
        trust_ratio: whether the rule does its weight decay itself, inside a trust ratio.
    """

    weight_decay: float
    l2: float
    max_norm: float
    trust_ratio: bool


def update(
    gradient: Gradient,
    variable: tf.Variable,
    slots: Sequence[tf.Variable],
    step: Callable[[Rows], Step],
    learning_rate: tf.Tensor,
    shared: Shared,
) -> None:
    """One step of a rule on one variable, decay and constraint included.

    Args:
        gradient: dense, or some rows of any rank; duplicate rows are summed first.
        variable: [R, ...] or a scalar.
        slots: the rule's.
        step: `SparseOptimizer.step`.
        learning_rate: scalar float32.
        shared: what goes around the step.
    """
    raw = compat.raw_variable(variable)
    raw_slots = [compat.raw_variable(slot) for slot in slots]
    constraint = getattr(variable, "constraint", None) or (lambda weights: weights)
    if isinstance(gradient, tf.IndexedSlices):
        gradient = coalesced(gradient)
        rows = gradient.indices
        read = [state.sparse_read(rows) for state in (raw, *raw_slots)]
        weights, values = _stepped(gradient.values, read, step, learning_rate, shared, False)
        raw.scatter_update(tf.IndexedSlices(constraint(weights), rows))
        for slot, value in zip(raw_slots, values, strict=True):
            slot.scatter_update(tf.IndexedSlices(value, rows))
    else:
        read = [tf.convert_to_tensor(state) for state in (raw, *raw_slots)]
        weights, values = _stepped(gradient, read, step, learning_rate, shared, True)
        raw.assign(constraint(weights))
        for slot, value in zip(raw_slots, values, strict=True):
            slot.assign(value)


def _stepped(
    gradient: tf.Tensor,
    read: Sequence[tf.Tensor],
    step: Callable[[Rows], Step],
    learning_rate: tf.Tensor,
    shared: Shared,
    whole: bool,
) -> Step:
    """The step on `read`: weights, then slots."""
    dtype = slot_dtype(read[0])
    learning_rate = tf.cast(learning_rate, dtype)
    gradient, weights = tf.cast(gradient, dtype), tf.cast(read[0], dtype)
    if shared.l2:
        gradient += weights * tf.cast(shared.l2, dtype)
    if shared.weight_decay and not shared.trust_ratio:
        weights -= weights * tf.cast(shared.weight_decay, dtype) * learning_rate
    weights, slots = step(
        Rows(gradient, weights, read[1:], learning_rate, shared.weight_decay, whole)
    )
    # Lengths of rows are limited where there are rows: of tables.
    if shared.max_norm and not whole:
        lengths = length(weights, list(range(1, weights.shape.rank)))
        longest = tf.cast(shared.max_norm, dtype)
        weights = tf.where(lengths > longest, weights * (longest / lengths), weights)
    return tf.cast(weights, read[0].dtype), slots
