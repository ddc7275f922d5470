"""Which way rows of a checkpoint come into a table, and why there may be none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from merlin_embeddings import config
from merlin_embeddings.checkpoint import Checkpoint, TableInfo
from merlin_embeddings.data import Categories
from merlin_embeddings.ids import Identity, KnownIdsMap, PureIdMap
from merlin_embeddings.ids.known import as_ids, to_keys
from merlin_embeddings.saving.parts import TablePart
from merlin_embeddings.saving.rows import slot_infos
from merlin_embeddings.saving.ways import ById, SameRows, SameState, Way, places
from merlin_embeddings.saving.write import IDS
from merlin_embeddings.tables import DenseTable, MovingTable

_HINT = "strict=False takes what fits"


def way(part: TablePart, checkpoint: Checkpoint, info: TableInfo, ids: Any, strict: bool) -> Way:
    """How the rows of a checkpoint's table come into a table.

    Args:
        part: the table.
        checkpoint: where they are.
        info: the checkpoint's table.
        ids: see `saving.load`, or None.
        strict: whether they have to be the same tables.

    Raises:
        ValueError: there is no way.
    """
    table = part.table
    here = f"Table '{part.name}'"
    if info.dim != table.dim:
        raise ValueError(
            f"{here} has vectors of {table.dim} columns, those of the checkpoint have {info.dim}; "
            "a table can't change its embedding_dim"
        )
    own = config.to_plain(table.config.compression)
    if info.compression != own:
        raise ValueError(
            f"{here} makes vectors by compression={own}, that of the checkpoint by "
            f"{info.compression}: their parameters have nothing in common"
        )
    if ids is not None:
        return _by_given(part, checkpoint, info, ids)
    found = _way(part, checkpoint, info)
    if strict:
        _require_same(part, info, found)
    return found


def slots_in_common(part: TablePart, info: TableInfo) -> list[str]:
    """The slots that the checkpoint and the table both have, of one kind of optimizer."""
    if not same_kind(part.kind, info.metadata):
        return []
    return [
        name
        for name, slot in slot_infos(part).items()
        if name in info.slots and info.slots[name].shape == slot.shape
    ]


def _way(part: TablePart, checkpoint: Checkpoint, info: TableInfo) -> Way:
    table = part.table
    own, theirs = config.to_plain(table.config.ids), info.ids
    moving = isinstance(table, MovingTable)
    if own == theirs:
        if moving:
            return SameState()
        if table.rows == info.rows:
            return SameRows()
    if _numbered(own) and _numbered(theirs) and info.key == "row":
        if table.rows >= info.rows:
            grown = table.rows - info.rows
            return SameRows(f"rows, {grown:,} new ones start anew" if grown else "rows")
        raise ValueError(
            f"Table '{part.name}' has {table.rows:,} rows, that of the checkpoint {info.rows:,}; "
            "rows can come in addition, none can be left out. Give ids= to say which come"
        )
    target = moving or _numbered(own) or isinstance(table.ids, KnownIdsMap)
    keys = _ids_of(checkpoint, info)
    if keys is None or not target or info.compression is not None:
        raise ValueError(
            f"Table '{part.name}' has ids={own}, that of the checkpoint {theirs} with "
            f"{info.rows:,} rows: the rows would be those of other ids. Give ids= to say which ids "
            "there are"
        )
    return ById(keys[0], keys[1])


def _numbered(spec: Any) -> bool:
    """Whether a row is an id."""
    return spec is None or spec.get("class") == Identity.__name__


def _ids_of(checkpoint: Checkpoint, info: TableInfo) -> tuple[np.ndarray, np.ndarray] | None:
    """The ids that a checkpoint's table has, and what it has them under; None: nobody knows."""
    if info.key == "id":
        keys = np.concatenate([np.empty(0, np.int64), *checkpoint.keys(info.name)])
        return keys, keys
    if _numbered(info.ids):
        return np.arange(info.rows), np.arange(info.rows)
    known = info.metadata.get("known_ids")
    if known is not None:
        ids = np.asarray(checkpoint.arrays(IDS)[known], np.int64)
        return ids, np.arange(len(ids))
    return None


