"""Optimizers whose steps cost what the batch looked up, not what the tables hold."""

from merlin_embeddings.optimizers.adagrad import Adagrad
from merlin_embeddings.optimizers.adam import Adam
from merlin_embeddings.optimizers.base import SparseOptimizer
from merlin_embeddings.optimizers.rowwise_adagrad import RowwiseAdagrad
from merlin_embeddings.optimizers.sgd import SGD
from merlin_embeddings.optimizers.slots import SlotSpec
from merlin_embeddings.optimizers.split import Split

__all__ = [
    "SGD",
    "Adagrad",
    "Adam",
    "RowwiseAdagrad",
    "SlotSpec",
    "SparseOptimizer",
    "Split",
]
