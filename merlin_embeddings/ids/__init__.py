"""Which row of a table an id has: a spec, and the map that is built of it, a file each."""

from merlin_embeddings.ids.base import IdSpec, PureIdMap
from merlin_embeddings.ids.identity import Identity
from merlin_embeddings.ids.modulo import Modulo

__all__ = ["IdSpec", "Identity", "Modulo", "PureIdMap"]
