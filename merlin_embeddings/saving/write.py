"""Writes a model as a checkpoint."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from merlin_embeddings import checkpoint, compat, config
from merlin_embeddings.ids import Known
from merlin_embeddings.saving import generators
from merlin_embeddings.saving.parts import Parts, TablePart
from merlin_embeddings.saving.rows import CHUNK, Rows, slot_infos, spans
from merlin_embeddings.tables import Entries, MovingTable, view

WEIGHTS, OPTIMIZER, IDS, RANDOM = "weights", "optimizer", "ids", "random"


@dataclass(frozen=True)
class Change:
    """What is to be written of a table that a base has.

    Attributes:
        rows: [N] int64, those written since.
        erased: [E] int64, ids that have no row any more.
    """

    rows: np.ndarray
    erased: np.ndarray


def write(
    parts: Parts,
    path: str | os.PathLike,
    *,
    step: int | None,
    metadata: Mapping[str, Any],
    changes: Mapping[str, Change] | None = None,
    base: str | os.PathLike | None = None,
    overwrite: bool = False,
) -> dict[str, int]:
    """Writes the parts of a model, and commits.

    Args:
        parts: of the model.
        path: of the checkpoint.
        step: how many steps were made.
        metadata: of the checkpoint.
        changes: by table, with `base`; None: all rows.
        base: the checkpoint that has the other rows.
        overwrite: whether a checkpoint of this name is replaced.

    Returns:
        How many rows were written of each table.
    """
    for name, part in parts.tables.items():
        if isinstance(part.table, MovingTable) and shared_rows(name) in parts.tables:
            raise ValueError(
                f"Table '{shared_rows(name)}' has the name that a checkpoint gives to the rows "
                f"which ids of table '{name}' share; give it another one"
            )
    written = {}
    metadata = {**metadata, "optimizer": parts.kind}
    with checkpoint.Writer(path, overwrite=overwrite) as writer:
        for name, part in parts.tables.items():
            change = None if changes is None else changes[name]
            known = [path for path, ids in parts.known.items() if ids is part.table.ids]
            written[name] = write_table(writer, part, change, *known)
        _write_arrays(writer, parts)
    checkpoint.commit(path, step=step, metadata=metadata, base=base, overwrite=overwrite)
    return written


def write_table(
    writer: checkpoint.Writer, part: TablePart, change: Change | None = None, known: str = ""
) -> int:
    """Writes a table.

    Args:
        writer: of the checkpoint.
        part: the table.
        change: what is to be written; None: all rows.
        known: what its ids are called in the group of known ids.

    Returns:
        How many rows that were.
    """
    if isinstance(part.table, MovingTable):
        return _write_moving(writer, part, part.table, change)
    info, rows = table_info(part, known, full=change is None), Rows(part)
    if change is None:
        count = part.table.rows
        writer.table(info, _all(rows, 0, count), count, keys=range(count))
        return count
    writer.table(info, _some(rows, change.rows, change.rows), len(change.rows))
    return len(change.rows)


def table_info(
    part: TablePart, known: str = "", full: bool = True, **changed: Any
) -> checkpoint.TableInfo:
    """What the manifest says of a table."""
    table, spec = part.table, part.table.config
    moving = isinstance(table, MovingTable)
    given: dict[str, Any] = dict(
        name=part.name,
        rows=table.capacity if isinstance(table, MovingTable) else table.rows,
        dim=table.dim,
        dtype=spec.dtype,
        key="id" if moving else "row",
        slots=slot_infos(part),
        scores="uint32" if moving else None,
        virtual_shards=table.ids.shards if moving else None,
        full=full,
        ids=config.to_plain(spec.ids),
        compression=config.to_plain(spec.compression),
        metadata={
            "seed": table.seed,
            "optimizer": part.kind,
            "vocabulary_size": spec.vocabulary_size,
            "known_ids": known or None,
            "salt": table.salt if isinstance(table, MovingTable) else None,
        },
    )
    return checkpoint.TableInfo(**{**given, **changed})


def shared_rows(name: str) -> str:
    """What the rows are called that ids without one of their own share."""
    return f"{name}:oov"


def _write_moving(
    writer: checkpoint.Writer, part: TablePart, table: MovingTable, change: Change | None
) -> int:
    info, rows = table_info(part, full=change is None), Rows(part)
    known = known_by_shard(table)
    if change is not None:
        known = [_take(some, np.isin(some.rows, change.rows)) for some in known]
    counts = [len(some.ids) for some in known]
    writer.table(
        info,
        (rows.some(some.rows, some.ids, some.scores.astype(np.uint32)) for some in known),
        counts,
        virtual_shards=(0, table.ids.shards),
        state=[table.ids.state(shard) for shard in range(table.ids.shards)],
        erased=() if change is None else change.erased,
    )
    shared = table.rows - table.capacity
    if shared:
        info = table_info(
            part,
            name=shared_rows(part.name),
            rows=shared,
            key="row",
            scores=None,
            ids=None,
            virtual_shards=None,
        )
        of_shared = _all(rows, table.capacity, table.rows, table.capacity)
        writer.table(info, of_shared, shared, keys=range(shared))
    return sum(counts)


def known_by_shard(table: MovingTable) -> list[Known]:
    """The ids that have rows, of each virtual shard in turn."""
    found = []
    for shard in range(table.ids.shards):
        some = list(table.ids.known(shard=shard))
        arrays = ([getattr(one, name) for one in some] for name in Known._fields)
        found.append(Known(*(np.concatenate([np.empty(0, np.int64), *each]) for each in arrays)))
    return found


def _take(known: Known, which: np.ndarray) -> Known:
    return Known(*(array[which] for array in known))


def _all(rows: Rows, begin: int, end: int, first: int = 0) -> Iterator[Entries]:
    """Rows [begin, end), of which row `first` has key 0."""
    return (rows.span(a, b, np.arange(a - first, b - first)) for a, b in spans(begin, end))


def _some(rows: Rows, wanted: np.ndarray, keys: np.ndarray) -> Iterator[Entries]:
    cuts = range(0, len(wanted), CHUNK)
    return (rows.some(wanted[at : at + CHUNK], keys[at : at + CHUNK]) for at in cuts)


def _write_arrays(writer: checkpoint.Writer, parts: Parts) -> None:
    writer.arrays(WEIGHTS, {path: value_of(one) for path, one in parts.weights.items()})
    writer.arrays(IDS, {path: ids.saved() for path, ids in parts.known.items()})
    writer.arrays(RANDOM, generators.states(parts.random))
    if parts.optimizer is not None:
        writer.arrays(
            OPTIMIZER,
            dict(zip(names_of(parts.optimizer), map(value_of, parts.optimizer), strict=True)),
        )


def names_of(optimizer: list[Any]) -> list[str]:
    """What an optimizer's variables are called: number and path."""
    return [f"{at:05d}.{compat.path_of(one)}" for at, one in enumerate(optimizer)]


def value_of(variable: Any) -> np.ndarray:
    """What a variable holds now; see `tables.view`."""
    raw = compat.raw_variable(variable)
    return view(variable) if raw.dtype.is_floating else np.asarray(raw.numpy())
