"""Which rows were written since a checkpoint that this process saved or loaded."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np

from merlin_embeddings import optimizers
from merlin_embeddings.saving.kinds import serving
from merlin_embeddings.saving.parts import Parts, TablePart
from merlin_embeddings.tables import DenseTable, Mark

# A table tells apart what was written since so many marks, and is saved whole after more.
_MOST = 254

_marks: weakref.WeakKeyDictionary[DenseTable, dict[str, Mark]] = weakref.WeakKeyDictionary()


def marks_of(parts: Parts) -> dict[str, Mark]:
    """This moment, for `remember`. Costs a pass over one byte a row."""
    return {name: part.table.mark() for name, part in parts.tables.items()}


def watch(parts: Parts, optimizer: Any) -> None:
    """Has tables note from now on which of their rows are written, where all writes can be seen.

    Optimizers of this package have them do so. A frozen table is only written by its own methods,
    or gets another buffer, which it notices.
    """
    for part in parts.tables.values():
        if not part.table.variable.trainable or _serves(optimizer, part.table):
            part.table.changes.start()


def remember(parts: Parts, marks: Mapping[str, Mark], checkpoint: str) -> None:
    """Keeps that tables were at `marks` as a checkpoint has them.

    Args:
        parts: the model's.
        marks: by table.
        checkpoint: its id.
    """
    for name, mark in marks.items():
        known = _marks.setdefault(parts.tables[name].table, {})
        known[checkpoint] = mark
        for old in list(known)[:-_MOST]:
            del known[old]


def changed(part: TablePart, checkpoint: str, optimizer: Any) -> np.ndarray | None:
    """The rows written since.

    Args:
        part: the table.
        checkpoint: the id of one that this process saved or loaded.
        optimizer: the model's.

    Returns:
        [N] int64 in ascending order; None: nobody knows, it may be any.
    """
    mark = _marks.get(part.table, {}).get(checkpoint)
    if mark is None:
        return None
    if part.table.variable.trainable and not _serves(optimizer, part.table):
        return None
    return part.table.changes.since(mark)


def _serves(optimizer: Any, table: DenseTable) -> bool:
    """Whether an optimizer marks the rows that it writes."""
    return isinstance(serving(optimizer, table), optimizers.SparseOptimizer)
