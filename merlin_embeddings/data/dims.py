"""Rules for the length of a column's vectors."""

from __future__ import annotations

import math

from merlin_embeddings.data.columns import Column


def infer_embedding_dim(
    column: Column, multiplier: float = 2.0, ensure_multiple_of_8: bool = True
) -> int:
    """`ceil(multiplier * rows**0.25)`, by default rounded up to a multiple of 8.

    It is the rule that merlin-models' `Embeddings` has for columns without a `dim`; Google
    recommends multipliers between 2 and 10.

    Args:
        column: a column with a domain.
        multiplier: of the fourth root.
        ensure_multiple_of_8: whether to round up.

    Raises:
        ValueError: the column's domain has no maximum.

    >>> from merlin_embeddings.data import Column, Domain
    >>> column = Column("item", ("categorical",), domain=Domain(max=9999))
    >>> infer_embedding_dim(column), infer_embedding_dim(column, 2.1, ensure_multiple_of_8=False)
    (24, 21)
    """
    dim = math.ceil(math.pow(column.rows, 0.25) * multiplier)
    return math.ceil(dim / 8) * 8 if ensure_multiple_of_8 else dim


def suggested_embedding_dim(column: Column) -> int:
    """What NVTabular suggests: `min(max(16, round(1.6 * cardinality**0.56)), 512)`.

    Raises:
        ValueError: the schema has no `embedding_sizes` for the column.
    """
    if column.embedding_sizes is None:
        raise ValueError(
            f"Column {column.name!r} has no embedding_sizes in the schema; Categorify and "
            "HashBucket write them. Give an embedding_dim, or leave it out for the rule of "
            "infer_embedding_dim."
        )
    return column.embedding_sizes.dimension
