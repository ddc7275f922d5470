"""`EmbeddingTable`."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Mapping
from typing import Any

import merlin.models.tf as mm
import tensorflow as tf
from merlin.models.tf.utils import tf_utils
from merlin.models.utils import schema_utils
from tensorflow import keras

from merlin_embeddings import layers
from merlin_embeddings.config import COMBINERS, is_row_count
from merlin_embeddings.merlin import columns
from merlin_embeddings.merlin.lookup import Batch, batch_of, look_up
from merlin_embeddings.merlin.table import Table


@keras.utils.register_keras_serializable(package="merlin_embeddings")
class EmbeddingTable(mm.EmbeddingTable):
    """merlin-models' `EmbeddingTable` with a table of this package.

    It takes what that one takes: for `mm.Embeddings(schema, table_cls=EmbeddingTable)`, in
    `CategoricalOutput` and `ContrastiveOutput`, and alone. Its `table` is a
    `merlin_embeddings.layers.Embedding`.

    What differs from merlin-models' own:

    - All four combiners serve every kind of ids; ragged and sparse ids may be `[B, None]` too.
    - Ids outside of the table are errors that name table and feature, or what `ids` make of them;
      negative ids are no padding. `padding_id` is: it has no vector.
    - `embeddings_regularizer` acts on the distinct rows that a batch looks up, not on the table.
    - `activity_regularizer` acts on the vectors before they are combined, of ragged and sparse ids
      too.
    - `get_config` has `l2_batch_regularization_factor`.

    Args:
        dim: D, the length of a vector.
        *col_schemas: the columns that share the table; the first one's domain says its rows.
        embeddings_initializer: see `layers.Embedding`.
        embeddings_regularizer: see `layers.Embedding`.
        activity_regularizer: a Keras regularizer of the vectors looked up, by the batch's size.
        embeddings_constraint: see `layers.Embedding`.
        mask_zero: without combiner the output has a mask: where ids aren't 0.
        input_length: of no use; the ids tell.
        sequence_combiner: "sum", "mean", "sqrtn" or "max" over the lists, a Keras layer that gets
            the vectors `[B, L, D]` or ragged `[B, None, D]`, or None.
        trainable: False freezes the table.
        name: of the layer.
        dtype: the dtype policy; vectors come out in its compute dtype.
        dynamic: see `keras.layers.Layer`.
        table: a `layers.Embedding` to share; what belongs to the table comes from it then.
        l2_batch_regularization_factor: adds so many times the sum of the squares of what comes out
            to the losses.
        weights: initial values, `[rows, D]`, also in a list as Keras takes them.
        ids: which row an id has, a spec of `merlin_embeddings.ids`; None: row = id. Columns without
            an int domain need one that takes any number.
        compression: how a vector is made of rows, a spec such as `tables.Bloom(rows)`, which
            takes columns without an int domain too; None: a row is a vector.
        placement: where the rows live: "auto" or "host".
        table_dtype: of the rows at rest: "float32", "bfloat16" or "float16"; None: as the dtype
            policy has variables.
        padding_id: this id has no vector: zeros, nothing in a combiner.
        seed: of the initializer; tables of other names have other values.
        **kwargs: of `keras.layers.Layer`.

    Raises:
        ValueError: columns or arguments that no table can have; messages name table and column.

    Call arguments:
        inputs: integers, or strings where `ids` take any number: `[B]`, `[B, 1]`, `[B, L]`,
            `[B, L, 1]`; ragged `[B, None]`, `[B, None, 1]`; sparse `[B, L]`, `[B, L, 1]` (these
            need a combiner); or a dict of them by column name. Other names in it are left alone.
        scores: an integer in `[0, 2**32)` for each id, of the kind and shape of `inputs` (a dict by
            column name for a dict), for `ids` whose policy is `Custom`. merlin-models' blocks hand
            tables ids alone: call the table by itself.
    """

    def __init__(
        self,
        dim: int,
        *col_schemas: Any,
        embeddings_initializer: Any = "uniform",
        embeddings_regularizer: Any = None,
        activity_regularizer: Any = None,
        embeddings_constraint: Any = None,
        mask_zero: bool = False,
        input_length: int | None = None,
        sequence_combiner: Any = None,
        trainable: bool = True,
        name: str | None = None,
        dtype: Any = None,
        dynamic: bool = False,
        table: layers.Embedding | None = None,
        l2_batch_regularization_factor: float = 0.0,
        weights: Any = None,
        ids: Any = None,
        compression: Any = None,
        placement: Any = "auto",
        table_dtype: str | None = None,
        padding_id: int | str | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ):
        _check(dim, col_schemas, sequence_combiner)
        if table is None:
            if embeddings_initializer is None:
                embeddings_initializer = "glorot_uniform"  # as Keras has it
            if weights is not None:
                columns.check_values(weights, dim, col_schemas[0], ids, compression)
            table = Table(
                columns.vocabulary_size(col_schemas[0], ids or compression),
                dim,
                embeddings_initializer,
                embeddings_regularizer=embeddings_regularizer,
                embeddings_constraint=embeddings_constraint,
                mask_zero=mask_zero,
                weights=weights,
                ids=ids,
                compression=compression,
                placement=placement,
                table_dtype=table_dtype,
                padding_id=padding_id,
                seed=seed,
                table_name=columns.table_name(col_schemas[0]),
                activity_regularizer=activity_regularizer,
                trainable=trainable,
                name=columns.table_name(col_schemas[0]),
                dtype=dtype,
            )
        else:
            _check_table(table, dim, col_schemas[0])
        super().__init__(
            dim,
            *col_schemas,
            sequence_combiner=sequence_combiner,
            trainable=trainable,
            name=name,
            dtype=dtype,
            dynamic=dynamic,
            table=table,
            l2_batch_regularization_factor=l2_batch_regularization_factor,
            autocast=False,  # ids are no floats
            **kwargs,
        )
        self._has_columns = False

    @property
    def input_dim(self) -> int:
        """Ids are in `[0, input_dim)`; how many rows there are where ids may be any number."""
        if self.table.input_dim is None:
            return self.table.table_set.ids[self.table.table_name].rows
        return self.table.input_dim

    @property
    def table_name(self) -> str:
        """The name of the columns' domain, or of the first column."""
        return columns.table_name(self.col_schema)

    def add_feature(self, col_schema: Any) -> None:
        """Lets one more column share the table.

        Raises:
            ValueError: the column has another domain, or none.
        """
        columns.check_shares(self.table_name, self.col_schema, col_schema)
        self.features[col_schema.name] = col_schema

    def build(self, input_shapes: Any) -> None:
        """Makes the table.

        Warns where an output is tied to a table whose rows aren't the ids, and where ids without a
        name leave columns of a shared table out.

        Raises:
            ValueError: an output is tied to a table whose rows aren't vectors.
        """
        if isinstance(input_shapes, Mapping):
            self._has_columns |= any(name in input_shapes for name in self.features)
        elif self.built and tuple(input_shapes)[-1:] == (self.dim,):
            # Keras builds once: it is merlin-models' EmbeddingTablePrediction that builds again.
            self._check_classes()
        elif input_shapes is not None and not self.built and len(self.features) > 1:
            first, *others = self.features
            warnings.warn(
                f"Table {self.table_name!r} is called with ids that have no column's name: they "
                f"are column {first!r}, and {others} have no vectors. merlin-models' "
                "ParallelBlock, and so mm.Embeddings, calls a table alone in this way; "
                "mem.Embeddings gives it all of its columns.",
                stacklevel=2,
            )
        super().build(input_shapes)

    def call(self, inputs: Any, scores: Any = None, **kwargs: Any) -> Any:
        """Vectors of ids, or a dict of them, in the compute dtype.

        `[B, D]` with a combiner, and of `[B]` and `[B, 1]` ids; else `[B, L, D]` or ragged
        `[B, None, D]`.

        Raises:
            ValueError: a dict without any of the columns, where the table was built with some: a
                model would be another one (where it was built without, merlin-models prunes it).
                Scores that the table has no use for, or none where it goes by them.
        """
        batches = self.batches(inputs, scores)
        if not batches:
            self._check_missing(kwargs.get("features") or inputs)
        combiner = self.sequence_combiner if isinstance(self.sequence_combiner, str) else None
        training = kwargs.get("training")
        training = not tf.is_tensor(training) and bool(training)
        vectors = look_up(self.table, batches, combiner, training)
        outputs = {
            name: self._finished(found, batches[name], kwargs) for name, found in vectors.items()
        }
        return outputs if isinstance(inputs, Mapping) else outputs[self.col_schema.name]

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        """Where ids aren't 0, with `mask_zero` and without combiner; else the inputs' mask."""
        batches = self.batches(inputs)
        if self.table.mask_zero and self.sequence_combiner is None:
            masks = {name: self.table.compute_mask(batch.ids) for name, batch in batches.items()}
            return masks if isinstance(inputs, Mapping) else masks[self.col_schema.name]
        if isinstance(mask, Mapping):
            return {name: mask.get(name) for name in batches}
        return mask

    def select_by_tag(self, tags: Any) -> EmbeddingTable | None:
        """The same table for the columns that have one of these tags; None if there is none."""
        selected = self.schema.select_by_tag(tags if isinstance(tags, (list, tuple)) else [tags])
        if not selected:
            return None
        config = self.get_config()
        config.pop("combiner-layer", None)
        config["sequence_combiner"] = self.sequence_combiner
        config["schema"] = schema_utils.schema_to_tensorflow_metadata_json(selected)
        return type(self).from_config(config, table=self.table)

    @classmethod
    def from_pretrained(
        cls,
        data: Any,
        trainable: bool = True,
        name: str | None = None,
        col_schema: Any = None,
        **kwargs: Any,
    ) -> EmbeddingTable:
        """A table that starts with given vectors.

        Args:
            data: a DataFrame of R rows and D columns, or a `merlin.io.Dataset` of one.
            trainable: False freezes them.
            name: of the layer, and of the column where there is no `col_schema`.
            col_schema: the column; its domain has R ids.
            **kwargs: of the constructor.

        Raises:
            ValueError: neither name nor column, no vectors, or another number than the column or
                `ids` have.
        """
        if hasattr(data, "to_ddf"):
            data = data.to_ddf().compute()
        vectors = tf_utils.df_to_tensor(data, tf.float32)
        if vectors is None:
            raise ValueError(f"Table {name!r}: the data to start from has no rows.")
        if col_schema is None:
            if not name:
                raise ValueError("from_pretrained needs the name of the column, or its col_schema.")
            col_schema = schema_utils.create_categorical_column(name, vectors.shape[0] - 1)
        return cls(
            vectors.shape[1], col_schema, name=name, weights=vectors, trainable=trainable, **kwargs
        )

    def to_df(self, gpu: bool | None = None) -> Any:
        """The rows as a DataFrame of float32, a column for each of the D numbers."""
        return tf_utils.tensor_to_df(tf.cast(self.table.embeddings, tf.float32), gpu=gpu)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments as plain data; what belongs to the table is its config's."""
        config = super().get_config()
        config["l2_batch_regularization_factor"] = self.l2_batch_regularization_factor
        return config

    @classmethod
    def from_config(cls, config: Mapping[str, Any], table: Any = None) -> EmbeddingTable:
        """The layer that `get_config` describes, with a table of its own or a given one."""
        arguments = dict(config)
        its_table, combiner = arguments.pop("table"), arguments.pop("combiner-layer", None)
        if table is None:
            # A copy: what deserializes may change it.
            table = keras.layers.deserialize(copy.deepcopy(its_table))
        if combiner is not None:
            combiner = keras.layers.deserialize(copy.deepcopy(combiner))
            arguments["sequence_combiner"] = combiner
        schema = schema_utils.tensorflow_metadata_json_to_schema(arguments.pop("schema"))
        return cls(arguments.pop("dim"), *schema, table=table, **arguments)

    @property
    def is_plain(self) -> bool:
        """Whether a call is a lookup and nothing else: no losses, masks or layers that combine.

        Nor frozen: by itself a frozen table costs no gradient. Nor one whose rows move.
        """
        return (
            self.built
            and self.trainable
            and self.table.trainable
            and self.table.built
            and not self.table.mask_zero
            and not self.l2_batch_regularization_factor
            and self.table.activity_regularizer is None
            and not self.table.table_set.regularizes
            and not self.table.table_set.moves(self.table.table_name)
            and self.table.table_set.exist
            and not isinstance(self.sequence_combiner, keras.layers.Layer)
        )

    @tf.autograph.experimental.do_not_convert  # plain Python: no tensor decides what is done
    def batches(self, inputs: Any, scores: Any = None) -> dict[str, Batch]:
        """The ids of each feature that there are, in the order of the features."""
        first = self.col_schema.name
        named = inputs if isinstance(inputs, Mapping) else {first: inputs}
        scored = scores if isinstance(scores, Mapping) else {first: scores}
        batches = {}
        for name, column in self.features.items():
            if name in named:
                open_ids = (self.table.ids or self.table.compression) is not None
                label = columns.describe(self.table_name, column, open_ids)
                batches[name] = batch_of(named[name], scored.get(name), label)
        return batches

    @tf.autograph.experimental.do_not_convert
    def _check_missing(self, features: Mapping[str, Any]) -> None:
        if self._has_columns:
            raise ValueError(
                f"Table {self.table_name!r}: the batch has none of its columns "
                f"{list(self.features)}, with which the model was built; it has {list(features)}. "
                "Let the loader give them."
            )

    def _check_classes(self) -> None:
        if self.table.compression is not None:
            raise ValueError(
                f"Table {self.table_name!r} of column {self.col_schema.name!r}: an output tied to "
                "the table has a logit for each row, but with compression="
                f"{self.table.compression} its rows are no vectors. Leave compression= out for "
                "this column, or don't tie the output to it: "
                f"CategoricalOutput(schema[{self.col_schema.name!r}])."
            )
        if self.table.table_set.moves(self.table.table_name):
            raise ValueError(
                f"Table {self.table_name!r} of column {self.col_schema.name!r}: an output tied to "
                f"the table has a logit for each row, but with ids={self.table.ids} rows move from "
                "id to id. Leave ids= out for this column, or don't tie the output to it: "
                f"CategoricalOutput(schema[{self.col_schema.name!r}])."
            )
        rows = self.table.embeddings.shape[0]
        if self.table.ids is not None and (self.table.input_dim or math.inf) > rows:
            warnings.warn(
                f"Table {self.table_name!r} of column {self.col_schema.name!r}: "
                f"ids={self.table.ids} gives {self.table.input_dim or 'any number of'} ids "
                f"{rows} rows, and an output tied to the table has a logit for each row. Targets "
                f"from {rows} on have none: a CategoricalOutput never learns them, and no output "
                "finds them in evaluation. Leave ids= out for this column, or don't tie the output "
                f"to it: CategoricalOutput(schema[{self.col_schema.name!r}]).",
                stacklevel=2,
            )

    def _finished(self, vectors: Any, batch: Batch, kwargs: Mapping[str, Any]) -> Any:
        """Vectors combined by a layer, in the compute dtype; adds the batch's L2 loss."""
        if isinstance(self.sequence_combiner, keras.layers.Layer) and vectors.shape.rank > 2:
            if self.table.mask_zero:
                kwargs = {**kwargs, "mask": self.table.compute_mask(batch.ids)}
            vectors = tf_utils.call_layer(self.sequence_combiner, vectors, **kwargs)
        if self.l2_batch_regularization_factor > 0:
            squares = tf.square(getattr(vectors, "flat_values", vectors))
            self.add_loss(self.l2_batch_regularization_factor * tf.reduce_sum(squares))
        return tf.cast(vectors, self.compute_dtype)


