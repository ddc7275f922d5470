"""Entries of a table whose rows move: of the ids that have a row now."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from merlin_embeddings.tables.entries import Entries


def read(
    ids: Any,
    read_rows: Callable[[np.ndarray], Entries],
    wanted: np.ndarray | None,
    changed: np.ndarray | None,
    chunk: int,
) -> Iterator[Entries]:
    """Entries of ids that have a row, at most `chunk` ids in one.

    Args:
        ids: the id map.
        read_rows: Entries of rows [N].
        wanted: [N] int64, which ids, in this order; None: all, with their scores.
        changed: [C] int64, of those the ids whose row is one of these; None: all.
        chunk: at least 1.
    """
    for some, rows, scores in _known(ids, wanted, chunk):
        kept = rows >= 0 if changed is None else np.isin(rows, changed)
        if kept.any():
            found = read_rows(rows[kept])
            yield Entries(
                keys=some[kept],
                vectors=found.vectors,
                slots=found.slots,
                scores=None if scores is None else scores[kept],
            )


def _known(ids: Any, wanted: np.ndarray | None, chunk: int) -> Iterator[tuple]:
    """Ids, their rows, -1 where there is none, and scores, some at a time."""
    if wanted is None:
        yield from ids.known(chunk)
        return
    for at in range(0, len(wanted), chunk):
        some = wanted[at : at + chunk]
        yield some, ids.find(tf.constant(some)).numpy(), None
