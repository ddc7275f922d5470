"""Bags given as lists, as every kind of input that can hold them."""

import itertools

import tensorflow as tf

KINDS = ("ragged", "sparse", "splits", "distinct", "dense", "padded", "padded before")
PADDING = -7


def joined(lists):
    return list(itertools.chain.from_iterable(lists))


def as_lists(values, bags):
    """Values `[N]` in the bags they belong to."""
    values, splits = values.numpy(), bags.row_splits.numpy()
    return [values[a:b].tolist() for a, b in itertools.pairwise(splits)]


def batch(kind, lists, dtype=tf.int64, fill=PADDING):
    """The lists as one kind of input; `fill` is what pads dense ones.

    "dense" cuts all lists to the length of the shortest, so ask `held` for the bags it holds.
    """
    lists = held(kind, lists)
    width = max(map(len, lists), default=0)
    padded = [bag + [fill] * (width - len(bag)) for bag in lists]
    if kind == "padded before":
        padded = [[fill] * (width - len(bag)) + bag for bag in lists]
    if kind in ("dense", "padded", "padded before"):
        return tf.constant(padded, dtype, shape=[len(lists), width])
    values = tf.constant(joined(lists), dtype, shape=[len(joined(lists))])
    lengths = tf.constant([len(bag) for bag in lists], tf.int64, shape=[len(lists)])
    ragged = tf.RaggedTensor.from_row_lengths(values, lengths)
    if kind == "ragged":
        return ragged
    if kind == "sparse":
        indices = [[b, i] for b, bag in enumerate(lists) for i in range(len(bag))]
        indices = tf.constant(indices, tf.int64, shape=[len(indices), 2])
        return tf.SparseTensor(indices, values, [len(lists), width])
    tensors = {"values": values, "row_splits": ragged.row_splits}
    if kind == "distinct":
        tensors["inverse"] = tf.range(len(lists), dtype=tf.int64)[::-1]
    return tensors


def held(kind, lists):
    """The bags that `batch(kind, lists)` holds."""
    if kind != "dense":
        return lists
    shortest = min(map(len, lists), default=0)
    return [bag[:shortest] for bag in lists]
