"""How a batch crosses from Python into TensorFlow: few arrays, whatever the number of columns.

All scalar columns of one dtype make one block, `[columns, rows]`; a graph takes it apart again
without copying. Several small batches cross at once, stacked.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

_WORTHWHILE = 1 << 18  # bytes from which memory is used again
_KEPT = 8  # pieces of one size: those in the pipeline; a caller who keeps batches gets fresh ones
_ALIGNMENT = 64  # TensorFlow uses arrays that are aligned like this as they are and copies others


@dataclasses.dataclass(frozen=True)
class Field:
    """One column of a batch.

    Attributes:
        name: the column's.
        dtype: of its values; object for strings.
        kind: "scalar": `[rows]`, "list": ragged `[rows, None]`, "vector": `[rows, length]`.
        length: of a vector, else 0.
    """

    name: str
    dtype: np.dtype
    kind: str = "scalar"
    length: int = 0


@dataclasses.dataclass(frozen=True, eq=False)
class Chunk:
    """Rows as they were read, one array a column.

    Attributes:
        rows: their number.
        arrays: by column: scalars [rows], vectors [rows, length], lists (values, offsets [rows +
            1]), whose offsets may begin anywhere in values.
    """

    rows: int
    arrays: dict[str, Any]


Slice = tuple[Chunk, int, int]  # rows [start, stop) of a chunk


class Layout:
    """Which columns stand where.

    Args:
        fields: the columns.
    """

    def __init__(self, fields: Sequence[Field]) -> None:
        self.fields = tuple(fields)
        self._blocks: dict[np.dtype, list[Field]] = {}
        for field in fields:
            if field.kind == "scalar":
                self._blocks.setdefault(field.dtype, []).append(field)
        self._vectors = [field for field in fields if field.kind == "vector"]
        self._lists = [field for field in fields if field.kind == "list"]

    def stacks(
        self,
        slices: Sequence[Slice],
        order: np.ndarray | None,
        shapes: Sequence[tuple[int, int]],
        memory: Memory,
    ) -> list[tuple[np.ndarray, ...]]:
        """Rows cut into batches, these stacked: what crosses into TensorFlow.

        A column is done at a time, so that it stays in the cache while its rows change places.

        Args:
            slices: the rows.
            order: [rows] int64, which row comes when; None: as they are.
            shapes: for each stack its number of batches and their size.
            memory: where stacks are put.

        Returns:
            For each stack the arrays that `signature` describes.
        """
        scratch = _Scratch(sum(stop - start for _, start, stop in slices))
        result: list[list[np.ndarray]] = [[] for _ in shapes]
        for dtype, fields in self._blocks.items():
            blocks = [memory.empty((batches, len(fields), size), dtype) for batches, size in shapes]
            for place, field in enumerate(fields):
                column = scratch.column(slices, field, order)
                for block, rows in zip(blocks, _cut(column, shapes), strict=True):
                    block[:, place] = rows
            for stack, block in zip(result, blocks, strict=True):
                stack.append(block)
        for field in self._vectors:
            column = scratch.column(slices, field, order)
            for stack, rows in zip(result, _cut(column, shapes), strict=True):
                stack.append(memory.copy(rows))
        for field in self._lists:
            values, splits = _join_lists(slices, field)
            if order is not None:
                values, splits = _take_lists(values, splits, order)
            for stack, parts in zip(result, _cut_lists(values, splits, shapes), strict=True):
                stack += [memory.copy(part) for part in parts]
        return [tuple(stack) for stack in result]

    @property
    def signature(self) -> tuple[tf.TensorSpec, ...]:
        """Of a stack: blocks, vectors, and for each list column values, splits and bounds."""
        blocks = [((None, len(f), None), dtype) for dtype, f in self._blocks.items()]
        vectors = [((None, None, field.length), field.dtype) for field in self._vectors]
        lists = [
            part
            for field in self._lists
            for part in (((None,), field.dtype), ((None, None), np.int64), ((None,), np.int64))
        ]
        return tuple(
            tf.TensorSpec(shape, _tf_dtype(dtype)) for shape, dtype in blocks + vectors + lists
        )

    def batches(self, tensors: Sequence[tf.Tensor]) -> tf.Tensor:
        """How many batches a stack has, a scalar int64."""
        only_lists = not self._blocks and not self._vectors
        return tf.shape(tensors[1 if only_lists else 0], tf.int64)[0]

    def unpack(self, batch: tf.Tensor, tensors: Sequence[tf.Tensor]) -> dict[str, Any]:
        """Takes one batch out of a stack's tensors: by column, in a graph."""
        parts = iter(tensors)
        found: dict[str, Any] = {}
        for fields in self._blocks.values():
            columns = tf.unstack(next(parts)[batch], num=len(fields))
            found.update({f.name: column for f, column in zip(fields, columns, strict=True)})
        for field in self._vectors:
            found[field.name] = next(parts)[batch]
        for field in self._lists:
            values, splits, bounds = next(parts), next(parts), next(parts)
            found[field.name] = tf.RaggedTensor.from_row_splits(
                values[bounds[batch] : bounds[batch + 1]], splits[batch], validate=False
            )
        return {field.name: found[field.name] for field in self.fields}


