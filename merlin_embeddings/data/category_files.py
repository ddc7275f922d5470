"""The Parquet files of one encoding that Categorify made: checked against each other, and read."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

_FIRST_OOV = 2


@dataclasses.dataclass(frozen=True, eq=False)
class CategoryFiles:
    """The files `unique.<name>.parquet` and `meta.<name>.parquet`.

    Attributes:
        name: of the encoding.
        path: of the vocabulary: a file, or a folder of them.
        parts: the files of the vocabulary, in the order of their ids.
        columns: the columns that hold raw values.
        rows: how many values there are.
        oov: how many ids stand for values out of the vocabulary.
        observed: how often nulls and values out of the vocabulary were seen. None: nobody knows.
    """

    name: str
    path: Path
    parts: tuple[Path, ...]
    columns: tuple[str, ...]
    rows: int
    oov: int
    observed: tuple[int, int] | None
    _size: str | None

    @classmethod
    def open(
        cls, path: Path, name: str, oov: int | None = None, meta: Path | None = None
    ) -> CategoryFiles:
        """Reads the footers.

        Args:
            path: of the vocabulary.
            name: of the encoding.
            oov: how many ids there are for values out of the vocabulary, if the files don't say.
            meta: the description that the fit wrote, which counts if there is none beside the
                vocabulary and it is of the same fit.

        Raises:
            FileNotFoundError: there is no vocabulary, though there should be one.
            ValueError: a file is damaged, files disagree, or nobody knows how many ids are for
                values out of the vocabulary.
        """
        beside = _Meta.read(path.with_name(f"meta.{name}.parquet"))
        if not path.exists() and beside is not None and beside.unique == 0:
            # A column of nulls only: Categorify writes no vocabulary.
            return cls(name, path, (), (name,), 0, beside.oov, beside.observed, None)
        parts = _parts(path)
        footers = [_footer(part) for part in parts]
        rows = sum(footer.num_rows for footer in footers)
        if beside is not None and beside.unique != rows:
            raise ValueError(
                f"{path}: has {rows} values, but meta.{name}.parquet beside it says "
                f"{beside.unique}. One of them is of another fit; save the workflow again."
            )
        first = _first_label(path, footers, beside, oov)
        found = beside
        if found is None and meta is not None:
            elsewhere = _Meta.read(meta)
            if elsewhere is not None and (elsewhere.unique, elsewhere.oov + _FIRST_OOV) == (
                rows,
                first,
            ):
                found = elsewhere
        names = footers[0].schema.to_arrow_schema().names
        size = f"{name}_size" if f"{name}_size" in names else None
        return cls(
            name=name,
            path=path,
            parts=parts,
            columns=_raw_columns(path, name, names),
            rows=rows,
            oov=first - _FIRST_OOV,
            observed=None if found is None else found.observed,
            _size=size,
        )

    def values(self) -> pa.Table:
        """The vocabulary, [rows] of `columns`."""
        if not self.parts:
            return pa.table({column: pa.nulls(0) for column in self.columns})
        return self._read(list(self.columns))

    def sizes(self) -> np.ndarray:
        """How often each value was seen, [rows] int64."""
        if not self.parts:
            return np.zeros(0, np.int64)
        if self._size is None:
            raise ValueError(
                f"Categories {self.name!r}: {self.path} has no counts, as this vocabulary was "
                "given (Categorify(vocabs=)) and not counted."
            )
        sizes = self._read([self._size])[self._size]
        return np.asarray(sizes.to_numpy(), np.int64)

    def _read(self, columns: list[str]) -> pa.Table:
        return pa.concat_tables([_read(part, columns) for part in self.parts])


@dataclasses.dataclass(frozen=True)
class _Meta:
    oov: int
    unique: int
    observed: tuple[int, int] | None

    @classmethod
    def read(cls, path: Path) -> _Meta | None:
        if not path.exists():
            return None
        _footer(path)
        rows = _read(path, None).to_pydict()
        try:
            number = dict(zip(rows["kind"], rows["num_indices"], strict=True))
            observed = None
            if "num_observed" in rows:
                seen = dict(zip(rows["kind"], rows["num_observed"], strict=True))
                # No rows: pandas made the number NaN.
                nulls = seen["null"]
                observed = (0 if nulls is None or nulls != nulls else int(nulls), int(seen["oov"]))
            return cls(int(number["oov"]), int(number["unique"]), observed)
        except (KeyError, TypeError, ValueError):
            raise ValueError(
                f"{path}: isn't the description of an encoding that Categorify writes; it holds "
                f"{rows}."
            ) from None


def _parts(path: Path) -> tuple[Path, ...]:
    if not path.exists():
        raise FileNotFoundError(
            f"{path}: not there. Did the workflow's folder move? Then give the folder itself: "
            "Categories.of(folder, column)."
        )
    if path.is_file():
        return (path,)
    numbered = []
    for part in path.iterdir():
        match = re.fullmatch(r"part\.(\d+)\.parquet", part.name)
        if match:
            numbered.append((int(match[1]), part))
    if not numbered:
        raise ValueError(f"{path}: a folder without files part.N.parquet.")
    return tuple(part for _, part in sorted(numbered))


def _footer(path: Path) -> pq.FileMetaData:
    try:
        return pq.read_metadata(path)
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, error) from None


def _read(path: Path, columns: list[str] | None) -> pa.Table:
    try:
        return pq.ParquetFile(path).read(columns)
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, error) from None


def _damaged(path: Path, error: Exception) -> ValueError:
    size = os.path.getsize(path)
    return ValueError(
        f"{path}: {size} bytes that aren't a whole Parquet file ({str(error).splitlines()[0]}). "
        "Copy it again, or fit and save the workflow again."
    )


def _raw_columns(path: Path, name: str, names: list[str]) -> tuple[str, ...]:
    # A given vocabulary (`vocabs=` with a path) may have any columns besides its own.
    raw = [c for c in names if c != f"{name}_size" and not c.startswith("__index_")]
    if not raw:
        raise ValueError(f"{path}: has columns {names}, none of them with values of {name!r}.")
    return (name,) if name in raw else tuple(raw)


def _first_label(
    path: Path, footers: list[pq.FileMetaData], meta: _Meta | None, oov: int | None
) -> int:
    """The id of the first value: by the description, and by the labels that pandas kept of rows."""
    label = None if meta is None else _FIRST_OOV + meta.oov
    rows = 0
    for footer in footers:
        start = _range_start(footer)
        # Labels from 0 are those of a vocabulary that somebody else wrote.
        if start is not None and start != 0 and footer.num_rows:
            if label is None:
                label = _FIRST_OOV + oov if oov else start - rows
            if start != label + rows:
                raise ValueError(
                    f"{path}: ids begin at {start}, where {label + rows} are expected. If this is "
                    "Categorify(single_table=True): its nulls have the id of a value, so it can't "
                    "be used here; use one table for each column, or encode columns together."
                )
        rows += footer.num_rows
    if label is None and oov:
        label = _FIRST_OOV + oov
    if label is None:
        raise ValueError(
            f"{path}: its rows have lost their labels and there is no description beside it "
            "(meta.*.parquet), so nobody knows the id of the first value. Give the workflow "
            "instead of its folder, or the column of the schema instead of its name."
        )
    return label


def _range_start(footer: pq.FileMetaData) -> int | None:
    pandas = (footer.metadata or {}).get(b"pandas")
    for index in json.loads(pandas or "{}").get("index_columns", []):
        if isinstance(index, dict) and index.get("kind") == "range":
            return index["start"]
    return None
