"""Compressed tables in models: fit, files, optimizers, Entries, other layers, mistakes."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import merlin_embeddings as me
from merlin_embeddings.tables import Bloom, DoubleHash, table_of
from tests.tables.composed import rows_of

IDS = np.array([[1, 2], [3, 3], [40, 0], [2, 9]])


def model_of(compression, combiner="mean", **kwargs):
    layer = me.layers.Embedding(50, 4, combiner=combiner, compression=compression, **kwargs)
    return keras.Sequential([keras.Input([2], dtype="int64"), layer, keras.layers.Dense(1)])


@pytest.mark.parametrize(
    ("spec", "combiner"), [(Bloom(13), "max"), (DoubleHash(13, combine="concat"), "mean")], ids=str
)
def test_fit_saved_and_loaded(spec, combiner, tmp_path):
    model = model_of(spec, combiner)
    model.compile(me.optimizers.Adagrad(0.1), "mse")
    labels = np.array([1.0, 0.0, 2.0, -1.0])
    losses = model.fit(IDS, labels, batch_size=2, epochs=20, verbose=0).history["loss"]
    assert losses[-1] < 0.5 * losses[0]
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.layers[0].compression == spec
    np.testing.assert_array_equal(loaded.predict(IDS, verbose=0), model.predict(IDS, verbose=0))
    again = [m.fit(IDS, labels, shuffle=False, verbose=0).history["loss"] for m in (model, loaded)]
    np.testing.assert_allclose(again[0], again[1], rtol=1e-6)
    exported = tmp_path / "exported"
    model.export(exported)
    served = tf.saved_model.load(exported)
    np.testing.assert_allclose(served.serve(tf.constant(IDS)), model(IDS), rtol=1e-6)


def test_one_step_of_every_optimizer_moves_the_parameters_of_the_ids_alone():
    seen = {row for id in IDS.ravel() for row in rows_of(int(id), 29, 2, 0)}
    assert 0 < len(seen) < 29
    for optimizer in ("Adam", "RowwiseAdagrad", "Lamb"):
        model = model_of(Bloom(29))
        model.compile(getattr(me.optimizers, optimizer)(0.1), "mse")
        before = model.layers[0].embeddings.numpy()
        model.fit(IDS, np.ones(4), batch_size=4, verbose=0)
        moved = np.flatnonzero((model.layers[0].embeddings.numpy() != before).any(axis=1))
        assert set(moved) == seen, optimizer


def test_a_keras_optimizer_makes_the_same_step():
    models = [model_of(Bloom(29), seed=3) for _ in range(2)]
    models[1].set_weights(models[0].get_weights())
    models[0].compile(me.optimizers.SGD(0.1), "mse")
    models[1].compile(keras.optimizers.SGD(0.1), "mse")
    for model in models:
        model.fit(IDS, np.ones(4), batch_size=4, shuffle=False, verbose=0)
    np.testing.assert_allclose(
        models[0].layers[0].embeddings, models[1].layers[0].embeddings, rtol=1e-5
    )


def test_entries_are_rows_of_parameters():
    model = model_of(DoubleHash(13, combine="concat"))
    model.compile(me.optimizers.Adagrad(0.1, initial_accumulator_value=0.5), "mse")
    model.fit(IDS, np.ones(4), verbose=0)
    table = table_of(model.layers[0].embeddings)
    assert table is model.layers[0].table
    entries = next(table.entries())
    assert entries.vectors.shape == (13, 2)
    assert entries.slots["accumulator"].shape == (13, 2)
    np.testing.assert_array_equal(entries.vectors, model.layers[0].embeddings)
    table.reset([5])
    assert next(table.entries(keys=[5])).slots["accumulator"].tolist() == [[0.5, 0.5]]


def test_a_regularizer_acts_on_the_parameters_looked_up():
    model = model_of(Bloom(29), embeddings_regularizer=keras.regularizers.L2(0.5))
    layer = model.layers[0]
    layer(IDS)
    seen = sorted({row for id in IDS.ravel() for row in rows_of(int(id), 29, 2, 0)})
    np.testing.assert_allclose(
        layer.losses[0], 0.5 * np.sum(np.square(layer.embeddings.numpy()[seen])), rtol=1e-5
    )


def test_beside_plain_tables_in_half_precision_and_frozen():
    item = me.TableConfig("item", 50, 4, compression=Bloom(7, hashes=3), dtype="bfloat16")
    user = me.TableConfig("user", 50, 4)
    tag = me.TableConfig("tag", None, 6, compression=DoubleHash(9, "concat"), trainable=False)
    layer = me.layers.Embeddings(
        {
            "history": me.FeatureConfig("history", item, combiner="mean"),
            "last": me.FeatureConfig("last", item, combiner=None),
            "user": me.FeatureConfig("user", user),
            "tag": me.FeatureConfig("tag", tag, combiner="max"),
        }
    )
    batch = {
        "history": tf.ragged.constant([[1, 2], []]),
        "last": tf.constant([1, 2]),
        "user": tf.constant([0, 1]),
        "tag": tf.constant([["a", "b"], ["a", "a"]]),
    }
    vectors = layer(batch)
    last = vectors["last"].numpy()
    np.testing.assert_allclose(vectors["history"], [last.mean(0), np.zeros(4)], atol=1e-6)
    assert [tuple(w.shape) for w in layer.weights] == [(7, 4), (50, 4), (9, 3)]
    assert len(layer.trainable_weights) == 2
    again = type(layer).from_config(layer.get_config())
    assert again.features["tag"].table.compression == DoubleHash(9, "concat")


def test_output_layers_take_composed_vectors():
    items = me.layers.Embedding(20, 4, compression=Bloom(7), combiner=None)
    vectors = items(np.arange(20)).numpy()
    users = np.eye(4, dtype=np.float32)[:3]
    scores, ids = me.layers.TopK(items, 20)(users)
    np.testing.assert_allclose(scores, -np.sort(-users @ vectors.T), rtol=1e-5)
    softmax = me.layers.SampledSoftmax(items, me.layers.samplers.Uniform(20))
    logits = softmax(users, positives=np.array([4, 5, 6]), training=True)
    np.testing.assert_allclose(
        logits[:, 0], np.sum(users * vectors[[4, 5, 6]], 1), rtol=1e-4, atol=1e-5
    )
    ids = np.asarray(ids)
    assert sorted(ids[0]) == list(range(20))


def test_layers_that_count_items_refuse_an_open_space():
    items = me.layers.Embedding(None, 4, compression=Bloom(7))
    with pytest.raises(ValueError, match=r"TopK .* makes a vector of any id .* vocabulary_size"):
        me.layers.TopK(items, 3)
    with pytest.raises(ValueError, match=r"SampledSoftmax .* makes a vector of any id"):
        me.layers.SampledSoftmax(items, me.layers.samplers.Uniform(3))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Bloom(0), r"tables.Bloom: rows=0; it must be a positive integer"),
        (lambda: Bloom(5, hashes=0), r"tables.Bloom: hashes=0; it must be a positive integer"),
        (lambda: Bloom(5, combine="max"), r"combine='max'; it must be 'sum' or 'mean'"),
        (lambda: Bloom(5, salt=2**63), r"tables.Bloom: salt=\d+; it must be an int64"),
        (lambda: DoubleHash(5, "mean"), r"combine='mean'; it must be 'sum' or 'concat'"),
        (lambda: DoubleHash(True), r"tables.DoubleHash: rows=True"),
        (
            lambda: me.TableConfig("t", 9, 3, compression=DoubleHash(5, "concat")),
            r"TableConfig 't': .*embedding_dim=3 is odd",
        ),
        (
            lambda: me.TableConfig("t", 9, 3, compression="bloom"),
            r"TableConfig 't': compression='bloom'; it must be None .* tables.Bloom\(rows\)",
        ),
        (
            lambda: me.layers.Embedding(9, 4, compression=Bloom(5), weights=np.zeros([9, 4])),
            r"initial values have shape \[9, 4\], the table is \[5, 4\]",
        ),
    ],
)
def test_mistakes(make, message):
    with pytest.raises(ValueError, match=message):
        make()
