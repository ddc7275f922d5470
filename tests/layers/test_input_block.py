"""What comes out of an `InputBlock`, recomputed in numpy from its tables."""

import numpy as np
import pytest
import tensorflow as tf
from merlin.schema import ColumnSchema, Schema, Tags
from tensorflow import keras

import merlin_embeddings as me
from merlin_embeddings.data import Column, Domain

ITEM = Domain("item", 0, 10)
SCHEMA = (
    Column("user", ("categorical",), "int64", domain=Domain(None, 0, 99)),
    Column("price", ("continuous",), "float64"),
    Column("history", ("categorical",), "int64", True, (0, None), ITEM),
    Column("age", ("continuous",), "float32"),
    Column("last", ("categorical",), "int32", domain=ITEM),
    Column("image", ("embedding",), "float32", True, (3, 3)),
    Column("day", (), "int64"),
    Column("click", ("target",), "int64"),
)
HISTORY = [[3, 1], [], [10, 10, 2], [0]]
LAST = [4, 10, 0, 4]
USER = [7, 99, 0, 7]
RNG = np.random.default_rng(0)
PRICE = RNG.normal(size=4)
AGE = RNG.normal(size=4).astype(np.float32)
IMAGE = RNG.normal(size=[4, 3]).astype(np.float32)


def batch():
    return {
        "user": tf.constant(USER, tf.int64),
        "price": tf.constant(PRICE),
        "history": tf.ragged.constant(HISTORY, tf.int64, row_splits_dtype=tf.int64),
        "age": tf.constant(AGE),
        "last": tf.constant(LAST, tf.int32),
        "image": tf.constant(IMAGE),
        "day": tf.constant([1, 2, 3, 4]),
        "click": tf.constant([1, 0, 0, 1]),
    }


def features(dim=4, **options):
    options = {"initializer": "normal", "seed": 3, **options}
    return me.features_from_schema(SCHEMA, dim, **options)


def tables_of(block):
    return {name: t.variable.numpy() for name, t in block.categorical.tables.items()}


def parts(block, pool, combiner="mean"):
    """Each column's vectors."""
    tables = tables_of(block)
    return {
        "age": AGE[:, None],
        "history": pool(tables["item"], HISTORY, combiner),
        "image": IMAGE,
        "last": tables["item"][LAST],
        "price": PRICE[:, None],
        "user": tables["user"][USER],
    }


def test_concat_in_sorted_order(pool):
    block = me.layers.InputBlock(SCHEMA, features())
    found = block(batch())
    expected = parts(block, pool)
    assert list(expected) == sorted(expected)
    np.testing.assert_allclose(found, np.hstack(list(expected.values())), rtol=1e-5)
    assert found.dtype == tf.float32
    assert list(tables_of(block)) == ["user", "item"]


def test_no_aggregation(pool):
    block = me.layers.InputBlock(SCHEMA, features(), aggregation=None)
    found, expected = block(batch()), parts(block, pool)
    assert set(found) == set(expected)
    for name, vectors in found.items():
        np.testing.assert_allclose(vectors, expected[name], rtol=1e-5, err_msg=name)


@pytest.mark.parametrize("stack, axis", [("stack", 2), (me.layers.Stack(axis=1), 1)])
def test_stack(pool, stack, axis):
    block = me.layers.InputBlock(
        SCHEMA, features(), continuous=None, vectors=None, aggregation=stack
    )
    expected = parts(block, pool) if block(batch()) is not None else None
    expected = [expected[name] for name in ("history", "last", "user")]
    np.testing.assert_allclose(block(batch()), np.stack(expected, axis), rtol=1e-5)


@pytest.mark.parametrize("combiner", ["sum", "sqrtn", "max"])
def test_other_combiners_of_lists(pool, combiner):
    block = me.layers.InputBlock(SCHEMA, features(combiner=combiner), aggregation=None)
    found = block(batch())["history"]
    np.testing.assert_allclose(found, parts(block, pool, combiner)["history"], rtol=1e-5)


def test_everything_follows_from_the_schema():
    block = me.layers.InputBlock(SCHEMA)
    assert block(batch()).shape == (4, 8 + 8 + 8 + 1 + 1 + 3)  # tables of 100 and 11 rows: dim 8


