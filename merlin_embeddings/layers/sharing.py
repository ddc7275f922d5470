"""Layers that look up in the table of another layer."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow import keras

from merlin_embeddings.bags import Bags
from merlin_embeddings.config import FeatureConfig, TableConfig
from merlin_embeddings.ids import PureIdMap
from merlin_embeddings.layers.base import TableLayer
from merlin_embeddings.layers.embedding import Embedding
from merlin_embeddings.layers.id_layer import IdLayer
from merlin_embeddings.layers.table_set import label


class Lookup(NamedTuple):
    """One of the lookups that a layer makes at once.

    Attributes:
        bags: what is looked up.
        combiner: as of a `FeatureConfig`.
    """

    bags: Bags
    combiner: str | None


class SharingLayer(IdLayer):
    """A layer without a table: it takes the layer that owns one, as Keras shares layers.

    Weights, gradients and optimizer slots are the owner's; files hold them once. The owner is part
    of the layer's config, and where Keras saves and loads a model, or copies it (`copy.deepcopy`),
    it stays one layer with the owner elsewhere in the model. A layer made from its config alone, as
    `clone_model` does, gets an owner of its own, with a warning.

    Args:
        items: the layer that owns the table: an `Embedding` or an `Embeddings`.
        table: which of the tables of an `Embeddings`; None where there is one.
        **kwargs: of `keras.layers.Layer`.

    Raises:
        TypeError: `items` owns no table of this package.
        ValueError: `table` is none of the owner's tables.
    """

    def __init__(self, items: TableLayer, table: str | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        kind = type(self).__name__
        if not isinstance(items, TableLayer):
            raise TypeError(
                f"{kind} {self.name!r}: items={items!r}; it must be the layer that owns the table, "
                "a merlin_embeddings.layers.Embedding or Embeddings (of an InputBlock: "
                "block.categorical)."
            )
        tables = list(items.table_set.configs)
        if table is None and len(tables) > 1:
            raise ValueError(
                f"{kind} {self.name!r}: layer {items.name!r} has the tables {tables}; say which by "
                "table=."
            )
        if table is not None and table not in tables:
            raise ValueError(
                f"{kind} {self.name!r}: table={table!r} is no table of layer {items.name!r}, which "
                f"has {tables}."
            )
        self.items = items
        self.table_name = table

    @property
    def table_config(self) -> TableConfig:
        """The config of the owner's table."""
        configs = self.items.table_set.configs
        return configs[self.table_name or next(iter(configs))]

    @property
    def id_map(self) -> Any:
        """Which row of the table an id has."""
        return self.items.table_set.ids[self.table_config.name]

    def feature(self, combiner: str | None = None) -> FeatureConfig:
        """A feature of the table with this layer's name, for lookups and messages."""
        return FeatureConfig(self.name, self.table_config, combiner)

    @property
    def label(self) -> str:
        """What messages call the lookups."""
        return label(self.feature())

    def check_users(self, users: Any) -> None:
        """Raises ValueError unless vectors of users are as long as the table's."""
        shape, dim = tf.TensorShape(users.shape), self.table_config.embedding_dim
        if not shape.is_compatible_with([None, dim]):
            raise ValueError(
                f"{type(self).__name__} {self.name!r}: users have shape {shape}; they must be "
                f"[B, {dim}], vectors as long as the items'."
            )

    def check_items_are_known(self) -> None:
        """Raises ValueError for a table that makes a vector of any id: nobody knows the items."""
        config = self.table_config
        if config.vocabulary_size is None and config.ids is None:
            raise ValueError(
                f"{type(self).__name__} {self.name!r}: table {config.name!r} makes a vector of any "
                f"id (vocabulary_size=None, compression={config.compression}), so that there are "
                "no items to count; give the table its vocabulary_size."
            )

    def padding_or_items(self, padding_id: int | str | None) -> int | str | None:
        """A padding id; None: the owner's, if it has one for all of its ids."""
        if padding_id is not None or not isinstance(self.items, Embedding):
            return padding_id
        if self.items.padding_id is None and self.items.mask_zero:
            return 0
        return self.items.padding_id

    def build(self, input_shape: Any = None) -> None:
        """Builds the owner, if nobody has."""
        del input_shape
        if not self.items.built:
            self.items.build()
        self.built = True

    def look_up(self, lookups: Sequence[Lookup], training: bool | None = None) -> list[tf.Tensor]:
        """Vectors of all lookups by one native call.

        Args:
            lookups: F of them.
            training: whether the step trains.

        Returns:
            F tensors float32, `[B, D]`, or `[N, D]` for combiner None. What the table's regularizer
            makes of the rows is added to this layer's losses.
        """
        return self._look_up(lookups, training, None)

    def look_up_rows(self, rows: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        """The vectors `[N, D]` float32 of rows `[N]` int64, as `rows_of` gives them; -1: zeros."""
        bags = Bags(rows, hotness=1, name=self.label)
        as_they_are = self.items.table_set.of_rows(self.table_config.name)
        return self._look_up([Lookup(bags, None)], training, as_they_are)[0]

    def look_up_singles(
        self, bags: Bags, training: bool | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The row of each of N ids, `[N]` int64 (-1: no vector), and its vector `[N, D]` float32.

        Args:
            bags: N bags of an id.
            training: whether the step trains.
        """
        rows = self.rows_of(bags, training)
        return rows, self.look_up_rows(rows, training)

    def _look_up(
        self, lookups: Sequence[Lookup], training: bool | None, ids: PureIdMap | None
    ) -> list[tf.Tensor]:
        vectors, losses = self.items.table_set.look_up(
            [self.feature(one.combiner) for one in lookups],
            [one.bags for one in lookups],
            self.items.learns(training),
            ids,
        )
        for loss in losses:
            self.add_loss(loss)
        return vectors

    def rows_of(self, bags: Bags, training: bool | None = None) -> tf.Tensor:
        """The row of each id, `[N]` int64: -1 for one without a vector.

        Args:
            bags: the ids.
            training: whether the step trains.
        """
        learns = self.items.learns(training)
        return self.items.table_set.rows_of([self.feature()], [bags], learns)[0]

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments; the owner as Keras writes layers."""
        items = keras.layers.serialize(self.items)
        # By its id Keras finds the one object again that several configs of a file describe. Keras
        # adds it where it meets an object again, which is too late for copies of this config.
        items.setdefault("shared_object_id", id(self.items))
        return {**super().get_config(), "items": items, "table": self.table_name}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> SharingLayer:
        """The layer that `get_config` describes."""
        plain = config["items"]
        items = keras.layers.deserialize(plain)
        # While Keras loads a model, one id is one object.
        if keras.layers.deserialize(plain) is not items:
            warnings.warn(
                f"{cls.__name__} {config.get('name')!r} is made from its config alone: its table, "
                f"of layer {items.name!r}, is a new one that no other layer shares. To copy a "
                "model whose layers share tables use copy.deepcopy, or save and load it.",
                stacklevel=2,
            )
        return cls(**{**config, "items": items, **cls._parts_from(config)})

    @classmethod
    def _parts_from(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments of the constructor that aren't plain in a config."""
        return {}
