"""`UserFromItems`: pools of histories, against the same in numpy."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorflow import keras

import merlin_embeddings as me
from tests.bags import kinds

ROWS, DIM = 11, 3
LISTS = st.lists(st.lists(st.integers(0, ROWS - 1), max_size=6), max_size=4)
HISTORIES = [[3, 1, 4, 1, 5], [], [9], [2, 2]]
AGES = [[50, 40, 7, 3, 0], [], [12], [1, 1]]


def items_of(table, **more):
    return me.layers.Embedding(ROWS, DIM, weights=table, **more)


def user_of(table, pooling="mean", **more):
    return me.layers.UserFromItems(items_of(table), pooling, padding_id=kinds.PADDING, **more)


def ragged(lists, dtype=tf.int64):
    return kinds.batch("ragged", lists, dtype)


def expected_of(table, lists, weigh, divide=True):
    """Weighted means (or sums), one history after the other, in float64."""
    table = np.asarray(table, np.float64)
    users = np.zeros((len(lists), table.shape[1]))
    for b, items in enumerate(lists):
        if items:
            weights = np.asarray(weigh(b, items), np.float64)
            users[b] = weights @ table[items] / (weights.sum() if divide else 1)
    return users


def by_place(half_life):
    return lambda b, items: [0.5 ** ((len(items) - 1 - i) / half_life) for i in range(len(items))]


def cut(lists, length, keep):
    return [x[:length] if keep == "first" else x[max(0, len(x) - length) :] for x in lists]


@settings(max_examples=25)
@given(LISTS, st.sampled_from(kinds.KINDS), st.integers(1, 7), st.sampled_from(["first", "last"]))
def test_mean_of_every_kind(table, lists, kind, max_length, keep):
    user = user_of(table, max_length=max_length, keep=keep)
    expected = expected_of(
        table, cut(kinds.held(kind, lists), max_length, keep), lambda _, items: np.ones(len(items))
    )
    if kind == "distinct":
        expected = expected[::-1]
    np.testing.assert_allclose(user(kinds.batch(kind, lists)), expected, rtol=1e-5, atol=1e-6)


@settings(max_examples=25)
@given(LISTS, st.sampled_from(kinds.KINDS), st.floats(0.5, 30), st.integers(1, 7))
def test_recency_of_every_kind(table, lists, kind, half_life, max_length):
    """Padding has no place, wherever it stands."""
    user = user_of(table, me.layers.RecencyWeighted(half_life), max_length=max_length)
    bags = cut(kinds.held(kind, lists), max_length, "last")
    expected = expected_of(table, bags, by_place(half_life))
    if kind == "distinct":
        expected = expected[::-1]
    np.testing.assert_allclose(user(kinds.batch(kind, lists)), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["ragged", "sparse", "padded", "padded before", "splits"])
@pytest.mark.parametrize("half_life", [None, 2.0])
def test_recency_by_age(table, kind, half_life):
    pooling = me.layers.RecencyWeighted(half_life, age_half_life=10.0)
    by_half_life = by_place(half_life) if half_life else lambda b, items: np.ones(len(items))

    def weigh(b, items):
        return np.array(by_half_life(b, items)) * 0.5 ** (np.array(AGES[b]) / 10)

    ages = kinds.batch(kind, AGES, tf.float32)
    if kind == "splits":
        ages = ages["values"]
    got = user_of(table, pooling)(kinds.batch(kind, HISTORIES), ages=ages)
    np.testing.assert_allclose(got, expected_of(table, HISTORIES, weigh), rtol=1e-5, atol=1e-6)


def test_ages_are_cut_with_their_items(table):
    pooling = me.layers.RecencyWeighted(age_half_life=10.0)
    got = user_of(table, pooling, max_length=2)(ragged(HISTORIES), ages=ragged(AGES, tf.int64))
    last = cut(AGES, 2, "last")
    expected = expected_of(
        table, cut(HISTORIES, 2, "last"), lambda b, _: 0.5 ** (np.array(last[b]) / 10)
    )
    np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_timestamps_are_ages_with_a_minus(table):
    """Seconds since 1970 keep their last digits, which float32 hasn't."""
    moments = [[1_800_000_000 - age for age in ages] for ages in AGES]
    pooling = me.layers.RecencyWeighted(age_half_life=5)
    expected = user_of(table, pooling)(ragged(HISTORIES), ages=ragged(AGES, tf.float32))
    for dtype in (tf.int64, tf.float64):
        got = user_of(table, pooling)(ragged(HISTORIES), ages=-1 * ragged(moments, dtype))
        np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_the_oldest_histories_have_a_vector(table):
    """All weights of the last history are 0 in float32; what they are to each other isn't."""
    pooling = me.layers.RecencyWeighted(age_half_life=1.0)
    got = user_of(table, pooling)(ragged([[3], [1, 4]]), ages=ragged([[10**6], [10**6, 10**6 + 1]]))
    np.testing.assert_allclose(got[0], table[3], rtol=1e-6)
    np.testing.assert_allclose(got[1], (table[1] + 0.5 * table[4]) / 1.5, rtol=1e-5)


