"""NumPy's files: `.npy`, `.npz`, and folders of `.npy`.

A file `T.npy` is a table T: [N, D], row i is row i. A folder `T` holds a table by column:
`vectors.npy` [N, D]; `keys.npy` [N] where keys aren't 0, 1, ... N-1; `slot.<name>.npy` [N, ...];
`scores.npy` [N]. Several tables are files or folders in a folder. An `.npz` file as `numpy.savez`
writes it has either these columns of one table, or tables by name. Nothing is ever unpickled.
"""

from __future__ import annotations

import ast
import os
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from merlin_embeddings.checkpoint.foreign.format import Format, cast, one
from merlin_embeddings.checkpoint.foreign.landing import Files, new
from merlin_embeddings.checkpoint.foreign.raw import Column
from merlin_embeddings.checkpoint.foreign.source import (
    Source,
    dense_vectors,
    float_name,
    from_columns,
    require_dense,
)
from merlin_embeddings.checkpoint.foreign.zips import opened, stored
from merlin_embeddings.checkpoint.manifest import SlotInfo
from merlin_embeddings.checkpoint.names import folder_name

# npy has no bfloat16.
_DTYPES = {
    "float16": "float16",
    "bfloat16": "float32",
    "float32": "float32",
    "float64": "float64",
}
_MAGIC = b"\x93NUMPY"
_LONGEST_HEADER = 10_000


def _recognise(path: Path) -> bool:
    if path.is_dir():
        return _is_table(path) or any(_is_table(item) or _is_npy(item) for item in path.iterdir())
    return _is_npy(path) or (path.suffix == ".npz" and zipfile.is_zipfile(path))


def _is_table(path: Path) -> bool:
    return _is_npy(path / "vectors.npy")


