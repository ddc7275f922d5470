"""A model of all kinds of tables, and what it is, told without the package's own saving."""

import numpy as np
from tensorflow import keras

import merlin_embeddings as me
from tests.either_keras import KERAS_3

BATCH, BATCHES = 8, 6
RNG = np.random.default_rng(7)
# Ids that drift, so that rows are admitted and evicted all the time.
X = {
    "item": RNG.integers(0, 40, (BATCH * BATCHES, 3)),
    "shop": RNG.integers(0, 30, (BATCH * BATCHES, 2)),
    "user": RNG.integers(0, 8, (BATCH * BATCHES, 2)) + 2 * np.arange(BATCH * BATCHES)[:, None],
    "city": RNG.choice([70, 10, 30, 5], (BATCH * BATCHES, 2)),
}
Y = RNG.integers(-4, 5, (BATCH * BATCHES, 1)).astype(np.float32)


def user_ids(**changed):
    given = {"policy": me.ids.LFU(half_life=4), "admit_after": 2, "oov_rows": 2}
    return me.ids.ManagedCollision(32, **{**given, **changed})


def tables(users=None):
    return {
        "item": me.TableConfig("item", 40, 4),
        "shop": me.TableConfig("shop", None, 2, ids=me.ids.Hash(16), dtype="bfloat16"),
        "user": me.TableConfig("user", None, 4, ids=users or user_ids()),
        "city": me.TableConfig("city", None, 2, ids=me.ids.Vocabulary([70, 10, 30], oov_rows=1)),
    }


def model_of(optimizer, configs=None, dropout=True, **compile_arguments):
    configs = configs or tables()
    symbols = {n: keras.Input(X[n].shape[1:], dtype="int64", name=n) for n in configs}
    features = {n: me.FeatureConfig(n, table, "mean") for n, table in configs.items()}
    vectors = me.layers.Embeddings(features)(symbols)
    joined = keras.layers.Concatenate()(list(vectors.values()))
    if dropout and KERAS_3:  # Keras 2's draws from a state that nobody can read
        joined = keras.layers.Dropout(0.25)(joined)
    frozen = keras.layers.Embedding(40, 2, trainable=False)(symbols["item"])
    joined = keras.layers.Concatenate()([joined, keras.layers.Flatten()(frozen)])
    model = keras.Model(symbols, keras.layers.Dense(1, kernel_initializer="ones")(joined))
    model.compile(optimizer, "mse", **compile_arguments)
    return model


def data(begin=0, end=BATCHES):
    """The batches [begin, end) of an epoch."""
    import tensorflow as tf

    whole = tf.data.Dataset.from_tensor_slices((X, Y)).batch(BATCH)
    return whole.skip(begin).take(end - begin)


def train(model, begin=0, end=BATCHES, **arguments):
    model.fit(data(begin, end), verbose=0, **arguments)


def state_of(model):
    """All that a model is: weights, the optimizer, generators, and rows by id where they move."""
    variables = model.variables if KERAS_3 else model.weights
    kept = model.optimizer.variables
    kept = kept() if callable(kept) else kept
    moving = {}
    for table in model.get_layer(index=_at(model)).tables.values():
        if isinstance(table, me.tables.MovingTable):
            moving[table.name] = _moving(table)
    aside = [id(v) for t in _tables(model) for v in getattr(t, "variables", [])]
    aside += [id(s.variable) for t in _moving_tables(model) for s in t.slots.values()]
    plain = [np.asarray(v) for v in [*variables, *kept] if id(v) not in aside]
    return plain, moving


def _at(model):
    return next(i for i, one in enumerate(model.layers) if isinstance(one, me.layers.Embeddings))


def _tables(model):
    return model.layers[_at(model)].tables.values()


def _moving_tables(model):
    return [table for table in _tables(model) if isinstance(table, me.tables.MovingTable)]


def _moving(table):
    known = {}
    for some in table.ids.known():
        for key, row, score in zip(some.ids.tolist(), some.rows, some.scores, strict=True):
            slots = {n: np.asarray(s.variable)[row] for n, s in table.slots.items()}
            known[key] = (int(row), np.asarray(table.variable)[row], int(score), slots)
    shared = slice(table.capacity, None)
    oov = [
        np.asarray(v)[shared] for v in [table.variable, *(s.variable for s in table.slots.values())]
    ]
    return known, oov, table.ids.state(), int(np.asarray(table.variables[-1]))
