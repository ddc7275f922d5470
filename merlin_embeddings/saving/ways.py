"""The ways of rows from a checkpoint into a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from merlin_embeddings.checkpoint import Checkpoint, TableInfo
from merlin_embeddings.saving.parts import TablePart
from merlin_embeddings.saving.rows import CHUNK, spans
from merlin_embeddings.saving.write import shared_rows
from merlin_embeddings.tables import Entries, MovingTable, write_some


@dataclass(frozen=True)
class Source:
    """A table of a checkpoint, and which of its slots are wanted.

    Attributes:
        checkpoint: whose.
        info: what it is.
        slots: names of those that the table here has, too.
    """

    checkpoint: Checkpoint
    info: TableInfo
    slots: Sequence[str]

    def entries(self, keys: Any = None) -> Iterator[Entries]:
        """The rows, all or those of keys."""
        return self.checkpoint.entries(self.info.name, keys=keys, slots=self.slots, chunk=CHUNK)


class Way:
    """How rows come into a table.

    Attributes:
        says: what it does, for people.
    """

    says: str

    def go(self, part: TablePart, source: Source) -> int:
        """Writes the rows; how many those were."""
        raise NotImplementedError


@dataclass(frozen=True)
class SameRows(Way):
    """Row by row; rows that the checkpoint hasn't start anew."""

    says: str = "rows"

    def go(self, part: TablePart, source: Source) -> int:
        """Writes all rows."""
        rows = 0
        part.table.seed = int(source.info.metadata.get("seed", part.table.seed))
        for entries in source.entries():
            put(part, entries.keys, entries)
            rows += len(entries)
        for begin, end in spans(source.info.rows, part.table.rows):
            part.table.reset(np.arange(begin, end))
        return rows


@dataclass(frozen=True)
class SameState(Way):
    """Ids, rows, and all that the id map remembers."""

    says: str = "rows and the id map's state"

    def go(self, part: TablePart, source: Source) -> int:
        """Writes all rows."""
        table = part.table
        assert isinstance(table, MovingTable)
        states = (state.arrays for state in source.checkpoint.state(source.info.name))
        table.ids.restore([{name: one[name] for name in one} for one in states])
        table.salt, rows = int(source.info.metadata.get("salt") or 0), 0
        table.seed = int(source.info.metadata.get("seed", table.seed))
        for entries in source.entries():
            found = table.rows_of_saved(entries.keys)[: len(entries)]
            put(part, found, entries)
            rows += len(entries)
        _put_shared(part, source)
        return rows


@dataclass(frozen=True)
class ById(Way):
    """Id by id: what an id had there comes into the row that it has here.

    Attributes:
        ids: [N] int64, as they are here.
        keys: [N] int64, what the checkpoint has them under; several ids may share one.
    """

    ids: np.ndarray = field(repr=False)
    keys: np.ndarray = field(repr=False)
    says: str = "by ids"

    def go(self, part: TablePart, source: Source) -> int:
        """Writes the ids that both have."""
        # The checkpoint is read once, from its beginning to its end.
        order = np.argsort(self.keys, kind="stable")
        ids, keys = self.ids[order], self.keys[order]
        written = 0
        for entries in source.entries(np.unique(keys)):
            begin = np.searchsorted(keys, entries.keys, "left")
            counts = np.searchsorted(keys, entries.keys, "right") - begin
            places = np.repeat(np.arange(len(entries)), counts)
            within = np.arange(len(places)) - np.repeat(np.cumsum(counts) - counts, counts)
            here = rows_for(part, ids[np.repeat(begin, counts) + within])
            kept = here >= 0
            put(part, here[kept], entries.take(places[kept]))
            written += int(kept.sum())
        _put_shared(part, source)
        return written


def rows_for(part: TablePart, ids: np.ndarray) -> np.ndarray:
    """The rows [N] that ids [N] have in a table here, or get; -1: none."""
    table = part.table
    if isinstance(table, MovingTable):
        return table.upsert(ids)
    known = getattr(table.ids, "saved", None)
    if known is not None:
        return places(known(), ids)
    return np.where((ids >= 0) & (ids < table.rows), ids, -1)


def places(listed: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Where ids [N] stand in a list of ids [K], each once; -1: nowhere."""
    order = np.argsort(listed)
    at = np.minimum(np.searchsorted(listed, ids, sorter=order), len(listed) - 1)
    return np.where(listed[order[at]] == ids, order[at], -1)


def put(part: TablePart, rows: np.ndarray, entries: Entries) -> None:
    """Writes vectors and slots into rows [N]; slots that `entries` hasn't start anew."""
    if not len(rows):
        return
    table = part.table
    _write(table.variable, rows, entries.vectors, part.name)
    for name, slot in part.slots.items():
        values = entries.slots.get(name)
        if values is None:
            values = np.full([len(rows), *slot.variable.shape[1:]], slot.fill, np.float32)
        _write(slot.variable, rows, values, f"{part.name}, slot '{name}'")


def _write(variable: Any, rows: np.ndarray, values: np.ndarray, name: str) -> None:
    wanted = tf.as_dtype(variable.dtype)
    if values.dtype.name != wanted.name:
        rounded = tf.cast(tf.convert_to_tensor(values), wanted)
        lost = ~np.isfinite(tf.cast(rounded, tf.float32).numpy()) & np.isfinite(
            values.astype(np.float32)
        )
        if lost.any():
            raise ValueError(
                f"table '{name}': {values[lost].ravel()[0]} of the checkpoint is beyond "
                f"{wanted.name}, and has become infinite in the table; the table is loaded in part"
            )
        values = rounded.numpy()
    write_some(variable, rows, values, f"table '{name}'")


def _put_shared(part: TablePart, source: Source) -> None:
    """The rows that ids without one of their own share, where both have as many."""
    table, name = part.table, shared_rows(source.info.name)
    if not isinstance(table, MovingTable) or name not in source.checkpoint.tables:
        return
    if source.checkpoint.tables[name].rows != table.rows - table.capacity:
        return
    for entries in source.checkpoint.entries(name, slots=source.slots, chunk=CHUNK):
        put(part, table.capacity + entries.keys, entries)
