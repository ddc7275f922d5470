"""Keras metrics: what the id maps of tables met, among the numbers that `fit` shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from tensorflow import keras

from merlin_embeddings.tables import statistics


@keras.utils.register_keras_serializable(package="merlin_embeddings")
class TableStatistics(keras.metrics.Metric):
    """How full tables are whose rows move from id to id, who hits, who comes and who goes.

    One number each for `<table>_occupancy`, `_hit_rate`, `_oov_share`, `_admitted`, `_evicted` and
    `_overflowed`; all but the occupancy are of training since the epoch began:

    | number | what it is |
    |---|---|
    | occupancy | the share of the table's rows that ids have |
    | hit_rate | of the lookups, the share of ids that had a row of their own |
    | oov_share | of the lookups, the share without one: not admitted, or all rows were in use |
    | admitted, evicted | ids that got a row, ids that lost it to another |
    | overflowed | lookups for which all rows that the id could have were in use |

    The id maps count in any case: a step costs a read of a few numbers a table. In evaluation
    nothing is counted, so the shares are NaN there.

    Args:
        owner: a model, a layer, a table, or a list of these; None: nothing to tell. A metric of a
            loaded model has lost its owner: compile the model anew to see the numbers.
        name: of the metric.
        **kwargs: of `keras.metrics.Metric`.

    Raises:
        ValueError: the owner has no table whose rows move, or none yet.

    >>> import numpy as np
    >>> import merlin_embeddings as me
    >>> item = me.layers.Embedding(
    ...     None, 4, ids=me.ids.ManagedCollision(160), combiner="sum", name="item"
    ... )
    >>> model = keras.Sequential([keras.Input((2,), dtype="int64"), item])
    >>> model.compile(me.optimizers.SGD(), "mse", metrics=[me.metrics.TableStatistics(item)])
    >>> ids = np.array([[7, 8], [8, -9]])
    >>> logs = model.fit(ids, np.zeros((2, 4)), epochs=2, verbose=0).history
    >>> logs["item_hit_rate"], logs["item_admitted"]
    ([0.0, 1.0], [3.0, 0.0])
    """

    def __init__(self, owner: Any = None, name: str = "tables", **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)
        tables = {} if owner is None else statistics.moving_in(owner)
        if owner is not None and not tables:
            raise ValueError(
                f"TableStatistics: {getattr(owner, 'name', owner)!r} has no table whose rows move "
                "(ids=ids.ManagedCollision(...), ids.Dynamic(...)), or none yet: build it first."
            )
        # Keras would look for variables in a plain attribute, and take the tables' for ours.
        self._of = _Held(statistics.labelled(tables))
        self._since = self.add_weight(
            shape=(len(tables), len(statistics.COUNTED)),
            initializer="zeros",
            dtype="int64",
            name="since",
        )
        self.reset_state()

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Nothing: the id maps count by themselves."""

    def result(self) -> dict[str, tf.Tensor]:
        """The numbers by name, float32 scalars."""
        return {
            f"{label}_{what}": value
            for at, (label, table) in enumerate(self._of.tables.items())
            for what, value in statistics.rates(table, self._since[at]).items()
        }

    def reset_state(self) -> None:
        """Counts from now on."""
        if self._of.tables:
            counted = [statistics.counters(table) for table in self._of.tables.values()]
            self._since.assign(tf.stack(counted))


class _Held:
    """Keeps tables out of Keras's sight."""

    def __init__(self, tables: Mapping[str, Any]) -> None:
        self.tables = tables
