"""Dump folders of SparseOperationKit 2.x (`sok.dump`, `sok.load`).

For each table T: `T-key`, `T-weight` and, for each slot, `T-<Optimizer>-<slot>`; in each file a
header of 296 bytes and then raw numbers, little-endian. The header: a name that SOK leaves blank,
256 bytes; the file's kind, u32 big-endian (0 keys, 1 vectors, 2 a slot); the slot's name, 32 bytes;
the dtype, u32 big-endian. Names are padded with spaces on the left.

`sok.load` into a variable of fixed size takes the rows whose key is its own in the order of the
file, whatever the keys are. So files are written in the order of keys.
"""

from __future__ import annotations

import os
import shutil
import string
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from merlin_embeddings.checkpoint.foreign.format import Format, cast
from merlin_embeddings.checkpoint.foreign.landing import Files, new
from merlin_embeddings.checkpoint.foreign.raw import Column, file_size
from merlin_embeddings.checkpoint.foreign.source import Source, float_name, from_columns
from merlin_embeddings.checkpoint.manifest import SlotInfo, TableInfo

_HEAD = 296
_KEY, _WEIGHT, _SLOT = 0, 1, 2
_CODES = ("int32", "int64", "uint32", "uint64", "float16", "float32", "float64")
_DTYPES = {
    "float16": "float16",
    "bfloat16": "float32",
    "float32": "float32",
    "float64": "float64",
}
# Keras' names of slots in SOK's files, and ours.
_SLOTS = {
    ("Adam", "m"): "momentum",
    ("Adam", "v"): "velocity",
    ("Adamax", "m"): "momentum",
    ("Adamax", "v"): "velocity",
    ("SGD", "momentum"): "velocity",
    ("Adagrad", "accumulator"): "accumulator",
    ("Ftrl", "accumulator"): "accumulator",
    ("Ftrl", "linear"): "linear",
}
# Which optimizer writes which slots.
_OPTIMIZERS = {
    frozenset({"momentum", "velocity"}): ("Adam", {"momentum": "m", "velocity": "v"}),
    frozenset({"accumulator"}): ("Adagrad", {"accumulator": "accumulator"}),
    frozenset({"accumulator", "linear"}): (
        "Ftrl",
        {"accumulator": "accumulator", "linear": "linear"},
    ),
}


def _recognise(path: Path) -> bool:
    return path.is_dir() and any((path / f"{name}-weight").is_file() for name in _names(path))


def _read(path: Path) -> list[Source]:
    return [_table(path, name) for name in _names(path)]


def _names(path: Path) -> list[str]:
    return sorted(name[:-4] for name in os.listdir(path) if name.endswith("-key"))


def _table(path: Path, name: str) -> Source:
    key_file, weight_file = path / f"{name}-key", path / f"{name}-weight"
    kind = _head(key_file, _KEY)
    rows, rest = divmod(file_size(key_file) - _HEAD, kind.itemsize)
    if rest or kind.kind not in "iu":
        raise ValueError(f"{key_file}: holds no whole number of keys ({kind}, {rest} bytes over)")
    vectors, dim, dtype = _values(weight_file, _WEIGHT, rows)
    slots = {}
    for file in sorted(path.glob(f"{_escaped(name)}-*-*")):
        optimizer, slot = file.name[len(name) + 1 :].split("-", 1)
        column, width, kept = _values(file, _SLOT, rows)
        if width != dim:
            raise ValueError(f"{file}: {width} numbers a row, the vectors have {dim}")
        called = _SLOTS.get((optimizer, slot), slot)
        if called in slots:
            raise ValueError(f"{file}: a second slot '{called}'; leave files of one optimizer")
        slots[called] = SlotInfo((dim,), kept, 0.0), column
    keys = Column(key_file, _HEAD, rows, kind)
    return from_columns(name, os.fspath(path), vectors, dim, dtype, keys, slots)


