"""Tables whose vectors exist already."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from merlin_embeddings import data
from merlin_embeddings.config import FeatureConfig, TableConfig


@dataclasses.dataclass(frozen=True)
class Pretrained:
    """Vectors that a table of an `InputBlock` begins with.

    Args:
        source: an array, a file or a dataset; see `merlin_embeddings.data.vectors`.
        trainable: False freezes the table.
        id_column: which column of the source has the ids; None: vector i is of id i.

    >>> import numpy as np
    >>> from merlin_embeddings.data import Column, Domain
    >>> import merlin_embeddings as me
    >>> schema = [Column("item", ("categorical",), domain=Domain(max=3))]
    >>> frozen = Pretrained(np.eye(4), trainable=False)
    >>> block = me.layers.InputBlock(schema, pretrained={"item": frozen})
    >>> block({"item": np.array([2])}).numpy().tolist()
    [[0.0, 0.0, 1.0, 0.0]]
    """

    source: Any
    trainable: bool = True
    id_column: str | None = None


def with_vectors(
    features: Mapping[str, FeatureConfig], pretrained: Mapping[str, Any]
) -> dict[str, FeatureConfig]:
    """Features whose tables begin with given vectors, and have their length.

    Args:
        features: by name.
        pretrained: a `Pretrained`, or its source, by name of table or feature.

    Raises:
        ValueError: a name that is neither, two entries for one table, a compressed table, or
            vectors that don't fit.
    """
    tables = {feature.table.name: feature.table for feature in features.values()}
    changed: dict[str, TableConfig] = {}
    for name, given in pretrained.items():
        if name not in tables and name not in features:
            raise ValueError(
                f"pretrained has {name!r}, which is no categorical column and no table; these are "
                f"{sorted({*tables, *features})}."
            )
        table = tables[name] if name in tables else features[name].table
        if table.name in changed:
            raise ValueError(f"pretrained has two entries for table {table.name!r}: {name!r} too.")
        changed[table.name] = _with_vectors(table, given)
    return {
        name: dataclasses.replace(feature, table=changed.get(feature.table.name, feature.table))
        for name, feature in features.items()
    }


def _with_vectors(table: TableConfig, given: Any) -> TableConfig:
    given = given if isinstance(given, Pretrained) else Pretrained(given)
    if table.compression is not None:
        raise ValueError(
            f"Table {table.name!r} has vectors that are given (pretrained=), and compression="
            f"{table.compression}, whose vectors are composed of rows that are learned; leave one "
            "of them out."
        )
    values = data.vectors(given.source, table.rows, given.id_column, f"table {table.name!r}")
    return dataclasses.replace(
        table,
        embedding_dim=values.shape[1],
        initializer=values,
        trainable=given.trainable,
    )