def _is_npy(path: Path) -> bool:
    if path.suffix != ".npy" or not path.is_file():
        return False
    with open(path, "rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def _read(path: Path) -> list[Source]:
    if path.suffix == ".npz" and path.is_file():
        return _archive(path)
    if not path.is_dir():
        return [_whole(path.stem, _array(path, 0), path)]
    if _is_table(path):
        return [_folder(path)]
    return [
        _folder(item) if _is_table(item) else _whole(item.stem, _array(item, 0), item)
        for item in sorted(path.iterdir())
        if _is_table(item) or _is_npy(item)
    ]


def _folder(path: Path) -> Source:
    found = {file.stem: _array(file, 0) for file in sorted(path.glob("*.npy"))}
    return _columns(path.name, found, path)


def _archive(path: Path) -> list[Source]:
    with opened(path) as archive:
        found = {
            item.filename.removesuffix(".npy"): _array(path, stored(path, archive, item))
            for item in archive.infolist()
        }
    if "vectors" in found:
        return [_columns(path.stem, found, path)]
    return [_whole(name, array, path) for name, array in found.items()]


_Array = tuple[Column, np.dtype, tuple[int, ...]]


def _array(path: Path, offset: int) -> _Array:
    """An array in a file, from its header at `offset` on."""
    with open(path, "rb") as file:
        file.seek(offset)
        magic = file.read(8)
        # Version 1 has two bytes for the header's length, later ones four.
        width = 2 if magic[6:7] == b"\x01" else 4
        length = int.from_bytes(file.read(width), "little")
        text = file.read(min(length, _LONGEST_HEADER))
        begin = file.tell()
    try:
        told = ast.literal_eval(text.decode("utf-8"))
        shape, fortran = told["shape"], told["fortran_order"]
        dtype = np.dtype(told["descr"])
        fits = isinstance(shape, tuple) and all(type(size) is int for size in shape)
        if magic[:6] != _MAGIC or length != len(text) or not fits:
            raise ValueError("no magic number, or no shape")
    except (ValueError, TypeError, KeyError, SyntaxError, MemoryError, RecursionError) as error:
        raise ValueError(f"{path}: no array of NumPy's ({error})") from None
    if fortran and len(shape) > 1:
        raise ValueError(f"{path}: columns stand together; save np.ascontiguousarray of the array")
    if dtype.hasobject or not shape or min(shape) < 0:
        raise ValueError(f"{path}: {dtype} of shape {list(shape)} is no column of a table")
    return Column(path, begin, shape[0], dtype, tuple(shape[1:])), dtype, tuple(shape)


def _whole(name: str, array: _Array, path: Path) -> Source:
    column, dtype, shape = array
    if len(shape) != 2:
        raise ValueError(f"{path}: '{name}' has shape {list(shape)}, a table is [N, D]")
    kept = float_name(dtype, os.fspath(path), f"'{name}'")
    return from_columns(name, os.fspath(path), column, shape[1], kept)


def _columns(name: str, found: Mapping[str, _Array], path: Path) -> Source:
    where = os.fspath(path)
    vectors, dtype, shape = found["vectors"]
    if len(shape) != 2:
        raise ValueError(f"{path}: vectors have shape {list(shape)}, not [N, D]")
    for what in ("keys", "scores"):
        if what in found and (len(found[what][2]) != 1 or found[what][1].kind not in "iu"):
            raise ValueError(f"{path}: {what} are {found[what][1]} of shape {found[what][2]}")
    slots = {
        file.removeprefix("slot."): (
            SlotInfo(kind[1:], float_name(slot_dtype, where, f"'{file}'"), 0.0),
            column,
        )
        for file, (column, slot_dtype, kind) in found.items()
        if file.startswith("slot.")
    }
    scores = found.get("scores")
    return from_columns(
        name,
        where,
        vectors,
        shape[1],
        float_name(dtype, where, "'vectors'"),
        found["keys"][0] if "keys" in found else None,
        slots,
        None if scores is None else (scores[1].name, scores[0]),
    )


def _write(path: Path, sources: Sequence[Source]) -> None:
    if path.suffix == ".npz":
        raise ValueError(f"{path}: tables are written to .npy files; give a name without .npz")
    if path.suffix == ".npy":
        source = one(sources, path)
        require_dense(source, "an .npy file")
        with new(path) as partial, Files(partial.parent) as files:
            shape = (source.info.rows, source.info.dim)
            files.append(partial.name, _header(_DTYPES[source.info.dtype], shape))
            for vectors in dense_vectors(source, "an .npy file"):
                files.append(partial.name, cast(vectors, _DTYPES, source.info.dtype))
        return
    with new(path) as folder:
        folder.mkdir()
        for source in sources:
            _write_folder(folder / folder_name(source.name), source)


def _write_folder(path: Path, source: Source) -> None:
    info, rows = source.info, (source.count,)
    with Files(path) as files:
        files.append("keys.npy", _header("int64", rows))
        files.append("vectors.npy", _header(_DTYPES[info.dtype], (*rows, info.dim)))
        for name, slot in info.slots.items():
            files.append(f"slot.{name}.npy", _header(_DTYPES[slot.dtype], (*rows, *slot.shape)))
        if info.scores is not None:
            files.append("scores.npy", _header(info.scores, rows))
        for entries in source.entries():
            files.append("keys.npy", entries.keys)
            files.append("vectors.npy", cast(entries.vectors, _DTYPES, info.dtype))
            for name, slot in info.slots.items():
                files.append(f"slot.{name}.npy", cast(entries.slots[name], _DTYPES, slot.dtype))
            if entries.scores is not None:
                files.append("scores.npy", entries.scores.astype(info.scores, copy=False))


def _header(dtype: str, shape: tuple[int, ...]) -> bytes:
    """What stands before an array; padded to a multiple of 64 bytes."""
    told = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
    text = repr(told).encode()
    padded = text + b" " * (-(len(_MAGIC) + 4 + len(text) + 1) % 64) + b"\n"
    return _MAGIC + b"\x01\x00" + len(padded).to_bytes(2, "little") + padded


NUMPY = Format(
    "numpy",
    "NumPy's .npy, .npz and folders of .npy",
    _recognise,
    _read,
    _write,
    _DTYPES,
)
