"""What a user writes down about tables and features: frozen, plain data.

A *spec* is a frozen dataclass that says what is wanted; the object that owns variables is built
from it later.
"""

from merlin_embeddings.config.checks import is_int, is_row_count, one_of
from merlin_embeddings.config.feature import COMBINERS, FeatureConfig
from merlin_embeddings.config.position_weights import PositionWeights
from merlin_embeddings.config.specs import foreign, from_plain, same, spec, to_plain
from merlin_embeddings.config.table import DTYPES, PLACEMENTS, TableConfig, field_rule

__all__ = [
    "COMBINERS",
    "DTYPES",
    "PLACEMENTS",
    "FeatureConfig",
    "PositionWeights",
    "TableConfig",
    "field_rule",
    "foreign",
    "from_plain",
    "is_int",
    "is_row_count",
    "one_of",
    "same",
    "spec",
    "to_plain",
]
