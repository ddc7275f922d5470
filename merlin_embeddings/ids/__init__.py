"""Which row of a table an id has: a spec, and the map that is built of it, a file each."""

from merlin_embeddings.ids.base import IdSpec, PureIdMap
from merlin_embeddings.ids.counting import count
from merlin_embeddings.ids.dynamic import Dynamic
from merlin_embeddings.ids.frequency import FrequencyCap, FrequencyHash
from merlin_embeddings.ids.hash import Hash
from merlin_embeddings.ids.identity import Identity
from merlin_embeddings.ids.known import KnownIds
from merlin_embeddings.ids.known_map import KnownIdsMap
from merlin_embeddings.ids.managed_collision import ManagedCollision
from merlin_embeddings.ids.modulo import Modulo
from merlin_embeddings.ids.policies import LFU, LRU, TTL, Custom, EpochLFU, EpochLRU
from merlin_embeddings.ids.stateful import Changes, Known, StatefulIdMap
from merlin_embeddings.ids.vocabulary import Vocabulary

__all__ = [
    "LFU",
    "LRU",
    "TTL",
    "Changes",
    "Custom",
    "Dynamic",
    "EpochLFU",
    "EpochLRU",
    "FrequencyCap",
    "FrequencyHash",
    "Hash",
    "IdSpec",
    "Identity",
    "Known",
    "KnownIds",
    "KnownIdsMap",
    "ManagedCollision",
    "Modulo",
    "PureIdMap",
    "StatefulIdMap",
    "Vocabulary",
    "count",
]
