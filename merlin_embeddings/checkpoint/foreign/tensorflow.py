"""TensorFlow checkpoints of Keras' and merlin-models' embeddings, SavedModels among them.

A path is a prefix (`ckpt-1`, beside `ckpt-1.index`), the index itself, a folder with a `checkpoint`
file that names the newest, or a SavedModel. A table is a variable [N, D] called
`<table>/embeddings`; its optimizer's slots come with it: those that Keras 3 calls
`<optimizer>/<table>_embeddings_<slot>`, and Keras 2.11 and later
`<optimizer>/<slot>/<table>/embeddings`. What is written can be restored by name:
`tf.train.Checkpoint(items=tf.Variable(...)).restore(path)`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import google_crc32c
import numpy as np

from merlin_embeddings.checkpoint.foreign import bundle, varints
from merlin_embeddings.checkpoint.foreign.bundle import Bundle, Entry
from merlin_embeddings.checkpoint.foreign.format import Format, only_vectors
from merlin_embeddings.checkpoint.foreign.landing import Files, new, raw
from merlin_embeddings.checkpoint.foreign.source import (
    Source,
    dense_vectors,
    from_columns,
    require_dense,
)
from merlin_embeddings.checkpoint.layout import FLOATS, numpy_dtype
from merlin_embeddings.checkpoint.manifest import SlotInfo

_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
_NEWEST = re.compile(r'model_checkpoint_path: "([^"/\\]+)"')
_WRITTEN = "tables"
_COUNTER = "save_counter"
_KERAS_2 = {"m": "momentum", "v": "velocity"}


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
    names = _variables(found)
    sources = []
    for name, key in names.items():
        entry = found.entries[key]
        if not _is_table(name, names) or len(entry.shape) != 2 or entry.dtype not in FLOATS:
            continue
        table = name.removesuffix("embeddings").rstrip("/") or name
        sources.append(_table(table, name, key, found, names))
    return sources


def _is_table(name: str, names: Mapping[str, str]) -> bool:
    """Whether a variable is a table, and no slot of one, which Keras 2.11 calls after it."""
    owner, last = name.rpartition("/")[::2]
    parts = owner.split("/")
    of_another = any(f"{'/'.join(parts[at:])}/{last}" in names for at in range(1, len(parts)))
    return last in ("embeddings", "_embeddings", "table:embeddings") and not of_another


def _table(table: str, name: str, key: str, found: Bundle, names: Mapping[str, str]) -> Source:
    entry = found.entries[key]
    rows, dim = entry.shape
    dtype = entry.dtype
    slots = {}
    for slot, slot_key in _slots(name, names):
        told = found.entries[slot_key]
        if told.dtype in FLOATS and told.shape[:1] == (rows,):
            column = found.column(slot_key, numpy_dtype(told.dtype))
            slots[slot] = SlotInfo(told.shape[1:], told.dtype, 0.0), column
    column = found.column(key, numpy_dtype(dtype))
    where = os.fspath(found.prefix)
    return from_columns(table, where, column, dim, dtype, slots=slots)


def _slots(name: str, names: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The slots of a variable and their keys."""
    owner = f"{name.replace('/', '_')}_"
    for other, key in names.items():
        optimizer, _, rest = other.partition("/")
        if optimizer and rest.startswith(owner):
            yield rest.removeprefix(owner), key
        elif rest.endswith(f"/{name}") and "/" not in (slot := rest.removesuffix(f"/{name}")):
            yield _KERAS_2.get(slot, slot), key


def _variables(found: Bundle) -> dict[str, str]:
    """The keys of variables by their names; where the checkpoint tells none, by their paths."""
    told = {}
    if _GRAPH in found.entries:
        try:
            told = dict(_told(found.string(_GRAPH)))
        except ValueError as error:
            raise ValueError(f"{found.prefix}: its graph of objects is damaged: {error}") from None
    names: dict[str, str] = {}
    for key in found.entries:
        name = told.get(key) or key.removesuffix(_VALUE)
        # Two variables may have one name; a path is a variable's own.
        names[key.removesuffix(_VALUE) if name in names else name] = key
    return names


def _told(graph: bytes) -> Iterator[tuple[str, str]]:
    """(key, the variable's name) of a TrackableObjectGraph."""
    for number, node in varints.fields(graph):
        if number != 1 or isinstance(node, int):
            continue
        for kind, attribute in varints.fields(node):
            if kind == 2 and not isinstance(attribute, int):
                told = dict(varints.fields(attribute))
                name, key = told.get(2, b""), told.get(3, b"")
                if isinstance(name, bytes) and isinstance(key, bytes):
                    yield key.decode(), name.decode().removesuffix(":0")


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
            entries[f"{source.name}{_VALUE}"] = entry
            at += entry.size
        # tf.train.Checkpoint has it beside what it is given.
        counter = np.ones(1, "<i8")
        files.append(data, counter)
        told = google_crc32c.value(counter.tobytes())
        entries[f"{_COUNTER}{_VALUE}"] = Entry("int64", (), offset=at, size=8, checksum=told)
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
            + varints.field(3, f"{name}{_VALUE}")
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
