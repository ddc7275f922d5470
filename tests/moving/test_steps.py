"""Training steps of tables whose rows move, beside a dict of vectors by id."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import merlin_embeddings as me
from tests.moving import oracle

LR = 0.25


def layer_of(capacity=16, policy="lru", dynamic=False, **more):
    config = {"seed": 5, "combiner": "sum", **more}
    if dynamic:
        ids = me.ids.Dynamic(4, capacity, when_full=policy)
    else:
        ids = me.ids.ManagedCollision(capacity, policy=policy)
    layer = me.layers.Embedding(None, 3, ids=ids, **config)
    layer.build()
    return layer


def step_of(layers, optimizer, graph):
    """A step whose loss is the sum of what the layers give, times 1, 2, ... by layer and sample."""

    def step(*batches):
        with tf.GradientTape() as tape:
            pooled = [
                layer(ids[:, None], training=True)
                for layer, ids in zip(layers, batches, strict=True)
            ]
            loss = sum(
                tf.reduce_sum(one * weights_of(at, one.shape[0])[:, None])
                for at, one in enumerate(pooled)
            )
        variables = list({id(v): v for layer in layers for v in layer.trainable_variables}.values())
        optimizer.apply(tape.gradient(loss, variables), variables)
        return pooled

    return tf.function(step) if graph else step


def weights_of(layer, batch):
    return np.arange(1, batch + 1, dtype=np.float32) * (layer + 1) / 8


RULES = {
    "sgd": (me.optimizers.SGD, {}, {}, oracle.sgd(LR)),
    "adagrad": (
        me.optimizers.Adagrad,
        {"initial_accumulator_value": 0.125},
        {"accumulator": (3, 0.125)},
        oracle.adagrad(LR),
    ),
}


@pytest.mark.parametrize(
    ("graph", "rule", "policy", "dynamic"),
    [
        (False, "adagrad", "lru", False),
        (True, "adagrad", "lfu", False),
        (True, "adagrad", "lru", True),
        (True, "sgd", "lru", False),
    ],
)
def test_evicted_rows_start_afresh_before_they_are_looked_up(graph, rule, policy, dynamic):
    make, arguments, slots, in_numpy = RULES[rule]
    layer = layer_of(policy=policy, dynamic=dynamic)
    optimizer = make(LR, **arguments)
    optimizer.build(layer.trainable_variables)
    step = step_of([layer], optimizer, graph)
    expected = oracle.Oracle(layer.table, slots, in_numpy)
    came_back, gone = 0, set()
    for batch in oracle.stream(40, 12, 60, drift=1):
        before = set(expected.rows)
        [pooled] = step(tf.constant(batch))
        expected.begin(batch)
        np.testing.assert_allclose(pooled, expected.vectors(batch), rtol=1e-5, atol=1e-6)
        expected.end(batch, np.repeat(weights_of(0, 12)[:, None], 3, 1))
        expected.check()
        gone |= before - set(expected.rows)
        came_back += len(gone & set(batch.tolist()))
    # Many rows went from id to id, and ids came back.
    assert len(gone) > 20 and came_back > 10


@pytest.mark.parametrize("graph", [False, True])
def test_two_layers_that_share_a_table(graph):
    items = layer_of(combiner=None)
    users = me.layers.UserFromItems(items, "mean")
    optimizer = me.optimizers.Adagrad(LR, initial_accumulator_value=0.125)
    optimizer.build(items.trainable_variables)
    expected = oracle.Oracle(items.table, {"accumulator": (3, 0.125)}, oracle.adagrad(LR))

    def step(histories, candidates):
        with tf.GradientTape() as tape:
            user = users(histories, training=True)
            between = items.table.ids.find(candidates)
            item = items(candidates, training=True)
            loss = tf.reduce_sum(user) + 2 * tf.reduce_sum(item)
        optimizer.apply(tape.gradient(loss, items.trainable_variables), items.trainable_variables)
        return user, item, between

    step = tf.function(step) if graph else step
    for batch in oracle.stream(30, 12, 80, drift=2):
        histories, candidates = batch[:8].reshape(4, 2), batch[8:]
        user, item, between = step(tf.constant(histories), tf.constant(candidates))
        # The first lookup may have taken rows of candidates, which then start afresh. The second
        # may take none that the first one has.
        for id, row in zip(candidates, between.numpy(), strict=True):
            if row < 0:
                expected.rows.pop(id, None)
        together = [*batch]
        expected.begin(together)
        assert (items.table.find(batch[:8]) >= 0).all()
        vectors = expected.vectors(batch[:8]).reshape(4, 2, 3)
        np.testing.assert_allclose(user, vectors.mean(1), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(item, expected.vectors(candidates), rtol=1e-5, atol=1e-6)
        gradients = np.concatenate([np.full([8, 3], 0.5), np.full([4, 3], 2.0)])
        expected.end(together, gradients.astype(np.float32))
        expected.check()
    assert int(items.table.ids.statistics()["evicted"]) > 30


def test_fit_is_the_same_as_steps_by_hand():
    def model_of():
        symbol = keras.Input((2,), dtype="int64")
        model = keras.Model(symbol, layer_of()(symbol))
        optimizer = me.optimizers.Adagrad(LR, initial_accumulator_value=0.125)
        model.compile(optimizer, loss=lambda y, p: tf.reduce_sum(p * y) / 4)
        return model

    batches = list(oracle.stream(20, 8, 60, drift=1))
    y = np.tile(weights_of(0, 4)[:, None], [1, 3])
    model = model_of()
    model.fit(
        np.concatenate(batches).reshape(-1, 2), np.tile(y, [20, 1]), batch_size=4, epochs=2,
        shuffle=False, verbose=0,
    )  # fmt: skip
    table = model.layers[1].table
    expected = oracle.Oracle(table, {"accumulator": (3, 0.125)}, oracle.adagrad(LR))
    # The map's own story is told again by a table of the same kind that sees the same batches.
    again = layer_of()
    expected.table = again.table
    for batch in batches * 2:
        again(batch.reshape(4, 2), training=True)
        again.table.release()
        expected.begin(batch)
        expected.end(batch, np.repeat(weights_of(0, 4)[:, None], 2, 0).repeat(3, 1) / 4)
    expected.table = table
    expected.check()


@pytest.mark.parametrize("graph", [False, True])
def test_nothing_changes_where_the_model_does_not_train(graph):
    layer = layer_of()
    layer(tf.constant([[1], [2]]), training=True)
    look_up = tf.function(layer) if graph else layer
    before = [v.numpy() for v in layer.weights]
    vectors = look_up(tf.constant([[2], [3], [1]]))
    for variable, value in zip(layer.weights, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)
    np.testing.assert_array_equal(vectors[1], np.zeros(3))
    known = {
        int(k): v for e in layer.table.entries() for k, v in zip(e.keys, e.vectors, strict=True)
    }
    np.testing.assert_array_equal(vectors[0], known[2])
    np.testing.assert_array_equal(vectors[2], known[1])


def test_a_frozen_layer_learns_no_ids():
    layer = layer_of()
    layer(tf.constant([[1]]), training=True)
    layer.trainable = False
    layer(tf.constant([[2]]), training=True)
    assert layer.table.size() == 1
    layer.trainable = True
    layer(tf.constant([[2]]), training=True)
    assert layer.table.size() == 2


def test_a_frozen_table_learns_no_ids():
    config = me.TableConfig("a", None, 3, ids=me.ids.ManagedCollision(16), trainable=False)
    layer = me.layers.Embeddings(me.FeatureConfig("f", config))
    layer(tf.constant([[1]]), training=True)
    assert layer.tables["a"].size() == 0


def test_ids_not_admitted_have_oov_rows_that_train():
    ids = me.ids.ManagedCollision(16, admit_after=100, oov_rows=2)
    layer = me.layers.Embedding(None, 3, ids=ids, combiner="sum", seed=1)
    layer.build()
    table = layer.table
    oov = table.variable.numpy()[table.capacity :]
    assert oov.shape == (2, 3) and (oov != 0).all() and (oov[0] != oov[1]).all()
    optimizer = me.optimizers.SGD(1.0)
    optimizer.build(layer.trainable_variables)
    batch = np.arange(40)
    vectors = layer(batch[:, None])
    chosen = np.array([np.flatnonzero((oov == v).all(1))[0] for v in vectors.numpy()])
    assert set(chosen) == {0, 1}
    step_of([layer], optimizer, True)(tf.constant(batch))
    for row in range(2):
        change = weights_of(0, 40)[chosen == row].sum()
        after = table.variable.numpy()[table.capacity + row]
        np.testing.assert_allclose(after, oov[row] - change, rtol=1e-5)
    assert table.size() == 0


def test_two_features_of_a_table_are_one_step_of_its_map():
    config = me.TableConfig("t", None, 3, ids=me.ids.ManagedCollision(64, policy="lfu"))
    layer = me.layers.Embeddings(
        {
            "a": me.FeatureConfig("a", config, "sum", padding_id=0),
            "b": me.FeatureConfig("b", config, None),
        }
    )
    layer({"a": tf.constant([[1, 0], [2, 1]]), "b": tf.constant([1, 0])}, training=True)
    statistics = layer.tables["t"].ids.statistics()
    assert int(statistics["steps"]) == 1
    # Padding is none of the ids of a; in b, 0 is an id.
    [entries] = layer.tables["t"].entries()
    counts = dict(zip(entries.keys.tolist(), entries.scores.tolist(), strict=True))
    assert counts == {0: 1, 1: 3, 2: 1}


def test_rows_stay_until_their_update_has_run():
    """Assigns without updates: what they returned isn't given away before open_routes are over."""
    ids = me.ids.ManagedCollision(16, policy="lru", open_routes=3)
    layer = me.layers.Embedding(None, 3, ids=ids)
    layer(tf.range(16), training=True)
    table = layer.table
    kept = table.find(np.arange(16))
    for step in range(3):
        layer(tf.range(100 * step + 100, 100 * step + 116), training=True)
        np.testing.assert_array_equal(table.find(np.arange(16)), kept)
    layer(tf.range(500, 516), training=True)
    assert (table.find(np.arange(16)) < 0).all()
    # With a release in between, the next step may have them all.
    table.release()
    layer(tf.range(600, 616), training=True)
    assert (table.find(np.arange(600, 616)) >= 0).all()


def test_regularizers_see_the_rows_that_there_are():
    ids = me.ids.ManagedCollision(16)
    layer = me.layers.Embedding(
        None, 3, ids=ids, embeddings_regularizer=keras.regularizers.L2(1.0),
        embeddings_initializer="ones", padding_id=0,
    )  # fmt: skip
    layer(tf.constant([1, 2, 2, 0]), training=True)
    [loss] = layer.losses
    assert float(loss) == 6


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_rows(dtype):
    layer = layer_of(table_dtype=dtype, embeddings_initializer="ones")
    optimizer = me.optimizers.SGD(LR)
    optimizer.build(layer.trainable_variables)
    step_of([layer], optimizer, True)(tf.constant([1, 2]))
    np.testing.assert_array_equal(
        layer(tf.constant([[1], [2], [3]])).numpy()[:, 0],
        [1 - LR / 8, 1 - LR / 4, 0],
    )