class Memory:
    """Aligned memory for stacks, used again once no tensor lies in it.

    Fresh memory costs more than what is copied into it: the system clears each page when it is
    first touched.
    """

    def __init__(self) -> None:
        self._known: dict[int, list[np.ndarray]] = {}

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """An array of any content."""
        if dtype.kind == "O":
            return np.empty(shape, object)
        size = int(np.prod(shape)) * dtype.itemsize
        memory = self._of(size + _ALIGNMENT)
        begin = -memory.ctypes.data % _ALIGNMENT
        return memory[begin : begin + size].view(dtype).reshape(shape)

    def copy(self, array: np.ndarray) -> np.ndarray:
        """The same array, aligned."""
        result = self.empty(array.shape, array.dtype)
        result[...] = array
        return result

    def _of(self, size: int) -> np.ndarray:
        if size < _WORTHWHILE:
            return np.empty(size, np.uint8)
        known = self._known.setdefault(size, [])
        for place in range(len(known)):
            # Who else holds it: views, which tensors hold. The list and this call count too.
            if sys.getrefcount(known[place]) == 2:
                return known[place]
        memory = np.empty(size, np.uint8)
        if len(known) < _KEPT:
            known.append(memory)
        return memory


class _Scratch:
    """Memory for one column of so many rows, used for one after the other."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._memory: dict[tuple[Any, ...], np.ndarray] = {}

    def column(self, slices: Sequence[Slice], field: Field, order: np.ndarray | None) -> np.ndarray:
        """The rows of a column, [rows] or [rows, length], in order."""
        parts = [chunk.arrays[field.name][start:stop] for chunk, start, stop in slices]
        column = parts[0]
        if len(parts) > 1 or column.dtype != field.dtype:
            column = np.concatenate(parts, out=self._of("joined", field))
        if order is not None:
            # mode: "raise", the default, would write to a buffer first.
            out = self._of("shuffled", field)
            column = np.take(column, order, axis=0, out=out, mode="clip")
        return column

    def _of(self, use: str, field: Field) -> np.ndarray:
        key = use, field.dtype, field.length
        if key not in self._memory:
            tail = (field.length,) if field.kind == "vector" else ()
            self._memory[key] = np.empty((self._rows, *tail), field.dtype)
        return self._memory[key]


def _cut(column: np.ndarray, shapes: Sequence[tuple[int, int]]) -> Iterator[np.ndarray]:
    """Rows as [batches, size, ...] for each stack."""
    begin = 0
    for batches, size in shapes:
        end = begin + batches * size
        yield column[begin:end].reshape(batches, size, *column.shape[1:])
        begin = end


def _cut_lists(
    values: np.ndarray, splits: np.ndarray, shapes: Sequence[tuple[int, int]]
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """For each stack values, splits [batches, size + 1] from 0, and bounds [batches + 1]."""
    begin = 0
    for batches, size in shapes:
        bounds = splits[begin : begin + batches * size + 1 : size]
        mine = splits[begin + np.arange(batches)[:, None] * size + np.arange(size + 1)]
        yield values[bounds[0] : bounds[-1]], mine - bounds[:-1, None], bounds - bounds[0]
        begin += batches * size


def _join_lists(slices: Sequence[Slice], field: Field) -> tuple[np.ndarray, np.ndarray]:
    values, splits, last = [np.empty(0, field.dtype)], [np.zeros(1, np.int64)], 0
    for chunk, start, stop in slices:
        all_values, offsets = chunk.arrays[field.name]
        mine = offsets[start : stop + 1].astype(np.int64)
        values.append(all_values[mine[0] : mine[-1]])
        splits.append(mine[1:] - (mine[0] - last))
        last += int(mine[-1] - mine[0])
    joined = np.concatenate(values, dtype=field.dtype, casting="unsafe")
    return joined, np.concatenate(splits)


def _take_lists(
    values: np.ndarray, splits: np.ndarray, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    lengths = (splits[1:] - splits[:-1])[rows]
    taken = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    # Element i of the result stands as far from its row's start as it does in the result.
    places = np.repeat(splits[rows] - taken[:-1], lengths) + np.arange(taken[-1])
    return values[places], taken


def _tf_dtype(dtype: Any) -> tf.DType:
    return tf.string if np.dtype(dtype).kind == "O" else tf.as_dtype(dtype)
