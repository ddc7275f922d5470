"""Inputs of any rank as bags, and what was looked up back in the shape of the inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow import keras

from merlin_embeddings.bags import Bags


class Flat(NamedTuple):
    """Bags, and what their vectors are in the shape of the inputs.

    Attributes:
        bags: B bags.
        restore: takes vectors `[B, D]`, gives the output.
    """

    bags: Bags
    restore: Callable[[tf.Tensor], Any]


def pooled(inputs: Any, weights: Any, padding_id: Any, name: str) -> Flat:
    """The last axis of the inputs is the bag; the output is `[..., D]` without it.

    Args:
        inputs: `[B]` (a bag is one id), `[..., L]`, ragged or sparse, Bags, or a dict of tensors;
            see `Bags.of`.
        weights: like `inputs`, or None.
        padding_id: see `Bags`.
        name: see `Bags`.
    """
    more = {"padding_id": padding_id, "name": name}
    if isinstance(inputs, (Bags, Mapping)):
        bags = Bags.of(inputs, weights, **more)
        return Flat(bags, bags.expand)
    if isinstance(inputs, tf.RaggedTensor) and _is_nested(inputs):
        return _pooled_inside(inputs, weights, more)
    if inputs.shape.rank in (1, 2, None):
        return Flat(Bags.of(inputs, weights, **more), _same)
    if isinstance(inputs, tf.SparseTensor):
        rows, its_weights = (None if x is None else _sparse_rows(x) for x in (inputs, weights))
    else:
        rows, its_weights = _dense_rows(inputs), _dense_weight_rows(inputs, weights, name)
    return Flat(Bags.of(rows, its_weights, **more), lambda v: _reshape(v, inputs, axes=-1))


def single(inputs: Any, padding_id: Any, name: str) -> Flat:
    """Every id is a bag of its own; the output is the inputs' shape and D.

    Args:
        inputs: of any rank; ragged (the output is ragged); sparse (where nothing is, there is id 0,
            as in Keras); Bags or a dict of tensors, `[B, L, D]` or ragged `[B, None, D]`.
        padding_id: see `Bags`.
        name: see `Bags`.
    """
    more = {"padding_id": padding_id, "name": name}
    if isinstance(inputs, (Bags, Mapping)):
        return _single_of_bags(Bags.of(inputs, **more), name)
    if isinstance(inputs, tf.SparseTensor):
        inputs = tf.sparse.to_dense(inputs)
    if isinstance(inputs, tf.RaggedTensor):
        inner = single(inputs.flat_values, **more)
        return Flat(inner.bags, lambda v: inputs.with_flat_values(inner.restore(v)))
    if inputs.shape.rank == 1:
        return Flat(Bags(inputs, hotness=1, **more), _same)
    bags = Bags(tf.reshape(inputs, [-1]), hotness=1, **more)
    return Flat(bags, lambda v: _reshape(v, inputs, axes=None))


def _pooled_inside(inputs: tf.RaggedTensor, weights: Any, more: dict) -> Flat:
    """Bags are further in: takes them there, and puts the outer rows around the result."""
    if weights is not None:
        if not isinstance(weights, tf.RaggedTensor) or not _is_nested(weights):
            raise ValueError(
                f"{more['name']}: ids are ragged with shape {inputs.shape}, weights aren't; give "
                "one weight an id."
            )
        weights = weights.values
    inner = pooled(inputs.values, weights, **more)
    return Flat(inner.bags, lambda vectors: inputs.with_values(inner.restore(vectors)))


def _single_of_bags(bags: Bags, name: str) -> Flat:
    check_no_weights(bags.weights, name)
    hotness = bags.hotness

    def restore(vectors: tf.Tensor) -> Any:
        if hotness is None:
            return bags.expand(tf.RaggedTensor.from_row_splits(vectors, bags.row_splits))
        return bags.expand(tf.reshape(vectors, [-1, hotness, vectors.shape[-1]]))

    return Flat(Bags(bags.values, hotness=1, padding_id=bags.padding_id, name=name), restore)


def check_no_weights(weights: Any, name: str) -> None:
    """Raises ValueError if there are weights, for a feature without combiner."""
    if weights is not None:
        raise ValueError(
            f"{name}: weights belong to a pool, but combiner=None pools nothing. Give a combiner "
            "('sum' over bags of one id scales the vectors), or no weights."
        )


def as_integers(inputs: Any) -> Any:
    """Ids as `keras.layers.Embedding` takes them: floats and booleans are cast, strings stay."""
    if isinstance(inputs, Bags):
        return inputs
    if isinstance(inputs, Mapping):
        return {k: v if k == "weights" else as_integers(v) for k, v in inputs.items()}
    if not isinstance(inputs, (tf.RaggedTensor, tf.SparseTensor)):
        inputs = tf.convert_to_tensor(inputs)
    if inputs.dtype.is_integer or inputs.dtype == tf.string:
        return inputs
    return tf.cast(inputs, tf.int64)


def squeeze(inputs: Any, name: str) -> Any:
    """`[B]`, `[B, L]` or ragged `[B, None]` ids; a last dimension of 1 more is dropped.

    Raises:
        ValueError: another rank.
    """
    if isinstance(inputs, (Bags, Mapping)):
        return inputs
    if not isinstance(inputs, tf.RaggedTensor):
        inputs = tf.convert_to_tensor(inputs)
    if inputs.shape.rank in (1, 2):
        return inputs
    if inputs.shape.rank == 3 and inputs.shape[2] == 1:
        if not isinstance(inputs, tf.RaggedTensor):
            return tf.squeeze(inputs, 2)
        if inputs.ragged_rank == 1:
            return inputs.with_values(tf.reshape(inputs.values, [-1]))
    raise ValueError(
        f"{name}: ids have shape {inputs.shape}; they are [B], [B, L] or ragged [B, None]. Reshape "
        "them, or set their static shape if it is unknown."
    )


def output_spec(
    inputs: Any, combiner: str | None, dim: int, dtype: str, squeeze: bool = False
) -> keras.KerasTensor:
    """The symbolic output of `pooled` (with a combiner) or `single`.

    Args:
        inputs: a symbolic tensor, or a dict of them.
        combiner: None: no pooling.
        dim: D.
        dtype: of the output.
        squeeze: whether `[B, L, 1]` is `[B, L]`, as `squeeze` makes it.
    """
    if isinstance(inputs, Mapping):
        return _output_spec_of_bags(inputs, combiner, dim, dtype)
    outer = tuple(inputs.shape)
    if squeeze and len(outer) == 3 and outer[2] == 1:
        outer = outer[:2]
    if combiner is not None and len(outer) > 1:
        outer = outer[:-1]
    ragged = getattr(inputs, "ragged", False) and len(outer) > 1
    return keras.KerasTensor((*outer, dim), dtype=dtype, ragged=ragged)


def _output_spec_of_bags(
    tensors: Mapping[str, Any], combiner: str | None, dim: int, dtype: str
) -> keras.KerasTensor:
    outer: tuple[int | None, ...]
    if "row_splits" in tensors:
        splits = tensors["row_splits"].shape[0]
        outer, ragged = (splits - 1 if splits else None, None), True
    else:
        outer, ragged = tuple(tensors["values"].shape), getattr(tensors["values"], "ragged", False)
    if "inverse" in tensors:
        outer = (tensors["inverse"].shape[0], *outer[1:])
    if combiner is not None:
        outer = outer[:1]
    ragged = ragged and len(outer) > 1
    return keras.KerasTensor((*outer, dim), dtype=dtype, ragged=ragged)


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


def _dense_weight_rows(inputs: tf.Tensor, weights: Any, name: str) -> Any:
    if weights is None or isinstance(weights, (tf.RaggedTensor, tf.SparseTensor)):
        return weights
    if not inputs.shape.is_compatible_with(weights.shape):
        raise ValueError(
            f"{name}: weights have shape {weights.shape}, ids have shape {inputs.shape}; give one "
            "weight an id."
        )
    return _dense_rows(weights)


def _sparse_rows(tensor: tf.SparseTensor) -> tf.SparseTensor:
    """`[..., L]` as `[B, L]`."""
    rows = tf.sparse.reshape(tensor, tf.stack([-1, tensor.dense_shape[-1]]))
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
