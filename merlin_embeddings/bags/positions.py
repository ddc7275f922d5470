"""Which bag an id is in, and where."""

from __future__ import annotations

import tensorflow as tf

from merlin_embeddings.bags.bags import Bags


def positions(bags: Bags, count_from: str = "first") -> tf.Tensor:
    """The position of each value in its bag: `[N]` int64, 0 for the first one or the last one.

    Args:
        bags: B bags.
        count_from: "first" or "last": which value of a bag has position 0.

    Raises:
        tf.errors.InvalidArgumentError: row_splits that don't cut the values into bags.

    >>> positions(Bags([7, 3, 1, 5], [0, 3, 3, 4])).numpy().tolist()
    [0, 1, 2, 0]
    >>> positions(Bags([7, 3, 1, 5], [0, 3, 3, 4]), "last").numpy().tolist()
    [2, 1, 0, 0]
    """
    if bags.hotness is not None:
        row = tf.range(bags.hotness, dtype=tf.int64)
        row = row if count_from == "first" else row[::-1]
        return tf.tile(row, [tf.size(bags.values) // bags.hotness])
    splits = bags.checked_row_splits()
    lengths = splits[1:] - splits[:-1]
    if count_from == "first":
        return tf.ragged.range(lengths).values
    return tf.ragged.range(lengths - 1, -tf.ones_like(lengths), -1).values


def bag_of(bags: Bags) -> tf.Tensor:
    """The bag that each value is in: `[N]` int64.

    Raises:
        tf.errors.InvalidArgumentError: row_splits that don't cut the values into bags.

    >>> bag_of(Bags([7, 3, 1, 5], [0, 3, 3, 4])).numpy().tolist()
    [0, 0, 0, 2]
    """
    if bags.hotness is not None:
        return tf.range(tf.size(bags.values, tf.int64)) // bags.hotness
    splits = bags.checked_row_splits()
    return tf.repeat(tf.range(tf.size(splits, tf.int64) - 1), splits[1:] - splits[:-1])
