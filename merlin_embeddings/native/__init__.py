"""The native ops: the library, and one Python call for each thing it does."""

from merlin_embeddings.native.asserted import asserted
from merlin_embeddings.native.attached import Attached
from merlin_embeddings.native.claims import require_served
from merlin_embeddings.native.id_table import (
    MAX_ADMIT_AFTER,
    MAX_CAPACITY,
    MAX_EPOCH,
    MAX_OPEN_ROUTES,
    MAX_ROWS,
    METERS,
    IdArray,
    IdLayout,
    IdPolicy,
    IdSizes,
    assign_ids,
    erase_ids,
    find_ids,
    id_entries,
    place_ids,
    release_ids,
    restrict_ids,
    set_epoch,
    state_arrays,
    upsert_ids,
)
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
    "MAX_ADMIT_AFTER",
    "MAX_CAPACITY",
    "MAX_EPOCH",
    "MAX_OPEN_ROUTES",
    "MAX_ROWS",
    "METERS",
    "Attached",
    "IdArray",
    "IdLayout",
    "IdPolicy",
    "IdSizes",
    "Pooling",
    "Source",
    "TableUpdate",
    "asserted",
    "assign_ids",
    "buffer_serial",
    "check_range",
    "coalesce",
    "erase_ids",
    "find_ids",
    "hash_ids",
    "hash_rows",
    "hash_strings",
    "id_entries",
    "initial_rows",
    "initial_table",
    "lookup",
    "modulo",
    "place_ids",
    "release_ids",
    "require_served",
    "restrict_ids",
    "row_splits",
    "set_epoch",
    "sources",
    "state_arrays",
    "to_huge_pages",
    "update",
    "upsert_ids",
    "write_rows",
]
