"""Parquet files with a column of ids and one of vectors: `id` int64, `vector` list of float.

Slots are columns `slot.<name>`, scores a column `score`. A file `T.parquet` is a table T; several
tables are files in a folder. When a file has one column of integers and one of lists, they may have
any names.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from merlin_embeddings.checkpoint.foreign.format import Format, cast, one
from merlin_embeddings.checkpoint.foreign.landing import new
from merlin_embeddings.checkpoint.foreign.raw import require_unique
from merlin_embeddings.checkpoint.foreign.source import Source
from merlin_embeddings.checkpoint.layout import numpy_dtype
from merlin_embeddings.checkpoint.manifest import SlotInfo, TableInfo
from merlin_embeddings.checkpoint.names import folder_name
from merlin_embeddings.tables import Entries

# Arrow writes no 16-bit numbers to Parquet in the version that NVTabular needs.
_DTYPES = {
    "float16": "float32",
    "bfloat16": "float32",
    "float32": "float32",
    "float64": "float64",
}
_KEYS = 1 << 16


def _recognise(path: Path) -> bool:
    if path.is_dir():
        return any(_recognise(file) for file in path.glob("*.parquet"))
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        return file.read(4) == b"PAR1"


def _read(path: Path) -> list[Source]:
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    return [_table(file) for file in files]


def _table(path: Path) -> Source:
    try:
        with pq.ParquetFile(path) as file:
            schema, rows = file.schema_arrow, file.metadata.num_rows
            key, vector = _names(schema, path)
            first = next(file.iter_batches(1, columns=_leaves(schema)), None)
            if first is None or not first.num_rows:
                raise ValueError(f"{path}: no rows")
            every_row = _check_keys(file, key, path)
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, error) from None
    slots = [name for name in schema.names if name.startswith("slot.")]
    sample = {name: _array(first.column(name), name, path) for name in (vector, *slots)}
    scores = _array(first.column("score"), "score", path).dtype if "score" in schema.names else None
    info = TableInfo(
        name=path.name.removesuffix(".parquet"),
        rows=rows,
        dim=sample[vector].shape[1],
        dtype=sample[vector].dtype.name,
        key="row" if every_row else "id",
        slots={
            name.removeprefix("slot."): SlotInfo(
                sample[name].shape[1:], sample[name].dtype.name, 0.0
            )
            for name in slots
        },
        scores=None if scores is None else scores.name,
    )

    def read(chunk: int) -> Iterator[Entries]:
        try:
            with pq.ParquetFile(path) as file:
                wanted = [key, vector, *slots, *(["score"] if scores is not None else [])]
                for batch in file.iter_batches(chunk, columns=wanted):
                    yield _entries(batch, info, key, vector, path)
        except (pa.ArrowException, OSError) as error:
            raise _damaged(path, error) from None

    return Source(info, rows, os.fspath(path), read)


def _entries(batch: pa.RecordBatch, info: TableInfo, key: str, vector: str, path: Path) -> Entries:
    slots = {name: _array(batch.column(f"slot.{name}"), name, path) for name in info.slots}
    vectors = _array(batch.column(vector), vector, path)
    if vectors.shape[1] != info.dim:
        raise ValueError(f"{path}: vectors of {info.dim} numbers, and of {vectors.shape[1]}")
    return Entries(
        keys=_array(batch.column(key), key, path).astype(np.int64),
        vectors=vectors,
        slots=slots,
        scores=None if info.scores is None else _array(batch.column("score"), "score", path),
    )


def _names(schema: pa.Schema, path: Path) -> tuple[str, str]:
    """Which column is the ids', which the vectors'."""
    if len(set(schema.names)) != len(schema.names):
        raise ValueError(f"{path}: two columns have one name: {', '.join(schema.names)}")
    if {"id", "vector"} <= set(schema.names):
        return "id", "vector"
    ids = [field.name for field in schema if pa.types.is_integer(field.type)]
    lists = [field.name for field in schema if _is_list(field.type)]
    if len(ids) != 1 or len(lists) != 1:
        raise ValueError(
            f"{path}: no columns 'id' and 'vector', and not just one of integers and one of lists: "
            f"{', '.join(schema.names)}"
        )
    return ids[0], lists[0]


def _leaves(schema: pa.Schema) -> list[str]:
    return list(schema.names)


def _check_keys(file: pq.ParquetFile, key: str, path: Path) -> bool:
    """Whether the ids are 0, 1, ... N-1 in this order. Holds 8 bytes a row.

    Raises:
        ValueError: an id stands twice.
    """
    if not pa.types.is_integer(file.schema_arrow.field(key).type):
        raise ValueError(f"{path}: column '{key}' is {file.schema_arrow.field(key).type}")
    parts = [
        _array(batch.column(key), key, path) for batch in file.iter_batches(_KEYS, columns=[key])
    ]
    keys = np.concatenate(parts)
    if keys.dtype == np.uint64 and keys.max() > np.iinfo(np.int64).max:
        raise ValueError(f"{path}: id {keys.max()} is no int64")
    in_order = bool((keys[1:] > keys[:-1]).all())
    if not in_order:
        require_unique(np.sort(keys), os.fspath(path))
    return in_order and keys[0] == 0 and keys[-1] == len(keys) - 1


def _is_list(kind: pa.DataType) -> bool:
    return (
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _array(column: pa.Array, name: str, path: Path) -> np.ndarray:
    """A column's values: [N], or [N, D] of lists, which must be equally long."""
    if column.null_count:
        raise ValueError(f"{path}: column '{name}' has nulls")
    if not _is_list(column.type):
        if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
            raise ValueError(f"{path}: column '{name}' is {column.type}, not numbers")
        return column.to_numpy(zero_copy_only=False)
    values = column.flatten()
    if values.null_count or not pa.types.is_floating(values.type):
        raise ValueError(f"{path}: column '{name}' must hold lists of numbers without nulls")
    if not pa.types.is_fixed_size_list(column.type):
        lengths = np.diff(column.offsets.to_numpy())
        if (lengths != lengths[0]).any():
            raise ValueError(f"{path}: the lists of '{name}' aren't equally long")
    array = values.to_numpy(zero_copy_only=False)
    if len(array) % len(column) or not len(array):
        raise ValueError(f"{path}: the lists of '{name}' are empty or aren't equally long")
    return array.reshape(len(column), -1)


