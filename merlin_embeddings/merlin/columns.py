"""What a table needs of the columns of a schema, or an error that says what is missing."""

from __future__ import annotations

from typing import Any

import numpy as np

from merlin_embeddings import config


def table_name(column: Any) -> str:
    """The name of a column's domain, which columns share a table by, or of the column."""
    domain = column.int_domain
    return (domain.name if domain else None) or column.name


def vocabulary_size(column: Any, ids: Any) -> int | None:
    """How many ids a column may have: 0 to its domain's max; None if `ids` take any number.

    Args:
        column: a `merlin.schema.ColumnSchema`.
        ids: the table's id spec, or None.

    Raises:
        ValueError: the column has no domain of integers, or one without a maximum.
    """
    domain = column.int_domain
    if domain is None:
        if ids is not None:
            return None
        raise ValueError(
            f"Column {column.name!r} (dtype {column.dtype.name}) has no int domain, so that nobody "
            "knows how many rows its table needs. Encode the column with NVTabular's Categorify, "
            "whose schema says it, give the column's properties a domain {'min': 0, 'max': "
            "cardinality - 1}, or make it an EmbeddingTable of its own with ids that take any "
            "number, such as ids=ids.Modulo(rows)."
        )
    size = None if domain.max is None else domain.max + 1
    if size is None or size != size // 1 or not config.is_row_count(int(size)):
        raise ValueError(
            f"Column {column.name!r} has the int domain [{domain.min}, {domain.max}]; its max must "
            "be the largest id, 0 or more."
        )
    return int(size)


def check_values(values: Any, dim: int, column: Any, ids: Any, compression: Any = None) -> None:
    """Raises ValueError unless initial values have the shape of a column's table."""
    if isinstance(values, (list, tuple)) and len(values) == 1:
        values = values[0]  # as Keras takes them
    size = vocabulary_size(column, ids or compression)
    says: Any = compression or ids
    if compression is not None:
        rows, dim = compression.shape(dim)
    else:
        rows = size if ids is None else ids.rows_of(size)
    shape = tuple(np.shape(values))
    if shape != (rows, dim):
        why = f"the int domain of column {column.name!r} in the schema" if says is None else says
        raise ValueError(
            f"Table {table_name(column)!r}: the given values have shape {list(shape)}, the table "
            f"is [{rows}, {dim}]: {why} says how many rows it has. Give as many, or change that."
        )


def check_shares(table: str, first: Any, column: Any) -> None:
    """Raises ValueError unless a column's ids are those of the column that a table was made for."""
    mine, its = first.int_domain, column.int_domain
    if (mine is None) != (its is None):
        without = first if mine is None else column
        raise ValueError(
            f"Table {table!r}: column {column.name!r} can't share it with {first.name!r}: column "
            f"{without.name!r} has no int domain."
        )
    if mine is None:
        return
    if mine.name and its.name and mine.name != its.name:
        raise ValueError(
            f"Table {table!r}: column {column.name!r} has the domain {its.name!r}, but the table "
            f"was made for the domain {mine.name!r} of column {first.name!r}. Give both columns "
            "one domain name, or the column a table of its own."
        )
    if mine.max != its.max:
        raise ValueError(
            f"Table {table!r}: columns {first.name!r} and {column.name!r} share a domain, but its "
            f"max is {mine.max} in one and {its.max} in the other. Encode them together, as "
            "NVTabular's Categorify does with [['a', 'b']], or give them domains of other names."
        )


def describe(table: str, column: Any, open_ids: bool) -> str:
    """What messages call a feature: its domain too, where that says which ids there are."""
    name = f"table {table!r}, feature {column.name!r}"
    if open_ids or column.int_domain is None:
        return name
    return f"{name} (in the schema its int_domain has max={column.int_domain.max})"
