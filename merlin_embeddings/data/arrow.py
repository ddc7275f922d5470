"""From Arrow to numpy, without copying where the memory is the same."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from merlin_embeddings.data.checking import Place, Rule
from merlin_embeddings.data.columns import Column
from merlin_embeddings.data.layout import Chunk, Field


def fields_of(
    schema: pa.Schema, names: Sequence[str], columns: Mapping[str, Column], source: str
) -> list[Field]:
    """What columns of an Arrow schema become in a batch.

    Args:
        schema: of the data.
        names: the columns wanted.
        columns: what a Merlin schema says of them; may be empty.
        source: where the data come from, for messages.

    Raises:
        ValueError: a column is missing, has a type that no tensor has, or isn't what the Merlin
            schema says.
    """
    missing = [name for name in names if schema.get_field_index(name) < 0]
    if missing:
        raise ValueError(
            f"Column {missing[0]!r} isn't in {source}, which has {schema.names}. Write it, or take "
            "it out of the schema (schema.excluding_by_name)."
        )
    return [_field(schema.field(name), columns.get(name), source) for name in names]


def known_types(schemas: Iterable[pa.Schema]) -> pa.Schema:
    """The first schema; where lists were all empty, so that they have no type, a later one's."""
    schemas = iter(schemas)
    found = next(schemas)
    for schema in schemas:
        unknown = [place for place, field in enumerate(found) if is_untyped(field.type)]
        if not unknown:
            break
        for place in unknown:
            other = schema.get_field_index(found.field(place).name)
            if other >= 0 and _is_list(schema.field(other).type):
                found = found.set(place, schema.field(other))
    return found


def is_untyped(kind: pa.DataType) -> bool:
    """Whether it is the type of lists that were all empty."""
    return _is_list(kind) and pa.types.is_null(kind.value_type)


def chunk_of(
    batch: pa.RecordBatch,
    fields: Sequence[Field],
    place: Place,
    rules: Mapping[str, Rule],
    proven: Container[str] = (),
) -> Chunk:
    """The columns of a record batch as arrays, checked.

    Args:
        batch: rows that were read.
        fields: the columns wanted.
        place: of the first row.
        rules: what must be true of columns, by name.
        proven: columns whose ids are known to be in their domains.

    Raises:
        ValueError: a null, or a value that breaks a rule.
    """
    arrays: dict[str, Any] = {}
    for field in fields:
        array = batch.column(field.name)
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        _refuse_nulls(array, field.name, place)
        rule = rules.get(field.name)
        if field.kind == "scalar":
            values = _numpy(array)
            arrays[field.name] = values
            if rule and field.name not in proven:
                rule.check_ids(values, place)
            continue
        values, offsets = _lists(array, field.name, place)
        if field.kind == "vector":
            arrays[field.name] = _vectors(values, offsets, field, place)
            continue
        arrays[field.name] = values, offsets
        if rule:
            rule.check_lengths(offsets, place)
            if field.name not in proven:
                first, last = (offsets[0], offsets[-1]) if len(offsets) else (0, 0)
                rule.check_ids(values[first:last], place, offsets - first)
    return Chunk(batch.num_rows, arrays)


def _field(field: pa.Field, column: Column | None, source: str) -> Field:
    kind, is_list = field.type, False
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if _is_list(kind):
        is_list, kind = True, kind.value_type
    if column is not None and column.is_list and is_untyped(field.type):
        kind = _arrow_type(column)
    dtype = _dtype(kind)
    if dtype is None:
        raise ValueError(
            f"Column {field.name!r} of {source} has the type {field.type}, which no tensor has. "
            "Encode it in the workflow, or leave it out: columns=[...], or a schema without it."
        )
    if column is None:
        return Field(field.name, dtype, "list" if is_list else "scalar")
    wanted = _wanted(column, dtype)
    if is_list != column.is_list or wanted is None:
        said = f"{'lists of ' if column.is_list else ''}{column.dtype}"
        raise ValueError(
            f"Column {field.name!r} of {source} has the type {field.type}; the schema says {said}. "
            "Give the schema that these rows were written with."
        )
    if column.kind == "embedding" and is_list:
        low, high = column.value_count or (None, None)
        if low and low == high:
            return Field(field.name, wanted, "vector", low)
    return Field(field.name, wanted, "list" if is_list else "scalar")


def _is_list(kind: pa.DataType) -> bool:
    return (
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _arrow_type(column: Column) -> pa.DataType:
    """Of what a Merlin schema says; null if it says nothing that has a type."""
    try:
        return pa.type_for_alias("string" if column.dtype == "object" else column.dtype)
    except ValueError:
        return pa.null()


def _dtype(kind: pa.DataType) -> np.dtype | None:
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind):
        return np.dtype(object)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return np.dtype(kind.to_pandas_dtype())
    return None


def _wanted(column: Column, dtype: np.dtype) -> np.dtype | None:
    """The dtype of the batch: the schema's, if nothing is lost by it. None: they don't match."""
    if column.dtype in ("unknown", "string", "object"):
        return dtype if column.dtype == "unknown" or dtype.kind == "O" else None
    try:
        wanted = np.dtype(column.dtype)
    except TypeError:
        return dtype
    floats = wanted.kind == dtype.kind == "f"
    return wanted if floats or (np.can_cast(dtype, wanted, "safe") and wanted.kind != "f") else None


def _numpy(array: pa.Array) -> np.ndarray:
    primitive = pa.types.is_integer(array.type) or pa.types.is_floating(array.type)
    return array.to_numpy(zero_copy_only=primitive)


def _lists(array: pa.Array, name: str, place: Place) -> tuple[np.ndarray, np.ndarray]:
    if pa.types.is_fixed_size_list(array.type):
        size = array.type.list_size
        values, offsets = array.flatten(), np.arange(len(array) + 1) * size
    else:
        values, offsets = array.values, array.offsets.to_numpy()
        if not len(array):
            offsets = np.zeros(1, np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    if values.null_count:
        nulls = np.flatnonzero(values.slice(first, last - first).is_null().to_numpy(False))
        if nulls.size:
            row = int(np.searchsorted(offsets - first, nulls[0], side="right")) - 1
            raise _null(name, place.at(row), "a null in a list")
        if not pa.types.is_null(values.type):
            values = values.fill_null(0)  # of rows that belong to other batches
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return _numpy(values), offsets


def _vectors(values: np.ndarray, offsets: np.ndarray, field: Field, place: Place) -> np.ndarray:
    wrong = np.flatnonzero(np.diff(offsets) != field.length)
    if wrong.size:
        row = int(wrong[0])
        length = offsets[row + 1] - offsets[row]
        raise ValueError(
            f"Column {field.name!r}, {place.at(row)}: a vector of {length} elements; the schema "
            f"says {field.length} (value_count)."
        )
    return values[offsets[0] : offsets[-1]].reshape(-1, field.length)


def _refuse_nulls(array: pa.Array, name: str, place: Place) -> None:
    if array.null_count:
        row = int(np.flatnonzero(array.is_null().to_numpy(False))[0])
        raise _null(name, place.at(row), "null")


def _null(name: str, where: str, what: str) -> ValueError:
    return ValueError(
        f"Column {name!r}, {where}: {what}. A tensor has no nulls; fill them in the workflow "
        "(Categorify makes them id 1, FillMissing a number), or filter the rows."
    )
