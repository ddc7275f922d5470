"""Keras callbacks: what to know of tables while they train, and checkpoints."""

from merlin_embeddings.callbacks.checkpoint import Checkpoint
from merlin_embeddings.callbacks.statistics import TableStatistics
from merlin_embeddings.callbacks.summaries import TableSummaries

__all__ = ["Checkpoint", "TableStatistics", "TableSummaries"]