def test_a_merlin_schema():
    schema = Schema(
        [
            ColumnSchema("i", [Tags.CATEGORICAL], {"domain": {"max": 9}}, np.int64),
            ColumnSchema("x", [Tags.CONTINUOUS], dtype=np.float32),
            ColumnSchema("y", [Tags.TARGET], dtype=np.int64),
        ]
    )
    found = me.layers.InputBlock(schema)({"i": np.array([1, 2]), "x": np.array([0.5, 2.0])})
    assert found.shape == (2, 9)
    np.testing.assert_array_equal(found[:, 8], [0.5, 2.0])


def test_a_projection_of_the_continuous_columns(pool):
    dense = keras.layers.Dense(4, kernel_initializer="normal", bias_initializer="normal")
    block = me.layers.InputBlock(SCHEMA, features(), continuous=dense, vectors=None)
    found = block(batch())
    expected = parts(block, pool)
    both = np.stack([AGE, PRICE], 1)  # in the order of their names
    projected = both @ dense.kernel.numpy() + dense.bias.numpy()
    # "continuous" comes before "history".
    order = [projected, expected["history"], expected["last"], expected["user"]]
    np.testing.assert_allclose(found, np.hstack(order), rtol=1e-4)
    assert {weight.name for weight in block.weights} == {"user", "item", "kernel", "bias"}


def test_a_layer_for_the_vectors_of_the_batch():
    normal = keras.layers.Lambda(lambda columns: {"unit": columns["image"] / 2})
    block = me.layers.InputBlock(SCHEMA, None, None, vectors=normal, aggregation=None)
    np.testing.assert_array_equal(block(batch())["unit"], IMAGE / 2)
    one = keras.layers.Lambda(lambda columns: columns["image"] * 2)
    block = me.layers.InputBlock(SCHEMA, None, None, vectors=one, aggregation=None)
    np.testing.assert_array_equal(block(batch())["vectors"], IMAGE * 2)


def test_a_layer_that_looks_up(pool):
    embeddings = me.layers.Embeddings({"last": features()["last"]}, name="mine")
    block = me.layers.InputBlock(SCHEMA, embeddings, None, vectors=None)
    found = block(batch())
    assert block.categorical is embeddings
    np.testing.assert_array_equal(found, embeddings.tables["item"].variable.numpy()[LAST])
    one = keras.layers.Lambda(lambda columns: tf.cast(columns["user"], tf.float32)[:, None])
    block = me.layers.InputBlock(SCHEMA, one, None, vectors=None, aggregation=None)
    assert block(batch())["categorical"].numpy().tolist() == [[7], [99], [0], [7]]


def test_pre_and_post(pool):
    younger = keras.layers.Lambda(lambda columns: {**columns, "age": columns["age"] - 1})
    twice = keras.layers.Lambda(lambda vectors: {n: 2 * v for n, v in vectors.items()})
    block = me.layers.InputBlock(
        SCHEMA, features(), vectors=None, aggregation=None, pre=[younger, younger], post=twice
    )
    found, expected = block(batch()), parts(block, pool)
    np.testing.assert_allclose(found["age"], 2 * (AGE[:, None] - 2), rtol=1e-6)
    np.testing.assert_allclose(found["history"], 2 * expected["history"], rtol=1e-5)


@pytest.mark.parametrize("kind", ["pair", "pair [N, 1]", "ragged [B, None, 1]", "dense padded"])
def test_lists_of_other_kinds(pool, kind):
    block = me.layers.InputBlock(SCHEMA, features(padding_id={"history": 9}), aggregation=None)
    given = batch()
    expected = block(given)["history"]
    history = given.pop("history")
    if kind.startswith("pair"):
        values = history.values[:, None] if "[N, 1]" in kind else history.values
        given |= {"history__values": values, "history__offsets": history.row_splits}
    elif kind == "dense padded":
        given["history"] = history.to_tensor(9)
    else:
        given["history"] = history.with_values(history.values[:, None])
    np.testing.assert_array_equal(block(given)["history"], expected)
    np.testing.assert_allclose(expected, parts(block, pool)["history"], rtol=1e-5)


def test_scalars_of_rank_two():
    block = me.layers.InputBlock(SCHEMA, features())
    given = batch()
    columns = {
        name: tensor[:, None] if name in ("user", "last", "age", "price") else tensor
        for name, tensor in given.items()
    }
    np.testing.assert_array_equal(block(columns), block(given))


