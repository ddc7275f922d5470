"""What features are that a batch hasn't: zeros for as many samples as other features have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow import keras

from merlin_embeddings.config import FeatureConfig
from merlin_embeddings.layers.table_set import label


def fill(features: Sequence[FeatureConfig], outputs: Sequence[Any], dtype: str) -> list[Any]:
    """Outputs with zeros in place of None.

    Args:
        features: F of them.
        outputs: of each, `[B, ...]`, or None. B is that of the first there is.
        dtype: of the zeros.

    Returns:
        F tensors; in place of None `[B, D]`, without combiner ragged `[B, None, D]` of no vectors.

    Raises:
        ValueError: all are None, so that nothing tells B.
    """
    if all(output is not None for output in outputs):
        return list(outputs)
    rows = _rows(_first(features, outputs))
    return [
        _zeros(feature, rows, dtype) if output is None else output
        for feature, output in zip(features, outputs, strict=True)
    ]


def fill_specs(
    features: Sequence[FeatureConfig], specs: Sequence[keras.KerasTensor | None], dtype: str
) -> list[keras.KerasTensor]:
    """As `fill`, of symbols."""
    if all(spec is not None for spec in specs):
        return list(specs)
    rows = _first(features, specs).shape[0]
    return [
        _zeros_spec(feature, rows, dtype) if spec is None else spec
        for feature, spec in zip(features, specs, strict=True)
    ]


def check_weights(feature: FeatureConfig, ids: Any, weights: Any, what: str = "weights") -> None:
    """Raises ValueError for weights, or scores, of a feature that is missing."""
    if ids is None and weights is not None:
        raise ValueError(f"{label(feature)}: {what} without ids; the batch hasn't this feature.")


def _first(features: Sequence[FeatureConfig], outputs: Sequence[Any]) -> Any:
    for output in outputs:
        if output is not None:
            return output
    raise ValueError(
        f"Embeddings: the batch has none of the features {[f.name for f in features]}, so that "
        "nothing tells how many samples it has. Give one of them, if only with empty bags."
    )


def _rows(output: Any) -> Any:
    if isinstance(output, tf.RaggedTensor):
        return output.nrows()
    return tf.shape(output, tf.int64)[0] if output.shape[0] is None else output.shape[0]


def _zeros(feature: FeatureConfig, rows: Any, dtype: str) -> Any:
    dim = feature.table.embedding_dim
    if feature.combiner is not None:
        return tf.zeros(tf.stack([rows, dim]) if tf.is_tensor(rows) else [rows, dim], dtype)
    splits = tf.zeros(tf.reshape(rows + 1, [1]), tf.int64)
    return tf.RaggedTensor.from_row_splits(tf.zeros([0, dim], dtype), splits, validate=False)


def _zeros_spec(feature: FeatureConfig, rows: int | None, dtype: str) -> keras.KerasTensor:
    dim = feature.table.embedding_dim
    if feature.combiner is not None:
        return keras.KerasTensor((rows, dim), dtype=dtype)
    return keras.KerasTensor((rows, None, dim), dtype=dtype, ragged=True)
