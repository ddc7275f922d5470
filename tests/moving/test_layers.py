"""Rows that move in every layer that looks ids up, and scores that come with ids."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import merlin_embeddings as me
from merlin_embeddings.layers import samplers

CUSTOM = me.ids.ManagedCollision(16, policy="custom")


def scores_of(table):
    return {
        k: s
        for entries in table.entries()
        for k, s in zip(entries.keys.tolist(), entries.scores.tolist(), strict=True)
    }


def vectors_of(table):
    return {int(k): v for e in table.entries() for k, v in zip(e.keys, e.vectors, strict=True)}


KINDS = {
    "dense": (tf.constant([[1, 2], [3, 4]]), tf.constant([[10, 20], [30, 40]])),
    "ragged": (tf.ragged.constant([[1, 2, 3], [4]]), tf.ragged.constant([[10, 20, 30], [40]])),
    "sparse": tuple(
        tf.SparseTensor([[0, 0], [0, 1], [1, 0], [1, 3]], values, [2, 4])
        for values in ([1, 2, 3, 4], [10, 20, 30, 40])
    ),
    "bags": (me.Bags([1, 2, 3, 4], [0, 3, 4], scores=[10, 20, 30, 40]), None),
}


@pytest.mark.parametrize(
    ("kind", "combiner"),
    [(kind, "sum") for kind in KINDS] + [(kind, None) for kind in KINDS if kind != "sparse"],
)
def test_scores_come_with_ids_of_every_kind(kind, combiner):
    ids, scores = KINDS[kind]
    layer = me.layers.Embedding(None, 3, ids=CUSTOM, combiner=combiner)
    layer(ids, scores=scores, training=True)
    assert scores_of(layer.table) == {1: 10, 2: 20, 3: 30, 4: 40}


def test_scores_by_feature_padding_and_cut_bags():
    config = me.TableConfig("t", None, 3, ids=CUSTOM)
    layer = me.layers.Embeddings(
        {
            "a": me.FeatureConfig("a", config, "sum", padding_id=0, max_length=2, keep="last"),
            "b": me.FeatureConfig("b", config, None),
        }
    )
    ids = {"a": tf.constant([[1, 2, 3], [4, 0, 0]]), "b": tf.constant([3, 9])}
    scores = {"a": tf.constant([[1, 2, 3], [4, 5, 6]]), "b": tf.constant([30, 2**32 - 1])}
    layer(ids, scores=scores, training=True)
    # Of an id that comes twice the higher counts.
    assert scores_of(layer.tables["t"]) == {2: 2, 3: 30, 4: 4, 9: 2**32 - 1}


def test_ids_with_the_highest_scores_stay():
    layer = me.layers.Embedding(None, 3, ids=CUSTOM)
    seen = {}
    for id in range(100):
        seen[id] = id * 7919 % 401  # a prime: all differ
        layer(tf.constant([id]), scores=tf.constant([seen[id]]), training=True)
        layer.table.release()
        highest = sorted(seen.items(), key=lambda item: -item[1])[:16]
        assert scores_of(layer.table) == dict(highest)


def test_scores_in_a_functional_model():
    ids, scores = (keras.Input((2,), dtype="int64") for _ in range(2))
    layer = me.layers.Embedding(None, 3, ids=CUSTOM, combiner="sum")
    model = keras.Model([ids, scores], layer(ids, scores=scores))
    model.compile(me.optimizers.SGD(0.1), "mse")
    x = [np.array([[1, 2]]), np.array([[7, 8]])]
    model.fit(x, np.zeros((1, 3)), verbose=0)
    assert scores_of(layer.table) == {1: 7, 2: 8}


@pytest.mark.parametrize(
    ("ids", "scores", "error", "message"),
    [
        (me.ids.ManagedCollision(16), [[1]], ValueError, "scores are for the policy ids.Custom"),
        (me.ids.Modulo(16), [[1]], ValueError, "got scores, which the table's ids have no use"),
        (CUSTOM, None, ValueError, "the policy Custom goes by scores"),
        (CUSTOM, [[1, 2]], ValueError, "scores have shape .* give one score an id"),
        (CUSTOM, [[0.5]], TypeError, "scores have dtype float32"),
        (CUSTOM, [[-1]], tf.errors.InvalidArgumentError, "-1"),
        (CUSTOM, tf.ragged.constant([[1]]), TypeError, "ids are dense but scores are ragged"),
    ],
)
def test_scores_that_cannot_be(ids, scores, error, message):
    layer = me.layers.Embedding(None, 3, ids=ids, combiner="sum", name="clicks")
    given = None if scores is None else scores
    if isinstance(given, list):
        given = tf.constant(given)
    with pytest.raises(error, match=rf"feature 'clicks'.*{message}"):
        layer(tf.constant([[5]]), scores=given, training=True)
    if ids is not me.ids.Modulo(16) and hasattr(layer.table, "size"):
        assert layer.table.size() == 0


def test_strings_and_any_rank():
    layer = me.layers.Embedding(None, 3, ids=me.ids.ManagedCollision(16), seed=1)
    words = tf.constant([[["a", "b"]], [["c", "a"]]])
    out = layer(words, training=True)
    assert out.shape == (2, 1, 2, 3)
    np.testing.assert_array_equal(out[0, 0, 0], out[1, 0, 1])
    known = vectors_of(layer.table)
    hashed = me.bags.hash_strings(tf.constant(["a", "b", "c"])).numpy()
    np.testing.assert_array_equal(out[0, 0, 1], known[hashed[1]])
    assert set(known) == set(hashed.tolist())


def test_mask_zero_and_padding():
    layer = me.layers.Embedding(
        None, 3, ids=me.ids.ManagedCollision(16), mask_zero=True, padding_id=0,
        embeddings_initializer="ones",
    )  # fmt: skip
    out = layer(tf.constant([[1, 0]]), training=True)
    assert out.numpy().tolist() == [[[1, 1, 1], [0, 0, 0]]]
    assert layer.table.find([0, 1]).tolist()[0] == -1


def test_user_from_items_with_attention():
    items = me.layers.Embedding(None, 4, ids=me.ids.ManagedCollision(64), seed=1, padding_id=0)
    users = me.layers.UserFromItems(items, me.layers.AttentionPooling())
    out = users(tf.constant([[1, 2, 0], [3, 0, 0]]), training=True)
    assert set(vectors_of(items.table)) == {1, 2, 3}
    # A history of one item is that item's vector.
    np.testing.assert_allclose(out[1], vectors_of(items.table)[3], rtol=1e-5)


@pytest.mark.parametrize("pooling", ["attention", "target", "own"])
def test_attention_looks_items_up_once(pooling):
    """Each id counts as often as it comes, and a regularizer acts once."""

    class Own(me.layers.AttentionPooling):
        combiner = "sqrtn"

    made = {"attention": me.layers.AttentionPooling, "own": Own}.get(
        pooling, me.layers.TargetAttention
    )
    items = me.layers.Embedding(
        None, 4, ids=me.ids.ManagedCollision(64, policy="lfu"), seed=1, padding_id=0,
        embeddings_regularizer=keras.regularizers.L2(1.0), embeddings_initializer="ones",
    )  # fmt: skip
    users = me.layers.UserFromItems(items, made((4,)))
    more = {"query": tf.ones((2, 4))} if pooling == "target" else {}
    users(tf.constant([[1, 2, 1], [3, 0, 0]]), training=True, **more)
    assert scores_of(items.table) == {1: 2, 2: 1, 3: 1}
    statistics = items.table.ids.statistics()
    assert (int(statistics["looked_up"]), int(statistics["steps"])) == (4, 1)
    assert float(sum(users.losses)) == 3 * 4


def test_attention_leaves_items_without_a_vector_out():
    ids = me.ids.ManagedCollision(16, admit_after=2)
    items = me.layers.Embedding(None, 3, ids=ids, seed=1)
    items(tf.constant([5, 5, 6, 6]), training=True)
    users = me.layers.UserFromItems(items, me.layers.AttentionPooling())
    known = vectors_of(items.table)
    # 7 was never seen: the mean by the softmax is one of 5 alone, and of nothing is zeros.
    out = users(tf.constant([[5, 7], [7, 7]]), weights=tf.constant([[0.5, 9.0], [1.0, 1.0]]))
    np.testing.assert_allclose(out, [known[5], np.zeros(3)], rtol=1e-6)


def test_scores_of_histories_and_of_positives():
    items = me.layers.Embedding(None, 3, ids=CUSTOM, padding_id=0)
    scores = tf.ragged.constant([[10, 20, 30], [40]])
    history = tf.ragged.constant([[1, 2, 3], [4]])
    for pooling in (me.layers.AttentionPooling(), "mean"):
        users = me.layers.UserFromItems(items, pooling, max_length=2)
        found = users(history, scores=scores, training=True)
        assert scores_of(items.table) == {2: 20, 3: 30, 4: 40}
        items.table.erase([2, 3, 4])
    softmax = me.layers.SampledSoftmax(items, samplers.InBatch())
    softmax(found, tf.constant([8, 9]), scores=tf.constant([[5], [6]]), training=True)
    assert scores_of(items.table) == {8: 5, 9: 6}
    for layer, inputs in ((users, [history]), (softmax, [found, tf.constant([8, 9])])):
        with pytest.raises(ValueError, match="the policy Custom goes by scores; give scores="):
            layer(*inputs, training=True)
    fixed = me.layers.Embedding(9, 3)
    symbols = keras.Input((2,), dtype="int64"), keras.Input((2,), dtype="int64")
    with pytest.raises(ValueError, match="got scores, which the table's ids have no use for"):
        me.layers.UserFromItems(fixed)(symbols[0], scores=symbols[1])
    positives = keras.Input((), dtype="int64")
    with pytest.raises(ValueError, match="got scores, which the table's ids have no use for"):
        me.layers.SampledSoftmax(fixed, samplers.Uniform(2))(
            keras.Input((3,)), positives, scores=positives
        )


def softmax_of(sampler):
    items = me.layers.Embedding(None, 3, ids=me.ids.ManagedCollision(16, policy="lru"), seed=1)
    return items, me.layers.SampledSoftmax(items, sampler)


def test_sampled_softmax_with_the_batchs_own_negatives():
    items, layer = softmax_of(samplers.InBatch())
    users = tf.constant(np.random.default_rng(0).normal(size=(3, 3)), tf.float32)
    logits = layer(users, tf.constant([7, 8, 7]), training=True).numpy()
    known = vectors_of(items.table)
    scores = users.numpy() @ np.stack([known[7], known[8]]).T
    # After one step every gap between steps is 1, so that nothing is corrected.
    np.testing.assert_allclose(logits[:, 0], scores[[0, 1, 2], [0, 1, 0]], rtol=1e-5)
    np.testing.assert_allclose(logits[1, 1], scores[1, 0], rtol=1e-5)
    assert logits[0, 1] == logits[1, 2] == np.float32(tf.float32.min)


def test_the_sampler_forgets_a_row_that_gets_another_id():
    items, layer = softmax_of(samplers.InBatch())
    users = tf.zeros((16, 3))
    layer(users, tf.range(16, dtype=tf.int64), training=True)
    items.table.release()
    sampler = layer.sampler
    assert (np.asarray(sampler.last_step)[: items.table.capacity] == 1).all()
    layer(users[:2], tf.constant([100, 101], tf.int64), training=True)
    rows = items.table.find([100, 101])
    assert np.asarray(sampler.last_step)[rows].tolist() == [2, 2]
    # An id first seen in step 2: 2 steps since the beginning, not 1 since another id's.
    assert np.asarray(sampler.gap)[rows].tolist() == [2, 2]


def test_a_positive_without_a_vector_has_the_logit_0():
    ids = me.ids.ManagedCollision(16, admit_after=5)
    items = me.layers.Embedding(None, 3, ids=ids)
    layer = me.layers.SampledSoftmax(items, samplers.InBatch())
    logits = layer(tf.ones((2, 3)), tf.constant([1, 2]), training=True).numpy()
    np.testing.assert_array_equal(logits[:, 0], [0, 0])


@pytest.mark.parametrize(
    "sampler", [samplers.Uniform(4), samplers.LogUniform(4), samplers.InBatch(np.ones(16))]
)
def test_samplers_that_know_items_by_rows_are_refused(sampler):
    with pytest.raises(ValueError, match=r"SampledSoftmax.*rows move from id to id.*InBatch\(\)"):
        softmax_of(sampler)


def test_top_k_is_refused():
    items = me.layers.Embedding(None, 3, ids=me.ids.ManagedCollision(16))
    with pytest.raises(ValueError, match="whose rows are no ids"):
        me.layers.TopK(items, 3)


def test_input_block():
    schema = [
        me.data.Column("user", ("categorical",)),
        me.data.Column("age", ("continuous",)),
    ]
    config = me.TableConfig("user", None, 4, ids=me.ids.ManagedCollision(16), seed=1)
    block = me.layers.InputBlock(schema, categorical={"user": me.FeatureConfig("user", config)})
    out = block({"user": tf.constant([5, 6]), "age": tf.constant([0.5, 1.5])}, training=True)
    assert out.shape == (2, 5)
    known = vectors_of(block.categorical.tables["user"])
    np.testing.assert_array_equal(out.numpy()[:, 1:], [known[5], known[6]])


def test_config_and_copies():
    ids = me.ids.ManagedCollision(16, policy=me.ids.LFU(half_life=100), admit_after=3, oov_rows=2)
    layer = me.layers.Embedding(None, 3, ids=ids, combiner="sum")
    again = me.layers.Embedding.from_config(layer.get_config())
    assert again.ids == ids
    again(tf.constant([[1]]), training=True)
    assert again.table.rows == again.table.capacity + 2
    assert repr(again.table) == f"MovingTable('embeddings', [{again.table.rows}, 3] float32)"


def test_a_subclassed_model_that_keras_first_calls_with_symbols():
    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.items = me.layers.Embedding(
                None, 3, ids=me.ids.ManagedCollision(16, oov_rows=2), combiner="sum"
            )
            self.top = keras.layers.Dense(1)

        def call(self, inputs, training=None):
            return self.top(self.items(inputs, training=training))

    model = Model()
    model.compile(me.optimizers.Adagrad(0.1), "mse")
    model.fit(np.array([[1, 2], [2, 3]]), np.ones((2, 1)), verbose=0)
    assert set(vectors_of(model.items.table)) == {1, 2, 3}
    assert (np.asarray(model.items.table.variable)[-2:] != 0).all()


class Two(tf.distribute.OneDeviceStrategy):
    """Says that it has two replicas."""

    num_replicas_in_sync = 2


def test_replicas_are_refused():
    with Two("CPU:0").scope():
        layer = me.layers.Embedding(None, 3, ids=me.ids.ManagedCollision(32))
        with pytest.raises(ValueError, match="table 'embeddings': Two has 2 replicas"):
            layer.build()
