"""Bags of limited length."""

from __future__ import annotations

import tensorflow as tf

from merlin_embeddings.bags.bags import Bags
from merlin_embeddings.bags.padding import without_padding


def truncate(bags: Bags, max_length: int, keep: str = "first") -> Bags:
    """Bags of the first or last `max_length` ids of each, in the order they had.

    Padding counts for nothing: `[7, 0, 3]` with `padding_id=0` is as long as `[7, 3]`. Bags that
    are cut lose their padding. Weights go with their ids, and gradients to the ids that are kept.

    Args:
        bags: B bags.
        max_length: ids a bag, at least 1.
        keep: "first" or "last".

    Returns:
        B bags, of a `hotness` where `bags` have one and no padding.

    Raises:
        tf.errors.InvalidArgumentError: row_splits that don't cut the values into bags.

    >>> bags = truncate(Bags.of(tf.ragged.constant([[7, 3, 1], [], [5]])), 2, "last")
    >>> bags.values.numpy().tolist(), bags.row_splits.numpy().tolist()
    ([3, 1, 5], [0, 2, 2, 3])
    """
    if bags.hotness is not None and bags.hotness <= max_length:
        return bags
    bags = without_padding(bags)
    if bags.hotness is not None:
        return bags.take_columns(slice(max_length) if keep == "first" else slice(-max_length, None))
    splits = bags.checked_row_splits()
    starts, ends = splits[:-1], splits[1:]
    if keep == "first":
        ends = tf.minimum(ends, starts + max_length)
    else:
        starts = tf.maximum(starts, ends - max_length)
    kept = tf.ragged.range(starts, ends)
    return bags.take(kept.values, kept.row_splits)
