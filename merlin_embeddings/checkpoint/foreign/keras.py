"""Embeddings in `.keras` files and in weights files of Keras (HDF5).

Of Keras 3: `.keras` and `.weights.h5`; a table is what stands under `<...embedding...>/vars/` and
has two axes, called as its layer is. Of Keras 2: `.h5`; a table is `<layer>/.../embeddings:0`. What
is written is such an `.h5`: `model.load_weights(path, by_name=True)` reads it in both.

HDF5's library finds the arrays in a file; their numbers are read where they lie, so that nothing is
inflated, and files that point into other files are refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np

from merlin_embeddings.checkpoint.foreign.format import Format, cast, only_vectors
from merlin_embeddings.checkpoint.foreign.landing import new
from merlin_embeddings.checkpoint.foreign.raw import Column
from merlin_embeddings.checkpoint.foreign.source import (
    Source,
    dense_vectors,
    float_name,
    from_columns,
    only,
    require_dense,
)
from merlin_embeddings.checkpoint.foreign.zips import Window, opened, stored
from merlin_embeddings.checkpoint.layout import numpy_dtype

_WEIGHTS = "model.weights.h5"
_MAGIC = b"\x89HDF\r\n\x1a\n"
# HDF5 has no bfloat16.
_DTYPES = {
    "float16": "float16",
    "bfloat16": "float32",
    "float32": "float32",
    "float64": "float64",
}
_MODEL = "model_weights"
# What tables whose rows move from id to id write, beside their ids.
_MOVING = ":vectors"
# What HDF5's library gives for "nowhere".
_NOWHERE = 2**64 - 1


def _recognise(path: Path) -> bool:
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        head = file.read(8)
    if head == _MAGIC:
        return True
    if path.suffix != ".keras" or head[:4] != b"PK\x03\x04":
        return False
    with opened(path) as archive:
        return _WEIGHTS in archive.namelist()


@contextmanager
def _file(path: Path) -> Iterator[tuple[h5py.File, int]]:
    """The HDF5 file of a path, and where it begins there."""
    with open(path, "rb") as file:
        whole = file.read(8) == _MAGIC
    begin, size = 0, os.path.getsize(path)
    if not whole:
        with opened(path) as archive:
            if _WEIGHTS not in archive.namelist():
                raise ValueError(f"{path}: no {_WEIGHTS} in it")
            item = archive.getinfo(_WEIGHTS)
            begin, size = stored(path, archive, item), item.file_size
    with Window(path, begin, size) as window:
        try:
            with h5py.File(window, "r") as found:
                yield found, begin
        except (OSError, KeyError, RuntimeError, UnicodeDecodeError) as error:
            raise ValueError(f"{path}: is no HDF5 file that can be read: {error}") from None


def _read(path: Path) -> list[Source]:
    with _file(path) as (found, begin):
        datasets: list[h5py.Dataset] = []

        def visit(_: str, item: object) -> None:
            if isinstance(item, h5py.Dataset):
                datasets.append(item)

        # Follows no links to other files.
        found.visititems(visit)
        sources = []
        for dataset in datasets:
            name = _table_name(dataset)
            if name is not None and dataset.ndim == 2:
                sources.append(_table(name, dataset, path, begin))
    return only(sources, None, os.fspath(path))


def _table_name(dataset: h5py.Dataset) -> str | None:
    """What the table is called that a dataset holds; None: it holds none."""
    parts = dataset.name.strip("/").split("/")
    if parts[0] in ("optimizer", "optimizer_weights"):
        return None
    if parts[-1] in ("embeddings:0", "embeddings"):
        layers = parts[1:-1] if parts[0] == _MODEL else parts[:-1]
        return layers[-1] if layers else None
    if len(parts) < 3 or parts[-2] != "vars" or "embedding" not in parts[-3]:
        return None
    name = dataset.parent.attrs.get("name", parts[-3])
    name = name if isinstance(name, str) else parts[-3]
    tables = [item for item in dataset.parent.values() if isinstance(item, h5py.Dataset)]
    several = sum(item.ndim == 2 for item in tables) > 1
    return f"{name}/{parts[-1]}" if several else name


def _table(name: str, dataset: h5py.Dataset, path: Path, begin: int) -> Source:
    rows, dim = dataset.shape
    dtype = dataset.dtype
    if dataset.attrs.get("dtype") == "bfloat16" and dtype.itemsize == 2:
        dtype = numpy_dtype("bfloat16")
    kept = float_name(dtype, os.fspath(path), f"'{dataset.name}'")
    place = _place(dataset, path, begin)
    keys = None
    if dataset.name.endswith(_MOVING):
        keys = _ids(dataset, path, begin)
        rows = keys.rows
    column = Column(path, place, rows, dtype.newbyteorder("<"), (dim,))
    return from_columns(name, os.fspath(path), column, dim, kept, keys)


def _ids(vectors: h5py.Dataset, path: Path, begin: int) -> Column:
    """The ids whose vectors a dataset holds first; rows that ids share come behind."""
    stem = vectors.name.removesuffix(_MOVING)
    found = {what: vectors.file.get(f"{stem}:{what}") for what in ("ids.ids", "ids.rows", "rows")}
    wanted = np.dtype("<i8")
    if any(
        not isinstance(one, h5py.Dataset) or one.ndim != 1 or one.dtype != wanted
        for one in found.values()
    ):
        raise ValueError(f"{path}: '{vectors.name}' stands without its ids")
    columns = {
        what: Column(path, _place(one, path, begin), len(one), wanted)
        for what, one in found.items()
    }
    ids, order, rows = columns["ids.ids"], columns["ids.rows"], columns["rows"]
    fits = ids.rows == order.rows <= rows.rows == len(vectors)
    if not fits or (order.read(0, ids.rows) != rows.read(0, ids.rows)).any():
        raise ValueError(f"{path}: the ids of '{vectors.name}' stand in another order")
    return ids


def _place(dataset: h5py.Dataset, path: Path, begin: int) -> int:
    """Where a dataset's numbers are in the file.

    Raises:
        ValueError: elsewhere, in pieces, or nowhere.
    """
    offset = dataset.id.get_offset()
    plain = not dataset.is_virtual and not dataset.id.get_create_plist().get_external_count()
    if not plain or dataset.chunks is not None or offset in (None, _NOWHERE):
        raise ValueError(
            f"{path}: '{dataset.name}' doesn't stand in the file in one piece, as Keras writes it"
        )
    return begin + offset


def _write(path: Path, sources: Sequence[Source]) -> None:
    if path.suffix != ".h5" or path.name.endswith(".weights.h5"):
        raise ValueError(
            f"{path}: tables are written as weights to be loaded by name; give a name that ends in "
            ".h5 (and not in .weights.h5, which Keras 3 loads by the model's structure)"
        )
    for source in sources:
        require_dense(source, "a weights file")
        if "/" in source.name:
            raise ValueError(f"{path}: no layer can be called '{source.name}'")
    with new(path) as partial, h5py.File(partial, "w") as file:
        file.attrs["layer_names"] = np.array([source.name.encode() for source in sources])
        file.attrs["backend"] = b"tensorflow"
        for source in sources:
            layer = file.create_group(source.name)
            weight = f"{source.name}/embeddings:0"
            layer.attrs["weight_names"] = np.array([weight.encode()])
            shape = (source.info.rows, source.info.dim)
            kept = _DTYPES[source.info.dtype]
            dataset = layer.create_dataset(weight, shape, numpy_dtype(kept))
            at = 0
            for vectors in dense_vectors(source, "a weights file"):
                dataset[at : at + len(vectors)] = cast(vectors, _DTYPES, source.info.dtype)
                at += len(vectors)


KERAS = Format(
    "keras",
    "Keras' .keras and weights files",
    _recognise,
    _read,
    _write,
    _DTYPES,
    only_vectors,
)
