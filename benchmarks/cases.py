"""The cases of the lookup benchmark: table sets, batches and the ids looked up.

Ids follow a bounded Zipf(1.05) law, as clicks on items do. The rank of an id is mapped to a row by
one random permutation a table, so that hot rows are scattered over the table instead of lying side
by side. One large table is looked up by uniform ids too, which no cache helps. Only numpy is used
here: workers of every environment import this module.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

GROUPS = ("forward", "sgd", "rowwise_adagrad", "adagrad", "adam")
LEARNING_RATE = 0.01
ZIPF_EXPONENT = 1.05
SEED = 20241130

# A step sees fresh ids, as in training: enough batches that a small one isn't served by the rows
# which the step before left in the L2 cache, but no more ids in all than this.
IDS_WANTED = 2_000_000
BATCHES_RANGE = (4, 64)


@dataclass(frozen=True)
class TableSet:
    """`tables` tables of `rows` rows and `dim` float32 columns each."""

    tables: int
    rows: int
    dim: int

    @property
    def label(self) -> str:
        return f"{self.tables} x {_short(self.rows)} x {self.dim}"

    @property
    def nbytes(self) -> int:
        return self.tables * self.rows * self.dim * 4


@dataclass(frozen=True)
class Batch:
    """`size` bags a table, each of `hotness` ids."""

    size: int
    hotness: int

    @property
    def label(self) -> str:
        return f"{_short(self.size)} x {self.hotness}"


Law = Callable[[int, int, Batch, int], np.ndarray]  # (tables, rows, batch, batches) -> ids


def _short(n: int) -> str:
    for unit, letter in ((1_000_000, "M"), (1_000, "k"), (1_024, "k")):
        if n >= unit and n % unit == 0:
            return f"{n // unit}{letter}"
    return f"{n // 1024}k" if n >= 1024 and n % 1024 == 0 else str(n)


def batch_count(tables: int, batch: Batch) -> int:
    low, high = BATCHES_RANGE
    return int(np.clip(IDS_WANTED // (tables * batch.size * batch.hotness), low, high))


def zipf_ids(tables: int, rows: int, batch: Batch, batches: int) -> np.ndarray:
    """Ids [batches, tables, B, L] int64."""
    cumulative = np.cumsum(1.0 / np.arange(1, rows + 1, dtype=np.float64) ** ZIPF_EXPONENT)
    cumulative /= cumulative[-1]
    draw = np.random.default_rng([SEED, tables, rows, batch.size, batch.hotness])
    ids = np.empty((batches, tables, batch.size, batch.hotness), np.int64)
    for table in range(tables):
        permutation = np.random.default_rng([SEED, rows, table]).permutation(rows)
        ranks = np.searchsorted(cumulative, draw.random(batches * batch.size * batch.hotness))
        chosen = permutation[np.minimum(ranks, rows - 1)]
        ids[:, table] = chosen.reshape(batches, batch.size, batch.hotness)
    return ids


def uniform_ids(tables: int, rows: int, batch: Batch, batches: int) -> np.ndarray:
    """Ids [batches, tables, B, L] int64, every row as likely as any other."""
    draw = np.random.default_rng([SEED, tables, rows, batch.size, batch.hotness])
    return draw.integers(0, rows, (batches, tables, batch.size, batch.hotness), np.int64)


def ids_file(folder: Path, tables: int, rows: int, batch: Batch, law: Law = zipf_ids) -> Path:
    """The file which every worker maps, made when first asked for."""
    path = folder / f"{law.__name__}-{tables}-{rows}-{batch.size}-{batch.hotness}.npy"
    if not path.exists():
        np.save(path, law(tables, rows, batch, batch_count(tables, batch)))
    return path


def output_gradient(tables: int, batch_size: int, dim: int) -> np.ndarray:
    """The gradient [T, B, D] float32 of every training step, the same for every peer."""
    draw = np.random.default_rng([SEED, tables, batch_size, dim])
    return draw.standard_normal((tables, batch_size, dim), np.float32) * np.float32(1e-3)
