"""An epoch's rows as stacks of batches: read ahead in a thread, shuffled in windows, packed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from merlin_embeddings.data.arrow import chunk_of
from merlin_embeddings.data.checking import Rule
from merlin_embeddings.data.layout import Chunk, Layout, Memory, Slice
from merlin_embeddings.data.parquet import Part
from merlin_embeddings.data.plan import Span

T = TypeVar("T")
_END = object()
_AHEAD = 2  # chunks that are read before they are asked for


class Source(Protocol):
    """Rows in pieces."""

    name: str
    schema: pa.Schema
    pieces: list[int]

    def require(self, columns: Iterable[str]) -> None:
        """Raises ValueError if these columns aren't the same in all pieces."""

    def read(
        self, spans: Iterable[Span], columns: Sequence[str], rules: Mapping[str, Rule]
    ) -> Iterator[Part]:
        """The rows of spans, in their order."""


def chunks(
    source: Source, spans: Iterable[Span], layout: Layout, rules: Mapping[str, Rule]
) -> Iterator[Chunk]:
    """The rows of spans, checked, read ahead by a thread."""
    names = [field.name for field in layout.fields]

    def read() -> Iterator[Chunk]:
        for part in source.read(spans, names, rules):
            yield chunk_of(part.batch, layout.fields, part.place, rules, part.proven)

    return read_ahead(read(), _AHEAD)


def stacks(
    chunks: Iterator[Chunk],
    layout: Layout,
    sizes: Sequence[int],
    per_stack: int,
    window: int,
    rng: np.random.Generator | None,
) -> Iterator[tuple[np.ndarray, ...]]:
    """Chunks cut into batches, as what crosses into TensorFlow.

    Args:
        chunks: the rows.
        sizes: of the batches.
        per_stack: how many batches cross at once at most.
        window: how many batches are made, and shuffled, together.
        rng: shuffles; None: rows stay in their order.
    """
    cut, memory = _Cutter(chunks), Memory()
    for begin in range(0, len(sizes), window):
        batches = sizes[begin : begin + window]
        rows = sum(batches)
        order = None if rng is None else rng.permutation(rows)
        yield from layout.stacks(cut.take(rows), order, _shapes(batches, per_stack), memory)


def _shapes(sizes: Sequence[int], per_stack: int) -> list[tuple[int, int]]:
    """Batches of one size together, so many at most: their numbers and sizes.

    >>> _shapes([4, 4, 4, 1], 2)
    [(2, 4), (1, 4), (1, 1)]
    """
    shapes = []
    for size, run in groupby(sizes):
        left = len(list(run))
        while left:
            shapes.append((min(left, per_stack), size))
            left -= shapes[-1][0]
    return shapes


def read_ahead(items: Iterator[T], depth: int) -> Iterator[T]:
    """The same items, `depth` of them made ahead by a thread."""
    pool = ThreadPoolExecutor(1, "merlin-embeddings-reader")
    try:
        pending = deque(pool.submit(next, items, _END) for _ in range(depth))
        while True:
            item: Any = pending.popleft().result()
            if item is _END:
                return
            pending.append(pool.submit(next, items, _END))
            yield item
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


class _Cutter:
    """Takes so many rows at a time from a stream of chunks."""

    def __init__(self, chunks: Iterator[Chunk]) -> None:
        self._chunks = chunks
        self._rest: Slice | None = None

    def take(self, rows: int) -> list[Slice]:
        slices: list[Slice] = []
        while rows:
            chunk, start, stop = self._rest or self._next()
            taken = min(rows, stop - start)
            slices.append((chunk, start, start + taken))
            self._rest = (chunk, start + taken, stop) if start + taken < stop else None
            rows -= taken
        return slices

    def _next(self) -> Slice:
        for chunk in self._chunks:
            return chunk, 0, chunk.rows
        raise ValueError("The data have fewer rows than when they were opened; open them again.")
