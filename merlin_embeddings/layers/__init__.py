"""Keras layers."""

from merlin_embeddings.layers import keras_objects
from merlin_embeddings.layers.embedding import Embedding
from merlin_embeddings.layers.embeddings import Embeddings

__all__ = ["Embedding", "Embeddings"]

keras_objects.register()
