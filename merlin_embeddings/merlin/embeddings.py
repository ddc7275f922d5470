"""`Embeddings`: a block with a table for each domain of a schema."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from typing import Any

import merlin.models.tf as mm
from merlin.schema import Schema

from merlin_embeddings.config import is_row_count
from merlin_embeddings.merlin import columns
from merlin_embeddings.merlin.block import EmbeddingsBlock
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

    What differs from merlin-models' own: the schema and the arguments are checked before any table
    is made (merlin-models leaves out, silently, arguments that it doesn't know, columns of dicts
    that it doesn't ask, and a `dim` that is no `int`), and `trainable=False` freezes all tables
    (merlin-models drops it).

    Args:
        schema: of the categorical columns; those of one domain share a table.
        dim: of all tables, or by column; None, or a column that isn't there: `infer_dim_fn` says.
        trainable: False freezes the tables, of all columns or of those that a dict names.
        table_cls: the class of the tables.
        **kwargs: of merlin-models' own, and of `EmbeddingTable`: a value for all columns or a dict
            by column. Of a shared table, the first column of the schema says.

    Returns:
        A block of dicts: ids by column in, vectors by column out.

    Raises:
        ValueError: no column, a column without an int domain, columns of one domain with
            different sizes, a dict with a column that isn't there or has no say, or a `dim` that
            is none; messages name the column.
        TypeError: an argument that neither this nor the tables have, or no schema.
    """
    if isinstance(schema, (list, tuple)):
        schema = Schema(schema)  # of columns, which merlin-models takes as well
    if not isinstance(schema, Schema):
        raise TypeError(f"Embeddings: schema={schema!r}; it must be a merlin.schema.Schema.")
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
    _check_names(kwargs, table_cls)
    for argument, value in {"dim": dim, "trainable": trainable, **kwargs}.items():
        if isinstance(value, Mapping):
            _check_columns(argument, value, schema, first)
    if isinstance(dim, Mapping):
        dim = {name: _dim(value, f"column {name!r}") for name, value in dim.items()}
    elif dim is not None:
        dim = _dim(dim, "all columns")
    if isinstance(trainable, bool):
        trainable = {column.name: trainable for column in schema}
    block = mm.Embeddings(schema, dim, trainable=trainable, table_cls=table_cls, **kwargs)
    return EmbeddingsBlock.of(block)


def _check_names(given: Collection[str], table_cls: type) -> None:
    known = {*inspect.signature(mm.Embeddings).parameters, *_arguments(table_cls)}
    if "name" in given:
        raise TypeError("Embeddings: tables are named by their domains; block_name names a block.")
    unknown = [name for name in given if name not in known]
    if unknown:
        raise TypeError(
            f"Embeddings: neither it nor {table_cls.__name__} has the arguments {unknown}; those "
            f"of the tables are {sorted(_arguments(table_cls))}."
        )


def _arguments(table_cls: type) -> list[str]:
    """What merlin-models' `Embeddings` hands on to a table."""
    parameters = inspect.signature(table_cls).parameters.values()
    return [each.name for each in parameters if each.default is not each.empty]


def _check_columns(
    argument: str, by_column: Mapping[str, Any], schema: Schema, first: Mapping[str, Any]
) -> None:
    for name in by_column:
        if name not in schema.column_names:
            raise ValueError(
                f"Embeddings: {argument} has {name!r}, which is no column of the schema; its "
                f"columns are {schema.column_names}."
            )
        owner = first[columns.table_name(schema[name])].name
        if owner not in by_column:
            raise ValueError(
                f"Embeddings: {argument} has column {name!r}, whose table "
                f"{columns.table_name(schema[name])!r} is made as its first column {owner!r} says: "
                f"give {argument} for {owner!r}."
            )


def _dim(value: Any, whose: str) -> int:
    if not is_row_count(value):
        raise ValueError(f"Embeddings: dim={value!r} of {whose}; it must be a positive integer.")
    return int(value)
