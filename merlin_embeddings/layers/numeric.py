"""Columns that are numbers already: continuous ones, and vectors that come with the batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow import keras

from merlin_embeddings.data import Column


class NumericColumns(keras.layers.Layer):
    """Picks columns of a batch as vectors: `{name: [B]} -> {name: [B, 1]}`.

    Lists `[B, L]` become `[B, L, 1]`, ragged `[B, None]` ragged `[B, None, 1]`. Vectors (columns
    tagged as embedding) `[B, D]` stay; ragged `[B, None, D]` are averaged, no vector is zeros.

    Args:
        columns: which.
        **kwargs: of `keras.layers.Layer`.

    Call arguments:
        inputs: a dict that has them, by name or as Merlin's pair `x__values`, `x__offsets`; other
            keys are left alone.
    """

    def __init__(self, columns: Sequence[Column], **kwargs: Any):
        # Cast here instead: Keras would cast ids that pass by.
        super().__init__(**{**kwargs, "autocast": False})
        self._columns = tuple(columns)

    @tf.autograph.experimental.do_not_convert  # plain Python: no tensor decides what is done
    def call(self, inputs: Mapping[str, Any], training: bool | None = None) -> dict[str, Any]:
        """The columns in the layer's compute dtype."""
        del training
        picked = {column.name: self._pick(column, inputs) for column in self._columns}
        return {
            column.name: self._as_vectors(column, picked[column.name]) for column in self._columns
        }

    def compute_output_spec(
        self, inputs: Mapping[str, Any], training: bool | None = None
    ) -> dict[str, keras.KerasTensor]:
        """Shapes and dtypes of the columns for symbolic inputs."""
        del training
        return {column.name: self._spec(column, inputs) for column in self._columns}

    def _pick(self, column: Column, inputs: Mapping[str, Any]) -> Any:
        found = _find(column.name, inputs)
        if isinstance(found, tuple):
            values, offsets = map(tf.convert_to_tensor, found)
            found = tf.RaggedTensor.from_row_splits(_squeezed(values, column), offsets)
        if not isinstance(found, tf.RaggedTensor):
            found = tf.convert_to_tensor(found)
        if found.dtype == tf.string:
            raise ValueError(
                f"Column {column.name!r} has strings; a column tagged as {column.kind} has numbers."
            )
        return tf.cast(found, self.compute_dtype)

    def _as_vectors(self, column: Column, tensor: Any) -> Any:
        rank = tensor.shape.rank
        _check_rank(column, rank)
        if column.kind == "embedding":
            return _mean(tensor) if rank == 3 else tensor
        if isinstance(tensor, tf.RaggedTensor):
            return tensor if rank == 3 else tensor.with_values(tensor.values[:, None])
        if rank == 1 or (rank == 2 and tensor.shape[1] != 1):
            return tensor[..., None]
        return tensor

    def _spec(self, column: Column, inputs: Mapping[str, Any]) -> keras.KerasTensor:
        found = _find(column.name, inputs)
        ragged = isinstance(found, tuple) or bool(getattr(found, "ragged", False))
        if isinstance(found, tuple):
            values, offsets = found
            splits = offsets.shape[0]
            inner = tuple(values.shape)[1:] if column.kind == "embedding" else ()
            shape: tuple = (splits - 1 if splits else None, None, *inner)
        else:
            shape = tuple(found.shape)
        _check_rank(column, len(shape))
        if column.kind == "embedding":
            ragged, shape = False, (shape[0], shape[-1])
        elif len(shape) == 1 or (len(shape) == 2 and (ragged or shape[1] != 1)):
            shape = (*shape, 1)
        return keras.KerasTensor(shape, dtype=self.compute_dtype, ragged=ragged)


def _find(name: str, inputs: Mapping[str, Any]) -> Any:
    """A column's tensor, or its pair of values and offsets."""
    values, offsets = f"{name}__values", f"{name}__offsets"
    if name in inputs:
        return inputs[name]
    if values in inputs and offsets in inputs:
        return inputs[values], inputs[offsets]
    raise ValueError(
        f"Column {name!r} isn't in the inputs, which have {sorted(map(str, inputs))}. Give {name!r}"
        f" (or the pair {values!r} and {offsets!r}), or leave it out of the schema."
    )


def _squeezed(values: tf.Tensor, column: Column) -> tf.Tensor:
    return values if column.kind == "embedding" else tf.reshape(values, [-1])


def _check_rank(column: Column, rank: int | None) -> None:
    allowed = (2, 3) if column.kind == "embedding" else (1, 2, 3)
    if rank not in allowed:
        what = "[B, D] or ragged [B, None, D]" if column.kind == "embedding" else "[B] or [B, None]"
        raise ValueError(f"Column {column.name!r} is a tensor of rank {rank}; it must be {what}.")


def _mean(vectors: Any) -> tf.Tensor:
    """Of each row's vectors; zeros where there are none."""
    if not isinstance(vectors, tf.RaggedTensor):
        return tf.reduce_mean(vectors, axis=1)
    count = tf.cast(vectors.row_lengths(), vectors.dtype)[:, None]
    return tf.math.divide_no_nan(tf.reduce_sum(vectors, axis=1), count)


def symbols(columns: Sequence[Column], shapes: Mapping[str, Any]) -> dict[str, keras.KerasTensor]:
    """Symbols for a batch of which only shapes are known, of the dtypes and kinds of its columns.

    Args:
        columns: of the schema.
        shapes: of the batch's tensors; what is no column is taken for numbers.
    """
    by_name = {column.name: column for column in columns}
    return {name: _symbol(by_name, name, tuple(shape)) for name, shape in shapes.items()}


def _symbol(columns: Mapping[str, Column], key: str, shape: tuple) -> keras.KerasTensor:
    column = columns.get(key.removesuffix("__values"))
    is_id = key.endswith("__offsets") or (column is not None and column.kind == "categorical")
    ragged = key in columns and columns[key].is_list and columns[key].kind != "embedding"
    dtype = "int64" if is_id else keras.backend.floatx()
    return keras.KerasTensor(shape, dtype=dtype, ragged=ragged and len(shape) > 1)
