"""Inputs of any rank as bags, and what was looked up back in the shape of the inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from merlin_embeddings.bags import Bags, check_pool, flat_weights, kind_of, truncate


class Flat(NamedTuple):
    """Bags, and what their vectors are in the shape of the inputs.

    Attributes:
        bags: B bags.
        restore: takes vectors `[B, D]`, gives the output.
    """

    bags: Bags
    restore: Callable[[tf.Tensor], Any]


def pooled(inputs: Any, weights: Any, padding_id: Any, name: str, scores: Any = None) -> Flat:
    """The last axis of the inputs is the bag; the output is `[..., D]` without it.

    Args:
        inputs: `[B]` (a bag is one id), `[..., L]`, ragged or sparse, Bags, or a dict of tensors;
            see `Bags.of`.
        weights: of the kind and structure of `inputs`, or None.
        padding_id: see `Bags`.
        name: see `Bags`.
        scores: of the kind and structure of `inputs`, or None.

    Raises:
        TypeError, ValueError, tf.errors.InvalidArgumentError: as `Bags.of` does.
    """
    more = {"padding_id": padding_id, "name": name}
    if isinstance(inputs, (Bags, Mapping)):
        bags = Bags.of(inputs, weights, **more, scores=scores)
        return Flat(bags, bags.expand)
    # Before anything is reshaped: what is flat has lost the structure that is compared.
    weights = flat_weights(inputs, weights, name)
    scores = flat_weights(inputs, scores, name, "scores")
    flat = _pooled(inputs, more)
    return Flat(Bags.of(flat.bags, weights, name=name, scores=scores), flat.restore)


def single(inputs: Any, padding_id: Any, name: str, scores: Any = None) -> Flat:
    """Every id is a bag of its own; the output is the inputs' shape and D.

    Args:
        inputs: of any rank; ragged (the output is ragged); sparse (where nothing is, there is id 0,
            as in Keras); Bags or a dict of tensors, `[B, L, D]` or ragged `[B, None, D]`.
        padding_id: see `Bags`.
        name: see `Bags`.
        scores: of the kind and structure of `inputs`, or None.
    """
    more = {"padding_id": padding_id, "name": name}
    if isinstance(inputs, (Bags, Mapping)):
        return _single_of_bags(Bags.of(inputs, **more, scores=scores), name)
    if isinstance(inputs, tf.SparseTensor):
        inputs = tf.sparse.to_dense(inputs)
        scores = tf.sparse.to_dense(scores) if isinstance(scores, tf.SparseTensor) else scores
    scores = flat_weights(inputs, scores, name, "scores")
    if isinstance(inputs, tf.RaggedTensor):
        inner = single(inputs.flat_values, **more)
        return Flat(_with(inner.bags, scores), lambda v: inputs.with_flat_values(inner.restore(v)))
    if inputs.shape.rank == 1:
        return Flat(Bags(inputs, hotness=1, scores=scores, **more), _same)
    bags = Bags(tf.reshape(inputs, [-1]), hotness=1, scores=scores, **more)
    return Flat(bags, lambda v: _reshape(v, inputs, axes=None))


def single_truncated(
    inputs: Any, padding_id: Any, name: str, max_length: int, keep: str, scores: Any = None
) -> Flat:
    """As `single`, of at most `max_length` ids of each bag: the "first" or the "last".

    Args:
        inputs: `[B]`, `[B, L]` (the output is `[B, min(L, max_length), D]`), ragged `[B, None]`,
            Bags or a dict of tensors.
        padding_id: see `Bags`; bags that are cut have their padding at the end.
        name: see `Bags`.
        max_length: see `truncate`.
        keep: see `truncate`.
        scores: of the kind and structure of `inputs`, or None.
    """
    dense = not isinstance(inputs, (Bags, Mapping, tf.RaggedTensor))
    if dense and inputs.shape.rank == 1:
        return single(inputs, padding_id, name, scores)
    bags = Bags.of(inputs, None, padding_id, name, scores)
    short = truncate(bags, max_length, keep)
    flat = _single_of_bags(short, name)
    if short.hotness is not None or not (dense or bags.hotness):
        return flat
    # Dense ids, whose padding is gone: the rows have lengths of their own now.
    length = bags.hotness or tf.shape(inputs, tf.int64)[1]
    return Flat(flat.bags, lambda vectors: _padded(flat.restore(vectors), length, max_length))


def _padded(ragged: tf.RaggedTensor, length: Any, max_length: int) -> tf.Tensor:
    """Ragged `[B, None, D]` as `[B, min(length, max_length), D]`, zeros at the end of rows."""
    dim = ragged.flat_values.shape[-1]
    static = min(length, max_length) if isinstance(length, int) else None
    width = tf.minimum(tf.cast(length, tf.int64), max_length)
    padded = ragged.to_tensor(shape=tf.stack([-1, width, dim]))
    return tf.ensure_shape(padded, [None, static, dim])


def _pooled(inputs: Any, more: dict) -> Flat:
    if isinstance(inputs, tf.RaggedTensor) and _is_nested(inputs):
        # Bags are further in: the outer rows come around the result.
        inner = _pooled(inputs.values, more)
        return Flat(inner.bags, lambda vectors: inputs.with_values(inner.restore(vectors)))
    if inputs.shape.rank in (1, 2, None):
        return Flat(Bags.of(inputs, **more), _same)
    rows = _sparse_rows(inputs) if isinstance(inputs, tf.SparseTensor) else _dense_rows(inputs)
    return Flat(Bags.of(rows, **more), lambda vectors: _reshape(vectors, inputs, axes=-1))


def _single_of_bags(bags: Bags, name: str) -> Flat:
    check_pool(None, bags.weights, name)
    hotness = bags.hotness

    def restore(vectors: tf.Tensor) -> Any:
        if hotness is None:
            return bags.expand(tf.RaggedTensor.from_row_splits(vectors, bags.row_splits))
        return bags.expand(tf.reshape(vectors, [-1, hotness, vectors.shape[-1]]))

    return Flat(bags.singles(), restore)


def as_integers(inputs: Any) -> Any:
    """Ids as `keras.layers.Embedding` takes them: floats and booleans are cast, strings stay."""
    if isinstance(inputs, Bags):
        return inputs
    if isinstance(inputs, Mapping):
        return {k: v if k in ("weights", "scores") else as_integers(v) for k, v in inputs.items()}
    if not isinstance(inputs, (tf.RaggedTensor, tf.SparseTensor)):
        inputs = tf.convert_to_tensor(inputs)
    if inputs.dtype.is_integer or inputs.dtype == tf.string:
        return inputs
    return tf.cast(inputs, tf.int64)


def are_strings(inputs: Any) -> bool:
    """Whether ids, or symbols for them, are strings."""
    if isinstance(inputs, Bags):
        return inputs.strings
    if isinstance(inputs, Mapping):
        inputs = inputs["values"]
    return tf.as_dtype(inputs.dtype) == tf.string


def squeeze(inputs: Any, name: str) -> Any:
    """`[B]`, `[B, L]` or ragged `[B, None]` ids; a last dimension of 1 more is dropped.

    Raises:
        ValueError: another rank.
    """
    if isinstance(inputs, (Bags, Mapping)):
        return inputs
    if not isinstance(inputs, tf.RaggedTensor):
        inputs = tf.convert_to_tensor(inputs)
    check_squeezable(inputs.shape, name)
    if inputs.shape.rank < 3:
        return inputs
    if isinstance(inputs, tf.RaggedTensor):
        return inputs.with_values(tf.reshape(inputs.flat_values, [-1]))
    return tf.squeeze(inputs, 2)


def check_not_sparse(inputs: Any, name: str) -> None:
    """Raises ValueError for sparse ids, which a feature without combiner can't have."""
    if kind_of(inputs) == "sparse":
        raise ValueError(
            f"{name}: sparse ids need a combiner. For one vector an id give ragged ids: "
            "tf.RaggedTensor.from_sparse(ids)."
        )


