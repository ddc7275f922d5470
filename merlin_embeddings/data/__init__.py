"""From NVTabular to this package: what a schema says.

A schema is NVTabular's or merlin-core's (`merlin.schema.Schema`); neither is needed to import this
room. `columns` reads it once into plain data, `Column`, which is all that the rest knows of it.
"""

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

__all__ = [
    "Column",
    "Domain",
    "EmbeddingSizes",
    "categorical",
    "columns",
    "continuous",
    "tables",
    "tagged",
    "targets",
]
