"""From NVTabular to this package: what a schema says.

A schema is NVTabular's or merlin-core's (`merlin.schema.Schema`); neither is needed to import this
room. `columns` reads it once into plain data, `Column`, which is all that the rest knows of it.
"""

from merlin_embeddings.data.batches import batches
from merlin_embeddings.data.categorify import Categories
from merlin_embeddings.data.columns import (
    Column,
    Domain,
    EmbeddingSizes,
    categorical,
    columns,
    continuous,
    tables,
    tagged,
    targets,
)
from merlin_embeddings.data.dims import infer_embedding_dim, suggested_embedding_dim
from merlin_embeddings.data.features import features_from_schema
from merlin_embeddings.data.fingerprint import Fingerprint, check_fingerprint
from merlin_embeddings.data.frequencies import frequencies
from merlin_embeddings.data.inputs import keras_inputs
from merlin_embeddings.data.vectors import vectors

__all__ = [
    "Categories",
    "Column",
    "Domain",
    "EmbeddingSizes",
    "Fingerprint",
    "batches",
    "categorical",
    "check_fingerprint",
    "columns",
    "continuous",
    "features_from_schema",
    "frequencies",
    "infer_embedding_dim",
    "keras_inputs",
    "suggested_embedding_dim",
    "tables",
    "tagged",
    "targets",
    "vectors",
]
