"""`Embedding`: one table, one feature, the interface of `keras.layers.Embedding`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras

from merlin_embeddings import config, initializers
from merlin_embeddings.bags import check_pool
from merlin_embeddings.config import FeatureConfig, TableConfig
from merlin_embeddings.layers import flatten, symbolic
from merlin_embeddings.layers.base import TableLayer, check_kwargs
from merlin_embeddings.layers.table_set import TableSet, label
from merlin_embeddings.tables import DenseTable

_KERAS_ONLY = {
    "lora_rank": "keras.layers.Embedding has LoRA",
    "lora_alpha": "keras.layers.Embedding has LoRA",
    "quantization_config": "keras.layers.Embedding has quantize()",
}


@keras.utils.register_keras_serializable(package="merlin_embeddings")
class Embedding(TableLayer):
    """Turns ids into vectors, and bags of ids into one vector each.

    Without `combiner` it is `keras.layers.Embedding` (LoRA and `quantize()` aside): ids of any
    shape `[...]` give vectors `[..., D]`. With `combiner` the last axis of the ids is a bag:
    `[..., L]` gives `[..., D]`, `[B]` gives `[B, D]` (bags of one id), ragged `[B, None]` and
    sparse `[B, L]` give `[B, D]`. An empty bag is zeros.

    An id out of range is an error, a negative one too: `keras.layers.Embedding` takes a negative id
    from the end of the table. `ids=ids.Identity("zero")` or `ids.Identity("clip")` allow them.

    Args:
        input_dim: ids are in `[0, input_dim)`; None with `ids` that have rows of their own.
        output_dim: D, the length of a vector.
        embeddings_initializer: a name, a spec of `merlin_embeddings.initializers`, a Keras
            initializer or an array, whose values aren't part of the layer's config: they come
            back with the weights.
        embeddings_regularizer: a Keras regularizer; acts on the distinct rows looked up.
        embeddings_constraint: a Keras constraint; acts on the rows looked up where an optimizer of
            this package trains them.
        mask_zero: id 0 is padding: without combiner the output has a mask, with combiner id 0 has
            no vector. Strings have no id 0.
        weights: initial values, `[rows, output_dim]`; rows are `input_dim` unless `ids` say else.
        combiner: "sum", "mean", "sqrtn", "max" or None.
        ids: which row an id has, a spec of `merlin_embeddings.ids`; None: row = id.
        compression: how a vector is made of rows, a spec such as `tables.Bloom(rows)`; None: a row
            is a vector.
        placement: where the rows live: "auto" or "host".
        table_dtype: of the rows at rest: "float32", "bfloat16" or "float16"; None: as the layer's
            dtype policy has variables.
        padding_id: this id has no vector: zeros without combiner, nothing in a pool.
        seed: of the initializer.
        table_name: what messages call the table, and its weight's name. The initial values are a
            function of it too: layers with one seed and names of their own have other values.
        **kwargs: of `keras.layers.Layer`.

    Raises:
        ValueError: arguments no table can have.

    Call arguments:
        inputs: integers (floats are cast as Keras does) or strings, dense, ragged or sparse; or
            `merlin_embeddings.Bags`.
        weights: a number for each id, of the same kind and shape; mean divides by their sum, sqrtn
            by the root of the sum of their squares. Not for max or without combiner.
        scores: an integer in `[0, 2**32)` for each id, of the same kind and shape, for `ids` whose
            policy is `Custom`: the ids with the highest keep their rows.

    >>> import tensorflow as tf
    >>> table = [[1.0, 2.0], [10.0, 20.0], [100.0, 200.0]]
    >>> mean = Embedding(3, 2, weights=table, combiner="mean")
    >>> mean(tf.ragged.constant([[0, 1], [], [2]])).numpy().tolist()
    [[5.5, 11.0], [0.0, 0.0], [100.0, 200.0]]
    >>> mean(tf.constant([[0, 1]]), weights=tf.constant([[3.0, 1.0]])).numpy().tolist()
    [[3.25, 6.5]]
    """

    def __init__(
        self,
        input_dim: int | None,
        output_dim: int,
        embeddings_initializer: Any = "uniform",
        embeddings_regularizer: Any = None,
        embeddings_constraint: Any = None,
        mask_zero: bool = False,
        weights: Any = None,
        combiner: str | None = None,
        ids: Any = None,
        compression: Any = None,
        placement: Any = "auto",
        table_dtype: str | None = None,
        padding_id: int | str | None = None,
        seed: int | None = None,
        table_name: str = "embeddings",
        **kwargs: Any,
    ):
        if kwargs.pop("input_length", None) is not None:
            warnings.warn("Argument `input_length` is deprecated. Just remove it.", stacklevel=2)
        super().__init__(**check_kwargs("Embedding", kwargs, _KERAS_ONLY))
        _check_sizes(self.name, input_dim, output_dim)
        self.input_dim = input_dim
        self.output_dim = output_dim
        self.embeddings_initializer = initializers.as_spec(embeddings_initializer)
        self.embeddings_regularizer = keras.regularizers.get(embeddings_regularizer)
        self.embeddings_constraint = keras.constraints.get(embeddings_constraint)
        self.mask_zero = mask_zero
        self.supports_masking = mask_zero
        self.combiner = combiner
        self.ids = ids
        self.compression = compression
        self.placement = placement
        self.table_dtype = table_dtype
        self.padding_id = padding_id
        self.seed = seed
        self.table_name = table_name
        if padding_id is None and mask_zero and combiner is not None:
            padding_id = 0
        table = TableConfig(
            table_name,
            input_dim,
            output_dim,
            ids=ids,
            compression=compression,
            placement=placement,
            dtype=self._rows_dtype(),
            initializer=self.embeddings_initializer if weights is None else _array(weights),
            regularizer=self.embeddings_regularizer,
            constraint=self.embeddings_constraint,
            seed=seed,
        )
        self._feature = FeatureConfig(self.name, table, combiner, padding_id)
        self._table_set = TableSet([self._feature])
        if weights is not None:
            self.build()

    @property
    def table_set(self) -> TableSet:
        """The layer's one table."""
        return self._table_set

    @property
    def table(self) -> DenseTable:
        """The table, once the layer is built."""
        if not self.built:
            raise AttributeError(f"Build layer {self.name!r} before asking for its table.")
        return self._table_set.tables[self.table_name]

    @property
    def embeddings(self) -> Any:
        """The weight `[rows, D]`, once the layer is built."""
        return self.table.variable

    @tf.autograph.experimental.do_not_convert  # plain Python: no tensor decides what is done
    def call(
        self, inputs: Any, weights: Any = None, training: bool | None = None, scores: Any = None
    ) -> Any:
        """Vectors of ids or of bags, in the layer's compute dtype."""
        name = label(self._feature)
        inputs = flatten.as_integers(inputs)
        self.check_mask(inputs)
        padding_id = self._feature.padding_id
        if self.combiner is not None:
            flat = flatten.pooled(inputs, weights, padding_id, name, scores)
        else:
            check_pool(None, weights, name)
            flat = flatten.single(inputs, padding_id, name, scores)
        [vectors] = self.look_up([self._feature], [flat.bags], training)
        return flat.restore(tf.cast(vectors, self.compute_dtype))

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        """Where ids aren't 0, with `mask_zero` and without combiner; else None."""
        del mask
        if not self.mask_zero or self.combiner is not None or isinstance(inputs, Mapping):
            return None
        if isinstance(inputs, tf.SparseTensor):
            inputs = tf.sparse.to_dense(inputs)
        if inputs.dtype == "bool":
            return inputs
        return inputs != 0  # elementwise for tensors of TensorFlow and of Keras, ragged ones too

    def compute_output_shape(self, input_shape: Any) -> Any:
        """`[..., D]` for `[...]`, or for `[..., L]` with a combiner."""
        outer = tuple(input_shape)
        if self.combiner is not None and len(outer) > 1:
            outer = outer[:-1]
        return (*outer, self.output_dim)

    def compute_output_spec(
        self, inputs: Any, weights: Any = None, training: bool | None = None, scores: Any = None
    ) -> Any:
        """Shape and dtype of the output for symbolic inputs."""
        del training
        ids = self.table_set.ids[self.table_name]
        symbolic.check(self._feature, ids, inputs, weights, scores)
        self.check_mask(inputs)
        return symbolic.output_spec(inputs, self.combiner, self.output_dim, self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, but for initial `weights`, as plain data."""
        return {
            **super().get_config(),
            "input_dim": self.input_dim,
            "output_dim": self.output_dim,
            "embeddings_initializer": config.to_plain(self.embeddings_initializer),
            "embeddings_regularizer": keras.regularizers.serialize(self.embeddings_regularizer),
            "activity_regularizer": keras.regularizers.serialize(self.activity_regularizer),
            "embeddings_constraint": keras.constraints.serialize(self.embeddings_constraint),
            "mask_zero": self.mask_zero,
            "combiner": self.combiner,
            "ids": config.to_plain(self.ids),
            "compression": config.to_plain(self.compression),
            "placement": config.to_plain(self.placement),
            "table_dtype": self.table_dtype,
            "padding_id": self.padding_id,
            "seed": self.seed,
            "table_name": self.table_name,
        }

    @classmethod
    def from_config(cls, config_: Mapping[str, Any]) -> Embedding:
        """The layer that `get_config`, ours or that of `keras.layers.Embedding`, describes."""
        specs = ("embeddings_initializer", "ids", "compression", "placement")
        return super().from_config(
            {k: config.from_plain(v) if k in specs else v for k, v in config_.items()}
        )

    def check_mask(self, inputs: Any) -> None:
        """Raises ValueError for strings where id 0 is to be masked."""
        if self.mask_zero and flatten.are_strings(inputs):
            raise ValueError(
                f"{label(self._feature)}: mask_zero=True masks id 0, but the ids are strings. Give "
                "the string that pads, such as padding_id='', or map the strings to integers first."
            )

    def weight_key(self, table: DenseTable) -> str:
        """As in weights files of `keras.layers.Embedding`."""
        del table
        return "0"

    def _rows_dtype(self) -> str:
        if self.table_dtype is None and self.variable_dtype not in config.DTYPES:
            raise ValueError(
                f"Embedding {self.name!r}: no table has rows of dtype {self.variable_dtype!r}, "
                "which the layer's dtype policy asks for; give table_dtype='float32'."
            )
        return self.table_dtype or self.variable_dtype


def _check_sizes(layer: str, input_dim: Any, output_dim: Any) -> None:
    if input_dim is not None and not config.is_row_count(input_dim):
        raise ValueError(
            f"Embedding {layer!r}: input_dim={input_dim!r}; it must be a positive integer, or None "
            "with ids= that have rows of their own, such as ids.Modulo(rows)."
        )
    if not config.is_row_count(output_dim):
        raise ValueError(
            f"Embedding {layer!r}: output_dim={output_dim!r}; it must be a positive integer."
        )


def _array(weights: Any) -> np.ndarray:
    if isinstance(weights, (list, tuple)) and len(weights) == 1 and np.ndim(weights[0]) == 2:
        weights = weights[0]  # as Keras's set_weights takes it
    return np.asarray(weights, np.float32)
