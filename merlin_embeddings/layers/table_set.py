"""The tables of one layer, and lookups of features in them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow import keras

from merlin_embeddings import compat, config, tables
from merlin_embeddings.bags import Bags, check_pool
from merlin_embeddings.config import FeatureConfig, TableConfig
from merlin_embeddings.ids import Hash, Identity, KnownIdsMap, PureIdMap
from merlin_embeddings.routing import LocalRouter, Query, Route, Router


class TableSet:
    """Tables shared by name between the features of one layer.

    Args:
        features: the layer's features.

    Attributes:
        configs: of each table by name.
        ids: the id map of each table; of one that remembers ids, until its table is built, only how
            many rows it has and which ids it takes.
        tables: the tables, once they are built.
        router: finds the rows of a batch.

    Raises:
        ValueError: one table name with two configs, or one feature name twice; an initializer that
            rows which move from id to id can't start with.
    """

    def __init__(self, features: Sequence[FeatureConfig]):
        self.configs = _tables_of(features)
        self.tables: dict[str, tables.DenseTable] = {}
        self.router: Router = LocalRouter()
        self.ids: dict[str, Any] = {name: _map_of(table) for name, table in self.configs.items()}
        self._regularizers = {
            name: keras.regularizers.get(table.regularizer) for name, table in self.configs.items()
        }

    def build(self, add_weight: Callable) -> None:
        """Makes the tables, each with one weight.

        Args:
            add_weight: the layer's.
        """
        for name, table in self.configs.items():
            if self.moves(name):
                build_ids = functools.partial(table.ids.build, table.vocabulary_size)
                moving = tables.MovingTable(table, build_ids, add_weight)
                self.tables[name], self.ids[name] = moving, moving.ids
            else:
                self.tables[name] = tables.build(table, self.ids[name].rows, add_weight)
                self.ids[name].make(add_weight, name)
                self.tables[name].ids = self.ids[name]

    @property
    def known_ids(self) -> dict[str, KnownIdsMap]:
        """The maps of ids known beforehand, by table."""
        return {name: one for name, one in self.ids.items() if isinstance(one, KnownIdsMap)}

    def moves(self, name: str) -> bool:
        """Whether the rows of table `name` move from id to id."""
        return _moves(self.configs[name])

    @property
    def exist(self) -> bool:
        """Whether the tables have memory to look up in; not where Keras only asks for shapes."""
        if compat.only_asks_for_shapes():
            return False
        return all(compat.has_memory(table.variable) for table in self.tables.values())

    def look_up(
        self,
        features: Sequence[FeatureConfig],
        bags: Sequence[Bags],
        training: bool,
        ids: PureIdMap | None = None,
    ) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """Vectors of features, and what the regularizers make of them.

        Args:
            features: F of them.
            bags: the batch of each; messages call it by the name of the bags.
            training: whether the step trains.
            ids: the map of all features, in place of their tables' own.

        Returns:
            F tensors `[B, D]` float32 (`[N, D]` for combiner None), and the regularization losses,
            scalars.

        Raises:
            ValueError: weights for a maximum, or the tables' values were replaced by tensors
                (`stateless_call`).
        """
        if not self.exist:
            for feature, its_bags in zip(features, bags, strict=True):
                check_pool(feature.combiner, its_bags.weights, its_bags.name)
            return [_placeholder(f, b) for f, b in zip(features, bags, strict=True)], []
        requests = self.requests(features, bags, training, ids)
        # In one call with the features, so that a table has one gradient, its rows summed: Keras's
        # optimizers don't sum rows that come twice.
        regularized = self._regularized_rows(requests)
        regularizing = [
            tables.Request(self.tables[name], route, None, f"table {name!r}, regularizer")
            for name, route in regularized.items()
        ]
        vectors = tables.lookup([*requests, *regularizing])
        losses = [
            self._regularizers[name](rows)
            for name, rows in zip(regularized, vectors[len(features) :], strict=True)
        ]
        return vectors[: len(features)], losses

    def requests(
        self,
        features: Sequence[FeatureConfig],
        bags: Sequence[Bags],
        training: bool,
        ids: PureIdMap | None = None,
    ) -> list[tables.Request]:
        """What `look_up` asks of the tables, which have to exist, but for regularizers.

        `tables.lookup` answers the requests of several sets at once.

        Args:
            features, bags, training, ids: as for `look_up`.

        Raises:
            ValueError: as `look_up` does.
        """
        for feature, its_bags in zip(features, bags, strict=True):
            check_pool(feature.combiner, its_bags.weights, its_bags.name)
        self._check_not_stateless()
        queries = [
            Query(self.tables[f.table.name], ids or self.ids[f.table.name], its_bags, its_bags.name)
            for f, its_bags in zip(features, bags, strict=True)
        ]
        routes = self.router.route(queries, training)
        return [
            tables.Request(
                query.table, route, feature.combiner, query.name, feature.table.compression
            )
            for query, route, feature in zip(queries, routes, features, strict=True)
        ]

    @property
    def regularizes(self) -> bool:
        """Whether a lookup has losses of regularizers."""
        return any(self._regularizers.values())

    def rows_of(
        self, features: Sequence[FeatureConfig], bags: Sequence[Bags], training: bool
    ) -> list[tf.Tensor]:
        """The row of each id of features, F times `[N]` int64: -1 for one without a vector.

        Args:
            features, bags: as for `look_up`, which looks rows up with the `ids` of `of_rows`.
            training: whether the step trains.
        """
        if not self.exist:
            return [its_bags.values for its_bags in bags]
        queries = [
            Query(self.tables[f.table.name], self.ids[f.table.name], its_bags, its_bags.name)
            for f, its_bags in zip(features, bags, strict=True)
        ]
        routes = self.router.route(queries, training)
        return [
            # Nobody has checked the ids yet where a route is strict, and here no lookup will.
            query.ids.assign(route.rows, name=query.name)[0] if route.strict else route.rows
            for query, route in zip(queries, routes, strict=True)
        ]

    def of_rows(self, name: str) -> PureIdMap:
        """The map of table `name` for what `rows_of` gave in place of ids."""
        return Identity("zero").build(self.ids[name].rows)

    def _check_not_stateless(self) -> None:
        for table in self.tables.values():
            if isinstance(compat.raw_variable(table.variable), tf.Tensor):
                raise ValueError(
                    f"Table {table.name!r} is looked up in its own memory, so Keras's "
                    "stateless_call can't put other values in its place; set its weights and call "
                    "the layer."
                )

    def _regularized_rows(self, requests: Sequence[tables.Request]) -> dict[str, Route]:
        """The distinct rows that each trainable table with a regularizer is asked for."""
        rows: dict[str, list[tf.Tensor]] = {}
        for table, route, _, _, compression in requests:
            if self._regularizers[table.name] and table.variable.trainable:
                its_rows = route.rows
                if compression is not None:
                    [its_rows] = tables.lines_of([compression], [its_rows])
                rows.setdefault(table.name, []).append(its_rows)
        return {name: self._distinct(name, its_rows) for name, its_rows in rows.items()}

    def _distinct(self, name: str, rows: Sequence[tf.Tensor]) -> Route:
        """The route to each row once."""
        together = tf.concat(rows, 0) if len(rows) > 1 else rows[0]
        unique = tf.unique(together).y
        unique = tf.boolean_mask(unique, unique >= 0)
        return Route(unique, self.tables[name].resolve(unique), None, 1, None)


class _Planned(NamedTuple):
    """What is known of an id map before it has its variables."""

    rows: int
    takes_any: bool = True
    passes_on: bool = False


def _moves(table: TableConfig) -> bool:
    """Whether a table's rows move from id to id."""
    return getattr(table.ids, "stateful", False)


