"""`UserFromItems` and the layers around it in Keras: one table in files, copies and exports."""

import copy
import json

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import merlin_embeddings as me
from merlin_embeddings.native import library
from tests import fresh

ROWS, DIM = 11, 3
HISTORY = np.array([[1, 2, 0], [3, 3, 4], [0, 0, 0]])
ITEM = np.array([5, 1, 7])
POOLINGS = {
    "mean": lambda: "mean",
    "recency": lambda: me.layers.RecencyWeighted(2.0, learned=True),
    "attention": lambda: me.layers.AttentionPooling((4,)),
    "target": lambda: me.layers.TargetAttention((4,), softmax=True),
}


def ranking(pooling="target", **user):
    """Candidates are looked up in the table that histories are pooled from."""
    items = me.layers.Embedding(ROWS, DIM, padding_id=0, name="items")
    inputs = {
        "history": keras.Input((3,), dtype="int64", name="history"),
        "item": keras.Input((), dtype="int64", name="item"),
    }
    item = items(inputs["item"])
    layer = me.layers.UserFromItems(items, POOLINGS[pooling](), name="user", **user)
    query = {"query": item} if pooling == "target" else {}
    x = keras.layers.Concatenate()([layer(inputs["history"], **query), item])
    return keras.Model(inputs, keras.layers.Dense(1)(x))


