"""What an increment changes, for whoever serves what it goes on from."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np

from merlin_embeddings.checkpoint.layout import numpy_dtype
from merlin_embeddings.checkpoint.manifest import TableInfo
from merlin_embeddings.checkpoint.reader import Checkpoint
from merlin_embeddings.tables import Entries


def changes(path: str | os.PathLike, chunk: int = 65536) -> Iterator[tuple[str, Entries]]:
    """What makes the tables of its base those of a checkpoint.

    Rows that were written since come with all their slots. What was erased comes first, in Entries
    without rows. Where a table was saved whole, all its rows come, and what the base had beyond
    them is erased, which takes 16 bytes of memory an id. Without a base, all rows come.

    Args:
        path: of the checkpoint.
        chunk: the largest number of rows in one Entries.

    Returns:
        An iterator of (name of the table, Entries).

    Raises:
        FileNotFoundError: there is no checkpoint, or a file of it is missing.
        BrokenCheckpoint: a file isn't what was written.
    """
    found = Checkpoint(path)
    return _changes(found, chunk)


def _changes(found: Checkpoint, chunk: int) -> Iterator[tuple[str, Entries]]:
    for name, info in found.tables.items():
        gone = found.erased(name) if found.is_increment(name) else _lost(found, name)
        if len(gone):
            yield name, _erasing(info, gone)
        for entries in found.own(name, chunk):
            yield name, entries


def _lost(found: Checkpoint, table: str) -> np.ndarray:
    """Keys that the base has, and a table that was saved whole doesn't."""
    if not found.shards(table) or found.base is None or table not in found.base.tables:
        return np.empty(0, np.int64)
    before, now = (_all_keys(one, table) for one in (found.base, found))
    return np.setdiff1d(before, now, assume_unique=True)


def _all_keys(found: Checkpoint, table: str) -> np.ndarray:
    return np.concatenate([np.empty(0, np.int64), *found.keys(table)])


def _erasing(info: TableInfo, gone: np.ndarray) -> Entries:
    slots = {
        name: np.empty((0, *slot.shape), numpy_dtype(slot.dtype))
        for name, slot in info.slots.items()
    }
    vectors = np.empty((0, info.dim), numpy_dtype(info.dtype))
    return Entries(np.empty(0, np.int64), vectors, slots, erased=gone)
