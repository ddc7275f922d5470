"""Keras layers."""

from merlin_embeddings.layers import keras_objects, samplers
from merlin_embeddings.layers.aggregation import Concat, Stack
from merlin_embeddings.layers.attention import AttentionPooling, TargetAttention
from merlin_embeddings.layers.broadcast import BroadcastToSequence
from merlin_embeddings.layers.embedding import Embedding
from merlin_embeddings.layers.embeddings import Embeddings
from merlin_embeddings.layers.input_block import InputBlock
from merlin_embeddings.layers.map_ids import MapIds
from merlin_embeddings.layers.pooling import Mean, Pooling, RecencyWeighted
from merlin_embeddings.layers.pretrained import Pretrained
from merlin_embeddings.layers.sampled_softmax import SampledSoftmax
from merlin_embeddings.layers.top_k import TopK
from merlin_embeddings.layers.user_from_items import UserFromItems

__all__ = [
    "AttentionPooling",
    "BroadcastToSequence",
    "Concat",
    "Embedding",
    "Embeddings",
    "InputBlock",
    "MapIds",
    "Mean",
    "Pooling",
    "Pretrained",
    "RecencyWeighted",
    "SampledSoftmax",
    "Stack",
    "TargetAttention",
    "TopK",
    "UserFromItems",
    "samplers",
]

keras_objects.register()
