"""`SampledSoftmax`, its samplers and `TopK`, against numpy and `tf.nn.sampled_softmax_loss`."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorflow import keras

import merlin_embeddings as me

S = me.layers.samplers
ROWS, DIM = 11, 3
RNG = np.random.default_rng(7)
USERS = RNG.normal(size=(4, DIM)).astype(np.float32)
ITEMS = np.array([3, 5, 3, 10])
COUNTS = np.array([0.0, 5, 1, 8, 2, 2, 0, 3, 1, 1, 4])


def cross_entropy(logits):
    """Of class 0, in float64."""
    logits = np.asarray(logits, np.float64)
    return np.log(np.exp(logits - logits[:, :1]).sum(1))


def layer_of(table, sampler, **more):
    return me.layers.SampledSoftmax(me.layers.Embedding(ROWS, DIM, weights=table), sampler, **more)


def probabilities(name):
    """Of each row in one draw, from the definitions."""
    if name == "log-uniform":
        k = np.arange(ROWS - 1)
        return np.append(0, np.log((k + 2) / (k + 1)) / np.log(ROWS))
    powers = np.where(COUNTS > 0, COUNTS**0.5, 0)
    powers[:2] = 0
    return powers / powers.sum()


def sampler_of(name, num_sampled=5):
    if name == "log-uniform":
        return S.LogUniform(num_sampled, first=1)
    return S.Unigram(num_sampled, COUNTS, distortion=0.5, first=2)


@pytest.mark.parametrize("first", [0, 1, 3])
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_with_all_items_it_is_the_full_softmax(table, first, temperature):
    layer = layer_of(table, S.Uniform(ROWS - first, first=first), temperature=temperature)
    dots = USERS.astype(np.float64) @ table[first:].T.astype(np.float64) / temperature
    full = np.log(np.exp(dots).sum(1)) - dots[np.arange(4), ITEMS - first]
    np.testing.assert_allclose(cross_entropy(layer(USERS, ITEMS)), full, rtol=1e-5)


@pytest.mark.parametrize("name", ["log-uniform", "unigram"])
def test_as_sampled_softmax_loss(table, name, monkeypatch):
    """TensorFlow's own, with the same negatives and expected counts of our own arithmetic."""
    sampler = sampler_of(name)
    # 3 and 10 are positives. Of a positive that comes twice TensorFlow would mask one only.
    drawn = np.array([1, 3, 7, 7, 10] if name == "log-uniform" else [3, 4, 7, 7, 10])
    monkeypatch.setattr(sampler, "sample", lambda positives, training: tf.constant(drawn))
    layer = layer_of(table, sampler)
    expected_count = 5 * probabilities(name)
    expected = tf.nn.sampled_softmax_loss(
        weights=table,
        biases=np.zeros(ROWS, np.float32),
        labels=ITEMS[:, None],
        inputs=USERS,
        num_sampled=5,
        num_classes=ROWS,
        sampled_values=(
            tf.constant(drawn),
            tf.constant(expected_count[ITEMS][:, None], tf.float32),
            tf.constant(expected_count[drawn], tf.float32),
        ),
    )
    np.testing.assert_allclose(cross_entropy(layer(USERS, ITEMS)), expected, rtol=1e-5)


@pytest.mark.parametrize("name", ["uniform", "log-uniform", "unigram"])
def test_expected_counts_are_those_observed(table, name):
    """Over 4,000 batches: what is expected, and what comes, within 5 standard errors."""
    first = {"uniform": 3, "log-uniform": 1, "unigram": 2}[name]
    sampler = S.Uniform(5, first=3) if name == "uniform" else sampler_of(name)
    sampler.build_for(ROWS)
    tf.random.set_seed(1)
    draws = tf.function(
        lambda: tf.map_fn(lambda _: sampler.sample(ITEMS, True), tf.range(4000), tf.int64)
    )().numpy()
    assert draws.shape == (4000, 5)
    assert draws.min() >= first and draws.max() < ROWS
    if name == "uniform":
        assert all(len(set(draw)) == 5 for draw in draws)
    counts = np.stack([(draws == row).sum(1) for row in range(ROWS)], 1)
    error = counts.std(0) / np.sqrt(4000) + 1e-9
    expected = np.exp(sampler.log_expected_count(tf.range(ROWS, dtype=tf.int64), 4).numpy())
    assert np.all(np.abs(counts.mean(0) - expected) <= 5 * error)
    by_hand = np.where(np.arange(ROWS) < 3, 0, 5 / 8) if name == "uniform" else None
    np.testing.assert_allclose(
        expected, 5 * probabilities(name) if by_hand is None else by_hand, rtol=1e-5
    )


