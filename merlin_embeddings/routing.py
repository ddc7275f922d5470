"""Routing: from the ids of a batch to the rows and lines of tables.

The router decides, the table holds. A router for one process stands here; a sharded one takes its
place without a change elsewhere.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from merlin_embeddings.bags import Bags
from merlin_embeddings.ids import PureIdMap
from merlin_embeddings.ids.stateful import StatefulIdMap
from merlin_embeddings.tables import DenseTable


class Query(NamedTuple):
    """One feature's batch on its way to a table.

    Attributes:
        table: where the vectors are.
        ids: which row an id has: a `PureIdMap` or a `StatefulIdMap`.
        bags: the batch.
        name: what messages call it: "table 'item', feature 'history'".
    """

    table: DenseTable
    ids: Any
    bags: Bags
    name: str


@dataclasses.dataclass(frozen=True)
class Route:
    """What a step needs of a table for one feature.

    Attributes:
        rows: `[N]` int64, the row of each id; -1: no vector.
        lines: `[N]` int64, where the table keeps these rows; -1: no vector.
        row_splits: `[B + 1]` int64, or None where every bag has `hotness` ids.
        hotness: ids a bag, or None.
        weights: `[N]` float32, or None.
        strict: the lines are ids that nobody has checked yet: the lookup refuses all that aren't
            rows of the table, -1 too.
        positions: where vectors that came from other processes go; None in one process.
        token: the table, if its rows move and may not until their update has run: until then, or
            until its id map has seen a stated number of newer steps, lines stay where they are.
            None where rows never move, or the step doesn't train.
    """

    rows: tf.Tensor
    lines: tf.Tensor
    row_splits: tf.Tensor | None
    hotness: int | None
    weights: tf.Tensor | None
    strict: bool = False
    positions: tf.Tensor | None = None
    token: Any = None


class Router(Protocol):
    """Finds the routes of a layer's features."""

    def route(self, queries: Sequence[Query], training: bool = False) -> list[Route]:
        """The route of each query."""


class LocalRouter:
    """The router of one process: every row is here.

    >>> import tensorflow as tf
    >>> from merlin_embeddings import ids, layers
    >>> layer = layers.Embedding(10, 4)
    >>> layer.build()
    >>> bags = Bags.of(tf.constant([[3, 0], [0, 9]]), padding_id=0)
    >>> query = Query(layer.table, ids.Identity().build(10), bags, "table 'embeddings'")
    >>> [route] = LocalRouter().route([query])
    >>> route.rows.numpy().tolist(), route.hotness
    ([3, -1, -1, 9], 2)
    """

    def route(self, queries: Sequence[Query], training: bool = False) -> list[Route]:
        """The route of each query; one native call for all id maps of a class.

        Args:
            queries: F of them.
            training: whether the step trains: id maps that remember ids learn from it then, unless
                their table is frozen.

        Returns:
            F routes in the order of the queries.

        Raises:
            ValueError: strings for ids that don't take any number, or scores for ids that have no
                use for them.
            tf.errors.InvalidArgumentError: an id that its map refuses.
        """
        for query in queries:
            check_kind(query.ids, query.bags.strings, query.name)
            if query.bags.scores is not None:
                check_scores(query.ids, query.name)
        rows = _assign(queries, training)
        return [_route(*each, training) for each in zip(queries, rows, strict=True)]


def _route(query: Query, rows: tf.Tensor, training: bool) -> Route:
    bags, moves = query.bags, isinstance(query.ids, StatefulIdMap)
    return Route(
        rows=rows,
        lines=query.table.resolve(rows),
        row_splits=bags.row_splits if bags.hotness is None else None,
        hotness=bags.hotness,
        weights=bags.weights,
        strict=_left_to_lookup(query),
        token=query.table if moves and _learns(query, training) else None,
    )


def _learns(query: Query, training: bool) -> bool:
    """Whether a map that remembers ids sees those of this step."""
    return training and query.table.variable.trainable


