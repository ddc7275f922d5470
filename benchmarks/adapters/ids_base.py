"""What the worker asks of an id map: an `Adapter` whose table is the map, without vectors.

`build(1, rows, 0)` makes a map of `rows` rows. Groups are "train", a step in which new ids may get
rows, and "find", a step in which nothing changes. A step returns the rows [B] of a batch.
"""

from __future__ import annotations

import numpy as np

from adapters import base

BATCH = 65_536


class Adapter(base.Adapter):
    """A map. Subclasses define `versions`, `build`, `fill`, `steps` and `release`."""

    def load(self, values: np.ndarray) -> None:
        raise NotImplementedError("an id map has no vectors")

    def read(self) -> np.ndarray:
        raise NotImplementedError("an id map has no vectors")

    def fill(self, ids: np.ndarray) -> dict:
        """Takes up ids [N], by its own way in training where it has one.

        Returns:
            What is known of the map then: "bytes" of its state, "rows" that it maps to.
        """
        raise NotImplementedError


def batches(ids: np.ndarray, size: int = BATCH):
    """Copies of ids [N] a batch at a time."""
    for start in range(0, len(ids), size):
        yield np.array(ids[start : start + size])
