"""`Table`: what an `EmbeddingTable` keeps its vectors in."""

from __future__ import annotations

from tensorflow import keras

from merlin_embeddings import layers


@keras.utils.register_keras_serializable(package="merlin_embeddings")
class Table(layers.Embedding):
    """`layers.Embedding` under a name that Keras 2 hasn't taken.

    When a SavedModel is written, Keras 2 warns of every layer whose class is called as one of its
    own, and prints the layer with all values.
    """
