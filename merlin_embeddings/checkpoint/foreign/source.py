"""A table in somebody's file: what it is, and its rows in a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from merlin_embeddings.checkpoint.foreign.raw import Column, by_key, is_every_row
from merlin_embeddings.checkpoint.layout import FLOATS, numpy_dtype
from merlin_embeddings.checkpoint.manifest import SlotInfo, TableInfo
from merlin_embeddings.tables import Entries

CHUNK = 65536


@dataclass(frozen=True)
class Source:
    """A table that can be read as often as one likes, some rows at a time.

    Attributes:
        info: what the table is.
        count: N, how many rows there are to read.
        path: the file, for messages.
        read: given a chunk, an iterator over the rows as Entries of at most so many.
    """

    info: TableInfo
    count: int
    path: str
    read: Callable[[int], Iterator[Entries]]

    @property
    def name(self) -> str:
        """The table's."""
        return self.info.name

    def entries(self, chunk: int = CHUNK) -> Iterator[Entries]:
        """All rows, at most `chunk` in one Entries."""
        if chunk < 1:
            raise ValueError(f"table '{self.name}': chunk must be at least 1, got {chunk}")
        return self.read(chunk)


def float_name(dtype: np.dtype, path: str, what: str) -> str:
    """The name of a dtype that vectors can have.

    Raises:
        ValueError: they can't have it.
    """
    for name in FLOATS:
        if numpy_dtype(name) == dtype:
            return name
    raise ValueError(f"{path}: {what} is {dtype}; vectors are one of {', '.join(FLOATS)}")


def from_columns(
    name: str,
    path: str,
    vectors: Column,
    dim: int,
    dtype: str,
    keys: Column | None = None,
    slots: Mapping[str, tuple[SlotInfo, Column]] | None = None,
    scores: tuple[str, Column] | None = None,
) -> Source:
    """A table whose keys, vectors and so on are columns of files, read in the order of keys.

    Args:
        name: of the table.
        path: for messages.
        vectors: [N, D].
        dim: D.
        dtype: of the vectors.
        keys: [N]; None: 0, 1, ... N-1.
        slots: what each is, and its column.
        scores: their dtype and column.

    Raises:
        ValueError: there are no rows, or one column has more of them than another.
    """
    slots = slots or {}
    if not vectors.rows or not dim:
        raise ValueError(f"{path}: table '{name}' has no rows")
    columns = {"vectors": vectors} | {f"slot.{slot}": column for slot, (_, column) in slots.items()}
    if scores is not None:
        columns["scores"] = scores[1]
    for what, column in {**columns, **({} if keys is None else {"keys": keys})}.items():
        if column.rows != vectors.rows:
            raise ValueError(
                f"{path}: table '{name}' has {vectors.rows} vectors and {column.rows} {what}"
            )

    def read(chunk: int) -> Iterator[Entries]:
        if keys is None:
            stream = in_file_order(columns, vectors.rows, chunk)
        else:
            stream = by_key(keys, columns, chunk)
        for some, arrays in stream:
            yield Entries(
                keys=some,
                vectors=arrays["vectors"],
                slots={slot: arrays[f"slot.{slot}"] for slot in slots},
                scores=arrays.get("scores"),
            )

    info = TableInfo(
        name=name,
        rows=vectors.rows,
        dim=dim,
        dtype=dtype,
        key="row" if keys is None or is_every_row(keys) else "id",
        slots={slot: told for slot, (told, _) in slots.items()},
        scores=None if scores is None else scores[0],
    )
    return Source(info, vectors.rows, path, read)


def in_file_order(
    columns: Mapping[str, Column], rows: int, chunk: int
) -> Iterator[tuple[np.ndarray, dict[str, np.ndarray]]]:
    """Columns whose row i has key i."""
    for start in range(0, rows, chunk):
        stop = min(start + chunk, rows)
        yield (
            np.arange(start, stop),
            {name: column.read(start, stop) for name, column in columns.items()},
        )


def dense_vectors(source: Source, what: str) -> Iterator[np.ndarray]:
    """The vectors of rows 0, 1, ... R-1, for a format that has no keys.

    Args:
        source: the table.
        what: the format, for messages.

    Raises:
        ValueError: not all rows are there, or keys are ids.
    """
    require_dense(source, what)
    expected = 0
    for entries in source.entries():
        keys = entries.keys
        if keys[0] != expected or (np.diff(keys) != 1).any():
            raise ValueError(
                f"{source.path}: table '{source.name}' doesn't come in the order of its rows, "
                f"row {expected} is missed; {what} has no place for keys"
            )
        expected += len(keys)
        yield entries.vectors
    if expected != source.info.rows:
        raise ValueError(f"{source.path}: table '{source.name}' ended at row {expected}")


def require_dense(source: Source, what: str) -> None:
    """Raises ValueError unless keys are rows and all of them are there."""
    info = source.info
    if info.key != "row" or source.count != info.rows:
        have = "ids" if info.key == "id" else f"{source.count} of {info.rows} rows"
        raise ValueError(
            f"{source.path}: table '{info.name}' has {have} as keys; {what} has no place for keys, "
            "it needs rows 0, 1, ... all of them. Write a format that has keys."
        )


def only(sources: Iterable[Source], names: Iterable[str] | None, path: str) -> list[Source]:
    """The sources with these names; None: all.

    Raises:
        ValueError: there is none of a name, two have the same, or there are none at all.
    """
    found = {}
    for source in sources:
        if source.name in found:
            raise ValueError(f"{path}: two tables are called '{source.name}'")
        found[source.name] = source
    if names is not None:
        for name in names:
            if name not in found:
                known = ", ".join(f"'{known}'" for known in sorted(found)) or "none"
                raise ValueError(f"{path}: no table '{name}'; there are {known}")
        found = {name: found[name] for name in names}
    if not found:
        raise ValueError(f"{path}: no tables in it")
    return list(found.values())
