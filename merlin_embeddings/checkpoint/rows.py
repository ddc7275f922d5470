"""Reads the rows of one shard: all, or those asked for, and only the blocks that they are in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from merlin_embeddings.checkpoint import shards
from merlin_embeddings.checkpoint.files import FileReader
from merlin_embeddings.checkpoint.manifest import ShardInfo, TableInfo
from merlin_embeddings.tables import Entries

# Entries get no longer than this, whatever chunk says: memory stays bounded however wide rows are.
_LARGEST = 16 << 20

Job = Callable[[], Entries]


class Wanted(NamedTuple):
    """Which rows are asked for.

    Attributes:
        keys: None for all, (start, stop), or [K] int64, sorted and unique.
        virtual_shards: (first, stop), or None for all.
        slots: their names.
        chunk: the largest number of rows in one Entries.
        bare: keys alone are read; vectors are [N, 0] then.
    """

    keys: tuple[int, int] | np.ndarray | None
    virtual_shards: tuple[int, int] | None
    slots: Sequence[str]
    chunk: int
    bare: bool = False


class ShardReader:
    """One shard's file, open for reading.

    Args:
        folder: of the checkpoint.
        info: the table's.
        shard: what the manifest says of the shard.
    """

    def __init__(self, folder: Path, info: TableInfo, shard: ShardInfo) -> None:
        self._info, self._shard = info, shard
        self._file = FileReader(folder, shard.file, shards.specs_of(info, shard))

    def __enter__(self) -> ShardReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def erased(self) -> np.ndarray:
        """[E] int64: keys that were removed."""
        return self._file.read("erased") if self._shard.erased else np.empty(0, np.int64)

    def jobs(self, wanted: Wanted) -> Iterator[Job]:
        """What reads the rows that are asked for: each call gives one Entries, maybe empty."""
        start, stop = self._rows_of_virtual_shards(wanted.virtual_shards)
        keys = wanted.keys
        if keys is None:
            return self._all(start, stop, wanted)
        if self._shard.keys is None:
            return self._found(start, stop, wanted)
        first = self._shard.keys[0]
        if isinstance(keys, tuple):
            return self._all(max(start, keys[0] - first), min(stop, keys[1] - first), wanted)
        low, high = np.searchsorted(keys, [start + first, stop + first])
        return self._picked(keys[low:high] - first, wanted)

    def _all(self, start: int, stop: int, wanted: Wanted) -> Iterator[Job]:
        """A range of rows."""
        while start < stop:
            end = min(self._window_end(start, wanted.chunk), stop)
            yield partial(self._read, start, end, wanted)
            start = end

    def _picked(self, rows: np.ndarray, wanted: Wanted) -> Iterator[Job]:
        """Rows by number, which ascend."""
        at = 0
        while at < len(rows):
            end = self._window_end(int(rows[at]), wanted.chunk)
            next_at = int(np.searchsorted(rows, end))
            some = rows[at:next_at]
            yield partial(self._take, some, wanted)
            at = next_at

    def _found(self, start: int, stop: int, wanted: Wanted) -> Iterator[Job]:
        """Rows by their key, where the file has keys."""
        while start < stop:
            end = min(self._window_end(start, wanted.chunk), stop)
            yield partial(self._search, start, end, wanted)
            start = end

    def _window_end(self, start: int, chunk: int) -> int:
        """Where Entries that begin at a row end at the latest: where a block ends, if they can."""
        block = self._shard.file.block
        rows = max(min(chunk, _LARGEST // shards.row_bytes(self._info)), 1)
        return start + rows if rows < block else (start + rows) // block * block

    def _search(self, start: int, stop: int, wanted: Wanted) -> Entries:
        there = self._file.read("keys", start, stop)
        rows = np.flatnonzero(selected(there, wanted.keys))
        if len(rows) == stop - start:
            return self._read(start, stop, wanted)
        return self._take(rows + start, wanted)

    def _read(self, start: int, stop: int, wanted: Wanted) -> Entries:
        return self._made_of(
            lambda name: self._file.read(name, start, stop), np.arange(start, stop), wanted
        )

    def _take(self, rows: np.ndarray, wanted: Wanted) -> Entries:
        return self._made_of(lambda name: self._file.take(name, rows), rows, wanted)

    def _made_of(
        self, column: Callable[[str], np.ndarray], rows: np.ndarray, wanted: Wanted
    ) -> Entries:
        keys = column("keys") if self._shard.keys is None else rows + self._shard.keys[0]
        if wanted.bare:
            return Entries.trusted(keys, np.empty((len(keys), 0), np.float32), {})
        return Entries.trusted(
            keys=keys,
            vectors=column("vectors"),
            slots={name: column(f"slot.{name}") for name in wanted.slots},
            scores=None if self._info.scores is None else column("scores"),
        )

    def _rows_of_virtual_shards(self, asked: tuple[int, int] | None) -> tuple[int, int]:
        here, counts = self._shard.virtual_shards, self._shard.counts
        if asked is None or here is None or counts is None:
            return 0, self._shard.count
        before = [0, *np.cumsum(np.asarray(counts, np.int64)).tolist()]
        first, stop = (min(max(one - here[0], 0), here[1] - here[0]) for one in asked)
        return before[first], max(before[stop], before[first])


def selected(keys: np.ndarray, wanted: tuple[int, int] | np.ndarray | None) -> np.ndarray:
    """[N] bool: which of the keys are asked for."""
    if wanted is None:
        return np.ones(len(keys), bool)
    if isinstance(wanted, tuple):
        return (keys >= wanted[0]) & (keys < wanted[1])
    return among(keys, wanted)


def among(keys: np.ndarray, known: np.ndarray) -> np.ndarray:
    """[N] bool: which of the keys are among [K] known ones, which ascend."""
    if not len(known):
        return np.zeros(len(keys), bool)
    places = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    return known[places] == keys