def retrieval(sampler=None):
    items = me.layers.Embedding(ROWS, DIM, padding_id=0, name="items")
    history = keras.Input((3,), dtype="int64", name="history")
    item = keras.Input((), dtype="int64", name="item")
    user = me.layers.UserFromItems(items, name="user")(history)
    sampler = sampler or me.layers.samplers.Uniform(ROWS - 1, first=1)
    logits = me.layers.SampledSoftmax(items, sampler, name="softmax")(user, item)
    top = me.layers.TopK(items, 4, first=1, name="top")(user, exclude=history)
    model = keras.Model([history, item], logits)
    model.compile(
        me.optimizers.Adagrad(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    return model, keras.Model(history, top)


BATCH = {"history": HISTORY, "item": ITEM}


@pytest.mark.parametrize("pooling", POOLINGS)
def test_a_keras_file_has_the_table_once(tmp_path, pooling):
    model = ranking(pooling)
    model.compile(me.optimizers.Adagrad(0.1), "mse")
    model.fit(BATCH, np.ones((3, 1)), verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again(BATCH), model(BATCH))
    assert again.get_layer("user").items is again.get_layer("items")
    assert [w.shape for w in again.weights] == [w.shape for w in model.weights]
    for one in (model, again):  # the slots came along
        one.fit(BATCH, np.ones((3, 1)), shuffle=False, verbose=0)
    np.testing.assert_allclose(again(BATCH), model(BATCH), rtol=1e-6)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_weights_files_and_checkpoints(tmp_path, pooling):
    first, second, third = (ranking(pooling) for _ in range(3))
    first.save_weights(tmp_path / "model.weights.h5")
    second.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(second(BATCH), first(BATCH))
    path = tf.train.Checkpoint(model=first).save(str(tmp_path / "checkpoint"))
    tf.train.Checkpoint(model=third).restore(path).assert_existing_objects_matched()
    np.testing.assert_array_equal(third(BATCH), first(BATCH))


@pytest.mark.parametrize("pooling", POOLINGS)
def test_config_round_trip(pooling):
    layer = ranking(pooling, max_length=2, keep="first", padding_id=0).get_layer("user")
    config = json.loads(json.dumps(layer.get_config()))
    with pytest.warns(UserWarning, match=r"'user' is made from its config alone.*copy.deepcopy"):
        again = me.layers.UserFromItems.from_config(config)
    assert (again.max_length, again.keep, again.padding_id) == (2, "first", 0)
    assert type(again.pooling) is type(layer.pooling)
    assert again.pooling.get_config() == layer.pooling.get_config()
    assert again.items.get_config() == layer.items.get_config()


def test_copies_share_among_themselves():
    model = ranking()
    twin = copy.deepcopy(model)
    np.testing.assert_array_equal(twin(BATCH), model(BATCH))
    assert twin.get_layer("user").items is twin.get_layer("items")
    assert twin.get_layer("items") is not model.get_layer("items")


def test_a_clone_says_that_it_shares_no_more():
    with pytest.warns(UserWarning, match="no other layer shares"):
        clone = keras.models.clone_model(ranking())
    assert clone.get_layer("user").items is not clone.get_layer("items")


SAMPLERS = {
    "uniform": lambda: me.layers.samplers.Uniform(4, first=1, seed=3),
    "unigram": lambda: me.layers.samplers.Unigram(4, np.arange(ROWS) + 1, 0.75, first=1),
    "in batch": lambda: me.layers.samplers.InBatch(np.arange(ROWS) + 1),
    "in batch, estimated": lambda: me.layers.samplers.InBatch(learning_rate=0.2),
}


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_retrieval_model_in_a_keras_file(tmp_path, sampler):
    model, _ = retrieval(SAMPLERS[sampler]())
    model.fit([HISTORY, ITEM], np.zeros(3), epochs=3, verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    user, softmax = again.get_layer("user"), again.get_layer("softmax")
    assert user.items is softmax.items
    for a, b in zip(again.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert softmax.sampler.get_config() == model.get_layer("softmax").sampler.get_config()
    if sampler.startswith("in batch"):  # nothing is drawn
        np.testing.assert_array_equal(again([HISTORY, ITEM]), model([HISTORY, ITEM]))


def test_a_trained_model_serves_items_from_a_fresh_process(tmp_path):
    """What was met isn't served again; the process knows the op library and no model code."""
    model, top = retrieval()
    model.optimizer.learning_rate = 0.5
    losses = model.fit([HISTORY, ITEM], np.zeros(3), epochs=10, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    scores, ids = top(HISTORY)
    assert ids.numpy()[0, 0] == ITEM[0] and ids.numpy()[1, 0] == ITEM[1]
    top.export(str(tmp_path / "export"), verbose=False)
    served = fresh.last_line_of(f"""
        import json
        import tensorflow as tf
        tf.load_op_library({str(library.PATH)!r})
        served = tf.saved_model.load({str(tmp_path / "export")!r})
        scores, ids = served.serve(tf.constant({HISTORY.tolist()}, tf.int64))
        print(json.dumps([scores.numpy().tolist(), ids.numpy().tolist()]))
    """)
    np.testing.assert_allclose(served[0], scores, rtol=1e-5)
    np.testing.assert_array_equal(served[1], ids)


@pytest.mark.parametrize("policy", ["mixed_float16", "float16"])
@pytest.mark.parametrize("pooling", POOLINGS)
def test_half_precision(policy, pooling):
    items = me.layers.Embedding(ROWS, DIM, padding_id=0, seed=1, table_dtype="float32")
    exact = me.layers.UserFromItems(items, POOLINGS[pooling]())
    half = me.layers.UserFromItems(items, POOLINGS[pooling](), dtype=policy)
    query = {"query": items(ITEM)} if pooling == "target" else {}
    expected, got = exact(HISTORY, **query), half(HISTORY, **query)
    assert got.dtype == policy.removeprefix("mixed_")
    half.pooling.set_weights(exact.pooling.get_weights())
    got = half(HISTORY, **query)
    np.testing.assert_allclose(tf.cast(got, tf.float32), expected, rtol=0.02, atol=1e-3)


def test_training_in_mixed_precision():
    keras.mixed_precision.set_dtype_policy("mixed_bfloat16")
    try:
        model = ranking()
    finally:
        keras.mixed_precision.set_dtype_policy("float32")
    model.compile(me.optimizers.Adam(0.05), "mse")
    losses = model.fit(BATCH, np.ones((3, 1)), epochs=20, verbose=0).history["loss"]
    assert losses[-1] < losses[0] / 2


def test_symbols_tell_the_shape():
    items = me.layers.Embedding(ROWS, DIM)
    user = me.layers.UserFromItems(items, me.layers.RecencyWeighted(2.0, 3.0))
    ids = keras.Input((None,), dtype="int64", ragged=True)
    ages = keras.Input((None,), ragged=True)
    output = user(ids, ages=ages)
    assert (tuple(output.shape), output.dtype) == ((None, DIM), "float32")
    model = keras.Model([ids, ages], output)
    batch = tf.ragged.constant([[1, 2], []], tf.int64), tf.ragged.constant([[1.0, 0.0], []])
    np.testing.assert_array_equal(model(batch), user(batch[0], ages=batch[1]))