@pytest.mark.parametrize("pooling", ["mean", me.layers.RecencyWeighted(2.0)])
def test_weights_of_the_call_multiply(table, pooling):
    weights = [[1.0, 2.0, 0.0, 3.0, 0.5], [], [7.0], [1.0, 4.0]]
    places = by_place(2.0) if pooling != "mean" else lambda b, items: np.ones(len(items))
    got = user_of(table, pooling)(ragged(HISTORIES), weights=ragged(weights, tf.float32))
    expected = expected_of(
        table, HISTORIES, lambda b, items: np.array(places(b, items)) * weights[b]
    )
    np.testing.assert_allclose(got, expected, rtol=1e-5)


def mlp(x, weights, activation):
    """The scores of dense layers with these weights, in numpy."""
    *hidden, (kernel, bias) = zip(weights[::2], weights[1::2], strict=True)
    for its_kernel, its_bias in hidden:
        x = activation(x @ its_kernel + its_bias)
    return (x @ kernel + bias)[:, 0]


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def of_pooling(user):
    """The pooling's weights: all but the owner's table."""
    return [w.numpy().astype(np.float64) for w in user.pooling.weights]


@pytest.mark.parametrize("kind", ["ragged", "sparse", "padded", "padded before", "splits"])
@pytest.mark.parametrize("hidden_units", [(), (4,), (5, 4)])
def test_attention_with_a_learned_query(table, kind, hidden_units):
    user = user_of(table, me.layers.AttentionPooling(hidden_units))
    got = user(kinds.batch(kind, HISTORIES))

    def weigh(b, items):
        return np.exp(mlp(table[items].astype(np.float64), of_pooling(user), np.tanh))

    expected = expected_of(table, HISTORIES, weigh)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["ragged", "sparse", "padded", "padded before", "splits"])
@pytest.mark.parametrize("softmax", [False, True])
def test_target_attention(table, kind, softmax):
    """The candidate of the first history is in it."""
    user = user_of(table, me.layers.TargetAttention((5, 4), softmax=softmax))
    candidates = table[[4, 0, 7, 8]].astype(np.float64)
    got = user(kinds.batch(kind, HISTORIES), query=tf.constant(candidates, tf.float32))

    def weigh(b, items):
        v = table[items].astype(np.float64)
        q = np.repeat(candidates[b][None], len(items), 0)
        scores = mlp(np.concatenate([v, q, v - q, v * q], 1), of_pooling(user), sigmoid)
        return np.exp(scores) if softmax else scores

    expected = expected_of(table, HISTORIES, weigh, divide=softmax)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_items_without_a_vector_have_no_part(table):
    """With ids="zero" an unknown item has no vector, and no share of the attention."""
    items = items_of(table, ids=me.ids.Identity("zero"))
    for pooling in ("mean", me.layers.AttentionPooling((4,))):
        user = me.layers.UserFromItems(items, pooling)
        np.testing.assert_allclose(
            user(ragged([[99, 3, 1], [99]])),
            user(ragged([[3, 1], []])),
            rtol=1e-5,
        )