def check_squeezable(shape: Any, name: str) -> None:
    """Raises ValueError unless `squeeze` takes ids of this static shape."""
    shape = tf.TensorShape(shape)
    if shape.rank not in (1, 2) and not (shape.rank == 3 and shape[2] == 1):
        raise ValueError(
            f"{name}: ids have shape {shape}; they are [B], [B, L] or ragged [B, None]. Reshape "
            "them, or set their static shape if it is unknown."
        )


def _with(bags: Bags, scores: tf.Tensor | None) -> Bags:
    return Bags.of(bags, name=bags.name, scores=scores)


def _same(vectors: tf.Tensor) -> tf.Tensor:
    return vectors


def _is_nested(ragged: tf.RaggedTensor) -> bool:
    return ragged.ragged_rank > 1 or ragged.flat_values.shape.rank != 1


def _dense_rows(tensor: tf.Tensor) -> tf.Tensor:
    """`[..., L]` as `[B, L]`; a scalar as `[1, 1]`."""
    if tensor.shape.rank == 0:
        return tf.reshape(tensor, [1, 1])
    if tensor.shape[-1]:
        return tf.reshape(tensor, [-1, tensor.shape[-1]])
    shape = tf.shape(tensor)  # -1 can't be inferred beside a 0, which the length may be
    return tf.reshape(tensor, tf.stack([tf.reduce_prod(shape[:-1]), shape[-1]]))


def _sparse_rows(tensor: tf.SparseTensor) -> tf.SparseTensor:
    """`[..., L]` as `[B, L]`."""
    shape = tensor.dense_shape  # -1 can't be inferred beside a 0, which the length may be
    rows = tf.sparse.reshape(tensor, tf.stack([tf.reduce_prod(shape[:-1]), shape[-1]]))
    return tf.SparseTensor(rows.indices, rows.values, tf.ensure_shape(rows.dense_shape, [2]))


def _reshape(vectors: tf.Tensor, like: tf.Tensor | tf.SparseTensor, axes: int | None) -> tf.Tensor:
    """Vectors `[N, D]` as `[*like.shape[:axes], D]`: one op where the static shape says enough."""
    dim = vectors.shape[-1]
    if like.shape.rank is not None:
        static = like.shape[:axes]
        sizes = static.as_list()
        # -1 can't be inferred beside a 0.
        if sizes.count(None) <= 1 and 0 not in sizes:
            return tf.reshape(vectors, [-1 if size is None else size for size in sizes] + [dim])
    sparse = isinstance(like, tf.SparseTensor)
    shape = like.dense_shape if sparse else tf.shape(like, tf.int64)
    vectors = tf.reshape(vectors, tf.concat([shape[:axes], [dim]], 0))
    return tf.ensure_shape(vectors, like.shape[:axes].concatenate([dim]))
