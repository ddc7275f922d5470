"""Per-id weights and scores: of the kind and structure of their ids, or an error."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf


def flat_weights(ids: Any, weights: Any, name: str, what: str = "weights") -> tf.Tensor | None:
    """Weights as a vector, one a value of the ids.

    Args:
        ids: a dense tensor of any rank, a `tf.RaggedTensor` or a `tf.SparseTensor`.
        weights: of the same kind and structure (dense ones may have dimensions of 1 at the end
            more or less), or None.
        name: what the ids are, for messages.
        what: what the weights are, for messages: scores are such numbers, too.

    Returns:
        `[N]` in the order of the values, or None.

    Raises:
        TypeError: weights of another kind.
        ValueError: weights of another static shape or number of ragged dimensions.
        tf.errors.InvalidArgumentError: weights of another shape, other row splits or indices.

    >>> import tensorflow as tf
    >>> flat_weights(tf.constant([[7, 3]]), [[0.5, 2.0]], "ids").numpy().tolist()
    [0.5, 2.0]
    """
    if weights is None:
        return None
    _check_kind(ids, weights, name, what)
    if isinstance(ids, tf.RaggedTensor):
        return _flat_ragged(ids, weights, name, what)
    if isinstance(ids, tf.SparseTensor):
        checks = _check_equal("indices", ids.indices, weights.indices, name, what)
        checks += _check_equal("dense shapes", ids.dense_shape, weights.dense_shape, name, what)
        return _after(checks, weights.values)
    return _flat_dense(ids, _to_tensor(weights, name, what), name, what)


def to_weights(weights: Any, values: tf.Tensor, name: str) -> tf.Tensor:
    """Weights `[N]` float32 of values `[N]`.

    Raises:
        TypeError: they aren't numbers.
        ValueError: another rank or number.
    """
    weights = tf.convert_to_tensor(weights)
    if not (weights.dtype.is_floating or weights.dtype.is_integer):
        raise TypeError(f"{name}: weights have dtype {weights.dtype.name}; weights are numbers.")
    return _of_values(tf.cast(weights, tf.float32), values, name, "weight")


def to_scores(scores: Any, values: tf.Tensor, name: str) -> tf.Tensor:
    """Scores `[N]` int64 of values `[N]`.

    Raises:
        TypeError: they aren't integers.
        ValueError: another rank or number.
    """
    scores = tf.convert_to_tensor(scores)
    if not scores.dtype.is_integer:
        raise TypeError(
            f"{name}: scores have dtype {scores.dtype.name}; scores are integers in [0, 2**32)."
        )
    return _of_values(tf.cast(scores, tf.int64), values, name, "score")


def to_vector(what: str, tensor: tf.Tensor, name: str) -> tf.Tensor:
    """`[N]` or `[N, 1]` as `[N]`.

    Raises:
        ValueError: another rank.
    """
    if tensor.shape.rank == 2 and tensor.shape[1] == 1:
        return tf.reshape(tensor, [-1])
    if tensor.shape.rank not in (1, None):
        raise ValueError(f"{name}: {what} has shape {tensor.shape}; it is a vector.")
    return tensor


def check_like(ids: Any, weights: Any, name: str, what: str = "weights") -> None:
    """Raises what `flat_weights` would whatever the values, for tensors and symbols."""
    _check_kind(ids, weights, name, what)
    _check_shapes(_static(ids), _static(weights), name, what)


def check_pool(combiner: str | None, weights: Any, name: str) -> None:
    """Raises ValueError if there are weights, and a combiner that has no use for them."""
    if weights is None:
        return
    if combiner is None:
        raise ValueError(
            f"{name}: weights belong to a pool, but combiner=None pools nothing. Give a combiner "
            "('sum' over bags of one id scales the vectors), or no weights."
        )
    if combiner == "max":
        raise ValueError(
            f"{name}: combiner='max' takes no weights. Give another combiner, or no weights."
        )


def kind_of(tensor: Any) -> str:
    """Whether a tensor, or Keras's symbol for one, is "dense", "ragged" or "sparse"."""
    if isinstance(tensor, tf.RaggedTensor) or getattr(tensor, "ragged", False):
        return "ragged"
    if isinstance(tensor, tf.SparseTensor) or getattr(tensor, "sparse", False):
        return "sparse"
    return "dense"