@pytest.mark.parametrize("name", ["uniform", "log-uniform", "unigram", "in batch"])
def test_the_partition_function_is_estimated_without_bias(table, name):
    """The mean over batches of the sum of exp(logit - log Q) is the sum over all items."""
    user = USERS[:1]
    weights = np.exp(user.astype(np.float64) @ table.T.astype(np.float64))[0]
    rng = np.random.default_rng(0)
    shares = COUNTS / COUNTS.sum()
    if name == "uniform":
        sampler, support = S.Uniform(4, first=1), np.arange(ROWS) >= 1
    elif name == "in batch":
        sampler, support = S.InBatch(COUNTS), COUNTS > 0
    else:
        sampler, support = sampler_of(name, 4), probabilities(name) > 0
    sampler.build_for(ROWS)
    tf.random.set_seed(2)
    log_q = sampler.log_expected_count(tf.range(ROWS, dtype=tf.int64), 6).numpy()
    corrected = np.where(support, weights / np.exp(np.where(support, log_q, 0)), 0)
    batches = tf.constant(rng.choice(ROWS, size=[2000, 6], p=shares))

    @tf.function
    def sums_of():
        def one(positives):
            return tf.reduce_sum(tf.gather(corrected, sampler.sample(positives, False)))

        return tf.map_fn(one, batches, fn_output_signature=tf.float64)

    sums = sums_of().numpy()
    error = np.std(sums) / np.sqrt(len(sums))
    assert abs(np.mean(sums) - weights[support].sum()) <= 4 * error


def test_accidental_hits_are_masked(table):
    layer = layer_of(table, S.Uniform(ROWS, seed=1))
    logits = layer(USERS, ITEMS).numpy()
    masked = logits[:, 1:] == np.finfo(np.float32).min
    np.testing.assert_array_equal(masked.sum(1), np.ones(4))  # each row is drawn once
    # The positive's logit, uncorrected as log 1 = 0, then that of the others.
    np.testing.assert_allclose(logits[:, 0], (USERS * table[ITEMS]).sum(1), rtol=1e-5)


def test_in_batch(table):
    """Against the formula: distinct positives, the own one masked."""
    layer = layer_of(table, S.InBatch(COUNTS))
    distinct = [3, 5, 10]
    inclusion = 1 - (1 - COUNTS / COUNTS.sum()) ** 4
    dots = USERS @ table.T - np.log(np.maximum(inclusion, 1e-9))
    expected = [
        np.log(np.exp(dots[b, distinct]).sum()) - dots[b, ITEMS[b]]  # the own one is a class once
        for b in range(4)
    ]
    np.testing.assert_allclose(cross_entropy(layer(USERS, ITEMS)), expected, rtol=1e-5)
    assert layer(USERS, ITEMS).shape == (4, 1 + 3)


def test_frequencies_are_estimated_while_training(table):
    """Item 3 comes in each second batch, item 5 in each fourth, item 10 once."""
    layer = layer_of(table, S.InBatch(learning_rate=0.1))
    step = tf.function(lambda items: layer(USERS[:1], items, training=True))
    for number in range(80):
        step(tf.constant([10 if number == 0 else 3 if number % 2 else 5 if number % 4 else 4]))
    layer(USERS[:1], tf.constant([7]), training=False)  # nothing is counted
    sampler = layer.sampler
    assert int(sampler.steps.numpy()) == 80
    log_q = sampler.log_expected_count(tf.constant([3, 5, 7], tf.int64), 1).numpy()
    np.testing.assert_allclose(np.exp(log_q), [1 / 2, 1 / 4, 1 / 81], rtol=0.05)


