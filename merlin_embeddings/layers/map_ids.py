"""`MapIds`: an id map alone, as a preprocessing layer."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from tensorflow import keras

from merlin_embeddings import compat, config
from merlin_embeddings.bags import Bags
from merlin_embeddings.ids import KnownIdsMap, PureIdMap
from merlin_embeddings.layers import flatten
from merlin_embeddings.layers.id_layer import IdLayer
from merlin_embeddings.routing import check_kind


@keras.utils.register_keras_serializable(package="merlin_embeddings")
class MapIds(IdLayer):
    """Turns ids into the rows that a map gives them, where the data is: in `tf.data` or a model.

    A table with `ids=spec` does the same to its ids. This layer is for rows that something else
    takes: several layers, `keras.layers.Embedding`, a one-hot encoding, a file.

    Args:
        ids: a spec of `merlin_embeddings.ids` whose rows depend on the id alone, such as
            `ids.Hash(rows)`.
        vocabulary_size: for specs that need one (`ids.Identity`).
        **kwargs: of `keras.layers.Layer`.

    Raises:
        TypeError: `ids` is no such spec.
        ValueError: the spec can't serve this `vocabulary_size`.

    Call arguments:
        inputs: integers or strings of any shape; dense, ragged or sparse.

    Returns:
        int64 rows of the same kind and shape, each in `[0, rows)`; -1 for an id that has none: an
        `Embedding` takes it as `padding_id=-1`.

    >>> import merlin_embeddings as me
    >>> import tensorflow as tf
    >>> rows = me.layers.MapIds(me.ids.Hash(1000))
    >>> rows(tf.constant([[12, -5], [2**62, 12]])).numpy().tolist()
    [[658, 880], [533, 658]]
    >>> data = tf.data.Dataset.from_tensor_slices(["Rome", "Oslo"]).batch(2).map(rows)
    >>> [batch.tolist() for batch in data.as_numpy_iterator()]
    [[410, 209]]
    """

    def __init__(self, ids: Any, vocabulary_size: int | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        is_spec = hasattr(ids, "rows_of") and not isinstance(ids, type)
        found = ids.build(vocabulary_size) if is_spec else None
        if not isinstance(found, PureIdMap):
            raise TypeError(
                f"MapIds {self.name!r}: ids={ids!r}; it must be a spec of merlin_embeddings.ids "
                "whose rows depend on the id alone, such as ids.Hash(rows); others belong to a "
                "table."
            )
        self.ids = ids
        self.vocabulary_size = vocabulary_size
        self._map = found
        self.build()  # now: inside of tf.data no weight can be made

    @property
    def rows(self) -> int:
        """How many rows the ids have."""
        return self._map.rows

    def build(self, input_shape: Any = None) -> None:
        """Makes what ids are looked up in, if the map has something."""
        del input_shape
        if not self._map.weights:
            self._map.make(functools.partial(compat.add_weight, self), self.name)
            for part, variable in self._map.weights.items():
                setattr(self, f"ids:{part}", variable)  # as TableLayer does with tables
        self.built = True

    def save_own_variables(self, store: Any) -> None:
        """Writes the ids that are known beforehand to a file."""
        if isinstance(self._map, KnownIdsMap):
            store["ids"] = self._map.saved()

    def load_own_variables(self, store: Any) -> None:
        """Reads the ids that are known beforehand from a file.

        Raises:
            ValueError: they are others than those that the layer was made for.
        """
        if isinstance(self._map, KnownIdsMap):
            self._map.check_saved(store["ids"], f"MapIds {self.name!r}")
            self._map.load(store["ids"])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # Keras would take the elements of a list for tensors of their own.
        lists = [tf.convert_to_tensor(a) if isinstance(a, (list, tuple)) else a for a in args]
        return super().__call__(*lists, **kwargs)

    @tf.autograph.experimental.do_not_convert  # plain Python: no tensor decides what is done
    def call(self, inputs: Any, training: bool | None = None) -> Any:
        """Rows of the kind and shape of the inputs."""
        del training  # Keras 2 gives it to every layer
        self._check(inputs)
        if isinstance(inputs, tf.RaggedTensor):
            return inputs.with_flat_values(self._rows_of(inputs.flat_values))
        if isinstance(inputs, tf.SparseTensor):
            return tf.SparseTensor(inputs.indices, self._rows_of(inputs.values), inputs.dense_shape)
        return self._rows_of(tf.convert_to_tensor(inputs))

    def compute_output_shape(self, input_shape: Any) -> Any:
        """The shape of the inputs."""
        return input_shape

    def compute_output_spec(self, inputs: Any, training: bool | None = None) -> keras.KerasTensor:
        """Shape and dtype of the output for symbolic inputs."""
        del training
        self._check(inputs)
        kinds = {kind: getattr(inputs, kind, False) for kind in ("sparse", "ragged")}
        return keras.KerasTensor(inputs.shape, dtype="int64", **kinds)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments as plain data."""
        own = {"ids": config.to_plain(self.ids), "vocabulary_size": self.vocabulary_size}
        return {**super().get_config(), **own}

    @classmethod
    def from_config(cls, config_: Mapping[str, Any]) -> MapIds:
        """The layer that `get_config` describes."""
        return super().from_config({**config_, "ids": config.from_plain(config_["ids"])})

    def _check(self, inputs: Any) -> None:
        if isinstance(inputs, (Bags, Mapping)):
            raise TypeError(
                f"MapIds {self.name!r}: got {type(inputs).__name__}; it takes one tensor of ids, "
                "dense, ragged or sparse. Map the values: layer(bags['values'])."
            )
        if flatten.are_strings(inputs):
            check_kind(self._map, True, f"MapIds {self.name!r}")

    def _rows_of(self, ids: tf.Tensor) -> tf.Tensor:
        name = f"MapIds {self.name!r}"
        bags = Bags(tf.reshape(ids, [-1]), hotness=1, name=name)
        check_kind(self._map, bags.strings, name)
        rows, _ = self._map.assign(bags.values, name=name)
        return tf.reshape(rows, tf.shape(ids))
