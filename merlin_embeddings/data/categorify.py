"""What NVTabular's Categorify wrote of a column: how often each id was seen, what it stands for.

Categorify numbers values like this, the most frequent value first:

    0        pad
    1        null
    2 ...    values out of the vocabulary: one id, or `num_buckets` of them
    then     the vocabulary

It writes the vocabulary to `categories/unique.<name>.parquet` (a file, or a folder of
`part.N.parquet`) and the ranges to `categories/meta.<name>.parquet`. `Workflow.save` copies the
former only.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merlin_embeddings.data.category_files import CategoryFiles
from merlin_embeddings.data.category_sources import find

PAD, NULL, FIRST_OOV = 0, 1, 2


class Categories:
    """One encoding that Categorify made: id -> count, id -> raw value, raw value -> id.

    `Categories.of` finds it. Columns are read when they are first needed.

    Attributes:
        name: of the encoding: the column, or "a_b" for columns that were encoded together.
        columns: the raw columns that a value is made of: one, or several for
            `encode_type="combo"`.
        pad: the id of padding, 0.
        null: the id of nulls, 1.
        oov: range of the ids of values out of the vocabulary.
        unique: range of the ids of the vocabulary.

    Example:
        >>> import nvtabular, pandas, tempfile
        >>> frame = pandas.DataFrame({"city": ["Rome", "Oslo", "Rome", None]})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     op = nvtabular.ops.Categorify(out_path=folder)
        ...     workflow = nvtabular.Workflow(["city"] >> op)
        ...     _ = workflow.fit(nvtabular.Dataset(frame))
        ...     city = Categories.of(workflow, "city")
        ...     city, city.counts, city.values([3, 4, 1]), city.ids(["Oslo", "Bonn", None])
        ... # doctest: +NORMALIZE_WHITESPACE
        (Categories('city', cardinality=5, oov=range(2, 3), unique=range(3, 5)),
         array([0, 1, 0, 2, 1]),
         array(['Rome', 'Oslo', None], dtype=object),
         array([4, 2, 1]))
    """

    def __init__(self, files: CategoryFiles, buckets: int) -> None:
        self._files = files
        self._buckets = buckets
        self.name = files.name
        self.columns = files.columns
        self.pad, self.null = PAD, NULL
        self.oov = range(FIRST_OOV, FIRST_OOV + files.oov)
        self.unique = range(self.oov.stop, self.oov.stop + files.rows)

    @classmethod
    def of(cls, source: Any, column: Any) -> Categories:
        """The encoding of a column.

        Args:
            source: a fitted `nvtabular.Workflow`; the folder that one was saved to, wherever it is
                now, or its `categories` folder; or a schema, whose `cat_path` must still be there.
            column: a name: the column's, or that of an encoding ("a_b"). With a folder a
                ColumnSchema or a Column will do too, and says which columns were encoded together.

        Raises:
            FileNotFoundError: there is no such folder, or a file is missing.
            ValueError: Categorify made no encoding of the column, files can't be read or disagree,
                or come from `Categorify(single_table=True)`, whose ids overlap.
        """
        found = find(source, column)
        files = CategoryFiles.open(found.path, found.name, found.oov, found.meta)
        buckets = files.oov if found.buckets is None else found.buckets
        return cls(files, buckets)

    @property
    def cardinality(self) -> int:
        """How many ids there are: a table needs as many rows."""
        return self.unique.stop

    @cached_property
    def counts(self) -> np.ndarray:
        """How often each id was seen in the fit, [cardinality] int64.

        Categorify keeps one count for all values out of the vocabulary; among several buckets it is
        split evenly, which is what their hash does to it on average. With `max_size` and
        `split_out` > 1 Categorify counts too few: it stops at the file that fills the table.

        Nulls and values out of the vocabulary are counted in `meta.<name>.parquet`, which a saved
        workflow doesn't have. If the file of the fit isn't there any more either, they count as 0,
        with a warning; copy it beside the vocabulary to keep them.

        Raises:
            ValueError: there are no counts, as the vocabulary was given (`Categorify(vocabs=)`).
        """
        sizes = self._files.sizes()
        null, oov = self._observed()
        counts = np.zeros(self.cardinality, np.int64)
        counts[self.null] = null
        used = min(self._buckets, len(self.oov))
        counts[FIRST_OOV : FIRST_OOV + used] = oov // used
        counts[FIRST_OOV : FIRST_OOV + oov % used] += 1
        counts[self.unique.start :] = sizes
        return counts

    @cached_property
    def vocabulary(self) -> pa.Table:
        """The raw values, one row for each id of `unique`, one column for each of `columns`."""
        return self._files.values()

    def values(self, ids: Any) -> np.ndarray:
        """The raw values of ids.

        Args:
            ids: integers of any shape.

        Returns:
            Objects in the shape of `ids`: Python values, tuples of them if there are several
            columns, None for pad, null and out of vocabulary.

        Raises:
            TypeError: ids that aren't integers.
            ValueError: an id that Categorify doesn't give.
        """
        ids = np.asarray(ids)
        if ids.size and ids.dtype.kind not in "iu":
            raise TypeError(f"Categories {self.name!r}: ids are integers, got {ids.dtype}.")
        flat = ids.ravel().astype(np.int64)
        wrong = np.flatnonzero((flat < 0) | (flat >= self.cardinality))
        if wrong.size:
            raise ValueError(
                f"Categories {self.name!r}: id {flat[wrong[0]]} at position {wrong[0]} is not in "
                f"[0, {self.cardinality})."
            )
        places = pa.array(flat - self.unique.start, mask=flat < self.unique.start)
        columns = [
            _combined(self.vocabulary[column]).take(places).to_pylist() for column in self.columns
        ]
        result = np.empty(flat.shape, object)
        if len(columns) == 1:
            result[:] = columns[0]
        else:
            known = flat >= self.unique.start
            for row in np.flatnonzero(known):
                result[row] = tuple(column[row] for column in columns)
        return result.reshape(ids.shape)

    def ids(self, values: Any) -> np.ndarray:
        """The ids of raw values, as the workflow gives them.

        Args:
            values: N raw values: a list, array, pandas Series or pyarrow array. For several columns
                N tuples, or a dict or DataFrame of such by column. None and NaN are null.

        Returns:
            [N] int64.

            With several buckets, a value out of the vocabulary has no id of its own: on a CPU,
            NVTabular hashes it together with its row's label, so that one value has different ids
            in different rows. Here row n has the label n (that of a Series, if it is one), which is
            what a transform of exactly these values gives.

        Raises:
            TypeError: values of another type than the vocabulary's.
            ValueError: a value that the vocabulary's type can't hold, or columns that don't match.
        """
        given = self._by_column(values)
        pairs = zip(self.columns, given, strict=True)
        arrays = [self._as_vocabulary(column, values) for column, values in pairs]
        known = [_combined(self.vocabulary[column]) for column in self.columns]
        places = _index_in(arrays, known)
        nulls = np.logical_and.reduce([array.is_null().to_numpy(False) for array in arrays])
        result = np.where(places < 0, FIRST_OOV, places + self.unique.start)
        unknown = (places < 0) & ~nulls
        if self._buckets > 1 and unknown.any():
            result[unknown] += (_row_hashes(given) % np.uint64(self._buckets)).astype(np.int64)[
                unknown
            ]
        result[nulls] = self.null
        return result

    def __repr__(self) -> str:
        return (
            f"Categories({self.name!r}, cardinality={self.cardinality}, oov={self.oov}, "
            f"unique={self.unique})"
        )

    def _observed(self) -> tuple[int, int]:
        if self._files.observed is None:
            warnings.warn(
                f"Categories {self.name!r}: there is no meta.{self.name}.parquet beside "
                f"{self._files.path}, so nulls and values out of the vocabulary count as 0. Copy "
                "it from the folder that Categorify wrote to (out_path/categories).",
                stacklevel=3,
            )
        return self._files.observed or (0, 0)

    def _by_column(self, values: Any) -> list[Any]:
        if len(self.columns) == 1:
            return self._columns_of(values) if _has_columns(values) else [values]
        if _has_columns(values):
            columns = self._columns_of(values)
        else:
            rows = list(values)
            for row, value in enumerate(rows):
                if not isinstance(value, Sequence) or len(value) != len(self.columns):
                    raise ValueError(
                        f"Categories {self.name!r}: a value has one part for each of "
                        f"{list(self.columns)}; row {row} is {value!r}."
                    )
            columns = [[row[i] for row in rows] for i in range(len(self.columns))]
        if len({len(column) for column in columns}) > 1:
            lengths = ", ".join(
                f"{n!r} has {len(c)}" for n, c in zip(self.columns, columns, strict=True)
            )
            raise ValueError(
                f"Categories {self.name!r}: columns of one length are needed: {lengths}."
            )
        return columns

    def _columns_of(self, values: Any) -> list[Any]:
        try:
            return [values[column] for column in self.columns]
        except KeyError as error:
            raise ValueError(
                f"Categories {self.name!r}: values of column {error.args[0]!r} are missing; "
                f"columns {list(self.columns)} are needed."
            ) from None

    def _as_vocabulary(self, column: str, values: Any) -> pa.Array:
        wanted = self.vocabulary.schema.field(column).type
        try:
            if not isinstance(values, (pa.Array, pa.ChunkedArray)):
                values = pa.array(values, from_pandas=True)
            array = _combined(values)
            if pa.types.is_null(wanted):
                return array  # there is no vocabulary
            if _kind(array.type) not in (_kind(wanted), "null"):
                raise TypeError(f"they are {array.type}")
            if pa.types.is_floating(array.type):
                array = pc.if_else(pc.is_nan(array), None, array)
            return array.cast(wanted)
        except TypeError as error:
            kind = f"values of column {column!r} have the type {wanted}"
            raise TypeError(f"Categories {self.name!r}: {kind}; {error}.") from None
        except pa.ArrowException as error:
            raise ValueError(
                f"Categories {self.name!r}: column {column!r} can't take these values as {wanted}: "
                f"{error}"
            ) from None


def _has_columns(values: Any) -> bool:
    return isinstance(values, Mapping) or hasattr(values, "columns")


def _combined(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    return column


def _kind(kind: pa.DataType) -> str:
    # NVTabular's vocabulary has integers for integers, or floats if there were nulls among them.
    for name, test in (
        ("null", pa.types.is_null),
        ("number", lambda t: pa.types.is_integer(t) or pa.types.is_floating(t)),
        ("string", lambda t: pa.types.is_string(t) or pa.types.is_large_string(t)),
    ):
        if test(kind):
            return name
    return str(kind).split("[")[0]


def _index_in(values: list[pa.Array], known: list[pa.Array]) -> np.ndarray:
    """Where rows of `values` stand among the rows of `known`, [N] int64, -1: nowhere."""
    if len(values) == 1:
        return _places(values[0], known[0], skip_nulls=True)
    # Rows become single numbers, column by column: the place among the distinct values so far.
    value, row = _codes(values[0], known[0])
    for more_values, more_known in zip(values[1:], known[1:], strict=True):
        next_value, next_row = _codes(more_values, more_known)
        width = len(next_row) + 1
        lost = (value < 0) | (next_value < 0)
        value = np.where(lost, -1, value * width + next_value)
        value, row = _codes(pa.array(value), pa.array(row * width + next_row))
    found = _places(pa.array(value), pa.array(row), skip_nulls=True)
    return np.where(value < 0, -1, found)


def _codes(values: pa.Array, known: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    distinct = known.unique()
    return (
        _places(values, distinct, skip_nulls=False),
        _places(known, distinct, skip_nulls=False),
    )


def _places(values: pa.Array, known: pa.Array, skip_nulls: bool) -> np.ndarray:
    if len(known) == 0:
        return np.full(len(values), -1, np.int64)
    found = pc.index_in(values, value_set=known, skip_nulls=skip_nulls)
    return found.fill_null(-1).to_numpy(False).astype(np.int64)


def _row_hashes(columns: list[Any]) -> np.ndarray:
    """What NVTabular hashes out-of-vocabulary rows to on a CPU, [N] uint64."""
    import pandas as pd  # the hash is pandas'; where NVTabular runs, it is there

    hashes = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        if isinstance(column, (pa.Array, pa.ChunkedArray)):
            column = column.to_pandas()
        series = column if isinstance(column, pd.Series) else pd.Series(column)
        hashes ^= pd.util.hash_pandas_object(series).to_numpy()
    return hashes
