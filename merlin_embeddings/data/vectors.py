"""Vectors that exist already, from wherever they are, as the values of a table."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import tensorflow as tf

_AT_ONCE = 65536  # rows; a table may fill the memory
Read = tuple[np.ndarray | None, np.ndarray]  # ids [N] or None, vectors [N, D]


def vectors(
    source: Any, rows: int | None = None, id_column: str | None = None, name: str = "vectors"
) -> np.ndarray:
    """A table's values from an array, a file or a dataset.

    Args:
        source: an array or tensor `[N, D]`; a pandas DataFrame; a path of a `.npy` file, of a
            Parquet file or of a folder of them; a `tf.data.Dataset`; a `merlin.io.Dataset`.
            Tables have one column of lists of length D, or D columns of numbers, in order. A
            `tf.data.Dataset` has vectors `[D]` or batches of them `[n, D]`, pairs of ids and
            vectors, or dicts of the two.
        rows: how many rows the table has; None: as the source says.
        id_column: the column or key of the ids: which row a vector is of. Rows that no vector is of
            are zeros. None, and no pairs: vector i is of row i, and every row has one.
        name: what the table is called in messages.

    Returns:
        `[rows, D]` float32; the source itself where that is such an array.

    Raises:
        FileNotFoundError: there is no such file.
        TypeError: a source of another kind.
        ValueError: no vectors, vectors of different lengths or with NaN, more or fewer than rows,
            or an id that is no row, or comes twice.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"item": [3, 1], "x": [0.5, 1.0], "y": [2.0, 4.0]})
    >>> vectors(frame, rows=4, id_column="item").tolist()
    [[0.0, 0.0], [1.0, 4.0], [0.0, 0.0], [0.5, 2.0]]
    """
    ids, found = _read(source, id_column, name)
    found = _checked(found, name)
    if ids is not None:
        return _placed(_checked_ids(ids, len(found), rows, name), found, rows)
    if rows is not None and len(found) != rows:
        raise ValueError(
            f"{name}: the table has {rows} rows, there are {len(found)} vectors. NVTabular's ids "
            "begin after padding (0), null (1) and unknown values (2 ...), which have rows too: "
            "give the vectors' ids with id_column=."
        )
    return found


def _read(source: Any, id_column: str | None, name: str) -> Read:
    if isinstance(source, (str, os.PathLike)):
        return _read_path(Path(source), id_column, name)
    if isinstance(source, tf.data.Dataset):
        return _read_elements(source, id_column, name)
    if hasattr(source, "to_ddf"):  # merlin.io.Dataset
        source = source.to_ddf().compute()
    if hasattr(source, "columns") and hasattr(source, "to_numpy"):  # pandas
        return _read_table(pa.Table.from_pandas(source, preserve_index=False), id_column, name)
    if isinstance(source, (np.ndarray, list)) or tf.is_tensor(source):
        if id_column is not None:
            raise ValueError(f"{name}: an array has no column {id_column!r}; give a DataFrame.")
        return None, np.asarray(source)
    raise TypeError(
        f"{name}: vectors come from an array, a DataFrame, a path, a tf.data.Dataset or a "
        f"merlin.io.Dataset; got {source!r}."
    )


def _read_path(path: Path, id_column: str | None, name: str) -> Read:
    if not path.exists():
        raise FileNotFoundError(f"{name}: there is no file {path}.")
    if path.suffix == ".npy":
        return _read(np.load(path, mmap_mode="r"), id_column, name)
    files = sorted(path.glob("*.parquet"), key=_part) if path.is_dir() else [path]
    if not files:
        raise ValueError(f"{name}: folder {path} has no *.parquet.")
    tables = [pq.ParquetFile(file).read() for file in files]
    return _read_table(pa.concat_tables(tables), id_column, name)


def _part(path: Path) -> tuple[list[int], str]:
    """part.2.parquet before part.10.parquet."""
    parts = path.name.replace("_", ".").split(".")
    return [int(part) for part in parts if part.isdigit()], path.name


def _read_table(table: pa.Table, id_column: str | None, name: str) -> Read:
    columns = [column for column in table.column_names if column != id_column]
    if id_column is not None and len(columns) == len(table.column_names):
        raise ValueError(f"{name}: no column is {id_column!r}; there are {table.column_names}.")
    ids = None if id_column is None else table[id_column].to_numpy()
    if len(columns) == 1 and _is_list(table[columns[0]].type):
        return ids, _of_lists(table[columns[0]], name)
    if not columns:
        raise ValueError(f"{name}: there are no vectors beside {id_column!r}.")
    return ids, np.column_stack([table[column].to_numpy() for column in columns])


def _is_list(kind: pa.DataType) -> bool:
    return (
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _of_lists(lists: pa.ChunkedArray, name: str) -> np.ndarray:
    lengths = pc.unique(pc.list_value_length(lists)).to_pylist()
    if len(lengths) > 1:
        raise ValueError(f"{name}: vectors have different lengths: {lengths}.")
    return pc.list_flatten(lists).to_numpy().reshape(len(lists), lengths[0] if lengths else 0)


def _read_elements(dataset: tf.data.Dataset, id_column: str | None, name: str) -> Read:
    ids: list[Any] = []
    found: list[Any] = []
    for element in dataset.as_numpy_iterator():
        if isinstance(element, dict):
            keys = [key for key in element if key != id_column]
            if len(keys) != 1 or (id_column is not None and id_column not in element):
                raise ValueError(
                    f"{name}: the dataset's elements have {sorted(element)}; they have vectors and "
                    "the key of the ids, named by id_column=."
                )
            its_ids, its_vectors = element.get(id_column), element[keys[0]]
        elif isinstance(element, tuple) and len(element) == 2:
            its_ids, its_vectors = element
        else:
            its_ids, its_vectors = None, element
        if its_ids is not None:
            ids.extend(np.reshape(its_ids, [-1]))
        its_vectors = np.asarray(its_vectors)
        found.extend([its_vectors] if its_vectors.ndim == 1 else its_vectors)
    return np.array(ids) if ids else None, _stacked(found, name)


def _stacked(rows: list[Any], name: str) -> np.ndarray:
    if not rows:
        raise ValueError(f"{name}: there are no vectors.")
    shapes = {np.shape(row) for row in rows}
    if len(shapes) > 1:
        raise ValueError(f"{name}: vectors have different shapes: {sorted(shapes)}.")
    return np.array(rows)


def _checked(found: np.ndarray, name: str) -> np.ndarray:
    if found.ndim != 2 or 0 in found.shape:
        raise ValueError(f"{name}: vectors have shape {list(found.shape)}; it must be [N, D].")
    try:
        found = found.astype(np.float32, copy=False)
    except (TypeError, ValueError):
        raise ValueError(
            f"{name}: vectors must be numbers, not {found.dtype}; a column of ids is named by "
            "id_column=."
        ) from None
    for start in range(0, len(found), _AT_ONCE):
        finite = np.isfinite(found[start : start + _AT_ONCE]).all(axis=1)
        if not finite.all():
            raise ValueError(f"{name}: vector {start + np.argmin(finite)} has NaN or infinity.")
    return found


def _checked_ids(ids: np.ndarray, count: int, rows: int | None, name: str) -> np.ndarray:
    if len(ids) != count or not np.issubdtype(ids.dtype, np.integer):
        raise ValueError(
            f"{name}: {count} vectors need as many integer ids; got {len(ids)} of {ids.dtype}."
        )
    outside = (ids < 0) | (ids >= (np.inf if rows is None else rows))
    if outside.any():
        raise ValueError(f"{name}: id {ids[outside][0]} is no row; the table has {rows} rows.")
    values, counts = np.unique(ids, return_counts=True)
    if (counts > 1).any():
        raise ValueError(f"{name}: id {values[counts > 1][0]} has {counts.max()} vectors.")
    return ids


def _placed(ids: np.ndarray, found: np.ndarray, rows: int | None) -> np.ndarray:
    table = np.zeros([int(ids.max()) + 1 if rows is None else rows, found.shape[1]], np.float32)
    table[ids] = found
    return table
