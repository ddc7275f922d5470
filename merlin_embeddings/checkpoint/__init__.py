"""Checkpoints: one format for tables of any size, written by many and read by many."""

from merlin_embeddings.checkpoint.commits import commit
from merlin_embeddings.checkpoint.comparison import Diff, TableDiff, diff
from merlin_embeddings.checkpoint.errors import BrokenCheckpoint
from merlin_embeddings.checkpoint.increments import changes
from merlin_embeddings.checkpoint.manifest import ShardInfo, SlotInfo, TableInfo
from merlin_embeddings.checkpoint.reader import Checkpoint, State
from merlin_embeddings.checkpoint.rewrite import compact, reshard
from merlin_embeddings.checkpoint.verification import Verified, verify
from merlin_embeddings.checkpoint.writer import Writer

__all__ = [
    "BrokenCheckpoint",
    "Checkpoint",
    "Diff",
    "ShardInfo",
    "SlotInfo",
    "State",
    "TableDiff",
    "TableInfo",
    "Verified",
    "Writer",
    "changes",
    "commit",
    "compact",
    "diff",
    "reshard",
    "verify",
]