def _left_to_lookup(query: Query) -> bool:
    """Whether the lookup can check the ids in place of the map: a pass over them less."""
    return query.ids.passes_on and query.bags.padding_id is None


def _assign(queries: Sequence[Query], training: bool) -> list[tf.Tensor]:
    """The rows of each query's ids; -1 for padding."""
    # One native call for all pure maps of a class, and one for all features of a map that
    # remembers: they are one step of it.
    calls: dict[Any, list[int]] = {}
    results: list[Any] = [None] * len(queries)
    for index, query in enumerate(queries):
        if isinstance(query.ids, StatefulIdMap):
            calls.setdefault(query.ids, []).append(index)
        elif _left_to_lookup(query):
            results[index] = query.bags.values
        else:
            calls.setdefault(type(query.ids), []).append(index)
    for asked, members in calls.items():
        chosen = [queries[index] for index in members]
        if isinstance(asked, StatefulIdMap):
            rows = _assign_moving(asked, chosen, training)
        else:
            rows = _assign_pure(asked, chosen)
        for index, its_rows in zip(members, rows, strict=True):
            results[index] = its_rows
    return results


def _assign_pure(cls: type[PureIdMap], queries: Sequence[Query]) -> list[tf.Tensor]:
    rows = cls.assign_each(
        [query.ids for query in queries],
        [_without_refused_padding(query) for query in queries],
        [query.name for query in queries],
    )
    return [_without_padding(*each) for each in zip(queries, rows, strict=True)]


def _assign_moving(ids: StatefulIdMap, queries: Sequence[Query], training: bool) -> list[tf.Tensor]:
    """Rows of one map's ids, once those that came to other ids have started anew."""
    table: Any = queries[0].table
    learns = _learns(queries[0], training)
    if learns:
        table.require_served()
    rows, changes = ids.assign_features(
        [query.bags.values for query in queries],
        padding=[query.bags.padding_id for query in queries],
        scores=[query.bags.scores for query in queries],
        training=learns,
        names=[query.name for query in queries],
    )
    if changes is None:
        return rows
    started = table.start(changes)
    with tf.control_dependencies([] if started is None else [started]):
        return [tf.identity(each) for each in rows]


def check_scores(ids: Any, name: str) -> None:
    """Raises ValueError if an id map has no use for scores.

    Args:
        ids: the map.
        name: what messages call the ids.
    """
    if isinstance(ids, PureIdMap):
        raise ValueError(
            f"{name}: got scores, which the table's ids have no use for. They are for "
            "ids.ManagedCollision or ids.Dynamic with policy='custom'; leave them out otherwise."
        )


def check_kind(ids: Any, strings: bool, name: str) -> None:
    """Raises ValueError if an id map can't take ids of this kind.

    Args:
        ids: the map.
        strings: whether the ids are strings, or integers.
        name: what messages call the ids.
    """
    wanted = getattr(ids, "strings", None)
    if wanted is not None and wanted != strings:
        kinds = {True: "strings", False: "integers"}
        raise ValueError(
            f"{name}: got {kinds[strings]}, but the table's ids are a vocabulary of "
            f"{kinds[wanted]}; no id would be found. Give the ids as they stand in the vocabulary."
        )
    if strings and not ids.takes_any:
        raise ValueError(
            f"{name}: got strings, which are hashed to any number, but ids must be in "
            f"[0, {ids.rows}). Give the table ids=ids.Modulo(rows), or map the strings to "
            "integers first."
        )


def _without_refused_padding(query: Query) -> tf.Tensor:
    """The ids, padding replaced by one that is none where the map might refuse it."""
    bags = query.bags
    padding = bags.padding_id
    if padding is None or (isinstance(padding, int) and not query.ids.refuses(padding)):
        return bags.values
    stand_in = tf.convert_to_tensor(query.ids.accepted(), tf.int64)
    return tf.where(bags.is_padding, stand_in, bags.values)


def _without_padding(query: Query, rows: tf.Tensor) -> tf.Tensor:
    if query.bags.padding_id is None:
        return rows
    return tf.where(query.bags.is_padding, tf.constant(-1, tf.int64), rows)
