"""Rows of a table and of its slots: read and written together, some at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from merlin_embeddings import compat
from merlin_embeddings.checkpoint import SlotInfo
from merlin_embeddings.saving.parts import TablePart
from merlin_embeddings.tables import Entries, view

CHUNK = 65536


def slot_infos(part: TablePart) -> dict[str, SlotInfo]:
    """What the manifest says of a table's slots."""
    return {
        name: SlotInfo(tuple(slot.variable.shape)[1:], _dtype(slot.variable), slot.fill)
        for name, slot in part.slots.items()
    }


def spans(begin: int, end: int, chunk: int = CHUNK) -> Iterator[tuple[int, int]]:
    """[begin, end) in pieces."""
    return ((at, min(at + chunk, end)) for at in range(begin, end, chunk))


class Rows:
    """Reads rows of a table with its slots.

    Args:
        part: the table.
        live: whether training may go on meanwhile: rows are gathered then, each gather under the
            variable's lock. Otherwise the memory is looked at as it lies, without a copy.
    """

    def __init__(self, part: TablePart, live: bool = False) -> None:
        variables = {"": part.table.variable}
        variables |= {name: slot.variable for name, slot in part.slots.items()}
        self._variables = {name: compat.raw_variable(one) for name, one in variables.items()}
        self._views = {} if live else {name: view(one) for name, one in variables.items()}

    def span(self, begin: int, end: int, keys: Any = None) -> Entries:
        """Rows [begin, end); their keys are these numbers, or `keys`."""
        keys = np.arange(begin, end) if keys is None else keys
        if not self._views:
            return self.some(np.arange(begin, end), keys)
        return _entries(keys, {name: one[begin:end] for name, one in self._views.items()})

    def some(self, rows: np.ndarray, keys: np.ndarray, scores: Any = None) -> Entries:
        """Rows [N] int64, with keys [N] and scores [N] or None."""
        if self._views:
            return _entries(keys, {n: one[rows] for n, one in self._views.items()}, scores)
        at = tf.constant(rows, tf.int64)
        found = {name: one.sparse_read(at).numpy() for name, one in self._variables.items()}
        return _entries(keys, found, scores)


def _entries(keys: np.ndarray, found: dict[str, np.ndarray], scores: Any = None) -> Entries:
    vectors = found.pop("")
    return Entries.trusted(keys, vectors, found, scores)


def _dtype(variable: Any) -> str:
    return tf.as_dtype(compat.raw_variable(variable).dtype).name
