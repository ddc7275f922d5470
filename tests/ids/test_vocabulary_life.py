"""Known ids through the life of a model: fit, files, copies, serving."""

import json
import zipfile

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import merlin_embeddings as me
from merlin_embeddings.ids import FrequencyCap, Vocabulary
from tests.fresh import output_of

CITIES = ["Rome", "Oslo", "Bonn", "Lima"]
BATCH = tf.constant([["Rome", "Bern"], ["Lima", "Lima"], ["Oslo", "Bonn"]])


def model_of(ids=None, mapped=False):
    ids = Vocabulary(CITIES, oov_rows=1) if ids is None else ids
    city = keras.Input([2], dtype="string")
    if mapped:
        rows = me.layers.MapIds(ids, name="rows")(city)
        vectors = me.layers.Embedding(5, 3, combiner="sum", name="cities")(rows)
    else:
        vectors = me.layers.Embedding(None, 3, combiner="sum", ids=ids, name="cities")(city)
    return keras.Model(city, keras.layers.Dense(1)(vectors))


def trained(mapped=False):
    model = model_of(mapped=mapped)
    model.compile(me.optimizers.Adagrad(0.1), "mse")
    model.fit(BATCH, np.array([1.0, 2.0, 3.0]), epochs=2, verbose=0)
    return model


@pytest.mark.parametrize("mapped", [False, True])
def test_keras_files(mapped, tmp_path):
    model = trained(mapped)
    wanted = model(BATCH)
    path = tmp_path / "model.keras"
    model.save(path)
    with zipfile.ZipFile(path) as file:
        text = file.read("config.json").decode()
    assert "Rome" not in text
    assert json.loads(text)
    loaded = keras.models.load_model(path)
    np.testing.assert_array_equal(loaded(BATCH), wanted)
    # Once more, of what was loaded: its specs have no ids any more.
    loaded.save(path)
    np.testing.assert_array_equal(keras.models.load_model(path)(BATCH), wanted)
    model.save_weights(tmp_path / "model.weights.h5")
    other = model_of(mapped=mapped)
    other.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(other(BATCH), wanted)


def test_a_file_of_another_vocabulary_is_refused(tmp_path):
    trained().save_weights(tmp_path / "model.weights.h5")
    other = model_of(Vocabulary([*CITIES[1:], CITIES[0]], oov_rows=1))
    table = other.get_layer("cities").embeddings
    before = table.numpy()
    with pytest.raises(ValueError, match=r"vocabulary of 4 ids, the layer was made for another"):
        other.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(table, before)


def test_checkpoints(tmp_path):
    model = trained()
    path = tf.train.Checkpoint(model=model).save(tmp_path / "checkpoint")
    other = model_of()
    tf.train.Checkpoint(model=other).restore(path).expect_partial()
    np.testing.assert_array_equal(other(BATCH), model(BATCH))


def test_made_from_a_config_alone():
    model = trained()
    clone = keras.models.clone_model(model)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"made from a config, .*4 strings"):
        clone(BATCH)
    clone.set_weights(model.get_weights())
    np.testing.assert_array_equal(clone(BATCH), model(BATCH))


def test_padding_where_the_ids_came_with_the_weights():
    layer = me.layers.Embedding(None, 2, ids=Vocabulary([5, 6]), combiner="sum", padding_id=0)
    layer.build()
    clone = type(layer).from_config(layer.get_config())
    clone.build()
    clone.set_weights(layer.get_weights())
    bags = np.array([[5, 0], [0, 0], [6, 6]])
    np.testing.assert_array_equal(clone(bags), layer(bags))


def test_served_by_a_fresh_process(tmp_path):
    model = trained()
    model.export(tmp_path / "served", verbose=False)
    script = """
        import sys
        import tensorflow as tf
        import merlin_embeddings.native
        served = tf.saved_model.load(sys.argv[1])
        city = tf.constant([["Rome", "Bern"], ["Lima", "Lima"], ["Oslo", "Bonn"]])
        print(served.serve(city).numpy().ravel().tolist())
    """
    found = json.loads(output_of(script, tmp_path / "served").splitlines()[-1])
    np.testing.assert_allclose(found, model(BATCH).numpy().ravel(), rtol=1e-6)


def test_in_tf_data_and_beside_other_tables():
    rows = me.layers.MapIds(Vocabulary(CITIES, unknown="zero"))
    [found] = list(tf.data.Dataset.from_tensors(BATCH).map(rows))
    assert found.numpy().tolist() == [[0, -1], [3, 3], [1, 2]]
    city = me.TableConfig("city", None, 2, ids=Vocabulary(CITIES, oov_rows=2))
    item = me.TableConfig("item", None, 2, ids=FrequencyCap({9: 5, 8: 3}, top=1))
    tag = me.TableConfig("tag", None, 2, ids=me.ids.Hash(7), compression=me.tables.Bloom(5))
    layer = me.layers.Embeddings(
        {table.name: me.FeatureConfig(table.name, table, "sum") for table in (city, item, tag)}
    )
    vectors = layer(
        {"city": BATCH, "item": tf.constant([[9], [8], [7]]), "tag": tf.constant([[1], [2], [3]])}
    )
    item_rows = layer.tables["item"].variable
    np.testing.assert_array_equal(vectors["item"], tf.gather(item_rows, [0, 1, 1]))
    assert [tuple(w.shape) for w in layer.trainable_weights] == [(6, 2), (2, 2), (5, 2)]
    again = type(layer).from_config(layer.get_config())
    assert again.features["city"].table.ids == Vocabulary(CITIES, oov_rows=2)


def test_a_shared_table_knows_its_ids_too():
    items = me.layers.Embedding(None, 3, ids=Vocabulary([10, 20, 30]))
    user = me.layers.UserFromItems(items, "mean")(np.array([[10, 30]]))
    np.testing.assert_allclose(user[0], tf.reduce_mean(tf.gather(items.embeddings, [0, 2]), 0))
