"""Many columns' vectors as one tensor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from tensorflow import keras


class _Aggregation(keras.layers.Layer):
    """What is joined in the sorted order of the columns' names, as merlin-models does it.

    Vectors of sequences (ragged `[B, None, D]`) are joined if all are such and have the same
    lengths.

    Args:
        axis: along which the vectors are joined.
        **kwargs: of `keras.layers.Layer`.
    """

    def __init__(self, axis: int = -1, **kwargs: Any):
        super().__init__(**kwargs)
        self.axis = axis

    @tf.autograph.experimental.do_not_convert  # plain Python: no tensor decides what is done
    def call(self, inputs: Mapping[str, Any], training: bool | None = None) -> Any:
        """One tensor of the layer's compute dtype; see the class."""
        del training
        self._check(inputs)
        names = sorted(inputs)
        tensors = [tf.cast(inputs[name], self.compute_dtype) for name in names]
        if not isinstance(tensors[0], tf.RaggedTensor):
            return self._join(tensors, self.axis)
        values = self._join([tensor.values for tensor in tensors], self._axis_of_values())
        with tf.control_dependencies(_assert_same_lengths(names, tensors)):
            return tensors[0].with_values(tf.identity(values))

    def compute_output_spec(
        self, inputs: Mapping[str, Any], training: bool | None = None
    ) -> keras.KerasTensor:
        """Shape and dtype of the output for symbolic inputs."""
        del training
        self._check(inputs)
        tensors = [inputs[name] for name in sorted(inputs)]
        ragged = _is_ragged(tensors[0])
        values = [tuple(t.shape[1:] if ragged else t.shape) for t in tensors]
        shape = self._joined(values, self._axis_of_values() if ragged else self.axis)
        shape = (tensors[0].shape[0], *shape) if ragged else shape
        return keras.KerasTensor(shape, dtype=self.compute_dtype, ragged=ragged)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), "axis": self.axis}

    def _check(self, inputs: Any) -> None:
        if not isinstance(inputs, Mapping) or not inputs:
            raise ValueError(f"{type(self).__name__} joins a dict of tensors; got {inputs!r}.")
        shapes = {name: _described(tensor) for name, tensor in sorted(inputs.items())}
        outer = {self._must_match(tensor) for tensor in inputs.values()}
        if len(outer) > 1:
            raise ValueError(f"{type(self).__name__} {self.name!r}: {self._rule} Got {shapes}.")

    def _axis_of_values(self) -> int:
        if self.axis in (0, 1):
            raise ValueError(
                f"{type(self).__name__} {self.name!r}: axis={self.axis} is the batch's or the "
                "sequence's; ragged vectors are joined along axis -1."
            )
        return self.axis - 1 if self.axis > 0 else self.axis

    _rule: str

    def _must_match(self, tensor: Any) -> Any:
        raise NotImplementedError

    def _join(self, tensors: list[tf.Tensor], axis: int) -> tf.Tensor:
        raise NotImplementedError

    def _joined(self, shapes: list[tuple], axis: int) -> tuple:
        raise NotImplementedError


@keras.utils.register_keras_serializable(package="merlin_embeddings")
class Concat(_Aggregation):
    """Vectors one behind the other: `{name: [B, D_name]} -> [B, sum of all D]`.

    The order is the sorted one of the names, whatever that of the dict.

    Args:
        axis: along which.
        **kwargs: of `keras.layers.Layer`.

    Raises:
        ValueError: shapes differ in more than the last axis, for example a sequence beside a
            vector. `BroadcastToSequence` gives every position of the sequence the vector.

    >>> import tensorflow as tf
    >>> Concat()({"b": tf.constant([[3.0]]), "a": tf.constant([[1.0, 2.0]])}).numpy().tolist()
    [[1.0, 2.0, 3.0]]
    """

    _rule = (
        "columns must have the same shape but for the last axis. A list that is pooled (combiner "
        "'mean', say) is a vector; post=BroadcastToSequence() puts vectors beside sequences."
    )

    def _must_match(self, tensor: Any) -> Any:
        return _rank(tensor), _is_ragged(tensor)

    def _join(self, tensors: list[tf.Tensor], axis: int) -> tf.Tensor:
        return tf.concat(tensors, axis)

    def _joined(self, shapes: list[tuple], axis: int) -> tuple:
        joined = list(shapes[0])
        sizes = [shape[axis] for shape in shapes]
        joined[axis] = None if None in sizes else sum(sizes)
        return tuple(joined)


@keras.utils.register_keras_serializable(package="merlin_embeddings")
class Stack(_Aggregation):
    """Vectors of one length side by side: `{name: [B, D]} -> [B, D, F]`, F columns.

    The order is the sorted one of the names. The columns come last, as in merlin-models;
    `Stack(axis=1)` gives `[B, F, D]`.

    Args:
        axis: where the columns go.
        **kwargs: of `keras.layers.Layer`.

    Raises:
        ValueError: shapes differ.

    >>> import tensorflow as tf
    >>> rows = {"b": tf.constant([[3.0, 4.0]]), "a": tf.constant([[1.0, 2.0]])}
    >>> Stack()(rows).numpy().tolist(), Stack(axis=1)(rows).numpy().tolist()
    ([[[1.0, 3.0], [2.0, 4.0]]], [[[1.0, 2.0], [3.0, 4.0]]])
    """

    _rule = (
        "columns must have one shape. Give all tables one embedding_dim; continuous columns need a "
        "projection to that length, such as continuous=keras.layers.Dense(embedding_dim)."
    )

    def _must_match(self, tensor: Any) -> Any:
        return _rank(tensor), _is_ragged(tensor), tensor.shape[-1]

    def _join(self, tensors: list[tf.Tensor], axis: int) -> tf.Tensor:
        return tf.stack(tensors, axis)

    def _joined(self, shapes: list[tuple], axis: int) -> tuple:
        joined = list(shapes[0])
        joined.insert(axis if axis >= 0 else len(joined) + 1 + axis, len(shapes))
        return tuple(joined)


def get(aggregation: Any, **kwargs: Any) -> keras.layers.Layer | None:
    """The layer that `aggregation` means: "concat", "stack", a layer, or None.

    Args:
        aggregation: what is meant.
        **kwargs: of a layer that is made here.

    Raises:
        ValueError: it is none of these.
    """
    if aggregation is None or isinstance(aggregation, keras.layers.Layer):
        return aggregation
    known = {"concat": Concat, "stack": Stack}
    if aggregation not in known:
        raise ValueError(
            f"aggregation={aggregation!r}; it must be 'concat', 'stack', None (a dict of vectors) "
            "or a layer that takes a dict."
        )
    return known[aggregation](**kwargs)


def _is_ragged(tensor: Any) -> bool:
    return isinstance(tensor, tf.RaggedTensor) or bool(getattr(tensor, "ragged", False))


def _rank(tensor: Any) -> int | None:
    return tf.TensorShape(tensor.shape).rank


def _described(tensor: Any) -> str:
    shape = tf.TensorShape(tensor.shape).as_list()
    return f"ragged {shape}" if _is_ragged(tensor) else str(shape)


def _assert_same_lengths(names: list[str], tensors: list[tf.RaggedTensor]) -> list[Any]:
    first, *others = tensors
    return [
        tf.debugging.assert_equal(
            first.row_splits,
            other.row_splits,
            message=f"Sequences of {names[0]!r} and {name!r} have different lengths",
        )
        for name, other in zip(names[1:], others, strict=True)
        if other.row_splits is not first.row_splits
    ]