POOLINGS = {
    "mean": lambda: "mean",
    "recency": lambda: me.layers.RecencyWeighted(2.0),
    "learned recency": lambda: me.layers.RecencyWeighted(2.0, learned=True),
    "attention": lambda: me.layers.AttentionPooling((4,)),
    "softmax": lambda: me.layers.TargetAttention((4,), softmax=True),
    "target": lambda: me.layers.TargetAttention((4,)),
}


def call(user, lists, query=None):
    if user.pooling.needs_query:
        query = tf.ones([len(lists), DIM]) if query is None else query
        return user(ragged(lists), query=query)
    return user(ragged(lists))


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("lists", [[], [[]], [[], []], [[5]], [[5, 5, 5]]])
def test_edges(table, pooling, lists):
    """No batch, no history, one item, one item three times over."""
    user = user_of(table, POOLINGS[pooling]())
    with tf.GradientTape() as tape:
        users = call(user, lists)
        loss = tf.reduce_sum(users)
    gradients = tape.gradient(loss, user.trainable_variables)
    assert users.shape == (len(lists), DIM)
    if lists and lists[0] and pooling != "target":  # a mean of one vector is that vector
        np.testing.assert_allclose(users, table[[5]], rtol=1e-5)
    if not any(lists):
        np.testing.assert_array_equal(users, np.zeros((len(lists), DIM)))
    for gradient in gradients:
        assert gradient is not None
        assert np.all(np.isfinite(tf.convert_to_tensor(gradient)))


@pytest.mark.parametrize("pooling", POOLINGS)
def test_gradients_are_those_of_differences(pooling):
    """Of the owner's table and of all that the pooling learns, some elements of each."""
    keras.utils.set_random_seed(1)
    table = np.random.default_rng(3).normal(size=(ROWS, DIM)).astype(np.float32)
    user = user_of(table, POOLINGS[pooling]())
    query = tf.constant([[0.5, -1.0, 2.0]] * len(HISTORIES))
    slope = np.random.default_rng(4).normal(size=(len(HISTORIES), DIM)).astype(np.float32)

    @tf.function
    def loss_of():
        return tf.reduce_sum(call(user, HISTORIES, query) * slope)

    @tf.function
    def gradients_of():
        with tf.GradientTape() as tape:
            loss = loss_of()
        return tape.gradient(loss, [me.compat.raw_variable(v) for v in variables])

    call(user, HISTORIES, query)
    variables = user.trainable_variables
    for variable, gradient in zip(variables, gradients_of(), strict=True):
        start = np.array(variable)
        gradient = np.array(tf.convert_to_tensor(gradient))
        for at in list(np.ndindex(start.shape))[::5]:
            found = []
            for step in (1e-2, -1e-2):
                moved = start.copy()
                moved[at] += step
                variable.assign(moved)
                found.append(float(loss_of()))
            variable.assign(start)
            assert gradient[at] == pytest.approx((found[0] - found[1]) / 2e-2, rel=0.02, abs=2e-3)


def test_the_table_is_one_with_a_table_of_embeddings(table):
    config = me.TableConfig("item", ROWS, DIM, initializer=table)
    other = me.TableConfig("genre", 5, 2)
    owner = me.layers.Embeddings(
        {"last": me.FeatureConfig("last", config), "genre": me.FeatureConfig("genre", other)}
    )
    user = me.layers.UserFromItems(owner, table="item")
    np.testing.assert_allclose(user(ragged([[3, 1]])), table[[3, 1]].mean(0)[None], rtol=1e-6)
    assert user.weights[0] is owner.weights[0]
    assert len(user.weights) == 2  # the owner's, and nothing else
    with pytest.raises(ValueError, match=r"has the tables \['item', 'genre'\]; say which"):
        me.layers.UserFromItems(owner)
    with pytest.raises(ValueError, match=r"table='film' is no table of layer 'embeddings"):
        me.layers.UserFromItems(owner, table="film")


