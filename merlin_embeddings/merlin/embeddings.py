"""`Embeddings`: a block with a table for each domain of a schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import merlin.models.tf as mm
from merlin.schema import Schema

from merlin_embeddings.merlin import columns
from merlin_embeddings.merlin.embedding_table import EmbeddingTable


def Embeddings(
    schema: Schema,
    dim: int | Mapping[str, int] | None = None,
    *,
    trainable: bool | Mapping[str, bool] | None = None,
    table_cls: type = EmbeddingTable,
    **kwargs: Any,
) -> mm.ParallelBlock:
    """`merlin.models.tf.Embeddings` with tables of this package.

    What differs from merlin-models' own: the schema is checked before any table is made, and
    `trainable=False` freezes all tables (merlin-models drops it).

    Args:
        schema: of the categorical columns; those of one domain share a table.
        dim: of all tables, or by column; None, or a column that isn't there: `infer_dim_fn` says.
        trainable: False freezes the tables, of all columns or of those that a dict names.
        table_cls: the class of the tables.
        **kwargs: of merlin-models' own, and of `EmbeddingTable`: a value for all columns or a dict
            by column.

    Returns:
        A block of dicts: ids by column in, vectors by column out.

    Raises:
        ValueError: no column, a column without an int domain, or columns of one domain with
            different sizes; messages name the column.
    """
    if not len(schema):
        raise ValueError(
            "Embeddings: the schema has no columns. Columns that NVTabular's Categorify made have "
            "the tag Tags.CATEGORICAL."
        )
    first: dict[str, Any] = {}
    for column in schema:
        columns.vocabulary_size(column, ids=None)
        name = columns.table_name(column)
        columns.check_shares(name, first.setdefault(name, column), column)
    if isinstance(trainable, bool):
        trainable = {column.name: trainable for column in schema}
    return mm.Embeddings(schema, dim, trainable=trainable, table_cls=table_cls, **kwargs)
