"""Bad input to layers that share a table: what is wrong, by name, and the way out."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import merlin_embeddings as me

INVALID = tf.errors.InvalidArgumentError


@pytest.fixture
def items():
    return me.layers.Embedding(11, 3, name="items")


def ragged(lists):
    return tf.ragged.constant(lists, tf.int64, ragged_rank=1)


@pytest.mark.parametrize(
    "owner", [keras.layers.Embedding(11, 3), None, np.zeros((11, 3)), me.TableConfig("t", 11, 3)]
)
def test_no_owner_of_a_table(owner):
    with pytest.raises(TypeError, match=r"must be the layer that owns the table, a merlin_emb"):
        me.layers.UserFromItems(owner)


@pytest.mark.parametrize("pooling", ["max", "attention", None, 3, me.layers.Mean])
def test_unknown_pooling(items, pooling):
    with pytest.raises(ValueError, match=r"it must be 'mean' or a pooling, such as"):
        me.layers.UserFromItems(items, pooling)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"max_length": 0}, "max_length=0; it must be a positive integer"),
        ({"max_length": 2.5}, "max_length=2.5; it must be a positive integer"),
        ({"keep": "middle"}, "keep='middle'; it must be 'first' or 'last'"),
    ],
)
def test_arguments(items, arguments, message):
    with pytest.raises(ValueError, match=message):
        me.layers.UserFromItems(items, **arguments)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({}, "give half_life, age_half_life, or both"),
        ({"half_life": 0}, "half_life=0; it must be a number above 0"),
        ({"half_life": "long"}, "half_life='long'"),
        ({"age_half_life": float("nan")}, "age_half_life=nan"),
        ({"half_life": float("inf")}, "half_life=inf"),
    ],
)
def test_half_lives(arguments, message):
    with pytest.raises(ValueError, match="RecencyWeighted: " + message):
        me.layers.RecencyWeighted(**arguments)


def test_hidden_units():
    with pytest.raises(ValueError, match=r"TargetAttention: hidden_units=\(8, 0\)"):
        me.layers.TargetAttention((8, 0))


def test_what_a_pooling_needs_and_what_not(items):
    history, vectors = ragged([[1, 2]]), tf.ones([1, 3])
    target = me.layers.UserFromItems(items, me.layers.TargetAttention(), name="u")
    aged = me.layers.UserFromItems(items, me.layers.RecencyWeighted(age_half_life=3))
    mean = me.layers.UserFromItems(items)
    with pytest.raises(ValueError, match="'u': TargetAttention needs the call argument query="):
        target(history)
    with pytest.raises(ValueError, match="RecencyWeighted needs the call argument ages="):
        aged(history)
    with pytest.raises(ValueError, match="Mean has no use for query=; TargetAttention does"):
        mean(history, query=vectors)
    with pytest.raises(ValueError, match=r"has no use for ages=.*age_half_life"):
        mean(history, ages=history)
    with pytest.raises(TypeError, match=r"query has dtype.*give items\(candidates\)"):
        target(history, query=tf.constant([4]))
    with pytest.raises(ValueError, match=r"query has shape \(1, 4\); it must be \[B, 3\]"):
        target(history, query=tf.ones([1, 4]))
    with pytest.raises(INVALID, match="query and histories have different batch sizes"):
        target(history, query=tf.ones([2, 3]))
    with pytest.raises(ValueError, match="give each sample its own history"):
        target(me.Bags([1], [0, 1], inverse=[0, 0]), query=tf.ones([2, 3]))


def test_symbols_are_checked_too(items):
    history = keras.Input((None,), dtype="int64", ragged=True)
    target = me.layers.UserFromItems(items, me.layers.TargetAttention())
    aged = me.layers.UserFromItems(items, me.layers.RecencyWeighted(age_half_life=3))
    with pytest.raises(ValueError, match="needs the call argument query="):
        target(history)
    with pytest.raises(ValueError, match=r"query has shape \(None, 4\)"):
        target(history, query=keras.Input((4,)))
    with pytest.raises(TypeError, match="ids are ragged but weights are dense"):
        aged(history, ages=keras.Input((3,)))
    with pytest.raises(ValueError, match="got strings"):
        me.layers.UserFromItems(items)(keras.Input((3,), dtype="string"))


@pytest.mark.parametrize(
    "weights, error, message",
    [
        ([[1.0]], INVALID, "ids and weights have different row_splits"),
        ([[1.0, 2.0], [3.0]], INVALID, "row_splits"),
        ([[1.0, np.nan]], INVALID, "weight 1 is nan"),
    ],
)
@pytest.mark.parametrize("what", ["weights", "ages"])
def test_weights_and_ages_of_another_kind(items, weights, error, message, what):
    pooling = me.layers.RecencyWeighted(age_half_life=3) if what == "ages" else "mean"
    user = me.layers.UserFromItems(items, pooling)
    if what == "ages" and "nan" in message:
        message = "weight 0 is nan"  # what an age is, all others of the history are relative to
    with pytest.raises(error, match=message):
        user(ragged([[1, 2]]), **{what: tf.ragged.constant(weights, ragged_rank=1)})
    with pytest.raises(TypeError, match="ids are ragged but weights are dense"):
        user(ragged([[1, 2]]), **{what: tf.constant([[1.0, 2.0]])})


@pytest.mark.parametrize("pooling", ["mean", me.layers.RecencyWeighted(2)])
def test_items_that_there_are_not(items, pooling):
    user = me.layers.UserFromItems(items, pooling, name="u")
    with pytest.raises(INVALID, match=r"table 'embeddings', feature 'u'.*id 11 .*\[0, 11\)"):
        user(ragged([[1, 11]]))


def test_half_of_merlins_pair(items):
    with pytest.raises(ValueError, match=r"bags given as a dict have 'values'.*got \['x__val"):
        me.layers.UserFromItems(items)({"x__values": tf.constant([1])})


S = me.layers.samplers


@pytest.mark.parametrize(
    "sampler, message",
    [
        (lambda: S.Uniform(12), "draws num_sampled=12 negatives, but there are 11 items"),
        (lambda: S.Uniform(9, first=3), r"there are 8 items: 11 rows, from row 3 on.*full softmax"),
        (lambda: S.LogUniform(12), "num_sampled=12"),
        (lambda: S.Uniform(1, first=20), "there are 0 items"),
        (lambda: S.Uniform(0), "Uniform: num_sampled=0; it must be a positive"),
        (lambda: S.LogUniform(1, first=-1), "LogUniform: first=-1; it must be an integer of 0"),
        (lambda: S.Unigram(2, [1.0, 2.0]), "Unigram has 2 counts, the table has 11 rows"),
        (lambda: S.InBatch([1.0, 2.0]), "InBatch has 2 counts, the table has 11 rows"),
        (lambda: S.Unigram(2, [1.0, -2.0]), "Unigram: counts must be a number of 0 or more"),
        (lambda: S.Unigram(2, [[1.0]]), r"counts must be a number .* got shape \[1, 1\]"),
        (lambda: S.Unigram(2, [9.0, 0.0], first=1), "counts are all 0; there is nothing to draw"),
        (lambda: S.InBatch(learning_rate=0), "InBatch: learning_rate=0; it must be in"),
    ],
)
def test_samplers(items, sampler, message):
    with pytest.raises(ValueError, match=message):
        me.layers.SampledSoftmax(items, sampler())


def test_sampled_softmax(items):
    with pytest.raises(TypeError, match=r"sampler='uniform'; it must be one of layers.samplers"):
        me.layers.SampledSoftmax(items, "uniform")
    with pytest.raises(ValueError, match="temperature=0; it must be above 0"):
        me.layers.SampledSoftmax(items, S.Uniform(3), temperature=0)
    layer = me.layers.SampledSoftmax(items, S.Uniform(3, first=1), name="s")
    users = tf.ones([2, 3])
    with pytest.raises(ValueError, match=r"users have shape \(2, 4\); they must be \[B, 3\]"):
        layer(tf.ones([2, 4]), tf.constant([1, 2]))
    with pytest.raises(ValueError, match=r"positives have shape \(2, 2\)"):
        layer(users, tf.constant([[1, 2], [3, 4]]))
    with pytest.raises(ValueError, match="2 users and 3 positives"):
        layer(users, tf.constant([1, 2, 3]))
    with pytest.raises(INVALID, match=r"feature 's': Uniform never draws these positives"):
        layer(users, tf.constant([0, 2]))
    for sampler in (S.LogUniform(3), S.Unigram(3, np.ones(11)), S.InBatch(np.ones(11))):
        with pytest.raises(INVALID, match=r"id 11 .*\[0, 11\)"):
            me.layers.SampledSoftmax(items, sampler)(users, tf.constant([11, 2]))


def test_a_bad_batch_leaves_the_estimates_alone(items):
    layer = me.layers.SampledSoftmax(items, S.InBatch())
    with pytest.raises(INVALID, match="id 11 "):
        layer(tf.ones([1, 3]), tf.constant([11]), training=True)
    np.testing.assert_array_equal(layer.sampler.gap, np.zeros(11))


def test_top_k(items):
    for arguments, message in (
        ({"k": 0}, "k=0; it must be a positive integer"),
        ({"k": 9, "first": 3}, "k=9, but table 'embeddings' has 8 items"),
        ({"k": 1, "first": -1}, "first=-1; it must be an integer of 0 or more"),
        ({"k": 1, "chunk_size": 0}, "chunk_size=0; it must be a positive integer"),
    ):
        with pytest.raises(ValueError, match=message):
            me.layers.TopK(items, **arguments)
    hashed = me.layers.Embedding(None, 3, ids=me.ids.Modulo(11))
    with pytest.raises(ValueError, match=r"ids=Modulo\(rows=11\), whose rows are no ids"):
        me.layers.TopK(hashed, 2)
    top = me.layers.TopK(items, 2)
    with pytest.raises(ValueError, match=r"users have shape \(2, 4\); they must be \[B, 3\]"):
        top(tf.ones([2, 4]))
    with pytest.raises(INVALID, match="exclude and users have different batch sizes"):
        top(tf.ones([2, 3]), exclude=ragged([[1]]))


@pytest.mark.parametrize("chunk_size", [4, 11, 16])
def test_top_k_excludes_ids_out_of_range(items, chunk_size):
    users, ids = tf.constant([[1.0, 0.0, 0.0]]), ragged([[0, 11, -1]])
    values = np.linspace(11, 1, 11)[:, None] * [1.0, 0.0, 0.0]
    for map_, best in (("zero", [1, 2]), ("clip", [1, 2])):
        layer = me.layers.Embedding(11, 3, ids=me.ids.Identity(map_), weights=values)
        top = me.layers.TopK(layer, 2, chunk_size=chunk_size)
        np.testing.assert_array_equal(top(users, exclude=ids)[1], [best])
    worst = me.layers.TopK(layer, 11, chunk_size=chunk_size)  # clipped: 11 is item 10
    np.testing.assert_array_equal(worst(users, exclude=ids)[1], [[*range(1, 10), -1, -1]])
    for out in (11, -1):
        with pytest.raises(INVALID, match=rf"table 'embeddings'.*exclude: id {out} at position 0 "):
            me.layers.TopK(items, 2, chunk_size=chunk_size)(users, exclude=ragged([[out]]))
