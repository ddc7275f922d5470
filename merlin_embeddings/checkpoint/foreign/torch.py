"""State dicts of EmbeddingBag and of TorchRec's tables, as `torch.save` writes them; without torch.

A file is a zip archive: `data.pkl` says which tensors there are, `data/0` and so on are their
numbers. The pickle is followed, never executed (`pickled.py`). A table is a tensor [N, D] called
`<path>.weight`, or just `weight`, without a bias beside it: row i is row i.
"""

from __future__ import annotations

import os
import struct
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from merlin_embeddings.checkpoint.foreign import pickled
from merlin_embeddings.checkpoint.foreign.format import Format, cast, only_vectors
from merlin_embeddings.checkpoint.foreign.landing import new, raw
from merlin_embeddings.checkpoint.foreign.raw import Column
from merlin_embeddings.checkpoint.foreign.source import (
    Source,
    dense_vectors,
    from_columns,
    require_dense,
)
from merlin_embeddings.checkpoint.foreign.zips import opened, stored
from merlin_embeddings.checkpoint.layout import numpy_dtype

_STORAGES = {
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "FloatStorage": "float32",
    "DoubleStorage": "float64",
}
_SAME = {name: name for name in _STORAGES.values()}
# A pickle of a state dict takes some 100 bytes a tensor.
_LARGEST_PICKLE = 1 << 28
# Modules of TorchRec that hold tables by name.
_HOLDERS = ("embedding_bags.", "embeddings.")


def _recognise(path: Path) -> bool:
    if not path.is_file() or not zipfile.is_zipfile(path):
        return False
    with opened(path) as archive:
        return _pickle(archive) is not None


def _pickle(archive: zipfile.ZipFile) -> zipfile.ZipInfo | None:
    found = [item for item in archive.infolist() if item.filename.endswith("/data.pkl")]
    return found[0] if len(found) == 1 else None


def _read(path: Path) -> list[Source]:
    with opened(path) as archive:
        item = _pickle(archive)
        if item is None:
            raise ValueError(f"{path}: no data.pkl in it: torch.save hasn't written it")
        if item.file_size > _LARGEST_PICKLE:
            raise ValueError(f"{path}: a pickle of {item.file_size} bytes is none of a state dict")
        begin, root = stored(path, archive, item), item.filename.removesuffix("data.pkl")
        with open(path, "rb") as file:
            file.seek(begin)
            tree = pickled.load(file.read(item.file_size), os.fspath(path))
        order = f"{root}byteorder"
        if order in archive.namelist() and archive.getinfo(order).file_size != len("little"):
            raise ValueError(f"{path}: was written on a machine with another order of bytes")
        tensors = dict(_tensors(tree, "", set()))
        tables = {
            name: tensor for name, tensor in tensors.items() if _is_table(name, tensor, tensors)
        }
        called = _called(tables, path.stem)
        return [
            _table(called[name], name, tensor, path, archive, root)
            for name, tensor in tables.items()
        ]


def _tensors(tree: Any, prefix: str, seen: set[int]) -> Iterator[tuple[str, pickled.Tensor]]:
    """Tensors by the names that lead to them; what is reached in two ways counts once."""
    if isinstance(tree, pickled.Tensor):
        yield prefix, tree
        return
    if not isinstance(tree, dict) or id(tree) in seen:
        return
    seen.add(id(tree))
    for name, value in tree.items():
        if isinstance(name, str):
            yield from _tensors(value, f"{prefix}.{name}" if prefix else name, seen)


def _is_table(name: str, tensor: pickled.Tensor, tensors: dict[str, pickled.Tensor]) -> bool:
    stem, _, last = name.rpartition(".")
    return (
        last == "weight"
        and len(tensor.shape) == 2
        and tensor.storage.kind in _STORAGES
        and (f"{stem}.bias" if stem else "bias") not in tensors
    )


