"""An L2 loss on the vectors of a batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from merlin_embeddings.layers.losses import LossLayer


class BatchL2(LossLayer):
    """Hands vectors on and adds `factor * sum of squares` to the model's losses.

    It is merlin-models' `l2_batch_regularization_factor` (and `embeddings_l2_reg`): the vectors as
    they come out of the lookup, pooled where the column is, an id that the batch has twice counts
    twice, and nothing is divided by the batch's size. A table's `regularizer` counts the distinct
    rows once instead.

    Args:
        factors: one for all columns, or by column name, others have none.
        **kwargs: of `keras.layers.Layer`.

    Raises:
        ValueError: a factor is no number of 0 or more.
    """

    def __init__(self, factors: float | Mapping[str, float], **kwargs: Any):
        super().__init__(**{**kwargs, "autocast": False})
        of = factors if isinstance(factors, Mapping) else {None: factors}
        for name, factor in of.items():
            if isinstance(factor, bool) or not isinstance(factor, (int, float)) or not factor >= 0:
                where = "" if name is None else f" of column {name!r}"
                raise ValueError(
                    f"l2_batch_regularization_factor{where} is {factor!r}; it must be a number of "
                    "0 or more."
                )
        self._factors = (factors,)  # in a tuple: Keras would wrap a dict

    @tf.autograph.experimental.do_not_convert  # plain Python: no tensor decides what is done
    def call(self, inputs: Mapping[str, Any], training: bool | None = None) -> dict[str, Any]:
        """The inputs."""
        del training
        for name, vectors in inputs.items():
            factor = self._factor(name)
            if factor:
                values = getattr(vectors, "flat_values", vectors)
                self.add_loss(factor * tf.reduce_sum(tf.square(tf.cast(values, tf.float32))))
        return dict(inputs)

    def compute_output_spec(
        self, inputs: Mapping[str, Any], training: bool | None = None
    ) -> dict[str, Any]:
        """The inputs."""
        del training
        return dict(inputs)

    def _factor(self, name: str) -> float:
        [factors] = self._factors
        return factors.get(name, 0.0) if isinstance(factors, Mapping) else factors