def test_the_estimate_is_algorithm_2():
    """By hand: the first gap is the step itself, then B <- (1 - a) B + a (t - A)."""
    sampler = S.InBatch(learning_rate=0.25)
    sampler.build_for(4)
    for rows in ([1, 1, 2], [2], [0], [1, 2]):
        sampler.sample(tf.constant(rows, tf.int64), True)
    np.testing.assert_array_equal(sampler.last_step, [3, 4, 4, 0])
    np.testing.assert_allclose(
        sampler.gap, [3, 0.75 * 1 + 0.25 * 3, 0.75 * (0.75 * 1 + 0.25 * 1) + 0.25 * 2, 0]
    )


@pytest.mark.parametrize("sampler", ["uniform", "unigram", "in batch"])
def test_gradients_are_rows_of_one_lookup(table, sampler):
    """By the dense gradient of the same loss in TensorFlow."""
    tf.random.set_seed(3)
    made = {
        "uniform": lambda: S.Uniform(4, first=1),
        "unigram": lambda: sampler_of("unigram"),
        "in batch": lambda: S.InBatch(COUNTS),
    }[sampler]()
    layer = layer_of(table, made)
    made.build_for(ROWS)
    drawn = made.sample(tf.constant(ITEMS), False)
    made.sample = lambda positives, training: drawn
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    dense, users = tf.Variable(table), tf.Variable(USERS)
    log_q = made.log_expected_count(tf.range(ROWS, dtype=tf.int64), 4)
    variable = me.compat.raw_variable(layer.items.embeddings)

    @tf.function
    def gradients():
        with tf.GradientTape() as tape:
            loss = loss_of(np.zeros(4), layer(users, ITEMS))
        return tape.gradient(loss, [variable, users])

    with tf.GradientTape() as tape:
        logits = tf.matmul(users, dense, transpose_b=True) - log_q
        own = tf.gather(logits, ITEMS, batch_dims=1)[:, None]
        others = tf.gather(logits, drawn, axis=1)
        others = tf.where(ITEMS[:, None] == drawn[None], -1e30, others)
        loss = loss_of(np.zeros(4), tf.concat([own, others], 1))
    expected, of_users = tape.gradient(loss, [dense, users])
    rows, got_of_users = gradients()
    assert isinstance(rows, tf.IndexedSlices)
    assert rows.indices.numpy().tolist() == sorted({*ITEMS, *drawn.numpy()})
    np.testing.assert_allclose(
        tf.convert_to_tensor(rows), tf.convert_to_tensor(expected), rtol=1e-4, atol=1e-6
    )
    np.testing.assert_allclose(got_of_users, of_users, rtol=1e-4, atol=1e-6)
    operations = gradients.get_concrete_function().graph.get_operations()
    assert [op.type for op in operations].count("Merlin>Lookup") == 1


def test_hashed_items_are_compared_by_their_rows(table):
    """Two ids of one row share a vector: one can't be the other's negative."""
    items = me.layers.Embedding(None, DIM, ids=me.ids.Modulo(ROWS), weights=table)
    layer = me.layers.SampledSoftmax(items, S.Uniform(ROWS))
    plain = layer_of(table, S.Uniform(ROWS))
    np.testing.assert_allclose(
        cross_entropy(layer(USERS, ITEMS + ROWS)), cross_entropy(plain(USERS, ITEMS)), rtol=1e-5
    )


def test_positives_in_a_column(table):
    layer = layer_of(table, S.InBatch(COUNTS))
    np.testing.assert_array_equal(layer(USERS, ITEMS[:, None]), layer(USERS, ITEMS))


@pytest.mark.parametrize("sampler", [S.Uniform(3), S.LogUniform(3), S.InBatch(COUNTS + 1)])
def test_an_empty_batch(table, sampler):
    logits = layer_of(table, sampler)(np.zeros((0, DIM), np.float32), np.zeros(0, np.int64))
    assert logits.shape[0] == 0


