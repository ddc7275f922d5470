"""Tables: rows to vectors, and rows to and from elsewhere."""

from collections.abc import Callable

from merlin_embeddings.config import TableConfig
from merlin_embeddings.tables.bloom import Bloom
from merlin_embeddings.tables.changes import Changes, Mark
from merlin_embeddings.tables.compression import Compression, lines_of
from merlin_embeddings.tables.dense import DenseTable, Slot, table_of
from merlin_embeddings.tables.double_hash import DoubleHash
from merlin_embeddings.tables.entries import Entries
from merlin_embeddings.tables.lookup import lookup
from merlin_embeddings.tables.moving import MovingTable
from merlin_embeddings.tables.moving_checks import check_moving
from merlin_embeddings.tables.overwrite import check_some, overwrite, write_some
from merlin_embeddings.tables.request import Request
from merlin_embeddings.tables.size import say_size
from merlin_embeddings.tables.view import view

__all__ = [
    "Bloom",
    "Changes",
    "Compression",
    "DenseTable",
    "DoubleHash",
    "Entries",
    "Mark",
    "MovingTable",
    "Request",
    "Slot",
    "build",
    "check_moving",
    "check_some",
    "lines_of",
    "lookup",
    "overwrite",
    "say_size",
    "table_of",
    "view",
    "write_some",
]


def build(config: TableConfig, rows: int, add_weight: Callable) -> DenseTable:
    """The table that a config describes.

    Args:
        config: what to make.
        rows: how many rows its ids can have; a compressed table has those of its parameters.
        add_weight: the layer's `add_weight`.

    Returns:
        A table that owns one weight named `config.name`.
    """
    dim = config.embedding_dim
    if config.compression is not None:
        rows, dim = config.compression.shape(dim)
    return DenseTable(config, rows, add_weight, dim)