NUMBERS = (
    Column("prices", ("continuous",), "float32", True, (0, None)),
    Column("images", ("embedding",), "float32", True, (2, 2)),
)
PRICES = [[1.0, 2.0], [], [3.0]]
IMAGES = [[[1.0, 2.0], [3.0, 6.0]], [], [[5.0, 7.0]]]


@pytest.mark.parametrize("pairs", [True, False])
def test_lists_of_numbers(pairs):
    block = me.layers.InputBlock(NUMBERS, aggregation=None)
    prices = tf.ragged.constant(PRICES)
    images = tf.ragged.constant(IMAGES, ragged_rank=1, inner_shape=(2,))
    given = {"prices": prices, "images": images}
    if pairs:
        given = {f"{name}__values": x.values for name, x in given.items()}
        given |= {"prices__offsets": prices.row_splits, "images__offsets": images.row_splits}
    found = block(given)
    assert found["prices"].to_list() == [[[1.0], [2.0]], [], [[3.0]]]
    assert found["images"].numpy().tolist() == [[2.0, 4.0], [0.0, 0.0], [5.0, 7.0]]


def test_dense_lists_of_numbers():
    block = me.layers.InputBlock(NUMBERS, aggregation=None)
    found = block({"prices": tf.ones([3, 5]), "images": tf.ones([3, 4, 2])})
    assert (found["prices"].shape, found["images"].shape) == ((3, 5, 1), (3, 2))


def test_l2_of_the_vectors_looked_up(pool):
    block = me.layers.InputBlock(SCHEMA, features(), l2_batch_regularization_factor=0.1)
    block(batch())
    expected = parts(block, pool)
    squares = sum(np.sum(expected[name] ** 2) for name in ("history", "last", "user"))
    np.testing.assert_allclose(sum(block.losses), 0.1 * squares, rtol=1e-5)


def test_l2_by_column(pool):
    factors = {"history": 0.5, "user": 0}
    block = me.layers.InputBlock(SCHEMA, features(), l2_batch_regularization_factor=factors)
    block(batch())
    [loss] = block.losses
    expected = parts(block, pool)["history"]
    np.testing.assert_allclose(loss, 0.5 * np.sum(expected**2), rtol=1e-5)


def test_l2_of_sequences():
    kept = features(combiner=None)
    block = me.layers.InputBlock(
        SCHEMA, kept, aggregation=None, l2_batch_regularization_factor={"history": 2.0}
    )
    block(batch())
    [loss] = block.losses
    rows = tables_of(block)["item"][[id for bag in HISTORY for id in bag]]
    np.testing.assert_allclose(loss, 2 * np.sum(rows**2), rtol=1e-5)


def test_a_table_s_regularizer_counts_distinct_rows():
    block = me.layers.InputBlock(SCHEMA, features(regularizer={"item": keras.regularizers.L2(0.1)}))
    block(batch())
    [loss] = block.losses
    rows = tables_of(block)["item"][sorted({id for bag in [*HISTORY, LAST] for id in bag})]
    np.testing.assert_allclose(loss, 0.1 * np.sum(rows**2), rtol=1e-5)


def test_mixed_precision_leaves_ids_alone():
    policy = "mixed_bfloat16"
    schema = (Column("id", ("categorical",), "int64", domain=Domain(max=9999)), *SCHEMA[1:2])
    block = me.layers.InputBlock(schema, dtype=policy)
    given = {"id": np.array([9999, 9998]), "price": np.array([1.0, 2.0])}
    found = block(given)
    assert found.dtype == tf.bfloat16
    rows = block.categorical.tables["id"].variable.numpy()[[9999, 9998]]
    np.testing.assert_allclose(tf.cast(found, tf.float32)[:, :-1], rows, rtol=1e-2)


def test_gradients_reach_rows_and_projection():
    dense = keras.layers.Dense(2)
    block = me.layers.InputBlock(SCHEMA, features(), continuous=dense, vectors=None)
    block(batch())
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(block(batch())[:, 2:6])  # history
    item, user = (block.categorical.tables[name].variable for name in ("item", "user"))
    of_item, of_user, of_kernel = tape.gradient(loss, [item, user, dense.kernel])
    expected = np.zeros([11, 4])
    for bag in HISTORY:
        for row in bag:
            expected[row] += 1 / len(bag)
    np.testing.assert_allclose(tf.convert_to_tensor(of_item), expected, rtol=1e-6)
    assert not np.any(tf.convert_to_tensor(of_user)) and not np.any(of_kernel)
