"""What a table whose rows move needs, and what it can't be given."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from merlin_embeddings import initializers
from merlin_embeddings.config import TableConfig
from merlin_embeddings.tables.entries import Entries


def check_moving(config: TableConfig) -> None:
    """Raises ValueError for a config that no table whose rows move can have."""
    if config.compression is not None:
        raise ValueError(
            f"table '{config.name}': ids={config.ids!r} gives each id a row of its own, which "
            f"compression={config.compression!r} makes vectors without; give one of them."
        )
    native_law(config)


def native_law(config: TableConfig) -> tuple[str, tuple[float, float]]:
    """What the native library knows a moving table's initial values by.

    Args:
        config: of the table.

    Raises:
        ValueError: it doesn't know them.
    """
    law = initializers.get(config.initializer).law(config.rows, config.embedding_dim)
    if law is None:
        raise ValueError(
            f"table '{config.name}': its rows move from id to id and start anew one by one, which "
            "takes an initializer whose values depend on (seed, id, column) alone; "
            f"{config.initializer!r} isn't one. Use one of merlin_embeddings.initializers: "
            "Uniform, Normal, TruncatedNormal, Xavier or Constant. Vectors that exist already are "
            "written by id: table.write(tables.Entries(keys=ids, vectors=vectors))"
        )
    return law


def as_ids(table: str, ids: Any) -> np.ndarray:
    """Ids as [N] int64; raises ValueError for what can't be ids."""
    ids = np.asarray(ids)
    if ids.size == 0:
        return np.empty(0, np.int64)
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise ValueError(
            f"table '{table}': ids must be a list of integers, "
            f"got {ids.dtype} of shape {list(ids.shape)}"
        )
    if ids.dtype == np.uint64 and (ids > np.iinfo(np.int64).max).any():
        raise ValueError(
            f"table '{table}': {ids.max()} is no int64; give the same 64 bits, ids.view(np.int64)"
        )
    return ids.astype(np.int64)


def require_dim(entries: Entries, dim: int, table: str) -> None:
    """Raises ValueError for vectors of another length than the table's."""
    if entries.dim != dim:
        raise ValueError(
            f"table '{table}': the vectors to write have {entries.dim} columns, "
            f"the table has {dim}; a table can't change its embedding_dim"
        )


def require_scores(entries: Entries, table: str) -> None:
    """Raises ValueError for scores that an id map can't have."""
    scores = entries.scores
    if scores is None:
        return
    if scores.ndim != 1 or scores.dtype.kind not in "iu":
        raise ValueError(
            f"table '{table}': scores must be [N] integers, got {scores.dtype} of shape "
            f"{list(scores.shape)}"
        )
    bad = scores[(scores < 0) | (scores >= 2**32)]
    if bad.size:
        raise ValueError(f"table '{table}': score {bad[0]} is out of range [0, 2**32)")


def require_one_replica(table: str) -> None:
    """Raises ValueError where a strategy has several replicas."""
    strategy = tf.distribute.get_strategy()
    if strategy.num_replicas_in_sync > 1:
        raise ValueError(
            f"table '{table}': {type(strategy).__name__} has {strategy.num_replicas_in_sync} "
            "replicas, each of which would give rows to other ids than the others. Build the model "
            "outside of the strategy's scope, or give the table ids whose rows stay, such as "
            "ids.Modulo(rows)"
        )
