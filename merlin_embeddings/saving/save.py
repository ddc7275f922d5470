"""`save`: a model as a checkpoint."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from merlin_embeddings import compat
from merlin_embeddings.checkpoint import Checkpoint
from merlin_embeddings.checkpoint.commits import require_apart
from merlin_embeddings.saving import tracking
from merlin_embeddings.saving.parts import Parts, TablePart, build_optimizer, parts_of
from merlin_embeddings.saving.write import Change, write
from merlin_embeddings.tables import MovingTable


@dataclass(frozen=True)
class Saved:
    """What `save` has written.

    Attributes:
        path: of the checkpoint.
        step: how many steps had been made.
        full: whether all is there; False: the rows that changed since the base.
        rows: how many rows were written, by table.
    """

    path: str
    step: int | None
    full: bool
    rows: Mapping[str, int]


def save(
    model: Any,
    path: str | os.PathLike,
    *,
    base: str | os.PathLike | None = None,
    metadata: Mapping[str, Any] | None = None,
    epoch: int = 0,
    batch: int = 0,
    overwrite: bool = False,
) -> Saved:
    """Writes a model as a checkpoint: tables, optimizer, id maps, weights, random generators.

    Rows are streamed from the memory that they are in; the files have reached the disk and the
    checkpoint has its name when this returns, as a whole or not at all.

    Args:
        model: a Keras model, or a layer; built.
        path: of the checkpoint, a folder that isn't there yet.
        base: a checkpoint that this process saved or loaded: only the rows that were written since
            are. It has to stay where it is, seen from here. Where nobody knows which rows were
            written (a stock optimizer, `set_weights`, `assign`), all is, and the result says so.
        metadata: what else to keep; plain JSON data.
        epoch, batch: where training stands, for `load` to tell.
        overwrite: whether a checkpoint of this name is replaced, once the new one is whole.

    Returns:
        What was written.

    Raises:
        FileExistsError: something has the name; with `overwrite`, something but a checkpoint.
        FileNotFoundError: there is no checkpoint at `base`.
        OSError: the disk is full, or fails; what was written is removed.
        TypeError: metadata that are no plain data.
        ValueError: the model isn't built yet, or has two tables that can't be told apart; or `path`
            is the base, or one that this goes on from.

    >>> import tempfile
    >>> import merlin_embeddings as me
    >>> layer = me.layers.Embedding(100, 8, name="item")
    >>> layer.build()
    >>> me.save(layer, tempfile.mkdtemp() + "/step-0").rows
    {'item': 100}
    """
    kept = _metadata(metadata, epoch, batch, model)
    build_optimizer(model)  # or a model that was trained couldn't take what one has that wasn't
    parts, optimizer = parts_of(model), getattr(model, "optimizer", None)
    tracking.watch(parts, optimizer)
    changes = None
    if base is not None:
        before = Checkpoint(base)
        require_apart(Path(path).absolute(), before)
        changes = changes_since(parts, before, optimizer)
    marks = tracking.marks_of(parts)
    step = step_of(optimizer)
    rows = write(
        parts,
        path,
        step=step,
        metadata=kept,
        changes=changes,
        base=None if changes is None else base,
        overwrite=overwrite,
    )
    there = Checkpoint(path)
    tracking.remember(parts, marks, there.id)
    return Saved(str(there.path), step, changes is None, rows)


def changes_since(parts: Parts, base: Checkpoint, optimizer: Any) -> dict[str, Change] | None:
    """What was written since a checkpoint, by table; None: nobody knows."""
    found = {}
    for name, part in parts.tables.items():
        rows = tracking.changed(part, base.id, optimizer)
        if rows is None or name not in base.tables:
            return None
        found[name] = Change(rows, _erased(part, base))
    return found


def step_of(optimizer: Any) -> int | None:
    """How many steps an optimizer has made."""
    iterations = getattr(optimizer, "iterations", None)
    if hasattr(iterations, "value"):  # not where it is computed, as with accumulated gradients
        iterations = compat.raw_variable(iterations)  # a mirrored variable is no number
    return None if iterations is None else int(iterations)


def _erased(part: TablePart, base: Checkpoint) -> np.ndarray:
    if not isinstance(part.table, MovingTable):
        return np.empty(0, np.int64)
    now = (some.ids for some in part.table.ids.known())
    before, now_ = (
        np.concatenate([np.empty(0, np.int64), *ids]) for ids in (base.keys(part.name), now)
    )
    return np.setdiff1d(before, now_, assume_unique=True)


def _metadata(
    given: Mapping[str, Any] | None, epoch: int, batch: int, model: Any
) -> dict[str, Any]:
    try:
        user = json.loads(json.dumps(dict(given or {}), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise TypeError(f"save: metadata must be plain JSON data: {error}") from None
    return {"model": model.name, "epoch": int(epoch), "batch": int(batch), "user": user}