def _write(path: Path, sources: Sequence[Source]) -> None:
    if path.suffix == ".parquet":
        source = one(sources, path)
        with new(path) as partial:
            _write_table(partial, source)
        return
    with new(path) as folder:
        folder.mkdir()
        for source in sources:
            _write_table(folder / f"{folder_name(source.name)}.parquet", source)


def _write_table(path: Path, source: Source) -> None:
    info = source.info
    kinds = {"id": pa.int64(), "vector": _list_of(info.dtype, (info.dim,))}
    kinds |= {f"slot.{name}": _list_of(slot.dtype, slot.shape) for name, slot in info.slots.items()}
    if info.scores is not None:
        kinds["score"] = pa.from_numpy_dtype(np.dtype(info.scores))
    schema = pa.schema(kinds)
    # Statistics of vectors take longer than the vectors, and tell nothing.
    options = {"compression": "none", "use_dictionary": False, "write_statistics": ["id"]}
    with pq.ParquetWriter(path, schema, **options) as writer:
        for entries in source.entries():
            arrays = [entries.keys, cast(entries.vectors, _DTYPES, info.dtype)]
            arrays += [
                cast(entries.slots[name], _DTYPES, slot.dtype) for name, slot in info.slots.items()
            ]
            if info.scores is not None and entries.scores is not None:
                arrays.append(entries.scores.astype(info.scores, copy=False))
            columns = [
                _arrow(array, kind) for array, kind in zip(arrays, schema.types, strict=True)
            ]
            writer.write_batch(pa.record_batch(columns, schema=schema))


def _list_of(dtype: str, shape: tuple[int, ...]) -> pa.DataType:
    kind = pa.from_numpy_dtype(numpy_dtype(_DTYPES[dtype]))
    return kind if not shape else pa.list_(kind, int(np.prod(shape)))


def _arrow(array: np.ndarray, kind: pa.DataType) -> pa.Array:
    if not pa.types.is_fixed_size_list(kind):
        return pa.array(array, kind)
    flat = pa.array(np.ascontiguousarray(array).reshape(-1), kind.value_type)
    return pa.FixedSizeListArray.from_arrays(flat, kind.list_size)


def _damaged(path: Path, error: Exception) -> ValueError:
    return ValueError(f"{path}: can't be read as Parquet ({str(error).splitlines()[0]})")


PARQUET = Format(
    "parquet",
    "Parquet files with an id and a vector in each row",
    _recognise,
    _read,
    _write,
    _DTYPES,
)
