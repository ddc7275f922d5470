"""Exponential moving averages of weights, made up for when a row moves."""

from collections.abc import Sequence

import tensorflow as tf

from merlin_embeddings.optimizers.access import across, for_rows_with, read, write
from merlin_embeddings.optimizers.slots import SlotSpec, slot_dtype

# The number of the step that a row's average is of is a float32, as slots are: exact for 16.7
# million steps.
SPECS = (SlotSpec("average"), SlotSpec("average_step", per_row=True))


def follow(
    variable: tf.Variable,
    slots: Sequence[tf.Variable],
    rows: tf.Tensor | None,
    before: tf.Tensor,
    now: tf.Tensor,
    momentum: float,
) -> None:
    """Takes step `now` of some rows into their average.

    While a row stands still its average nears it by a constant factor a step, so all steps since
    the row's last are made up for at once: the average is that of a sweep after each step. As with
    Keras, it starts with what the first step of all leaves; a row not seen by then stood still.

    Args:
        variable: [R, ...], after the step.
        slots: of `SPECS`.
        rows: [N] of the rows seen; None for all of the variable.
        before: [N, ...], the rows before the step.
        now: scalar int64, the number of the step, from 1.
        momentum: what an average keeps of itself in a step.
    """
    average, last = slots
    dtype = slot_dtype(variable)
    now, before = tf.cast(now, dtype), tf.cast(before, dtype)
    after, steps = tf.cast(read(variable, rows), dtype), read(last, rows)
    start = tf.where(now > 1, before, after)
    kept = across(_kept(momentum, now - 1 - steps), before)
    past = before + kept * (read(average, rows) - before)
    past = tf.where(across(steps, before) > 0, past, start)
    write(average, rows, momentum * past + (1 - momentum) * after)
    write(last, rows, tf.fill(tf.shape(steps), now))


def overwrite(parts: Sequence[tf.Variable], now: tf.Tensor, momentum: float) -> None:
    """Puts its average in the place of each row that was ever seen; a pass over the variable.

    Args:
        parts: the variable [R, ...], its slots of `SPECS` and, if it is a table, [R] uint8 that
            marks rows as written.
        now: scalar int64, how many steps were made.
        momentum: what an average keeps of itself in a step.
    """
    variable, average, last, *flags = parts
    now = tf.cast(tf.convert_to_tensor(now), slot_dtype(variable))

    def act(rows: tf.Tensor | None) -> None:
        weights = tf.cast(read(variable, rows), now.dtype)
        steps = read(last, rows)
        kept = across(_kept(momentum, now - steps), weights)
        value = weights + kept * (read(average, rows) - weights)
        write(variable, rows, value)
        write(average, rows, value)
        write(last, rows, tf.fill(tf.shape(steps), now))
        for flag in flags:
            write(flag, rows, tf.ones_like(rows))

    if len(variable.shape) == 0:
        act(None)
    else:
        for_rows_with(last, act)


def _kept(momentum: float, steps: tf.Tensor) -> tf.Tensor:
    return tf.pow(tf.cast(momentum, steps.dtype), tf.maximum(steps, 0))
