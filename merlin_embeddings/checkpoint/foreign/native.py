"""This package's own checkpoints, read and written as the others are."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from merlin_embeddings.checkpoint.commits import commit
from merlin_embeddings.checkpoint.foreign.format import Format
from merlin_embeddings.checkpoint.foreign.source import Source
from merlin_embeddings.checkpoint.manifest import TableInfo
from merlin_embeddings.checkpoint.reader import MANIFEST, Checkpoint
from merlin_embeddings.checkpoint.recut import in_order
from merlin_embeddings.checkpoint.writer import Writer
from merlin_embeddings.tables import Entries


def _recognise(path: Path) -> bool:
    return (path / MANIFEST).is_file()


def _read(path: Path) -> list[Source]:
    found = Checkpoint(path)
    return [_table(found, info) for info in found.tables.values()]


def _table(found: Checkpoint, info: TableInfo) -> Source:
    def read(chunk: int) -> Iterator[Entries]:
        if info.key == "row":
            for some in in_order(found, info, range(info.rows)):
                for at in range(0, len(some), chunk):
                    yield some.take(slice(at, at + chunk))
        else:
            yield from found.entries(info.name, chunk=chunk)

    count = info.rows if info.key == "row" else _count(found, info.name)
    return Source(replace(info, full=True), count, os.fspath(found.path), read)


def _count(found: Checkpoint, table: str) -> int:
    if found.base is None:
        return sum(shard.count for shard in found.shards(table))
    return sum(len(entries) for entries in found.entries(table, slots=[]))


def _write(path: Path, sources: Sequence[Source]) -> None:
    with Writer(path) as writer:
        for source in sources:
            info = replace(source.info, ids=None, virtual_shards=None)
            keys = range(info.rows) if info.key == "row" and source.count == info.rows else None
            writer.table(info, source.entries(), source.count, keys)
    commit(path)


NATIVE = Format("checkpoint", "checkpoint of merlin-embeddings", _recognise, _read, _write)