def _called(tables: dict[str, pickled.Tensor], file: str) -> dict[str, str]:
    """A table's name: TorchRec's own, where that says which one is meant; otherwise the path.

    The only weight of a module by itself has no path: the file's name.
    """
    paths = {name: name.rpartition(".")[0] or file for name in tables}
    short = {}
    for name, stem in paths.items():
        short[name] = stem
        for holder in _HOLDERS:
            if stem.startswith(holder) or f".{holder}" in stem:
                short[name] = stem.rsplit(holder, 1)[1]
    names = list(short.values())
    return {name: short[name] if names.count(short[name]) == 1 else paths[name] for name in paths}


def _table(
    called: str,
    name: str,
    tensor: pickled.Tensor,
    path: Path,
    archive: zipfile.ZipFile,
    root: str,
) -> Source:
    rows, dim = tensor.shape
    dtype = _STORAGES[tensor.storage.kind]
    width = numpy_dtype(dtype).itemsize
    if tensor.strides != (dim, 1) and rows > 1:
        raise ValueError(f"{path}: '{name}' isn't contiguous; save tensor.contiguous()")
    try:
        item = archive.getinfo(f"{root}data/{tensor.storage.key}")
    except KeyError:
        raise ValueError(f"{path}: the numbers of '{name}' aren't in it") from None
    ends = (tensor.offset + rows * dim) * width
    if ends > item.file_size:
        raise ValueError(
            f"{path}: '{name}' is [{rows}, {dim}] {dtype} from number {tensor.offset} on, its "
            f"storage has only {item.file_size} bytes"
        )
    begin = stored(path, archive, item) + tensor.offset * width
    column = Column(path, begin, rows, numpy_dtype(dtype), (dim,))
    return from_columns(called, os.fspath(path), column, dim, dtype)


# Writing


def _write(path: Path, sources: Sequence[Source]) -> None:
    for source in sources:
        require_dense(source, "a state dict")
    root = path.stem
    with new(path) as partial, zipfile.ZipFile(partial, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(f"{root}/data.pkl", _state_dict(sources))
        archive.writestr(f"{root}/byteorder", "little")
        for number, source in enumerate(sources):
            with archive.open(f"{root}/data/{number}", "w", force_zip64=True) as member:
                for vectors in dense_vectors(source, "a state dict"):
                    member.write(raw(cast(vectors, _SAME, source.info.dtype)))
        archive.writestr(f"{root}/version", "3\n")


def _state_dict(sources: Sequence[Source]) -> bytes:
    """A pickle of OrderedDict {"<table>.weight": tensor}."""
    empty = b"ccollections\nOrderedDict\n)R"
    items = b"".join(
        _string(f"{source.name}.weight") + _tensor(number, source, empty)
        for number, source in enumerate(sources)
    )
    return b"\x80\x02" + empty + b"(" + items + b"u."


def _tensor(number: int, source: Source, no_hooks: bytes) -> bytes:
    rows, dim, dtype = source.info.rows, source.info.dim, source.info.dtype
    storage = next(kind for kind, name in _STORAGES.items() if name == dtype)
    told = (
        _string("storage")
        + f"ctorch\n{storage}\n".encode()
        + _string(str(number))
        + _string("cpu")
        + _int(rows * dim)
    )
    return (
        b"ctorch._utils\n_rebuild_tensor_v2\n("
        + (b"(" + told + b"tQ")
        + _int(0)
        + (_int(rows) + _int(dim) + b"\x86")
        + (_int(dim) + _int(1) + b"\x86")
        + (b"\x89" + no_hooks)
        + b"tR"
    )


def _string(text: str) -> bytes:
    encoded = text.encode()
    return b"X" + struct.pack("<I", len(encoded)) + encoded


def _int(value: int) -> bytes:
    if value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    return b"\x8a\x08" + struct.pack("<q", value)


TORCH = Format(
    "torch",
    "torch.save of a state dict",
    _recognise,
    _read,
    _write,
    _SAME,
    only_vectors,
)
