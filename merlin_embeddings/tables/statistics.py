"""What the id map of a table has met: how full it is, who hits, who comes and who goes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from merlin_embeddings import compat
from merlin_embeddings.tables.dense import DenseTable, table_of
from merlin_embeddings.tables.moving import MovingTable

COUNTED = ("looked_up", "hits", "inserted", "evicted", "not_admitted", "overflowed")


def tables_in(owner: Any) -> dict[str, DenseTable]:
    """The tables of a model, a layer or a list of these, by the paths of their weights.

    Args:
        owner: what has weights, a table, or a list or tuple of these.
    """
    if isinstance(owner, DenseTable):
        return {compat.path_of(owner.variable): owner}
    if isinstance(owner, (list, tuple)):
        return {path: table for each in owner for path, table in tables_in(each).items()}
    found = {compat.path_of(weight): table_of(weight) for weight in owner.weights}
    return {path: table for path, table in found.items() if table is not None}


def moving_in(owner: Any) -> dict[str, MovingTable]:
    """Of `tables_in(owner)`, those whose rows move from id to id."""
    return {
        path: table for path, table in tables_in(owner).items() if isinstance(table, MovingTable)
    }


def counters(table: MovingTable) -> tf.Tensor:
    """What the table's id map counted so far in training: int64, in the order of `COUNTED`."""
    counted = table.ids.statistics()
    return tf.stack([tf.cast(counted[name], tf.int64) for name in COUNTED])


def rates(table: MovingTable, since: tf.Tensor) -> dict[str, tf.Tensor]:
    """How a table's id map does, float32 scalars.

    Args:
        table: whose.
        since: `counters` at an earlier moment.

    Returns:
        - `occupancy`: the share of its rows that ids have, now;
        - `hit_rate`: of the lookups in training since then, the share of ids that had a row;
        - `oov_share`: of these, the share that went without a row of their own;
        - `admitted`, `evicted`: ids that got or lost a row since then;
        - `overflowed`: lookups that went without a row as all that they could have were in use.

        The shares are NaN where nothing was looked up in training.
    """
    used, capacity = table.ids.used(), table.ids.capacity
    counted = dict(zip(COUNTED, tf.unstack(counters(table) - since), strict=True))
    looked_up = counted["looked_up"]
    without = counted["not_admitted"] + counted["overflowed"]
    found = {
        "occupancy": used / capacity,
        "hit_rate": counted["hits"] / looked_up,
        "oov_share": without / looked_up,
        "admitted": counted["inserted"],
        "evicted": counted["evicted"],
        "overflowed": counted["overflowed"],
    }
    return {name: tf.cast(value, tf.float32) for name, value in found.items()}


def labelled(tables: Mapping[str, DenseTable]) -> dict[str, DenseTable]:
    """Tables by names for people in place of their paths.

    The last part of the path, or the layer's where that part says no more than "embeddings"; all of
    the path where another table would have the same name.
    """
    short = {path: _short(path) for path in tables}
    names = list(short.values())
    return {
        path if names.count(short[path]) > 1 else short[path]: table
        for path, table in tables.items()
    }


def _short(path: str) -> str:
    parts = path.split("/")
    return parts[-2] if parts[-1] == "embeddings" and len(parts) > 1 else parts[-1]
