"""Streams of Entries cut anew: into pieces of given lengths, or into the order of their rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from merlin_embeddings.checkpoint.layout import numpy_dtype
from merlin_embeddings.checkpoint.manifest import TableInfo
from merlin_embeddings.checkpoint.reader import Checkpoint
from merlin_embeddings.checkpoint.shards import row_bytes
from merlin_embeddings.tables import Entries

# How much of a table is put in order at a time.
_WINDOW = 32 << 20


class Cutter:
    """Hands on a stream of Entries in pieces of given lengths.

    Args:
        entries: the stream.
    """

    def __init__(self, entries: Iterator[Entries]) -> None:
        self._entries = entries
        self._rest: Entries | None = None

    def piece(self, count: int) -> Iterator[Entries]:
        """The next `count` rows, or what there is."""
        while count > 0:
            some = next(self._entries, None) if self._rest is None else self._rest
            if some is None:
                return
            self._rest = some.take(slice(count, None)) if len(some) > count else None
            some = some.take(slice(0, count)) if len(some) > count else some
            count -= len(some)
            yield some


def in_order(found: Checkpoint, info: TableInfo, rows: range) -> Iterator[Entries]:
    """All rows of a range, in order, where increments have some of them.

    Args:
        found: the checkpoint; with its bases it has all of the rows.
        info: the table's.
        rows: which.
    """
    step = max(_WINDOW // row_bytes(info), 1)
    for start in range(rows.start, rows.stop, step):
        yield _window(found, info, start, min(start + step, rows.stop))


def _window(found: Checkpoint, info: TableInfo, start: int, stop: int) -> Entries:
    def column(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
        return np.empty((stop - start, *shape), numpy_dtype(dtype))

    vectors = column(info.dtype, (info.dim,))
    slots = {name: column(slot.dtype, slot.shape) for name, slot in info.slots.items()}
    scores = None if info.scores is None else column(info.scores, ())
    for some in found.entries(info.name, keys=range(start, stop)):
        places = some.keys - start
        vectors[places] = some.vectors
        for name, values in some.slots.items():
            slots[name][places] = values
        if scores is not None:
            scores[places] = some.scores
    return Entries.trusted(np.arange(start, stop), vectors, slots, scores)
