"""Rows of Parquet files: which files, which row groups, read in a stream."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from merlin_embeddings.data.arrow import is_untyped, known_types
from merlin_embeddings.data.checking import Place, Rule
from merlin_embeddings.data.plan import Span

# Rows decoded at a time: what is decoded is used while it is still in the cache.
ROWS = 32768


@dataclass(frozen=True)
class Part:
    """Rows that were read.

    Attributes:
        batch: the rows.
        place: of the first of them.
        proven: columns whose ids are in their domains, as the file's own statistics say.
    """

    batch: pa.RecordBatch
    place: Place
    proven: frozenset[str] = frozenset()


@dataclass(frozen=True)
class _RowGroup:
    file: int
    group: int
    first: int
    rows: int


class ParquetSource:
    """Parquet files as pieces: their row groups.

    Args:
        files: paths.

    Attributes:
        name: in messages.
        schema: the Arrow schema of the rows.
        pieces: the rows of each piece.

    Raises:
        ValueError: a file is damaged, or there are no rows in any.
    """

    def __init__(self, files: Sequence[str]) -> None:
        self.name = files[0] if len(files) == 1 else f"{files[0]} and {len(files) - 1} more files"
        self._files: list[str] = []
        self._stamps: list[tuple[int, int]] = []
        self._footers: list[pq.FileMetaData] = []
        self._groups: list[_RowGroup] = []
        self._schemas: list[pa.Schema] = []
        for file in files:
            self._add(file)
        if not self._groups:
            raise ValueError(f"{self.name}: no rows.")
        self.schema = known_types(self._schemas)
        self.pieces = [group.rows for group in self._groups]

    def require(self, columns: Iterable[str]) -> None:
        """Raises ValueError if a column isn't in a file, or has another type than in the first."""
        for column in columns:
            wanted = self.schema.field(column).type
            for file, schema in zip(self._files, self._schemas, strict=True):
                place = schema.get_field_index(column)
                found = None if place < 0 else schema.field(place).type
                if found is None or (found != wanted and not _fits(found, wanted)):
                    raise ValueError(
                        f"Column {column!r} has the type {wanted} in {self._files[0]}, but in "
                        f"{file} {'it is missing' if found is None else f'it has {found}'}. Write "
                        "all files with one workflow."
                    )

    def read(
        self, spans: Iterable[Span], columns: Sequence[str], rules: Mapping[str, Rule]
    ) -> Iterator[Part]:
        """The rows of spans, in their order.

        Args:
            spans: of pieces.
            columns: the columns wanted.
            rules: which ids to look for proofs of.

        Raises:
            ValueError: a file is damaged.
        """
        opened: tuple[int, pq.ParquetFile] | None = None
        for span in spans:
            group = self._groups[span.piece]
            file = self._files[group.file]
            try:
                if opened is None or opened[0] != group.file:
                    opened = group.file, self._open(group.file)
                proven = _proven(self._footers[group.file], group.group, rules)
                row = 0
                for batch in opened[1].iter_batches(ROWS, [group.group], list(columns)):
                    low, high = max(span.start - row, 0), min(span.stop - row, batch.num_rows)
                    if low < high:
                        place = Place(file, group.first + row + low)
                        yield Part(batch.slice(low, high - low), place, proven)
                    row += batch.num_rows
                    if row >= span.stop:
                        break
            except (pa.ArrowException, OSError) as error:
                raise _damaged(file, error) from None

    def _open(self, place: int) -> pq.ParquetFile:
        file = self._files[place]
        if _stamp(file) != self._stamps[place]:
            raise ValueError(
                f"{file} was written again since batches opened it. Make the batches again, and "
                "write what is being read to another folder."
            )
        return pq.ParquetFile(file, metadata=self._footers[place], memory_map=True)

    def _add(self, file: str) -> None:
        try:
            stamp = _stamp(file)
            footer = pq.read_metadata(file)
            schema = footer.schema.to_arrow_schema()
        except (pa.ArrowException, OSError) as error:
            raise _damaged(file, error) from None
        if not footer.num_rows:
            return
        first, place = 0, len(self._files)
        for group in range(footer.num_row_groups):
            rows = footer.row_group(group).num_rows
            if rows:
                self._groups.append(_RowGroup(place, group, first, rows))
            first += rows
        self._files.append(file)
        self._stamps.append(stamp)
        self._footers.append(footer)
        self._schemas.append(schema)


def parquet_files(source: Any) -> list[str]:
    """The files that a path, a pattern, a folder or a list of these means.

    Files of a folder and of a pattern come in the order of the numbers in their names. In a folder,
    names that begin with "." or "_" are somebody's own.

    Raises:
        FileNotFoundError: there are none.
    """
    if isinstance(source, (list, tuple)):
        if not source:
            raise FileNotFoundError("batches: an empty list of files.")
        return [file for item in source for file in parquet_files(item)]
    path = os.fspath(source)
    if os.path.isfile(path):
        return [path]
    if os.path.isdir(path):
        found = [str(file) for file in Path(path).rglob("*.parquet") if _is_data(file, path)]
        what = "a folder without *.parquet files"
    else:
        found = [file for file in glob.glob(path, recursive=True) if os.path.isfile(file)]
        what = "no such file or folder, nor a pattern that matches any"
    if not found:
        raise FileNotFoundError(f"{path}: {what}.")
    return sorted(found, key=_natural)


def _is_data(file: Path, folder: str) -> bool:
    parts = file.relative_to(folder).parts
    return file.is_file() and not any(part.startswith((".", "_")) for part in parts)


def _natural(name: str) -> list[Any]:
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def _fits(found: pa.DataType, wanted: pa.DataType) -> bool:
    return is_untyped(found) and hasattr(wanted, "value_type")


def _stamp(file: str) -> tuple[int, int]:
    """What changes when a file is written again."""
    status = os.stat(file)
    return status.st_size, status.st_mtime_ns


def _proven(footer: pq.FileMetaData, group: int, rules: Mapping[str, Rule]) -> frozenset[str]:
    names = [_name(footer.schema.column(place)) for place in range(footer.num_columns)]
    found = set()
    for place, name in enumerate(names):
        rule = rules.get(name)
        if rule is None or rule.most is None or names.count(name) > 1:
            continue
        column = footer.row_group(group).column(place)
        if not column.is_stats_set or not column.statistics.has_min_max:
            continue
        if column.statistics.min >= 0 and column.statistics.max <= rule.most:
            found.add(name)
    return frozenset(found)


def _name(leaf: pq.ColumnSchema) -> str:
    """Of the column that a leaf is of: a name may have dots, lists add ".list.element"."""
    return leaf.path.rsplit(".", 2)[0] if leaf.max_repetition_level else leaf.path


def _damaged(file: str, error: Exception) -> ValueError:
    return ValueError(
        f"{file}: can't be read as Parquet ({str(error).splitlines()[0]}). Was it written to the "
        "end? Write it again, or leave it out."
    )