def _values(file: Path, kind: int, rows: int) -> tuple[Column, int, str]:
    """[rows, dim] numbers of a file."""
    dtype = _head(file, kind)
    name = float_name(dtype, os.fspath(file), "what it holds")
    numbers, rest = divmod(file_size(file) - _HEAD, dtype.itemsize)
    dim, over = divmod(numbers, rows) if rows else (0, numbers)
    if rest or over:
        raise ValueError(
            f"{file}: {numbers} numbers and {rest} bytes are no whole vectors for {rows} keys"
        )
    return Column(file, _HEAD, rows, dtype, (dim,)), dim, name


def _head(file: Path, kind: int) -> np.dtype:
    """The dtype that a file's header tells, after a check of the rest."""
    if file_size(file) < _HEAD:
        raise ValueError(f"{file}: is shorter than SOK's header of {_HEAD} bytes")
    with open(file, "rb") as opened:
        head = opened.read(_HEAD)
    told, code = int.from_bytes(head[256:260], "big"), int.from_bytes(head[292:296], "big")
    if told != kind or code >= len(_CODES):
        raise ValueError(
            f"{file}: its header says kind {told} and dtype {code}; expected kind {kind} and a "
            f"dtype below {len(_CODES)}: no file of a SOK dump, or a damaged one"
        )
    return np.dtype(_CODES[code]).newbyteorder("<")


def _write(path: Path, sources: Sequence[Source]) -> None:
    names = [_file_name(source.name) for source in sources]
    if len(set(names)) != len(names):
        raise ValueError(f"{path}: two tables would have the same files: {', '.join(names)}")
    with new(path) as folder:
        for name, source in zip(names, sources, strict=True):
            if _write_table(folder, name, source):
                continue
            # Out of order: once more, in order, from what was written.
            draft = folder / "draft"
            draft.mkdir()
            for file in folder.glob(f"{_escaped(name)}-*"):
                file.rename(draft / file.name)
            _write_table(folder, name, _table(draft, name))
            shutil.rmtree(draft)


def _write_table(folder: Path, name: str, source: Source) -> bool:
    """Writes a table's files; says whether they are in the order of keys."""
    info, dtype = source.info, _DTYPES[source.info.dtype]
    called = _names_of_slots(info)
    in_order, last = True, None
    with Files(folder) as files:
        files.append(f"{name}-key", _header(_KEY, "", "int64"))
        files.append(f"{name}-weight", _header(_WEIGHT, "", dtype))
        for slot, (file, theirs) in called.items():
            files.append(f"{name}-{file}", _header(_SLOT, theirs, _DTYPES[info.slots[slot].dtype]))
        for entries in source.entries():
            keys = entries.keys
            if (last is not None and keys[0] <= last) or (keys[1:] <= keys[:-1]).any():
                in_order = False
            last = keys[-1]
            files.append(f"{name}-key", keys)
            files.append(f"{name}-weight", cast(entries.vectors, _DTYPES, info.dtype))
            for slot, (file, _) in called.items():
                values = cast(entries.slots[slot], _DTYPES, info.slots[slot].dtype)
                files.append(f"{name}-{file}", values)
    return in_order


def _lost(info: TableInfo) -> list[str]:
    kept = _names_of_slots(info)
    lost = [f"slot '{slot}'" for slot in info.slots if slot not in kept]
    return lost + ([] if info.scores is None else ["scores"])


def _names_of_slots(info: TableInfo) -> Mapping[str, tuple[str, str]]:
    """The file's ending and SOK's name of each slot that SOK has."""
    whole = {slot for slot, told in info.slots.items() if told.shape == (info.dim,)}
    known = max((slots for slots in _OPTIMIZERS if slots <= whole), key=len, default=None)
    if known is None:
        return {}
    optimizer, theirs = _OPTIMIZERS[known]
    return {slot: (f"{optimizer}-{name}", name) for slot, name in theirs.items()}


def _header(kind: int, slot: str, dtype: str) -> bytes:
    numbers = kind.to_bytes(4, "big"), _CODES.index(dtype).to_bytes(4, "big")
    return b" " * 256 + numbers[0] + slot.rjust(32).encode() + numbers[1]


def _file_name(name: str) -> str:
    return "".join("_" if letter in string.punctuation else letter for letter in name)


def _escaped(name: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


SOK = Format(
    "sok",
    "dump folder of SparseOperationKit",
    _recognise,
    _read,
    _write,
    _DTYPES,
    _lost,
)
