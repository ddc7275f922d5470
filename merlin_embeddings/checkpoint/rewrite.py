"""Writes a checkpoint anew: in so many shards, or without bases."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from merlin_embeddings.checkpoint.commits import commit, require_apart
from merlin_embeddings.checkpoint.manifest import TableInfo
from merlin_embeddings.checkpoint.reader import Checkpoint, State
from merlin_embeddings.checkpoint.recut import Cutter, in_order
from merlin_embeddings.checkpoint.writer import Writer
from merlin_embeddings.tables import Entries


def reshard(
    path: str | os.PathLike, out: str | os.PathLike, shards: int, overwrite: bool = False
) -> None:
    """Writes a checkpoint again with each table in so many files; each row is read once.

    What it goes on from is applied: the new one stands alone.

    Args:
        path: of the checkpoint.
        out: of the new one.
        shards: how many files a table has. Tables with fewer rows, or fewer virtual shards, have
            fewer.
        overwrite: whether a checkpoint at `out` is replaced.

    Raises:
        ValueError: shards below 1, `out` is one of those read, or the state of an id map, which
            was written for a file as a whole, would have to be cut.
        FileExistsError: something is at `out`.
        BrokenCheckpoint: a file isn't what was written.
    """
    if shards < 1:
        raise ValueError(f"checkpoint '{path}': shards must be at least 1, got {shards}")
    _rewrite(Checkpoint(path), Path(out), shards, overwrite)


def compact(path: str | os.PathLike, out: str | os.PathLike, overwrite: bool = False) -> None:
    """Makes one checkpoint that stands alone of an increment and all that it goes on from.

    Args:
        path: of the increment.
        out: of the new one.
        overwrite: whether a checkpoint at `out` is replaced.

    Raises:
        ValueError: `out` is one of those read.
        FileExistsError: something is at `out`.
        BrokenCheckpoint: a file isn't what was written.
    """
    _rewrite(Checkpoint(path), Path(out), None, overwrite)


def _rewrite(found: Checkpoint, out: Path, shards: int | None, overwrite: bool) -> None:
    require_apart(out.absolute(), found)
    with Writer(out, overwrite=overwrite) as writer:
        for name, info in found.tables.items():
            alone = dataclasses.replace(info, full=True)
            if info.virtual_shards is not None:
                _by_virtual_shard(found, alone, shards, writer)
            elif info.key == "row" and found.has_ranges(name):
                _by_row(found, alone, shards, writer)
            else:
                _by_count(found, alone, shards, writer)
        for group in found.groups:
            writer.arrays(group, found.arrays(group))
    commit(out, step=found.step, metadata=found.metadata, overwrite=overwrite)


def _by_row(found: Checkpoint, info: TableInfo, shards: int | None, writer: Writer) -> None:
    count = shards or len(found.origin(info.name).shards(info.name))
    for start, stop in _cut(info.rows, count):
        rows = range(start, stop)
        if found.is_increment(info.name):
            entries = in_order(found, info, rows)
        else:
            entries = found.entries(info.name, keys=rows)
        writer.table(info, entries, len(rows), keys=rows)


def _by_count(found: Checkpoint, info: TableInfo, shards: int | None, writer: Writer) -> None:
    here = found.shards(info.name)
    if found.is_increment(info.name):
        total = sum(len(keys) for keys in found.keys(info.name))
    else:
        total = sum(shard.count for shard in here)
    states = found.state(info.name)
    if len(states) > 1:
        raise ValueError(
            f"{found.path}, table '{info.name}': what its id map keeps is in {len(states)} parts, "
            "and the table has no virtual shards to cut it by"
        )
    state = states[0].arrays if states else None
    cutter = Cutter(found.entries(info.name))
    for start, stop in _cut(total, shards or len(here)):
        writer.table(info, cutter.piece(stop - start), stop - start, state=state)
        state = None


def _by_virtual_shard(
    found: Checkpoint, info: TableInfo, shards: int | None, writer: Writer
) -> None:
    counts = _counts(found, info)
    states = found.state(info.name)
    for span in _cut(info.virtual_shards or 0, shards or len(found.shards(info.name))):
        if found.is_increment(info.name):
            # Increments have their own order: virtual shards are put in order one by one.
            entries = _one_by_one(found, info, span)
        else:
            entries = found.entries(info.name, virtual_shards=span)
        state = _state_of(states, span, f"{found.path}, table '{info.name}'")
        some = counts[span[0] : span[1]].tolist()
        writer.table(info, entries, some, virtual_shards=span, state=state)


def _one_by_one(found: Checkpoint, info: TableInfo, span: tuple[int, int]) -> Iterator[Entries]:
    for number in range(*span):
        yield from found.entries(info.name, virtual_shards=(number, number + 1))


def _counts(found: Checkpoint, info: TableInfo) -> np.ndarray:
    """[V] int64: how many ids each virtual shard has."""
    counts = np.zeros(info.virtual_shards or 0, np.int64)
    if found.is_increment(info.name):
        for number in range(len(counts)):
            some = found.keys(info.name, virtual_shards=(number, number + 1))
            counts[number] = sum(len(keys) for keys in some)
        return counts
    for shard in found.shards(info.name):
        first, stop = shard.virtual_shards or (0, 0)
        counts[first:stop] = shard.counts
    return counts


def _state_of(states: list[State], span: tuple[int, int], what: str) -> Any:
    """The state that is written with some virtual shards: one for each, or one for all."""
    if not states:
        return None
    by_span = {state.virtual_shards: state.arrays for state in states}
    if span in by_span:
        return by_span[span]
    each = [by_span.get((number, number + 1)) for number in range(*span)]
    if None in each:
        raise ValueError(
            f"{what}: what its id map keeps was written for {list(by_span)} as a whole, and can't "
            f"be cut for virtual shards {span}; write it for each virtual shard apart"
        )
    return each


def _cut(total: int, parts: int) -> list[tuple[int, int]]:
    """At most so many ranges, about equally long, none empty; one where there is nothing."""
    parts = max(min(parts, total), 1)
    edges = [total * number // parts for number in range(parts + 1)]
    return list(itertools.pairwise(edges))