def _check(dim: Any, col_schemas: Any, combiner: Any) -> None:
    if not col_schemas:
        raise ValueError("EmbeddingTable needs the schema of at least one column.")
    table = columns.table_name(col_schemas[0])
    if not is_row_count(dim):
        raise ValueError(f"Table {table!r}: dim={dim!r}; it must be a positive integer.")
    if not isinstance(combiner, keras.layers.Layer) and combiner not in COMBINERS:
        raise ValueError(
            f"Table {table!r}: sequence_combiner={combiner!r}; it must be 'sum', 'mean', 'sqrtn', "
            "'max', a Keras layer or None."
        )


def _check_table(table: Any, dim: int, column: Any) -> None:
    name = columns.table_name(column)
    if not isinstance(table, layers.Embedding) or table.combiner is not None:
        raise ValueError(
            f"Table {name!r}: table={table!r}; it must be a merlin_embeddings.layers.Embedding "
            "without combiner, such as another EmbeddingTable's `table`."
        )
    size = columns.vocabulary_size(column, table.ids or table.compression)
    if (table.input_dim, table.output_dim) != (size, dim):
        raise ValueError(
            f"Table {name!r}: column {column.name!r} and dim ask for [{size}, {dim}], the table "
            f"given is [{table.input_dim}, {table.output_dim}]."
        )
