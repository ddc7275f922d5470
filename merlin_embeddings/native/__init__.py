"""The native ops: the library, and one Python call for each thing it does."""

from merlin_embeddings.native.asserted import asserted
from merlin_embeddings.native.attached import Attached
from merlin_embeddings.native.ids import check_range, hash_ids, hash_rows, modulo, row_splits
from merlin_embeddings.native.lookup import Pooling, lookup
from merlin_embeddings.native.strings import hash_strings
from merlin_embeddings.native.tables import (
    buffer_serial,
    initial_rows,
    initial_table,
    to_huge_pages,
    write_rows,
)
from merlin_embeddings.native.update import Source, TableUpdate, coalesce, sources, update

__all__ = [
    "Attached",
    "Pooling",
    "Source",
    "TableUpdate",
    "asserted",
    "buffer_serial",
    "check_range",
    "coalesce",
    "hash_ids",
    "hash_rows",
    "hash_strings",
    "initial_rows",
    "initial_table",
    "lookup",
    "modulo",
    "row_splits",
    "sources",
    "to_huge_pages",
    "update",
    "write_rows",
]
