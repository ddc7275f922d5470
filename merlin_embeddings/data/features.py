"""Tables and features for the categorical columns of a schema."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from merlin_embeddings import config
from merlin_embeddings.config import FeatureConfig, TableConfig
from merlin_embeddings.data.columns import Column, categorical, check_names, tables
from merlin_embeddings.data.dims import infer_embedding_dim

_OF_TABLES = tuple(
    field.name
    for field in dataclasses.fields(TableConfig)
    if field.name not in ("name", "vocabulary_size", "embedding_dim")
)
_OF_FEATURES = tuple(
    field.name
    for field in dataclasses.fields(FeatureConfig)
    if field.name not in ("name", "table", "combiner")
)


def features_from_schema(
    schema: Any,
    embedding_dim: int | Mapping[str, int] | Callable[[Column], int] | None = None,
    combiner: str | Mapping[str, str | None] | None = "mean",
    **options: Any,
) -> dict[str, FeatureConfig]:
    """A feature for each categorical column of a schema, and a table for each domain.

    A table has domain max + 1 rows and the name of the domain, or of the column where the domain
    has none. Targets and columns that aren't tagged as categorical are left out.

    Args:
        schema: a `merlin.schema.Schema`, such as `workflow.output_schema`, or `Column`s.
        embedding_dim: D of all tables; D by name of column or table, where what isn't named follows
            `data.infer_embedding_dim`; a function of a `Column`, such as
            `data.suggested_embedding_dim` (NVTabular's suggestion); None: `infer_embedding_dim`.
        combiner: of all list columns, or by name of column or table ("mean" where there is none).
            None: lists aren't pooled, one vector an id. A column that is no list keeps its one
            vector whatever the combiner.
        **options: other fields of `TableConfig` (`initializer`, `regularizer`, `dtype`,
            `placement`, `trainable`, `ids`, ...) and of `FeatureConfig` (`padding_id`, ...): one
            value for all, or a dict by name of column or table.

    Returns:
        The features by column name, in the schema's order.

    Raises:
        TypeError: an option that neither config has.
        ValueError: no categorical column; a column has no domain, a domain no maximum, or columns
            that share one have different maxima; a name that is neither column nor table; two dims
            or options for one table; a value that no table or feature can have.

    >>> from merlin_embeddings.data import Column, Domain
    >>> items = Domain("item", 0, 999)
    >>> schema = [
    ...     Column("last", ("categorical",), domain=items),
    ...     Column("history", ("categorical",), is_list=True, domain=items),
    ...     Column("city", ("categorical",), domain=Domain(max=99)),
    ...     Column("click", ("target",)),
    ... ]
    >>> features = features_from_schema(schema, {"item": 32}, combiner={"history": "sum"})
    >>> features["history"].table
    TableConfig(name='item', vocabulary_size=1000, embedding_dim=32)
    >>> [(f.name, f.table.name, f.table.embedding_dim, f.combiner) for f in features.values()]
    [('last', 'item', 32, 'mean'), ('history', 'item', 32, 'sum'), ('city', 'city', 8, 'mean')]
    """
    by_table = tables(schema)
    if not by_table:
        raise ValueError(
            "features_from_schema: the schema has no categorical column. NVTabular's Categorify "
            "tags its columns; AddMetadata(tags=[Tags.CATEGORICAL]) tags others."
        )
    columns = categorical(schema)
    check_names(columns)
    _check_options(options, {"embedding_dim": embedding_dim, "combiner": combiner}, columns)
    configs = {
        table: TableConfig(
            name=table,
            vocabulary_size=_vocabulary_size(shared, options.get("ids"), table),
            embedding_dim=_dim(embedding_dim, table, shared),
            **_table_options(options, table, shared),
        )
        for table, shared in by_table.items()
    }
    return {
        column.name: FeatureConfig(
            column.name,
            configs[column.table],
            _combiner(combiner, column),
            **_feature_options(options, column),
        )
        for column in columns
    }


def _check_options(
    options: Mapping[str, Any], others: Mapping[str, Any], columns: Sequence[Column]
) -> None:
    for option in options:
        if option not in _OF_TABLES + _OF_FEATURES:
            raise TypeError(
                f"features_from_schema has no option {option!r}; tables have "
                f"{', '.join(_OF_TABLES)}; features have {', '.join(_OF_FEATURES)}."
            )
    names = {name for column in columns for name in (column.name, column.table)}
    for option, value in {**options, **others}.items():
        unknown = set(value) - names if isinstance(value, Mapping) else set()
        if unknown:
            raise ValueError(
                f"features_from_schema: {option} has {_listed(unknown)}, which is no categorical "
                f"column and no table of the schema; these are {_listed(names)}."
            )


def _vocabulary_size(shared: Sequence[Column], ids: Any, table: str) -> int | None:
    """None for a table whose ids= have rows of their own and whose columns have no domain."""
    found, its_ids = _chosen("ids", ids, table, shared)
    if found and its_ids is not None and all(column.domain is None for column in shared):
        return None
    return shared[0].rows


def _dim(embedding_dim: Any, table: str, shared: Sequence[Column]) -> int:
    if embedding_dim is not None and not callable(embedding_dim):
        found, dim = _chosen("embedding_dim", embedding_dim, table, shared)
        if found:
            return dim
    rule = embedding_dim if callable(embedding_dim) else infer_embedding_dim
    dims = {column.name: rule(column) for column in shared}
    return _one(dims, "embedding_dim", table)


def _table_options(
    options: Mapping[str, Any], table: str, shared: Sequence[Column]
) -> dict[str, Any]:
    chosen = {
        option: _chosen(option, value, table, shared)
        for option, value in options.items()
        if option in _OF_TABLES
    }
    return {option: value for option, (found, value) in chosen.items() if found}


def _feature_options(options: Mapping[str, Any], column: Column) -> dict[str, Any]:
    chosen = {
        option: _chosen(option, value, column.name, [], or_else=column.table)
        for option, value in options.items()
        if option in _OF_FEATURES
    }
    return {option: value for option, (found, value) in chosen.items() if found}


def _combiner(combiner: Any, column: Column) -> str | None:
    found, chosen = _chosen("combiner", combiner, column.name, [], or_else=column.table)
    chosen = chosen if found else "mean"
    # One id a row: with a combiner [B] and [B, 1] both give [B, D].
    return chosen if column.is_list or chosen is not None else "mean"


def _chosen(
    option: str, value: Any, name: str, shared: Sequence[Column], or_else: str | None = None
) -> tuple[bool, Any]:
    """Whether there is a value for `name`, and which: its own, that of `or_else`, or the one that
    all columns in `shared` that have one agree on."""
    if not isinstance(value, Mapping):
        return True, value
    for key in (name, or_else):
        if key in value:
            return True, value[key]
    of_columns = {column.name: value[column.name] for column in shared if column.name in value}
    return bool(of_columns), _one(of_columns, option, name) if of_columns else None


def _one(values: Mapping[str, Any], option: str, table: str) -> Any:
    """The value that all have.

    Raises:
        ValueError: there are two.
    """
    first = next(iter(values.values()))
    if not all(config.same(value, first) for value in values.values()):
        raise ValueError(
            f"Columns of table {table!r} have different {option}: {values}. They share one table: "
            f"give {{{table!r}: ...}}, or the domains different names."
        )
    return first


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, sorted(names)))
