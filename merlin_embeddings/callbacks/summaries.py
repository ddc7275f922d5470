"""How the rows of tables do while they train."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from merlin_embeddings import compat
from merlin_embeddings.callbacks.reports import Reports
from merlin_embeddings.tables import DenseTable, statistics


class TableSummaries(Reports):
    """Writes scalars for TensorBoard that say how the rows of a model's tables are doing.

    For each table, under the path of its weight (`layer/table`):

    | scalar | what it is |
    |---|---|
    | `row_norm/mean`, `row_norm/max` | L2 norms of the rows in the sample |
    | `rows_seen/share` | share of the sample that training has changed since it began |
    | `rows_seen/number` | that share of all rows: about how many ids were seen |
    | `rows_seen/lately` | share of the sample changed since the last report |

    Only rows that a step looks up change, so the shares say how much of a table the data reaches,
    whatever the optimizer. They are of a random sample of rows, the same one in all of `fit`: with
    n rows a share p has a standard error of sqrt(p (1 - p) / n), 0.8 percent at most for 4096; a
    table with no more rows than that is looked at as a whole. The largest norm is the sample's.

    Cost: nothing between reports. A report reads the sample, n x D numbers a table, whatever the
    table's size; two copies of the sample are kept. With `update_freq="batch"` that is every step.

    Beside `keras.callbacks.TensorBoard`, whose `histogram_freq` reads whole tables, give both the
    same `log_dir`: these scalars are its run "tables". TensorBoard needn't be installed to write.

    Args:
        log_dir: folder of event files; this callback's are in `log_dir/tables`.
        update_freq: "epoch": a report after every epoch, whose number is the step. An integer: a
            report after so many batches, with the number of batches as the step; "batch" is 1.
        rows: n, the size of a table's sample.
        seed: of the samples.

    Raises:
        ValueError: an `update_freq` that is neither "epoch", "batch" nor a positive integer, or
            `rows` below 1; when training begins, a model that has no table of this package, or none
            yet.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from tensorflow import keras
        >>> import merlin_embeddings as me
        >>> item = me.layers.Embedding(9, 4, combiner="sum", name="item")
        >>> model = keras.Sequential([keras.Input((2,), dtype="int64"), item])
        >>> model.compile(me.optimizers.SGD(0.1), "mse")
        >>> summaries = me.callbacks.TableSummaries(tempfile.mkdtemp())
        >>> ids, y = np.array([[1, 2], [2, 3]]), np.zeros((2, 4))
        >>> _ = model.fit(ids, y, verbose=0, callbacks=[summaries])
        >>> [(name, value) for name, value in summaries.latest.items() if "number" in name]
        [('...item/embeddings/rows_seen/number', 3.0)]
    """

    def __init__(
        self,
        log_dir: str | os.PathLike,
        update_freq: str | int = "epoch",
        rows: int = 4096,
        seed: int = 0,
    ) -> None:
        super().__init__(log_dir, update_freq)
        if rows < 1:
            raise ValueError(f"TableSummaries: rows={rows}; a sample has at least one row")
        self.rows = rows
        self.seed = seed
        self._samples: dict[str, _Sample] = {}

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """Takes the samples that later ones are compared with."""
        self._samples = {
            path: _Sample(table, self.rows, self.seed)
            for path, table in statistics.tables_in(self.model).items()
        }
        if not self._samples:
            raise ValueError(
                f"TableSummaries: model {self.model.name!r} has no table of merlin_embeddings"
                + ("." if self.model.built else " yet; build it before fit.")
            )
        super().on_train_begin(logs)

    def on_train_end(self, logs: Mapping[str, Any] | None = None) -> None:
        """Closes the event file and lets the samples go."""
        super().on_train_end(logs)
        self._samples = {}

    def scalars(self) -> dict[str, float]:
        """The norms, and the shares of rows seen."""
        return {
            f"{path}/{name}": value
            for path, sample in self._samples.items()
            for name, value in sample.report().items()
        }


class _Sample:
    """Some rows of a table, as they were at first and at the last report."""

    def __init__(self, table: DenseTable, count: int, seed: int) -> None:
        self._table = table
        chosen = (
            range(table.rows)
            if table.rows <= count
            else sorted(random.Random(seed).sample(range(table.rows), count))
        )
        self._rows = tf.constant(chosen, tf.int64)
        self._first = self._last = self._read()

    def report(self) -> dict[str, float]:
        """The scalars by name."""
        now = self._read()
        seen, lately = _share_of_others(now, self._first), _share_of_others(now, self._last)
        self._last = now
        norms = np.linalg.norm(now.astype(np.float32), axis=1)
        return {
            "row_norm/mean": float(norms.mean()),
            "row_norm/max": float(norms.max()),
            "rows_seen/share": seen,
            "rows_seen/number": seen * self._table.rows,
            "rows_seen/lately": lately,
        }

    def _read(self) -> np.ndarray:
        return compat.raw_variable(self._table.variable).sparse_read(self._rows).numpy()


def _share_of_others(these: np.ndarray, those: np.ndarray) -> float:
    """The share of rows that differ."""
    return float((these != those).any(axis=1).mean())