def _of_values(numbers: tf.Tensor, values: tf.Tensor, name: str, what: str) -> tf.Tensor:
    numbers = to_vector(f"{what}s", numbers, name)
    if not numbers.shape.is_compatible_with(values.shape):
        raise ValueError(
            f"{name}: {numbers.shape[0]} {what}s for {values.shape[0]} ids; give one {what} an id."
        )
    return numbers


def _flat_ragged(ids: tf.RaggedTensor, weights: tf.RaggedTensor, name: str, what: str) -> tf.Tensor:
    if ids.ragged_rank != weights.ragged_rank:
        raise ValueError(
            f"{name}: ids have {ids.ragged_rank} ragged dimensions, {what} have "
            f"{weights.ragged_rank}; give one {what.removesuffix('s')} an id."
        )
    checks: list = []
    for mine, others in zip(ids.nested_row_splits, weights.nested_row_splits, strict=True):
        checks += _check_equal("row_splits", mine, others, name, what)
    return _after(checks, _flat_dense(ids.flat_values, weights.flat_values, name, what))


def _flat_dense(ids: tf.Tensor, weights: tf.Tensor, name: str, what: str) -> tf.Tensor:
    _check_shapes(ids.shape, weights.shape, name, what)
    checks = []
    if not _size_tells(ids.shape, weights.shape):
        checks = _check_equal("shapes", _run_time_shape(ids), _run_time_shape(weights), name, what)
    weights = _after(checks, weights)
    return weights if weights.shape.rank == 1 else tf.reshape(weights, [-1])


def _check_kind(ids: Any, weights: Any, name: str, what: str) -> None:
    kind, other = kind_of(ids), kind_of(weights)
    if kind != other:
        raise TypeError(
            f"{name}: ids are {kind} but {what} are {other}; give {what} of the same kind."
        )


def _check_shapes(ids: Any, weights: Any, name: str, what: str) -> None:
    ids, weights = tf.TensorShape(ids), tf.TensorShape(weights)
    if ids.rank is None or weights.rank is None:
        return
    if not tf.TensorShape(_trimmed(ids)).is_compatible_with(_trimmed(weights)):
        raise ValueError(
            f"{name}: {what} have shape {weights}, ids have shape {ids}; give one "
            f"{what.removesuffix('s')} an id."
        )


def _size_tells(a: tf.TensorShape, b: tf.TensorShape) -> bool:
    """Whether tensors of these compatible shapes that have equally many values are of one shape."""
    if a.rank is None or b.rank is None:
        return False
    pairs = list(zip(_trimmed(a), _trimmed(b), strict=True))
    unknown = sum(None in pair for pair in pairs)
    return unknown == 0 or (unknown == 1 and not any(0 in pair for pair in pairs))


def _trimmed(shape: tf.TensorShape) -> list[int | None]:
    """A shape without dimensions of 1 at its end: `[B]` ids may come with `[B, 1]` weights."""
    sizes = shape.as_list()
    while len(sizes) > 1 and sizes[-1] == 1:
        sizes.pop()
    return sizes


def _run_time_shape(tensor: tf.Tensor) -> tf.Tensor:
    shape = tf.shape(tensor, tf.int64)
    return shape if tensor.shape.rank is None else shape[: len(_trimmed(tensor.shape))]


def _static(tensor: Any) -> Any:
    return tensor.shape if hasattr(tensor, "shape") else np.shape(tensor)


def _to_tensor(weights: Any, name: str, what: str) -> tf.Tensor:
    try:
        return tf.convert_to_tensor(weights)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: {what} aren't a tensor: {error}") from None


def _check_equal(part: str, ids: tf.Tensor, weights: tf.Tensor, name: str, what: str) -> list:
    """Operations that fail unless integer tensors of one rank are equal; none for one object."""
    if ids is weights:
        return []
    mine, others = (tf.reshape(tf.cast(x, tf.int64), [-1]) for x in (ids, weights))
    common = tf.minimum(tf.size(mine), tf.size(others))  # so that nothing is broadcast
    same_shape = tf.reduce_all(tf.equal(tf.shape(ids), tf.shape(weights)))
    fine = same_shape & tf.reduce_all(tf.equal(mine[:common], others[:common]))
    message = (
        f"{name}: ids and {what} have different {part}; give one {what.removesuffix('s')} an id, "
        "in order."
    )
    check = tf.debugging.Assert(fine, [message, "ids:", ids, f"{what}:", weights])
    return [] if check is None else [check]  # eager: checked already


def _after(checks: list, weights: tf.Tensor) -> tf.Tensor:
    with tf.control_dependencies(checks):
        return tf.identity(weights) if checks else weights
