"""Ours: the id maps of `merlin_embeddings`, the whole op of a training step.

A training step counts, admits, evicts, pins the rows it returns, reports what changed, and releases
the pins as the optimizer does. `Control` is the same step on a map as full as the others whose ids
never expire: nothing is evicted, so what eviction costs is the difference.
"""

from __future__ import annotations

import numpy as np

from adapters import ids_base, merlin
from adapters import tensorflow_runtime as runtime

tf = runtime.tf


class _Adapter(ids_base.Adapter):
    def __init__(self, threads: int) -> None:
        super().__init__(threads)
        runtime.configure(threads)

    versions = merlin.Adapter.versions

    def spec(self, rows: int):
        raise NotImplementedError

    def build(self, tables: int, rows: int, dim: int) -> None:
        import merlin_embeddings as me

        self.layer = me.layers.Embedding(None, 1, ids=self.spec(rows))
        self.layer.build()
        self.map = self.layer.table.ids

    def fill(self, ids: np.ndarray) -> dict:
        for batch in ids_base.batches(ids):
            self.map.assign(tf.constant(batch), training=True)
            self.map.release()
        values = [variable.value for variable in self.map.variables]
        return {
            "bytes": sum(int(tf.size(v)) * v.dtype.size for v in values),
            "rows": self.map.capacity,
            "used": int(self.map.used()),
        }

    def _train(self, ids):
        rows, changes = self.map.assign(ids, training=True)
        with tf.control_dependencies([rows]):
            self.map.release()
        return rows, changes

    def _find(self, ids):
        return self.map.assign(ids)[0]

    def steps(self, group: str, ids: np.ndarray) -> dict:
        inputs = [tf.constant(batch.reshape(-1)) for batch in ids]
        function = tf.function(self._train if group == "train" else self._find, autograph=False)
        return {type(self).__name__: runtime.steps(function, inputs)}

    def release(self) -> None:
        """The map stays."""


class Lfu(_Adapter):
    def spec(self, rows: int):
        import merlin_embeddings as me

        return me.ids.ManagedCollision(rows, policy="lfu")


class LfuAdmission(_Adapter):
    def spec(self, rows: int):
        import merlin_embeddings as me

        return me.ids.ManagedCollision(rows, policy="lfu", admit_after=2)


class Lru(_Adapter):
    def spec(self, rows: int):
        import merlin_embeddings as me

        return me.ids.ManagedCollision(rows, policy="lru")


class Control(_Adapter):
    def spec(self, rows: int):
        import merlin_embeddings as me

        return me.ids.ManagedCollision(rows, policy=me.ids.TTL(2**31 - 1))


class Dynamic(_Adapter):
    def spec(self, rows: int):
        import merlin_embeddings as me

        return me.ids.Dynamic(initial=rows // 16, max_rows=rows, when_full="lfu")


class Modulo(_Adapter):
    """Pure: no state, the same in training."""

    def build(self, tables: int, rows: int, dim: int) -> None:
        import merlin_embeddings as me

        self.rows, self.map = rows, me.ids.Modulo(rows).build()

    def fill(self, ids: np.ndarray) -> dict:
        return {"bytes": 0, "rows": self.rows}

    def _train(self, ids):
        return self._find(ids)
