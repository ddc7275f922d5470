"""Gradients of several batches as one, with memory for the rows that they have seen."""

from collections.abc import Callable, Sequence

import tensorflow as tf

from merlin_embeddings.optimizers.access import read, write
from merlin_embeddings.optimizers.gradients import Gradient, Pair, coalesced, rows_of
from merlin_embeddings.optimizers.slots import SlotSpec

SPECS = (SlotSpec("gradient_sum"), SlotSpec("gradient_seen", per_row=True))


def accumulate(
    pairs: Sequence[Pair],
    slots: Sequence[Sequence[tf.Variable]],
    flags: Sequence[tf.Variable | None],
    batches: int,
    number: tf.Tensor,
    update: Callable[[Sequence[Pair]], None],
) -> None:
    """Adds a batch's gradients to those before, and after the last batch makes a step of them.

    Args:
        pairs: (gradient, variable).
        slots: for each pair, of `SPECS`.
        flags: for each pair, [R] uint8 that marks rows as written, or None.
        batches: how many make a step.
        number: scalar integer, of this batch from 1.
        update: of the pairs (mean gradient, variable).
    """
    for (gradient, _), own, flag in zip(pairs, slots, flags, strict=True):
        _add(gradient, own, flag)

    def step() -> None:
        means = [
            (_mean(gradient, own, batches), variable)
            for (gradient, variable), own in zip(pairs, slots, strict=True)
        ]
        update(means)

    tf.cond(number % batches == 0, step, lambda: None)


def _add(gradient: Gradient, slots: Sequence[tf.Variable], flags: tf.Variable | None) -> None:
    """Adds a batch's gradient to the sum of those before.

    Args:
        gradient: dense, or some rows; duplicates are summed.
        slots: of `SPECS`, of the variable whose gradient it is.
        flags: what marks its rows as written, or None.
    """
    total, seen = slots
    gradient = coalesced(gradient)
    rows = rows_of(gradient)
    values = gradient if rows is None else gradient.values
    write(total, rows, read(total, rows) + tf.cast(values, total.dtype))
    write(seen, rows, tf.ones_like(read(seen, rows)))
    if flags is not None:
        write(flags, rows, tf.ones_like(read(flags, rows)))


def _mean(gradient: Gradient, slots: Sequence[tf.Variable], batches: int) -> Gradient:
    """The mean of the gradients of all batches, whose sum begins again from 0.

    Args:
        gradient: of the last batch, already added: the mean is of its kind.
        slots: of `SPECS`.
        batches: how many there were.

    Returns:
        Dense, or the rows that any batch has seen, each once.
    """
    total, seen = slots
    rows = None
    if isinstance(gradient, tf.IndexedSlices):
        # One number a row is read; nothing else of the table's size.
        rows = tf.where(tf.convert_to_tensor(seen) > 0)[:, 0]
    values = read(total, rows)
    mean = values / batches
    for slot in slots:
        write(slot, rows, tf.zeros_like(read(slot, rows)))
    if rows is None:
        return mean
    return tf.IndexedSlices(mean, rows, gradient.dense_shape)
