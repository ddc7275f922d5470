"""Ids as merlin-models hands them to a table."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from merlin_embeddings.bags import asserted


def squeeze(ids: Any, name: str) -> Any:
    """Ids without their last dimension where that is 1.

    `PrepareFeatures` makes `[B, 1]` of scalars and ragged `[B, None, 1]` of lists.

    Args:
        ids: dense `[B]`, `[B, 1]`, `[B, L]`, `[B, L, 1]` or of more dimensions; ragged `[B, None]`
            or `[B, None, 1]`; sparse `[B, L]` or `[B, L, 1]`.
        name: what messages call them.

    Returns:
        `[B]`, `[B, L]`, ...; ragged `[B, None]`; sparse `[B, L]`.

    Raises:
        ValueError: ids of unknown rank.
        tf.errors.InvalidArgumentError: ragged ids `[B, None, None]` whose inner lists don't have
            one id each.
    """
    rank = ids.shape.rank
    if rank is None:
        raise ValueError(f"{name}: ids are of unknown rank; set their static shape.")
    if isinstance(ids, tf.RaggedTensor):
        return _squeeze_ragged(ids, name) if rank > 2 else ids
    if isinstance(ids, tf.SparseTensor):
        # Most sparse tensors don't know their static shape.
        return _squeeze_sparse(ids) if rank > 2 and ids.shape[-1] in (1, None) else ids
    return tf.squeeze(ids, -1) if rank > 1 and ids.shape[-1] == 1 else ids


def _squeeze_sparse(ids: tf.SparseTensor) -> tf.SparseTensor:
    flat = tf.sparse.reshape(ids, ids.dense_shape[:-1])
    shape = tf.ensure_shape(flat.dense_shape, [ids.shape.rank - 1])
    return tf.SparseTensor(flat.indices, flat.values, shape)


def _squeeze_ragged(ids: tf.RaggedTensor, name: str) -> tf.RaggedTensor:
    flat = ids.flat_values
    if flat.shape.rank > 1:
        return ids.with_flat_values(tf.squeeze(flat, -1)) if flat.shape[-1] == 1 else ids
    if ids.ragged_rank != 2:
        return ids
    lengths = ids.values.row_lengths()
    message = f"{name}: ids are lists of lists; the inner ones must have one id each. Lengths:"
    fine = tf.reduce_all(tf.equal(lengths, 1))
    return ids.with_values(asserted(flat, fine, [message, lengths]))


def batch_size(ids: Any) -> tf.Tensor:
    """B of ids of any kind, int64."""
    if isinstance(ids, tf.RaggedTensor):
        return tf.cast(ids.nrows(), tf.int64)
    if isinstance(ids, tf.SparseTensor):
        return ids.dense_shape[0]
    return tf.shape(ids, tf.int64)[0]
