"""Embedding tables for TensorFlow recommenders.

>>> import merlin_embeddings as me
>>> import tensorflow as tf
>>> layer = me.layers.Embedding(100_000, 64, combiner="mean")
>>> layer(tf.constant([[1, 2, 3], [4, 5, 6]])).shape
TensorShape([2, 64])
"""

# First: where TensorFlow's Keras can't be had, this says what to do.
import merlin_embeddings.compat  # noqa: F401

# isort: split
from merlin_embeddings import (
    callbacks,
    checkpoint,
    data,
    ids,
    initializers,
    layers,
    metrics,
    optimizers,
    saving,
    tables,
)
from merlin_embeddings.bags import Bags
from merlin_embeddings.config import FeatureConfig, PositionWeights, TableConfig
from merlin_embeddings.data import features_from_schema
from merlin_embeddings.inspection import inspect
from merlin_embeddings.saving import load, save

__all__ = [
    "Bags",
    "FeatureConfig",
    "PositionWeights",
    "TableConfig",
    "callbacks",
    "checkpoint",
    "data",
    "features_from_schema",
    "ids",
    "initializers",
    "inspect",
    "layers",
    "load",
    "metrics",
    "optimizers",
    "save",
    "saving",
    "tables",
]
