"""Tables: rows to vectors, and rows to and from elsewhere."""

from collections.abc import Callable

from merlin_embeddings.config import TableConfig
from merlin_embeddings.tables.changes import Changes, Mark
from merlin_embeddings.tables.dense import DenseTable, Slot, table_of
from merlin_embeddings.tables.entries import Entries
from merlin_embeddings.tables.lookup import Request, lookup
from merlin_embeddings.tables.overwrite import overwrite

__all__ = [
    "Changes",
    "DenseTable",
    "Entries",
    "Mark",
    "Request",
    "Slot",
    "build",
    "lookup",
    "overwrite",
    "table_of",
]


def build(config: TableConfig, rows: int, add_weight: Callable) -> DenseTable:
    """The table that a config describes.

    Args:
        config: what to make.
        rows: how many rows its ids can have.
        add_weight: the layer's `add_weight`.

    Returns:
        A table that owns one weight named `config.name`.
    """
    return DenseTable(config, rows, add_weight)
