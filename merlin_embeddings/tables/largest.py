"""The maximum over bags of vectors that aren't rows of a table."""

from typing import Any

import tensorflow as tf


def largest(vectors: tf.Tensor, route: Any) -> tf.Tensor:
    """The largest number of each column over each bag, as lookups with combiner "max" pool rows.

    Args:
        vectors: `[N, D]`, of the ids of B bags.
        route: has `lines` `[N]` (-1: no vector) and `row_splits` `[B + 1]` or `hotness`.

    Returns:
        `[B, D]`; zeros for bags without vectors. Its gradient goes to the first of equal maxima.
    """
    count, dim = tf.shape(vectors)[0], vectors.shape[1]
    if route.row_splits is None:
        bag, bags = tf.range(count) // route.hotness, count // route.hotness
    else:
        ragged = tf.RaggedTensor.from_row_splits(route.lines, route.row_splits)
        bag, bags = ragged.value_rowids(), ragged.nrows()
    missing = route.lines[:, None] < 0
    seen = tf.where(missing, vectors.dtype.min, tf.stop_gradient(vectors))
    most = tf.math.unsorted_segment_max(seen, bag, bags)
    is_most = (seen == tf.gather(most, bag)) & ~missing
    # A row of zeros behind the others is what bags without vectors have.
    place = tf.where(is_most, tf.range(count)[:, None], count)
    first = tf.minimum(tf.math.unsorted_segment_min(place, bag, bags), count)
    columns = tf.broadcast_to(tf.range(dim), tf.shape(first))
    padded = tf.concat([vectors, tf.zeros([1, dim], vectors.dtype)], 0)
    return tf.ensure_shape(tf.gather_nd(padded, tf.stack([first, columns], -1)), [None, dim])
