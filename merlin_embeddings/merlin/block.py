"""`EmbeddingsBlock`: tables side by side whose vectors are looked up together."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import merlin.models.tf as mm
import tensorflow as tf
from merlin.models.tf.utils import tf_utils
from tensorflow import keras

from merlin_embeddings.merlin.embedding_table import EmbeddingTable
from merlin_embeddings.merlin.lookup import Asked, look_up_together


@keras.utils.register_keras_serializable(package="merlin_embeddings")
class EmbeddingsBlock(mm.ParallelBlock):
    """merlin-models' `ParallelBlock` of tables, which costs one lookup op in place of one a table.

    `Embeddings` makes it. Tables with losses, masks, or a layer that combines are called by
    themselves, as any other layer is.

    A table alone gets all of its columns too (merlin-models gives it the one that has its name, and
    leaves out the others, silently).

    Args:
        *args: as for `mm.ParallelBlock`.
        **kwargs: as for `mm.ParallelBlock`.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._columns: tuple[str, ...] = ()

    @classmethod
    def of(cls, block: mm.ParallelBlock) -> EmbeddingsBlock:
        """A block with the same tables, and all else that the given one has."""
        return cls(
            block.parallel_layers,
            pre=block.pre,
            post=block.post,
            aggregation=block.aggregation,
            schema=block.schema,
            name=block.name,
            strict=block.strict,
            automatic_pruning=block.automatic_pruning,
            is_input=block.is_input,
        )

    def build(self, input_shape: Any) -> None:
        """Makes the tables that have columns in the batch.

        Warns of columns that the batch hasn't.

        Raises:
            ValueError: it has none, or has lists as values and offsets; or ids come without the
                name of a column, where there are several.
        """
        if isinstance(input_shape, Mapping):
            self._check_columns(input_shape)
        elif input_shape is not None and len(self._all_columns()) > 1:
            raise ValueError(
                f"Embeddings: the block takes a dict of ids by column, {self._all_columns()}; it "
                f"got one thing, of shape {input_shape}."
            )
        super().build(input_shape)

    def call(self, inputs: Any, **kwargs: Any) -> dict[str, Any]:
        """Vectors by column, of ids by column.

        Raises:
            ValueError: the batch lacks a column with which the block was built.
        """
        if isinstance(inputs, Mapping):
            self._check_missing(inputs)
        its_inputs = {
            name: self._maybe_filter_layer_inputs_using_schema(name, layer, inputs)
            for name, layer in self.parallel_dict.items()
        }
        found = self._together(its_inputs, kwargs)
        outputs: dict[str, Any] = {}
        for name, layer in self.parallel_dict.items():
            if name in found:
                out = found[name]
            else:
                out = tf_utils.call_layer(layer, its_inputs[name], **kwargs)
            outputs.update(out if isinstance(out, dict) else {name: out})
        return outputs

    def select_by_tag(self, tags: Any) -> mm.ParallelBlock | None:
        """The same tables for the columns that have one of these tags; None if there are none."""
        selected = super().select_by_tag(tags)
        return selected if selected is None or selected is self else self.of(selected)

    def _maybe_filter_layer_inputs_using_schema(self, name: str, layer: Any, inputs: Any) -> Any:
        """A table's columns of a batch, or of its shapes."""
        if isinstance(layer, mm.EmbeddingTable) and isinstance(inputs, Mapping):
            return {column: inputs[column] for column in layer.features if column in inputs}
        return super()._maybe_filter_layer_inputs_using_schema(name, layer, inputs)

    def _all_columns(self) -> list[str]:
        tables = [each for each in self.parallel_values if isinstance(each, mm.EmbeddingTable)]
        return [column for table in tables for column in table.features]

    @tf.autograph.experimental.do_not_convert
    def _check_columns(self, batch: Mapping[str, Any]) -> None:
        columns = self._all_columns()
        missing = [column for column in columns if column not in batch]
        for column in missing:
            if f"{column}__values" in batch or f"{column}__offsets" in batch:
                raise ValueError(
                    f"Embeddings: the batch has the lists of column {column!r} as values and "
                    "offsets. mm.InputBlockV2 makes ragged tensors of them; before a block alone "
                    "mm.PrepareFeatures(schema) does, or pre=mm.PrepareFeatures(schema)."
                )
        self._columns = tuple(column for column in columns if column in batch)
        if missing and not self._columns:
            raise ValueError(
                f"Embeddings: the batch has none of the columns {missing}; it has {list(batch)}. "
                "Let the loader give them, or make the block with the schema that it has."
            )
        if missing:
            warnings.warn(
                f"Embeddings: the batch has no columns {missing}, so that the model is made "
                f"without them; it has {list(batch)}. Leave them out of the block's schema if "
                "that is what you want.",
                stacklevel=2,
            )

    @tf.autograph.experimental.do_not_convert
    def _check_missing(self, batch: Mapping[str, Any]) -> None:
        missing = [column for column in self._columns if column not in batch]
        if missing:
            raise ValueError(
                f"Embeddings: the batch has no columns {missing}, with which the model was built; "
                f"it has {list(batch)}. Let the loader give them."
            )

    @tf.autograph.experimental.do_not_convert  # plain Python: no tensor decides what is done
    def _together(self, its_inputs: Mapping[str, Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs of the tables that can be looked up in one call."""
        asked = {
            name: Asked(layer.table, layer.batches(its_inputs[name]), layer.sequence_combiner)
            for name, layer in self.parallel_dict.items()
            if type(layer) is EmbeddingTable and layer.is_plain and not _has_masks(its_inputs[name])
        }
        asked = {name: each for name, each in asked.items() if each.batches}
        if len(asked) < 2:
            return {}
        training = kwargs.get("training")
        training = not tf.is_tensor(training) and bool(training)
        outputs = {}
        for name, vectors in look_up_together(asked, training).items():
            layer = self.parallel_dict[name]
            cast = {f: tf.cast(found, layer.compute_dtype) for f, found in vectors.items()}
            is_dict = isinstance(its_inputs[name], Mapping)
            outputs[name] = cast if is_dict else cast[layer.col_schema.name]
        return outputs


def _has_masks(inputs: Any) -> bool:
    """Whether a layer that is called would have to hand on masks."""
    values = inputs.values() if isinstance(inputs, Mapping) else [inputs]
    return any(getattr(value, "_keras_mask", None) is not None for value in values)
