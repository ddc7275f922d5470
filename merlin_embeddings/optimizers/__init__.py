"""Optimizers whose steps cost what the batch looked up, not what the tables hold."""

from merlin_embeddings.optimizers.adagrad import Adagrad
from merlin_embeddings.optimizers.adam import Adam
from merlin_embeddings.optimizers.adamw import AdamW
from merlin_embeddings.optimizers.base import SparseOptimizer
from merlin_embeddings.optimizers.ftrl import Ftrl
from merlin_embeddings.optimizers.lamb import Lamb
from merlin_embeddings.optimizers.lars import Lars
from merlin_embeddings.optimizers.legacy import Legacy
from merlin_embeddings.optimizers.lion import Lion
from merlin_embeddings.optimizers.rmsprop import RMSprop
from merlin_embeddings.optimizers.rowwise_adagrad import RowwiseAdagrad
from merlin_embeddings.optimizers.rowwise_adam import RowwiseAdam
from merlin_embeddings.optimizers.rowwise_lamb import RowwiseLamb
from merlin_embeddings.optimizers.rowwise_rmsprop import RowwiseRMSprop
from merlin_embeddings.optimizers.sgd import SGD
from merlin_embeddings.optimizers.slots import Rows, SlotSpec
from merlin_embeddings.optimizers.split import Split

__all__ = [
    "SGD",
    "Adagrad",
    "Adam",
    "AdamW",
    "Ftrl",
    "Lamb",
    "Lars",
    "Legacy",
    "Lion",
    "RMSprop",
    "Rows",
    "RowwiseAdagrad",
    "RowwiseAdam",
    "RowwiseLamb",
    "RowwiseRMSprop",
    "SlotSpec",
    "SparseOptimizer",
    "Split",
]
