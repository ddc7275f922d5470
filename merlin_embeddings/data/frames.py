"""Rows of a `merlin.io.Dataset` that aren't in Parquet files: its partitions, one by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from merlin_embeddings.data.arrow import known_types
from merlin_embeddings.data.checking import Place, Rule
from merlin_embeddings.data.parquet import ROWS, ParquetSource, Part, parquet_files
from merlin_embeddings.data.plan import Span


class FrameSource:
    """Partitions of a Dataset as pieces.

    All are computed once to count their rows, and again in each epoch; write a Dataset that is
    costly to compute to Parquet first.

    Args:
        dataset: a `merlin.io.Dataset`.

    Attributes:
        name: in messages.
        schema: the Arrow schema of the rows.
        pieces: the rows of each piece.

    Raises:
        ValueError: there are no rows.
    """

    def __init__(self, dataset: Any) -> None:
        self.name = "the Dataset"
        self._frame = dataset.to_ddf()
        rows = self._frame.map_partitions(len, meta=("rows", "int64"))
        self.pieces = [int(n) for n in rows.compute(scheduler="synchronous")]
        filled = [piece for piece, rows in enumerate(self.pieces) if rows]
        if not filled:
            raise ValueError("The Dataset has no rows.")
        self.schema = known_types(self._table(piece, None).schema for piece in filled)

    def require(self, columns: Iterable[str]) -> None:
        """All partitions have the same columns."""

    def read(
        self, spans: Iterable[Span], columns: Sequence[str], rules: Mapping[str, Rule]
    ) -> Iterator[Part]:
        """The rows of spans, in their order; see `ParquetSource.read`."""
        for span in spans:
            table = self._table(span.piece, columns)
            row = span.start
            rows = table.slice(span.start, span.stop - span.start).combine_chunks()
            for batch in rows.to_batches(ROWS):
                yield Part(batch, Place(f"partition {span.piece} of {self.name}", row))
                row += batch.num_rows

    def _table(self, piece: int, columns: Sequence[str] | None) -> pa.Table:
        frame = self._frame.partitions[piece].compute(scheduler="synchronous")
        if columns is None:
            return pa.Table.from_pandas(frame, preserve_index=False)
        schema = pa.schema([self.schema.field(column) for column in columns])
        try:
            return pa.Table.from_pandas(frame[list(columns)], schema, preserve_index=False)
        except pa.ArrowException as error:
            raise ValueError(
                f"Partition {piece} of {self.name} has other types than the first: {error}"
            ) from None


def dataset_source(dataset: Any) -> ParquetSource | FrameSource:
    """The source of a Dataset: its files, if it is nothing but files, else its partitions."""
    engine = dataset.engine
    plain = (
        type(engine).__name__ == "ParquetDatasetEngine"
        and not engine.filters
        and not engine.storage_options
        and not engine.read_parquet_kwargs
        and not engine.dataset_kwargs
        and not dataset.dtypes
    )
    return ParquetSource(parquet_files(engine.paths)) if plain else FrameSource(dataset)
