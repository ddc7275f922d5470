"""The weights by position that features of a layer learn."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from merlin_embeddings import compat
from merlin_embeddings.bags import Bags, positions, without_padding
from merlin_embeddings.config import FeatureConfig, PositionWeights
from merlin_embeddings.layers.table_set import label


class LearnedWeights:
    """One weight `[max_length]` for each feature with `position_weights`.

    Args:
        features: the layer's features.

    Attributes:
        variables: by their names: "clicks_position_weights" for feature "clicks"; there are none
            until `build`.

    Raises:
        ValueError: a table has the name of one of these weights.
    """

    def __init__(self, features: Sequence[FeatureConfig]):
        self.variables: dict[str, Any] = {}
        self._weighted = [
            (feature, feature.position_weights)
            for feature in features
            if isinstance(feature.position_weights, PositionWeights)
        ]
        tables = {feature.table.name for feature in features}
        for feature, _ in self._weighted:
            if _name(feature) in tables:
                raise ValueError(
                    f"{label(feature)}: its position weights and a table have one name, "
                    f"{_name(feature)!r}; rename the table."
                )

    def build(self, add_weight: Callable) -> None:
        """Makes the weights.

        Args:
            add_weight: the layer's.
        """
        for feature, spec in self._weighted:
            self.variables[_name(feature)] = add_weight(
                name=compat.weight_name(_name(feature)),
                shape=(feature.max_length,),
                dtype="float32",
                initializer=spec.initializer,
                regularizer=spec.regularizer,
                constraint=spec.constraint,
                trainable=spec.trainable,
                autocast=False,
            )

    def weigh(self, feature: FeatureConfig, bags: Bags) -> Bags:
        """Bags whose ids have the weights of their positions, times the weights they had.

        Args:
            feature: which is looked up.
            bags: of at most `feature.max_length` ids each.
        """
        spec = feature.position_weights
        if not isinstance(spec, PositionWeights):
            return bags
        bags = copy.copy(without_padding(bags))
        learned = tf.convert_to_tensor(self.variables[_name(feature)])
        weights = _gather(learned, positions(bags, spec.count_from))
        bags.weights = weights if bags.weights is None else bags.weights * weights
        return bags


@tf.custom_gradient
def _gather(learned: tf.Tensor, positions: tf.Tensor) -> Any:
    """`learned[positions]`; its gradient is dense, as every optimizer knows it."""

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, None]:
        return tf.math.unsorted_segment_sum(upstream, positions, learned.shape[0]), None

    return tf.gather(learned, positions), gradient


def _name(feature: FeatureConfig) -> str:
    return f"{feature.name}_position_weights"
