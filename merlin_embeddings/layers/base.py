"""What all layers that own tables do."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from merlin_embeddings import compat
from merlin_embeddings.bags import Bags
from merlin_embeddings.checkpoint.references import Reference, reference_to
from merlin_embeddings.config import FeatureConfig
from merlin_embeddings.ids import KnownIdsMap
from merlin_embeddings.layers.id_layer import IdLayer
from merlin_embeddings.layers.table_set import TableSet
from merlin_embeddings.tables import DenseTable, MovingTable, overwrite, say_size

# What stands in a file in place of a table that is in a checkpoint.
_CHECKPOINT = "checkpoint"


class TableLayer(IdLayer):
    """A Keras layer whose weights are the tables of a `TableSet`.

    Loading writes into the tables' own memory.

    Args:
        **kwargs: of `keras.layers.Layer`.
    """

    @property
    def table_set(self) -> TableSet:
        """The layer's tables."""
        raise NotImplementedError

    def build(self, input_shape: Any = None) -> None:
        """Makes the tables; the shape of the inputs doesn't matter."""
        if not self.table_set.tables:
            self.table_set.build(functools.partial(compat.add_weight, self))
            for name, table in self.table_set.tables.items():
                # TensorFlow's checkpoints find the variables that are attributes of the layer. With
                # a colon no table's name makes this the name of anything that code can write.
                setattr(self, f"table:{name}", table.variable)
                if isinstance(table, MovingTable):
                    for variable in table.variables[1:]:
                        own_name = compat.path_of(variable).rpartition("/")[2]
                        setattr(self, f"state:{own_name}", variable)
            for name, ids in self.table_set.known_ids.items():
                for part, variable in ids.weights.items():
                    setattr(self, f"ids:{name}:{part}", variable)
        self.built = True

    def look_up(
        self, features: Sequence[FeatureConfig], bags: Sequence[Bags], training: bool | None
    ) -> list[tf.Tensor]:
        """Vectors of features, float32; regularization losses are added to the layer's."""
        vectors, losses = self.table_set.look_up(features, bags, self.learns(training))
        for loss in losses:
            self.add_loss(loss)
        return vectors

    def learns(self, training: bool | None) -> bool:
        """Whether the tables see a step: not where the layer is frozen."""
        return bool(training) and self.trainable

    def weight_key(self, table: DenseTable) -> str:
        """What a table's weight is called in weights files."""
        return table.name

    @property
    def known_ids(self) -> dict[str, KnownIdsMap]:
        """The maps of ids known beforehand, by what weights files call their ids."""
        return {
            f"{self.weight_key(self.table_set.tables[name])}:ids": ids
            for name, ids in self.table_set.known_ids.items()
        }

    @property
    def dense_weights(self) -> Mapping[str, Any]:
        """The layer's weights that are no tables, by their names."""
        return {}

    def save_own_variables(self, store: Any) -> None:
        """Writes the weights to a file; of tables whose rows move, the rows that are in use.

        Inside of `saving.tables_apart` files say in which checkpoint the other tables are.
        """
        whole = [table.variable for table in self.table_set.tables.values() if _is_whole(table)]
        say_size({compat.path_of(variable): [variable] for variable in whole})
        for table in self.table_set.tables.values():
            key, reference = self.weight_key(table), reference_to(table)
            if isinstance(table, MovingTable):
                for part, values in table.save().items():
                    store[f"{key}:{part}"] = values
            elif reference is not None:
                store[f"{key}:{_CHECKPOINT}"] = reference.to_array()
            else:
                store[key] = table.variable
        for key, ids in self.known_ids.items():
            store[key] = ids.saved()
        for name, variable in self.dense_weights.items():
            store[name] = variable

    def load_own_variables(self, store: Any) -> None:
        """Reads the weights from a file.

        Raises:
            ValueError: a weight is missing, unknown, or has another shape; nothing is written then.
        """
        tables = self.table_set.tables.values()
        parts = {table.name: self._parts_of(table, store) for table in tables}
        of_tables = itertools.chain(*map(dict.values, parts.values()))
        wanted = sorted([*of_tables, *self.known_ids, *self.dense_weights])
        if sorted(store.keys()) != wanted:
            raise ValueError(
                f"Layer {self.name!r} has the weights {wanted}, the file has "
                f"{sorted(store.keys())}."
            )
        apart = {
            table.name: Reference.from_array(store[parts[table.name][_CHECKPOINT]])
            for table in tables
            if _CHECKPOINT in parts[table.name]
        }
        self._check_shapes(store, apart)
        for key, ids in self.known_ids.items():
            ids.check_saved(store[key], f"Layer {self.name!r}")
        for table in tables:
            if isinstance(table, MovingTable):
                table.load({part: store[key] for part, key in parts[table.name].items()})
            elif table.name in apart:
                apart[table.name].read(table.variable, f"table {table.name!r}")
                table.changes.lose()
            else:
                overwrite(table.variable, store[self.weight_key(table)], f"table {table.name!r}")
                table.changes.lose()
        for key, ids in self.known_ids.items():
            ids.load(store[key])
        for name, variable in self.dense_weights.items():
            variable.assign(store[name])

    def _parts_of(self, table: DenseTable, store: Any) -> dict[str, str]:
        """What a table has to have in a file, by the key there.

        Of a table whose rows move, what its id map makes of its state is the map's to check.
        """
        key = self.weight_key(table)
        if not isinstance(table, MovingTable):
            there = f"{key}:{_CHECKPOINT}"
            return {_CHECKPOINT: there} if there in store.keys() else {"": key}  # noqa: SIM118
        own = [
            name.removeprefix(f"{key}:")
            for name in list(store.keys())
            if name.startswith(f"{key}:")
        ]
        return {part: f"{key}:{part}" for part in {*table.PARTS, *own}}

    def _check_shapes(self, store: Any, apart: Mapping[str, Reference]) -> None:
        for name, reference in apart.items():
            reference.check(self.table_set.tables[name].variable, f"table {name!r}")
        wanted = {
            self.weight_key(table): (f"table {table.name!r}", [table.rows, table.dim])
            for table in self.table_set.tables.values()
            # The others have been checked, or check themselves.
            if not isinstance(table, MovingTable) and table.name not in apart
        }
        for name, variable in self.dense_weights.items():
            wanted[name] = (f"weight {name!r}", list(variable.shape))
        other = [
            f"{what} is {shape}, in the file {list(store[key].shape)}"
            for key, (what, shape) in wanted.items()
            if list(store[key].shape) != shape
        ]
        if other:
            raise ValueError(
                f"Layer {self.name!r} has weights of other shapes than the file: "
                f"{'; '.join(other)}."
            )


def _is_whole(table: DenseTable) -> bool:
    """Whether all of a table goes into a file."""
    return not isinstance(table, MovingTable) and reference_to(table) is None


def check_kwargs(layer: str, kwargs: Mapping[str, Any], unsupported: Mapping[str, str]) -> dict:
    """`kwargs` without arguments of Keras's layer that this one hasn't, if they are None.

    Raises:
        ValueError: one of them is given; `unsupported` says what else can be done.
    """
    for key, instead in unsupported.items():
        if kwargs.get(key) is not None:
            raise ValueError(f"{layer} has no {key}={kwargs[key]!r}; {instead}.")
    return {key: value for key, value in kwargs.items() if key not in unsupported}
