"""What is asked of tables."""

from typing import Any, NamedTuple

from merlin_embeddings.tables.dense import DenseTable


class Request(NamedTuple):
    """One feature's lookup.

    Attributes:
        table: where the vectors are.
        route: has `lines` [N] int64 (-1: no vector), `row_splits` [B+1] int64 or None, `hotness`
            (every bag has exactly so many lines) or None, `weights` [N] float32 or None, and
            `strict` (-1 is an error too).
        combiner: "sum", "mean", "sqrtn", "max", or None for the single vectors.
        name: what errors call it, as "table 'item', feature 'history'".
        compression: how a vector is made of the table's rows, a `Compression`; None: a row is a
            vector.
    """

    table: DenseTable
    route: Any
    combiner: str | None
    name: str
    compression: Any = None