def _map_of(table: TableConfig) -> Any:
    """The id map of a table, or what is known of it."""
    if _moves(table):
        tables.check_moving(table)
        return _Planned(table.rows)
    spec = table.ids
    if spec is None:
        # In an open space an id has a number that hardly another one has: of a billion ids, any two
        # have one with a chance of 1 in 18.
        spec = Identity() if table.vocabulary_size is not None else Hash(2**63 - 1)
    found = spec.build(table.vocabulary_size)
    if table.compression is not None:
        found.passes_on = False  # its lines are hashes, by which no lookup can check an id
    return found


def _placeholder(feature: FeatureConfig, bags: Bags) -> tf.Tensor:
    """A tensor of the shape of the vectors, for a call that only asks for shapes."""
    count = tf.size(bags.values) if feature.combiner is None else tf.size(bags.row_splits) - 1
    return tf.zeros(tf.stack([count, feature.table.embedding_dim]))


def label(feature: FeatureConfig) -> str:
    """What messages call a feature."""
    return f"table {feature.table.name!r}, feature {feature.name!r}"


def _tables_of(features: Sequence[FeatureConfig]) -> dict[str, TableConfig]:
    found: dict[str, TableConfig] = {}
    names: set[str] = set()
    for feature in features:
        if feature.name in names:
            raise ValueError(f"Two features have the name {feature.name!r}; rename one.")
        names.add(feature.name)
        table = found.setdefault(feature.table.name, feature.table)
        if not config.same(table, feature.table):
            raise ValueError(
                f"Table {table.name!r} has two configs, {table} and (feature {feature.name!r}) "
                f"{feature.table}. Features share a table by giving one config; rename one table "
                "otherwise."
            )
    return found
