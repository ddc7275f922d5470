"""`EmbeddingsBlock`: tables side by side whose vectors are looked up together."""

from __future__ import annotations

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

    Args:
        *args: as for `mm.ParallelBlock`.
        **kwargs: as for `mm.ParallelBlock`.
    """

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

    def call(self, inputs: Any, **kwargs: Any) -> dict[str, Any]:
        """Vectors by column, of ids by column."""
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
