"""Models as checkpoints: their tables, optimizer, id maps, weights and random generators."""

from merlin_embeddings.saving.apart import tables_apart, tables_from
from merlin_embeddings.saving.load import Loaded, load
from merlin_embeddings.saving.save import Saved, save

__all__ = ["Loaded", "Saved", "load", "save", "tables_apart", "tables_from"]
