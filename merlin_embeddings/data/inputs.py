"""Keras's symbolic inputs for the columns of a schema."""

from __future__ import annotations

from typing import Any

from tensorflow import keras

from merlin_embeddings.data.columns import Column, check_names, columns


def keras_inputs(schema: Any) -> dict[str, Any]:
    """The inputs of a functional model that takes batches of `data.batches`.

    There is one for each column tagged as categorical, continuous or embedding; targets and
    untagged columns are left out.

    Args:
        schema: a `merlin.schema.Schema` or `Column`s.

    Returns:
        By column name: scalars `[B]`, lists ragged `[B, None]`, vectors `[B, D]`. Ids have the
        schema's integer dtype (int64 if it has none), numbers Keras's float type.

    Raises:
        ValueError: no such column, a name with a slash, or the vectors of a column have no one
            length.

    >>> from merlin_embeddings.data import Column
    >>> inputs = keras_inputs([
    ...     Column("user", ("categorical",), "int32"),
    ...     Column("genres", ("categorical",), "int64", is_list=True),
    ...     Column("age", ("continuous",), "float64"),
    ...     Column("click", ("target",)),
    ... ])
    >>> [(name, tuple(x.shape)) for name, x in inputs.items()]
    [('user', (None,)), ('genres', (None, None)), ('age', (None,))]
    """
    chosen = [column for column in columns(schema) if _is_input(column)]
    check_names(chosen)
    inputs = {column.name: _input(column) for column in chosen}
    if not inputs:
        raise ValueError(
            "keras_inputs: the schema has no column tagged as categorical, continuous or embedding."
            " Categorify and Normalize tag their columns; AddMetadata tags others."
        )
    return inputs


def _is_input(column: Column) -> bool:
    return column.kind in ("categorical", "continuous", "embedding")


def _input(column: Column) -> Any:
    dtype = _id_dtype(column) if column.kind == "categorical" else keras.backend.floatx()
    if column.kind == "embedding":
        return keras.Input((_length(column),), name=column.name, dtype=dtype)
    if column.is_list:
        return keras.Input((None,), name=column.name, dtype=dtype, ragged=True)
    return keras.Input((), name=column.name, dtype=dtype)


def _id_dtype(column: Column) -> str:
    return column.dtype if "int" in column.dtype or column.dtype == "string" else "int64"


def _length(column: Column) -> int:
    low, high = column.value_count or (None, None)
    if not low or low != high:
        raise ValueError(
            f"Column {column.name!r} is tagged as embedding, but the schema doesn't say how long "
            "its vectors are. Set value_count's min and max (or dims) to the length."
        )
    return low
