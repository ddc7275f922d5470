"""Keras callbacks: what to know of tables while they train."""

from merlin_embeddings.callbacks.statistics import TableStatistics
from merlin_embeddings.callbacks.summaries import TableSummaries

__all__ = ["TableStatistics", "TableSummaries"]
