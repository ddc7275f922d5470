"""Keras layers."""

from merlin_embeddings.layers import keras_objects
from merlin_embeddings.layers.aggregation import Concat, Stack
from merlin_embeddings.layers.broadcast import BroadcastToSequence
from merlin_embeddings.layers.embedding import Embedding
from merlin_embeddings.layers.embeddings import Embeddings
from merlin_embeddings.layers.input_block import InputBlock
from merlin_embeddings.layers.pretrained import Pretrained

__all__ = [
    "BroadcastToSequence",
    "Concat",
    "Embedding",
    "Embeddings",
    "InputBlock",
    "Pretrained",
    "Stack",
]

keras_objects.register()
