"""Files of HugeCTR's Hierarchical Parameter Server, as of HugeCTR 24.06.

A sparse model is a folder: `key`, int64; `emb_vector`, float32 [N, D] in the same order; and, if
there are any, `meta`, 8 bytes a key, by which the server chooses what its GPU cache starts with:
the higher, the rather. No headers; all little-endian. Several tables are folders in a folder.

A database's dump is a file that ends in `.bin`: `bin\\0`, then u32 version 1, key size, value size,
then keys and values by turns.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from merlin_embeddings.checkpoint.foreign.format import (
    Format,
    cast,
    one,
    only_slots_lost,
    only_vectors,
)
from merlin_embeddings.checkpoint.foreign.landing import Files, new
from merlin_embeddings.checkpoint.foreign.raw import Column, file_size
from merlin_embeddings.checkpoint.foreign.source import Source, from_columns

_FLOAT32 = dict.fromkeys(("float16", "bfloat16", "float32", "float64"), "float32")
_NAME = re.compile(r"[a-zA-Z0-9_\-]{1,120}")
_MAGIC = b"bin\0"
_LONGEST_VALUE = 1 << 24


# Folders


def _is_table(path: Path) -> bool:
    return (path / "key").is_file() and (path / "emb_vector").is_file()


def _tables(path: Path) -> list[Path]:
    if _is_table(path):
        return [path]
    return [folder for folder in sorted(path.iterdir()) if _is_table(folder)]


def _recognise(path: Path) -> bool:
    return path.is_dir() and bool(_tables(path))


def _read(path: Path) -> list[Source]:
    return [_table(folder) for folder in _tables(path)]


def _table(path: Path) -> Source:
    key_file, vector_file, meta_file = path / "key", path / "emb_vector", path / "meta"
    rows, rest = divmod(file_size(key_file), 8)
    if rest or not rows:
        raise ValueError(f"{key_file}: {file_size(key_file)} bytes are no whole keys of 8 bytes")
    dim, over = divmod(file_size(vector_file), 4 * rows)
    if over or not dim:
        raise ValueError(
            f"{vector_file}: {file_size(vector_file)} bytes are no float32 vectors for {rows} keys"
        )
    scores = None
    if meta_file.exists():
        if file_size(meta_file) != 8 * rows:
            raise ValueError(f"{meta_file}: {file_size(meta_file)} bytes for {rows} keys, not 8")
        scores = "int64", Column(meta_file, 0, rows, np.dtype("<i8"))
    return from_columns(
        path.name,
        os.fspath(path),
        Column(vector_file, 0, rows, np.dtype("<f4"), (dim,)),
        dim,
        "float32",
        Column(key_file, 0, rows, np.dtype("<i8")),
        scores=scores,
    )


def _write(path: Path, sources: Sequence[Source]) -> None:
    for source in sources:
        if not _NAME.fullmatch(source.name):
            raise ValueError(
                f"{path}: the server takes names of 1 to 120 letters, digits, '_' and '-', not "
                f"'{source.name}'; rename the table"
            )
    with new(path) as folder:
        folder.mkdir()
        for source in sources:
            with Files(folder / source.name) as files:
                for entries in source.entries():
                    files.append("key", entries.keys.astype("<i8", copy=False))
                    vectors = cast(entries.vectors, _FLOAT32, source.info.dtype)
                    files.append("emb_vector", vectors)
                    if entries.scores is not None:
                        files.append("meta", entries.scores.astype("<i8", copy=False))


# Dumps


def _recognise_dump(path: Path) -> bool:
    if path.is_dir():
        return any(_recognise_dump(file) for file in path.glob("*.bin"))
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        return file.read(4) == _MAGIC


def _read_dump(path: Path) -> list[Source]:
    files = sorted(path.glob("*.bin")) if path.is_dir() else [path]
    return [_dump(file) for file in files]


def _dump(path: Path) -> Source:
    size = file_size(path)
    with open(path, "rb") as file:
        head = file.read(16)
    if len(head) < 16 or head[:4] != _MAGIC:
        raise ValueError(f"{path}: no dump of the parameter server with rows in it")
    version, key_size, value_size = struct.unpack("<3I", head[4:])
    if version != 1 or key_size not in (4, 8):
        raise ValueError(f"{path}: version {version} with keys of {key_size} bytes; known: 1, 4, 8")
    if value_size % 4 or not 0 < value_size <= _LONGEST_VALUE:
        raise ValueError(f"{path}: values of {value_size} bytes are no float32 vectors")
    rows, over = divmod(size - 16, key_size + value_size)
    if over:
        raise ValueError(f"{path}: {over} bytes over after {rows} rows: it was cut short")
    dim = value_size // 4
    # Keys of 4 bytes are unsigned.
    record = np.dtype([("key", "<i8" if key_size == 8 else "<u4"), ("value", "<f4", (dim,))])
    return from_columns(
        path.name.removesuffix(".bin"),
        os.fspath(path),
        Column(path, 16, rows, record, field="value"),
        dim,
        "float32",
        Column(path, 16, rows, record, field="key"),
    )


def _write_dump(path: Path, sources: Sequence[Source]) -> None:
    if path.suffix == ".bin":
        source = one(sources, path)
        with new(path) as partial, Files(partial.parent) as files:
            _write_rows(files, partial.name, source)
        return
    with new(path) as folder, Files(folder) as files:
        for source in sources:
            _write_rows(files, f"{_checked(source.name, path)}.bin", source)


def _write_rows(files: Files, name: str, source: Source) -> None:
    dim = source.info.dim
    record = np.dtype([("key", "<i8"), ("value", "<f4", (dim,))])
    files.append(name, _MAGIC + struct.pack("<3I", 1, 8, 4 * dim))
    for entries in source.entries():
        rows = np.empty(len(entries), record)
        rows["key"] = entries.keys
        rows["value"] = cast(entries.vectors, _FLOAT32, source.info.dtype)
        files.append(name, rows)


def _checked(name: str, path: Path) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{path}: '{name}' is no name for a file of the parameter server")
    return name


HPS = Format(
    "hps",
    "sparse model folders of the Hierarchical Parameter Server",
    _recognise,
    _read,
    _write,
    _FLOAT32,
    only_slots_lost,
)
HPS_DUMP = Format(
    "hps-bin",
    "database dump (.bin) of the Hierarchical Parameter Server",
    _recognise_dump,
    _read_dump,
    _write_dump,
    _FLOAT32,
    only_vectors,
)
