"""TensorFlow checkpoints of Keras' and merlin-models' embeddings, SavedModels among them.

A path is a prefix (`ckpt-1`, beside `ckpt-1.index`), the index itself, a folder with a `checkpoint`
file that names the newest, or a SavedModel. Which variables are tables, and which are their slots,
`object_graph.py` says. What is written can be restored by name:
`tf.train.Checkpoint(items=tf.Variable(...)).restore(path)`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import google_crc32c
import numpy as np

from merlin_embeddings.checkpoint.foreign import bundle, varints
from merlin_embeddings.checkpoint.foreign.bundle import Bundle, Entry
from merlin_embeddings.checkpoint.foreign.format import Format, only_vectors
from merlin_embeddings.checkpoint.foreign.landing import Files, new, raw
from merlin_embeddings.checkpoint.foreign.object_graph import (
    VALUE,
    Table,
    tables_by_key,
    tables_of,
    tell_apart,
)
from merlin_embeddings.checkpoint.foreign.source import (
    Source,
    dense_vectors,
    from_columns,
    require_dense,
)
from merlin_embeddings.checkpoint.layout import FLOATS, numpy_dtype
from merlin_embeddings.checkpoint.manifest import SlotInfo
from merlin_embeddings.tables import Entries

_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_NEWEST = re.compile(r'model_checkpoint_path: "([^"/\\]+)"')
_WRITTEN = "tables"
_COUNTER = "save_counter"


def _prefix(path: Path) -> Path | None:
    """The prefix that a path means."""
    for found in (path, path / "variables" / "variables"):
        if Path(f"{found}.index").is_file():
            return found
    if path.suffix == ".index" and path.is_file():
        return path.with_suffix("")
    state = path / "checkpoint"
    if state.is_file() and state.stat().st_size < 1 << 20:
        told = _NEWEST.search(state.read_text(errors="replace"))
        if told and Path(f"{path / told[1]}.index").is_file():
            return path / told[1]
    return None


def _recognise(path: Path) -> bool:
    return _prefix(path) is not None


def _read(path: Path) -> list[Source]:
    prefix = _prefix(path)
    if prefix is None:
        raise ValueError(f"{path}: no TensorFlow checkpoint: no .index file goes with it")
    found = bundle.read(prefix)
    return [
        _table(table, found)
        for table in _tables(found)
        if len(found.entries[table.key].shape) == 2 and found.entries[table.key].dtype in FLOATS
    ]


def _tables(found: Bundle) -> list[Table]:
    if _GRAPH not in found.entries:
        return tables_by_key(found.entries)
    try:
        told = tables_of(found.string(_GRAPH))
    except ValueError as error:
        raise ValueError(f"{found.prefix}: its graph of objects is damaged: {error}") from None
    # Keras 3's SavedModels have variables twice.
    kept: dict[tuple, Table] = {}
    for table in told:
        entry = found.entries.get(table.key)
        if entry is not None:
            kept.setdefault((table.name, entry.shape, entry.size, entry.checksum), table)
    tell_apart(list(kept.values()))
    return list(kept.values())


def _table(table: Table, found: Bundle) -> Source:
    entry = found.entries[table.key]
    rows, dim = entry.shape
    slots = {}
    for slot, key in table.slots.items():
        told = found.entries.get(key)
        if told is not None and told.dtype in FLOATS and told.shape[:1] == (rows,):
            column = found.column(key, numpy_dtype(told.dtype))
            slots[slot] = SlotInfo(told.shape[1:], told.dtype, 0.0), column
    column = found.column(table.key, numpy_dtype(entry.dtype))
    where = os.fspath(found.prefix)
    source = from_columns(table.name, where, column, dim, entry.dtype, slots=slots)
    if not table.moving:
        return source

    def refuse(_: int) -> Iterator[Entries]:
        raise ValueError(
            f"{where}: the rows of '{table.name}' belong to ids, of which such a checkpoint has "
            "only the table's own state; load it into the model and use me.save"
        )

    return replace(source, info=replace(source.info, key="id"), read=refuse)


def _write(path: Path, sources: Sequence[Source]) -> None:
    for source in sources:
        require_dense(source, "a TensorFlow checkpoint")
        if "/" in source.name or source.name == _COUNTER:
            raise ValueError(f"{path}: a checkpoint's objects can't be called '{source.name}'")
    with new(path) as folder, Files(folder) as files:
        entries, at = {}, 0
        data = f"{_WRITTEN}.{bundle.data_file(0, 1)}"
        for source in sources:
            entry = Entry(source.info.dtype, (source.info.rows, source.info.dim), offset=at)
            for vectors in dense_vectors(source, "a TensorFlow checkpoint"):
                content = raw(vectors)
                entry.checksum = google_crc32c.extend(entry.checksum, bytes(content))
                files.append(data, content)
                entry.size += len(content)
            entries[f"{source.name}{VALUE}"] = entry
            at += entry.size
        # tf.train.Checkpoint has it beside what it is given.
        counter = np.ones(1, "<i8")
        files.append(data, counter)
        told = google_crc32c.value(counter.tobytes())
        entries[f"{_COUNTER}{VALUE}"] = Entry("int64", (), offset=at, size=8, checksum=told)
        at += 8
        text, told = bundle.string_tensor(_graph([source.name for source in sources]))
        files.append(data, text)
        entries[_GRAPH] = Entry("string", (), offset=at, size=len(text), checksum=told)
        files.append(f"{_WRITTEN}.index", bundle.index(entries))
        newest = f'model_checkpoint_path: "{_WRITTEN}"\nall_model_checkpoint_paths: "{_WRITTEN}"\n'
        files.append("checkpoint", newest.encode())


def _graph(tables: Sequence[str]) -> bytes:
    """A TrackableObjectGraph: an object with the tables as its variables."""
    names = {name: f"{name}/embeddings" for name in tables} | {_COUNTER: _COUNTER}
    root = b"".join(
        varints.field(1, varints.field(1, number) + varints.field(2, name))
        for number, name in enumerate(names, 1)
    )
    nodes = [root]
    for name, full_name in names.items():
        attribute = (
            varints.field(1, "VARIABLE_VALUE")
            + varints.field(2, full_name)
            + varints.field(3, f"{name}{VALUE}")
        )
        nodes.append(varints.field(2, attribute))
    return b"".join(varints.field(1, node) for node in nodes)


TENSORFLOW = Format(
    "tensorflow",
    "TensorFlow checkpoint, or SavedModel",
    _recognise,
    _read,
    _write,
    lost=only_vectors,
)
