"""Tables in other people's files: readers and writers of Entries, a format a file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from merlin_embeddings.checkpoint.foreign.arrays import NUMPY
from merlin_embeddings.checkpoint.foreign.format import Format
from merlin_embeddings.checkpoint.foreign.hps import HPS, HPS_DUMP
from merlin_embeddings.checkpoint.foreign.keras import KERAS
from merlin_embeddings.checkpoint.foreign.native import NATIVE
from merlin_embeddings.checkpoint.foreign.parquet import PARQUET
from merlin_embeddings.checkpoint.foreign.sok import SOK
from merlin_embeddings.checkpoint.foreign.source import Source, only
from merlin_embeddings.checkpoint.foreign.tensorflow import TENSORFLOW
from merlin_embeddings.checkpoint.foreign.torch import TORCH

__all__ = ["FORMATS", "Format", "Source", "convert", "read", "recognise", "write"]

FORMATS: dict[str, Format] = {
    item.name: item
    for item in (NATIVE, SOK, HPS, HPS_DUMP, TENSORFLOW, KERAS, TORCH, NUMPY, PARQUET)
}


def recognise(path: str | os.PathLike) -> str:
    """The name of the format that a path holds, by first bytes and names of files.

    Raises:
        FileNotFoundError: there is nothing.
        ValueError: it is none of the formats, or could be several.
    """
    path = _path(path)
    if not path.exists() and not Path(f"{path}.index").exists():
        raise FileNotFoundError(f"{path}: no such file or folder")
    found = [name for name, item in FORMATS.items() if item.recognise(path)]
    if len(found) != 1:
        what = "could be " + " or ".join(found) if found else "is none that is known"
        raise ValueError(f"{path}: {what}; say which format it is: {', '.join(FORMATS)}")
    return found[0]


def read(
    path: str | os.PathLike, format: str | None = None, tables: Iterable[str] | None = None
) -> list[Source]:
    """The tables in a file or folder; their rows are read when they are asked for.

    Args:
        path: the file or folder.
        format: its name in `FORMATS`; None: it is recognised.
        tables: names of the tables wanted; None: all.

    Returns:
        The tables, each with `info`, `count` and `entries(chunk)`.

    Raises:
        FileNotFoundError: there is nothing.
        ValueError: it isn't of this format, it is damaged, or there is no such table.

    Example:
        >>> import tempfile, numpy as np
        >>> from merlin_embeddings.checkpoint import foreign
        >>> path = tempfile.mkdtemp() + "/items.npy"
        >>> np.save(path, np.ones((3, 2), "float32"))
        >>> (items,) = foreign.read(path)
        >>> items.name, items.count, next(items.entries()).keys.tolist()
        ('items', 3, [0, 1, 2])
    """
    path = _path(path)
    item = _format(recognise(path) if format is None else format)
    return only(item.read(path), tables, os.fspath(path))


def write(
    path: str | os.PathLike, sources: Sequence[Source], format: str, lossy: bool = False
) -> list[str]:
    """Writes tables in a format, in bounded memory; the path has all of them at the end, or isn't.

    Args:
        path: what isn't there yet.
        sources: the tables.
        format: its name in `FORMATS`.
        lossy: whether what has no place in the format may be left out.

    Returns:
        What was left out, in words.

    Raises:
        FileExistsError: there is something of this name.
        ValueError: the format has no place for keys, slots or scores of a table, or a table is
            compressed, so that its rows aren't the vectors of ids.
    """
    item, path = _format(format), _path(path)
    for source in sources:
        if source.info.compression is not None and item is not NATIVE:
            raise ValueError(
                f"{source.path}: table '{source.name}' is compressed; its rows are parameters, "
                f"which mean nothing to {format}. Look its ids up, and write their vectors."
            )
    lost = [
        f"table '{source.name}': {what}" for source in sources for what in item.losses(source.info)
    ]
    if lost and not lossy:
        raise ValueError(
            f"{path}: {format} has no place for some of it ({'; '.join(lost)}); lossy=True, or "
            "--lossy, leaves it out"
        )
    item.write(path, sources)
    return lost


def convert(
    source: str | os.PathLike,
    target: str | os.PathLike,
    to: str,
    format: str | None = None,
    tables: Iterable[str] | None = None,
    lossy: bool = False,
) -> list[str]:
    """Reads tables in one format and writes them in another; see `read` and `write`."""
    return write(target, read(source, format, tables), to, lossy)


def _format(name: str) -> Format:
    if name not in FORMATS:
        raise ValueError(f"no format '{name}'; there are {', '.join(FORMATS)}")
    return FORMATS[name]


def _path(path: str | os.PathLike) -> Path:
    # A table may be called as its folder is, so that the folder must have a name.
    return Path(os.path.abspath(path))
