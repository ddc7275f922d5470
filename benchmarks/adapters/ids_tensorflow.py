"""TensorFlow's ways from an id to a row: tf.lookup's tables, Keras's IntegerLookup, a remainder.

Tables of tf.lookup keep what they are given for ever: none counts, admits or evicts. A training
step looks ids up and inserts those that are missing with the next free rows, as a program must that
uses them; where no row is free it leaves them out. IntegerLookup and StaticVocabularyTable are
filled once. The remainder has neither state nor rows of one id alone.
"""

from __future__ import annotations

import numpy as np

from adapters import ids_base
from adapters import tensorflow_runtime as runtime

tf = runtime.tf
CHUNK = 1 << 20


class _Adapter(ids_base.Adapter):
    def __init__(self, threads: int) -> None:
        super().__init__(threads)
        runtime.configure(threads)

    def versions(self) -> dict[str, str]:
        return {"tensorflow": tf.__version__, "keras": tf.keras.__version__}

    def build(self, tables: int, rows: int, dim: int) -> None:
        self.rows = rows

    def find(self, ids):
        raise NotImplementedError

    def train(self, ids):
        raise NotImplementedError

    def steps(self, group: str, ids: np.ndarray) -> dict:
        inputs = [tf.constant(batch.reshape(-1)) for batch in ids]
        function = tf.function(self.train if group == "train" else self.find, autograph=False)
        return {type(self).__name__: runtime.steps(function, inputs)}

    def release(self) -> None:
        """The steps hold all that was made for them."""


class Remainder(_Adapter):
    """`ids % rows`."""

    def fill(self, ids: np.ndarray) -> dict:
        return {"bytes": 0, "rows": self.rows}

    def find(self, ids):
        return tf.math.floormod(ids, self.rows)

    train = find


class _Mutable(_Adapter):
    """A table that ids are put into, and a counter of the rows that are taken."""

    def fill(self, ids: np.ndarray) -> dict:
        for batch in ids_base.batches(ids, CHUNK):
            self.train(tf.constant(batch))
        return {"bytes": None, "rows": self.rows}

    def find(self, ids):
        return self.table.lookup(ids)

    def train(self, ids):
        rows = tf.ensure_shape(self.table.lookup(ids), ids.shape)
        missing = tf.unique(tf.boolean_mask(ids, rows < 0)).y[: self.rows - self.taken]
        count = tf.size(missing, tf.int64)
        insert = self.table.insert(missing, self.taken + tf.range(count))
        with tf.control_dependencies([] if insert is None else [insert]):
            self.taken.assign_add(count)
            return self.table.lookup(ids)


class DenseHashTable(_Mutable):
    """tf.lookup.experimental.DenseHashTable; two ids are its own."""

    def build(self, tables: int, rows: int, dim: int) -> None:
        super().build(tables, rows, dim)
        self.taken = tf.Variable(0, dtype=tf.int64)
        self.table = tf.lookup.experimental.DenseHashTable(
            tf.int64,
            tf.int64,
            default_value=-1,
            empty_key=-(2**63),
            deleted_key=-(2**63) + 1,
            initial_num_buckets=1 << (2 * rows - 1).bit_length(),
        )


class MutableHashTable(_Mutable):
    """tf.lookup.experimental.MutableHashTable."""

    def build(self, tables: int, rows: int, dim: int) -> None:
        super().build(tables, rows, dim)
        self.taken = tf.Variable(0, dtype=tf.int64)
        self.table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, -1)


class StaticVocabularyTable(_Adapter):
    """tf.lookup.StaticVocabularyTable with one row for all other ids."""

    def fill(self, ids: np.ndarray) -> dict:
        keys = tf.constant(np.array(ids))
        initializer = tf.lookup.KeyValueTensorInitializer(keys, tf.range(len(ids), dtype=tf.int64))
        self.table = tf.lookup.StaticVocabularyTable(initializer, 1)
        return {"bytes": None, "rows": len(ids) + 1}

    def find(self, ids):
        return self.table.lookup(ids)


class IntegerLookup(_Adapter):
    """keras.layers.IntegerLookup with one row for all other ids."""

    def fill(self, ids: np.ndarray) -> dict:
        self.layer = tf.keras.layers.IntegerLookup(vocabulary=np.array(ids), num_oov_indices=1)
        return {"bytes": None, "rows": len(ids) + 1}

    def find(self, ids):
        return self.layer(ids)
