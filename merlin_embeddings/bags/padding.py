"""Bags without their padding."""

from __future__ import annotations

import tensorflow as tf

from merlin_embeddings.bags.bags import Bags


def without_padding(bags: Bags) -> Bags:
    """The same bags, padding left out: of any kind of input, what ragged ids would be.

    >>> bags = without_padding(Bags.of(tf.constant([[7, 0, 3], [0, 0, 5]]), padding_id=0))
    >>> bags.values.numpy().tolist(), bags.row_splits.numpy().tolist()
    ([7, 3, 5], [0, 2, 3])
    """
    if bags.padding_id is None:
        return bags
    splits = bags.checked_row_splits()
    kept = tf.reshape(tf.where(tf.logical_not(bags.is_padding)), [-1])
    return bags.take(kept, tf.searchsorted(kept, splits, out_type=tf.int64))