def _by_given(part: TablePart, checkpoint: Checkpoint, info: TableInfo, ids: Any) -> Way:
    before, now = _before_and_now(part.name, ids)
    if info.key == "id":
        return ById(now, before)
    if info.compression is not None:
        raise ValueError(
            f"Table '{part.name}': no row of the checkpoint's table is an id's alone "
            f"(compression={info.compression}), so that ids= can't say which vectors come"
        )
    keys = _rows_of(part, checkpoint, info, before)
    return ById(now[keys >= 0], keys[keys >= 0])


def _before_and_now(table: str, ids: Any) -> tuple[np.ndarray, np.ndarray]:
    if isinstance(ids, Categories):
        values = ids.values(np.asarray(ids.unique))
        return np.asarray(ids.unique, np.int64), to_keys(as_ids(values.tolist(), f"'{table}'"))
    pair = ids if isinstance(ids, tuple) and len(ids) == 2 else (ids, ids)
    before, now = (to_keys(as_ids(one, f"load: ids of table '{table}'")) for one in pair)
    if len(before) != len(now):
        raise ValueError(
            f"Table '{table}': ids={len(before)} as they were, and {len(now)} as they are"
        )
    if len(np.unique(now)) != len(now):
        raise ValueError(f"Table '{table}': an id comes twice among those that are to be loaded")
    return before, now


def _rows_of(
    part: TablePart, checkpoint: Checkpoint, info: TableInfo, ids: np.ndarray
) -> np.ndarray:
    """The rows [N] that the checkpoint's table has for ids; -1: none."""
    if _numbered(info.ids):
        return np.where((ids >= 0) & (ids < info.rows), ids, -1)
    if info.metadata.get("known_ids") is not None:
        return places(checkpoint.arrays(IDS)[info.metadata["known_ids"]], ids)
    found = config.from_plain(info.ids).build(info.metadata.get("vocabulary_size"))
    assert isinstance(found, PureIdMap)
    name = f"table '{part.name}', ids of the checkpoint"
    return found.assign(tf.constant(ids, tf.int64), name=name)[0].numpy()


def _require_same(part: TablePart, info: TableInfo, found: Way) -> None:
    table: DenseTable = part.table
    if not isinstance(found, (SameRows, SameState)) or info.rows != _rows(table):
        raise ValueError(
            f"Table '{part.name}' has ids={config.to_plain(table.config.ids)} and "
            f"{_rows(table):,} rows, that of the checkpoint ids={info.ids} and {info.rows:,}; "
            f"{_HINT}: {found.says}"
        )
    if info.dtype != table.config.dtype:
        raise ValueError(
            f"Table '{part.name}' is {table.config.dtype}, that of the checkpoint {info.dtype}; "
            "strict=False rounds to the nearest, to even where two are as near"
        )


def require_same_slots(part: TablePart, info: TableInfo) -> None:
    """Raises ValueError unless the table's optimizer keeps what the checkpoint has."""
    own = slot_infos(part)
    shapes, theirs = ({name: one.shape for name, one in some.items()} for some in (own, info.slots))
    if shapes != theirs:
        raise ValueError(
            f"Table '{part.name}': the model's optimizer keeps {_listed(shapes)} for its rows, the "
            f"checkpoint has {_listed(theirs)}. Compile with the optimizer that the checkpoint is "
            "of, and with the same tables frozen; strict=False begins what it hasn't anew"
        )
    if shapes and not same_kind(part.kind, info.metadata):
        raise ValueError(
            f"Table '{part.name}': the model's optimizer is {part.kind}, that of the checkpoint "
            f"{info.metadata['optimizer']}, to which {_listed(shapes)} means something else. "
            "Compile with the optimizer that the checkpoint is of; strict=False begins it anew"
        )


def same_kind(kind: str | None, metadata: Mapping[str, Any]) -> bool:
    """Whether what an optimizer kept, as a manifest says, may be for one of this kind."""
    theirs = metadata.get("optimizer")
    return kind is None or theirs is None or kind == theirs


def _rows(table: DenseTable) -> int:
    return table.capacity if isinstance(table, MovingTable) else table.rows


def _listed(shapes: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(f"'{name}' {list(shape)}" for name, shape in shapes.items()) or "nothing"