@pytest.mark.parametrize("ids", ["strings", "hashed"])
def test_open_ids(ids):
    items = me.layers.Embedding(None, DIM, ids=me.ids.Modulo(7))
    user = me.layers.UserFromItems(items)
    if ids == "strings":
        history = tf.ragged.constant([["ann", "bob"], ["bob"]])
        expected = [
            np.mean([items(tf.constant([n]))[0] for n in bag], 0) for bag in history.numpy()
        ]
    else:
        history, expected = ragged([[-1, 8], [15]]), items(tf.constant([[6, 1], [1, 1]])).numpy()
        expected = expected.mean(1)
    np.testing.assert_allclose(user(history), expected, rtol=1e-5)


@pytest.mark.parametrize("owner", [{"padding_id": 0}, {"mask_zero": True}])
def test_the_owners_padding_is_the_histories(table, owner):
    user = me.layers.UserFromItems(items_of(table, **owner))
    got = user(tf.constant([[3, 1, 0, 0], [0, 0, 0, 0]]))
    np.testing.assert_allclose(got, [table[[3, 1]].mean(0), np.zeros(DIM)], rtol=1e-6)


def test_merlins_pair(table):
    user = user_of(table, me.layers.RecencyWeighted(age_half_life=10.0))
    history, ages = ragged(HISTORIES), ragged(AGES, tf.float32)
    pair = {"clicks__values": history.values, "clicks__offsets": history.row_splits}
    its_ages = {"ages__values": ages.values, "ages__offsets": ages.row_splits}
    expected = user(history, ages=ages)
    np.testing.assert_array_equal(user(pair, ages=its_ages), expected)
    np.testing.assert_array_equal(user(me.Bags.of(history), ages=ages), expected)


def test_the_rows_of_all_lookups_are_updated_once(table):
    """One table in the history, in the query and in the candidates: duplicates summed."""
    items = items_of(table)
    user = me.layers.UserFromItems(items, me.layers.TargetAttention((4,)))
    variable = items.embeddings

    def loss_of():
        query = items(tf.constant([4, 3]))
        users = user(ragged([[3, 1, 4], [3]]), query=query)
        return tf.reduce_sum(users * query)

    with tf.GradientTape() as tape:
        loss = loss_of()
    dense = tf.convert_to_tensor(tape.gradient(loss, me.compat.raw_variable(variable))).numpy()
    optimizer = me.optimizers.SGD(0.5)
    optimizer.build(user.trainable_variables)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = loss_of()
        variables = user.trainable_variables
        raw = [me.compat.raw_variable(v) for v in variables]
        optimizer.apply(tape.gradient(loss, raw), variables)

    step()
    np.testing.assert_allclose(variable.numpy(), table - 0.5 * dense, rtol=1e-5, atol=1e-6)
    assert np.flatnonzero(np.any(variable.numpy() != table, axis=1)).tolist() == [1, 3, 4]


def test_the_half_lives_are_learned(table):
    """Users who only care for their last item: the half-life becomes short."""
    items = items_of(table, trainable=False)
    user = me.layers.UserFromItems(items, me.layers.RecencyWeighted(8.0, learned=True))
    model = keras.Sequential([keras.Input((5,), dtype="int64"), user])
    model.compile(me.optimizers.Adam(0.1), "mse")
    history = np.random.default_rng(0).integers(ROWS, size=(64, 5))
    model.fit(history, table[history[:, -1]], epochs=30, batch_size=64, verbose=0)
    assert np.exp(user.pooling.log_half_life.numpy()) < 1


def test_a_regularizer_acts_on_the_items_seen(table):
    items = items_of(table, embeddings_regularizer=keras.regularizers.L2(0.5))
    user = me.layers.UserFromItems(items)
    user(ragged([[3, 1], [3]]))
    np.testing.assert_allclose(sum(user.losses), 0.5 * np.sum(table[[3, 1]] ** 2), rtol=1e-5)
