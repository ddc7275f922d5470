"""What the id maps of tables meet while they train."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from merlin_embeddings.callbacks.reports import Reports
from merlin_embeddings.tables import statistics


class TableStatistics(Reports):
    """Writes scalars for TensorBoard that say how the id maps of a model's tables do.

    For each table whose rows move from id to id, under the path of its weight (`layer/table`),
    since the last report: `ids/hit_rate`, `ids/oov_share`, `ids/admitted`, `ids/evicted`,
    `ids/overflowed`, and `ids/occupancy` now; `metrics.TableStatistics` says what they mean.

    Cost: the id maps count in any case; a report reads a few numbers a table.

    Args:
        log_dir: folder of event files; this callback's are in `log_dir/tables`.
        update_freq: "epoch": a report after every epoch, whose number is the step. An integer: a
            report after so many batches, with the number of batches as the step; "batch" is 1.

    Raises:
        ValueError: an `update_freq` that is neither "epoch", "batch" nor a positive integer; when
            training begins, a model that has no table whose rows move, or none yet.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from tensorflow import keras
        >>> import merlin_embeddings as me
        >>> ids = me.ids.ManagedCollision(160)
        >>> item = me.layers.Embedding(None, 4, ids=ids, combiner="sum", name="item")
        >>> model = keras.Sequential([keras.Input((2,), dtype="int64"), item])
        >>> model.compile(me.optimizers.SGD(0.1), "mse")
        >>> board = me.callbacks.TableStatistics(tempfile.mkdtemp())
        >>> x, y = np.array([[7, 8], [8, -9]]), np.zeros((2, 4))
        >>> _ = model.fit(x, y, verbose=0, callbacks=[board])
        >>> [(name, value) for name, value in board.latest.items() if "admitted" in name]
        [('...item/embeddings/ids/admitted', 3.0)]
    """

    def __init__(self, log_dir: str | os.PathLike, update_freq: str | int = "epoch") -> None:
        super().__init__(log_dir, update_freq)
        self._since: dict[str, tuple[Any, tf.Tensor]] = {}

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """Counts from here on."""
        tables = statistics.moving_in(self.model)
        if not tables:
            raise ValueError(
                f"TableStatistics: model {self.model.name!r} has no table whose rows move "
                "(ids=ids.ManagedCollision(...), ids.Dynamic(...))"
                + ("." if self.model.built else " yet; build it before fit.")
            )
        self._since = {path: (table, statistics.counters(table)) for path, table in tables.items()}
        super().on_train_begin(logs)

    def scalars(self) -> dict[str, float]:
        """The numbers since the last report."""
        found: dict[str, float] = {}
        for path, (table, since) in self._since.items():
            rates = statistics.rates(table, since)
            found |= {f"{path}/ids/{name}": float(value) for name, value in rates.items()}
            self._since[path] = (table, statistics.counters(table))
        return found