def test_log_uniform_learns_as_the_full_softmax_does(table):
    """A world of 30 items by Zipf's law, one user: the shares are learned, by correction alone."""
    rows = 31
    shares = np.append(0, 1 / np.arange(1, rows))
    shares /= shares.sum()
    keras.utils.set_random_seed(5)
    items = me.layers.Embedding(rows, 4, embeddings_initializer=me.initializers.Normal(stddev=0.1))
    inputs = keras.Input((4,)), keras.Input((), dtype="int64")
    logits = me.layers.SampledSoftmax(items, S.LogUniform(10, first=1))(*inputs)
    model = keras.Model(list(inputs), logits)
    model.compile(
        me.optimizers.Adagrad(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    positives = np.random.default_rng(6).choice(rows, size=20_000, p=shares)
    users = np.ones((20_000, 4), np.float32)
    model.fit([users, positives], np.zeros(20_000), batch_size=500, epochs=4, verbose=0)
    dots = items.embeddings.numpy()[1:].sum(1)
    learned = np.exp(dots) / np.exp(dots).sum()
    # As far as ten negatives go; uncorrected, all items would be as likely.
    np.testing.assert_allclose(learned[:8], shares[1:9], rtol=0.3)


@settings(max_examples=25)
@given(
    st.lists(st.lists(st.integers(0, ROWS - 1), max_size=6), min_size=1, max_size=3),
    st.integers(1, 9),
    st.integers(0, 2),
    st.integers(1, 12),
)
def test_top_k(seen, k, first, chunk_size):
    table = np.random.default_rng(0).integers(-2, 3, size=(ROWS, DIM)).astype(np.float32)  # ties
    top = me.layers.TopK(
        me.layers.Embedding(ROWS, DIM, weights=table), k, first=first, chunk_size=chunk_size
    )
    users = np.random.default_rng(len(seen)).integers(-2, 3, size=(len(seen), DIM))
    scores, ids = top(users.astype(np.float32), exclude=tf.ragged.constant(seen, tf.int64, 1))
    for b, items in enumerate(seen):
        left = [i for i in range(first, ROWS) if i not in items]
        best = sorted(left, key=lambda i: (-(users[b] @ table[i]), i))[:k]
        missing = k - len(best)
        assert ids[b].numpy().tolist() == best + [-1] * missing
        expected = [users[b] @ table[i] for i in best] + [-np.inf] * missing
        assert scores[b].numpy().tolist() == expected


def test_top_k_in_graphs_and_with_padding(table):
    items = me.layers.Embedding(ROWS, DIM, weights=table, padding_id=0)
    top = me.layers.TopK(items, 3, first=1, chunk_size=4)
    seen = tf.constant([[3, 5, 0], [0, 0, 0], [1, 0, 0], [2, 9, 10]])
    expected = top(USERS, exclude=seen)
    got = tf.function(top)(USERS, exclude=seen)
    dots = USERS @ table.T
    dots[:, 0] = -np.inf
    for b, row in enumerate(seen.numpy()):
        dots[b, row] = -np.inf
    for scores, ids in (expected, got):
        np.testing.assert_array_equal(ids, np.argsort(-dots, 1)[:, :3])
        np.testing.assert_allclose(scores, -np.sort(-dots, 1)[:, :3], rtol=1e-5)
    assert top(np.zeros((0, DIM), np.float32))[1].shape == (0, 3)


def test_hashed_rows_are_hashed_once():
    items = me.layers.Embedding(None, 4, ids=me.ids.Hash(50))
    ids = np.array([3, 2**40, -7])
    vectors = items(ids).numpy()
    users = np.random.default_rng(0).normal(size=[3, 4]).astype(np.float32)
    softmax = me.layers.SampledSoftmax(items, me.layers.samplers.Uniform(50))
    logits = softmax(users, positives=ids, training=True)
    # All rows are drawn, each exactly once: nothing is corrected.
    np.testing.assert_allclose(logits[:, 0], np.sum(users * vectors, 1), rtol=1e-5, atol=1e-5)
    rows = items.embeddings.numpy()
    whole = np.log(np.exp(users @ rows.T).sum(1))
    np.testing.assert_allclose(tf.reduce_logsumexp(logits, 1), whole, rtol=1e-5)
