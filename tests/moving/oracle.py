"""What a table whose rows move must hold: a dict of vectors and slots by id, in numpy.

Which ids have rows is asked of the table (its id map has oracles of its own, in tests/ids); what
their vectors and slots are is computed here: an id that wasn't there before starts afresh, the
others go on from what they were.
"""

import numpy as np
import tensorflow as tf

from merlin_embeddings import initializers


class Oracle:
    """Vectors and slots by id.

    Args:
        table: the one to follow.
        slots: what a fresh id has of each slot: {name: (width, fill)}.
        rule: of (vector, slots, gradient): changes both in place.
    """

    def __init__(self, table, slots=None, rule=None):
        self.table, self.slots, self.rule = table, slots or {}, rule
        self.rows = {}

    def fresh(self, id):
        config = self.table.config
        law = initializers.get(config.initializer)
        vector = law.rows(
            tf.constant([id], tf.int64), config.embedding_dim, "float32", config.seed,
            config.name, self.table.rows,
        ).numpy()[0]  # fmt: skip
        slots = {
            name: np.full(width, fill, np.float32) for name, (width, fill) in self.slots.items()
        }
        return {"vector": vector, **slots}

    def begin(self, ids):
        """The ids of a training step, once they are looked up: new ones start afresh."""
        found = self.table.find(ids)
        for id, row in zip(ids, found, strict=True):
            if row < 0:
                self.rows.pop(id, None)
            elif id not in self.rows:
                self.rows[id] = self.fresh(id)

    def vectors(self, ids):
        """`[N, D]`: zeros for ids without a row."""
        nothing = np.zeros(self.table.dim, np.float32)
        return np.stack([self.rows[id]["vector"] if id in self.rows else nothing for id in ids])

    def end(self, ids, gradients):
        """The update: gradients `[N, D]` of the ids looked up, summed by id."""
        sums = {}
        for id, gradient in zip(ids, gradients, strict=True):
            if id in self.rows:
                sums[id] = sums.get(id, 0) + gradient.astype(np.float64)
        for id, gradient in sums.items():
            self.rule(self.rows[id], gradient.astype(np.float32))
        self.forget()

    def forget(self):
        """Ids that lost their row are forgotten."""
        known = {int(id) for entries in self.table.entries() for id in entries.keys}
        self.rows = {id: row for id, row in self.rows.items() if id in known}

    def check(self, rtol=1e-5):
        """The table holds what it must, no more and no less."""
        seen = set()
        for entries in self.table.entries():
            for at, id in enumerate(entries.keys.tolist()):
                seen.add(id)
                row = self.rows[id]
                np.testing.assert_allclose(entries.vectors[at], row["vector"], rtol=rtol, atol=1e-6)
                for name in self.slots:
                    np.testing.assert_allclose(
                        entries.slots[name][at], row[name], rtol=rtol, atol=1e-7
                    )
        assert seen == set(self.rows)


def sgd(learning_rate):
    """SGD in numpy."""

    def rule(row, gradient):
        row["vector"] = row["vector"] - np.float32(learning_rate) * gradient

    return rule


def adagrad(learning_rate, epsilon=1e-7):
    """Adagrad in numpy: a += g^2, w -= lr g / sqrt(a + epsilon)."""

    def rule(row, gradient):
        row["accumulator"] = row["accumulator"] + gradient * gradient
        step = learning_rate * gradient / np.sqrt(row["accumulator"] + epsilon)
        row["vector"] = (row["vector"] - step).astype(np.float32)

    return rule


def stream(steps, batch, universe, seed=0, drift=0):
    """Batches `[batch]` of skewed ids from all of int64; with drift the favourites change."""
    rng = np.random.default_rng(seed)
    names = rng.integers(-(2**62), 2**62, universe)
    popularity = 1 / np.arange(1, universe + 1)
    popularity /= popularity.sum()
    for step in range(steps):
        yield np.roll(names, step * drift)[rng.choice(universe, batch, p=popularity)]
