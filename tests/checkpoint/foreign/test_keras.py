"""Keras' files, with Keras as the other side."""

import zipfile

import h5py
import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import merlin_embeddings as me
from merlin_embeddings.checkpoint import foreign
from tests.checkpoint.foreign import tables


@pytest.fixture(scope="module")
def model():
    ids = keras.Input([3], dtype="int64")
    items = keras.layers.Embedding(7, 4, name="items")(ids)
    users = me.layers.Embedding(9, 4, combiner="sum", name="users")(ids)
    joined = keras.layers.Concatenate()([keras.layers.Flatten()(items), users])
    return keras.Model(ids, keras.layers.Dense(4, name="dense")(joined))


@pytest.mark.parametrize("file", ["m.keras", "m.weights.h5"])
def test_tables_of_a_model(tmp_path, model, file):
    path = tmp_path / file
    model.save(path) if file.endswith(".keras") else model.save_weights(path)
    assert foreign.recognise(path) == "keras"
    found = {one.name: one for one in foreign.read(path)}
    assert set(found) == {"items", "users"}
    for name, one in found.items():
        read = [vector for vector, _, _ in tables.rows_of(one, 4).values()]
        np.testing.assert_array_equal(read, model.get_layer(name).trainable_variables[0])


def test_keras_loads_what_is_written_by_name(tmp_path, model):
    vectors = np.random.default_rng(0).normal(size=(7, 4)).astype("float32")
    made = tables.source("items", range(7), vectors, key="row")
    foreign.write(tmp_path / "w.h5", [made], "keras")
    clone = keras.models.clone_model(model)
    before = clone.get_layer("dense").get_weights()[0]
    clone.load_weights(tmp_path / "w.h5", by_name=True)
    np.testing.assert_array_equal(clone.get_layer("items").get_weights()[0], vectors)
    np.testing.assert_array_equal(clone.get_layer("dense").get_weights()[0], before)
    # What Keras 2 writes has this layout, too.
    (found,) = foreign.read(tmp_path / "w.h5")
    read = [vector for vector, _, _ in tables.rows_of(found).values()]
    assert found.name == "items"
    np.testing.assert_array_equal(read, vectors)


def test_endings(tmp_path):
    made = tables.source("items", [0], np.ones((1, 1)), key="row")
    for name in ("w.keras", "w.weights.h5", "w"):
        with pytest.raises(ValueError, match=r"ends in \.h5"):
            foreign.write(tmp_path / name, [made], "keras")


def h5(path, **kept):
    with h5py.File(path, "w") as file:
        file.create_dataset("t/t/embeddings:0", **kept)


@pytest.mark.parametrize("kind", ["virtual", "external", "chunks", "nothing"])
def test_arrays_that_stand_elsewhere_or_nowhere(tmp_path, kind):
    path, secret = tmp_path / "w.h5", tmp_path / "secret"
    secret.write_bytes(bytes(64))
    if kind == "virtual":
        with h5py.File(path, "w") as file:
            layout = h5py.VirtualLayout((4, 4), "f4")
            layout[:] = h5py.VirtualSource(str(secret), "x", (4, 4))
            file.create_virtual_dataset("t/t/embeddings:0", layout)
    elif kind == "external":
        h5(path, shape=(4, 4), dtype="f4", external=[(str(secret), 0, 64)])
    elif kind == "chunks":
        h5(path, data=np.zeros((64, 64), "f4"), compression="gzip")
    else:
        h5(path, shape=(2**40, 2**10), dtype="f4")
    with pytest.raises(ValueError, match=r"w\.h5: 't|w\.h5: '/t.*in one piece"):
        foreign.read(path)


def test_links_to_other_files_are_not_followed(tmp_path):
    h5(tmp_path / "other.h5", data=np.ones((2, 2), "f4"))
    with h5py.File(tmp_path / "w.h5", "w") as file:
        file["t"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "t")
    with pytest.raises(ValueError, match=r"w\.h5: no tables"):
        foreign.read(tmp_path / "w.h5")


def test_an_archive_that_was_damaged(tmp_path, model):
    path = tmp_path / "m.keras"
    model.save(path)
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        begin = archive.getinfo("model.weights.h5").header_offset
    content[begin + 5000] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"m\.keras: 'model\.weights\.h5' isn't what was written"):
        foreign.read(path)


@pytest.mark.parametrize("oov_rows", [0, 2])
def test_tables_whose_rows_move_have_their_ids(tmp_path, oov_rows):
    ids = me.ids.ManagedCollision(64, policy="lfu", oov_rows=oov_rows)
    layer = me.layers.Embedding(None, 4, ids=ids, name="movies")
    model = keras.Sequential([keras.Input([2], dtype="int64"), layer])
    vectors = np.random.default_rng(0).normal(size=(5, 4)).astype("float32")
    layer.table.upsert([70, -3, 2**40, 11, 12], vectors)
    layer.table.erase([11])
    model.save(tmp_path / "m.keras")
    (found,) = foreign.read(tmp_path / "m.keras")
    assert (found.info.key, found.count) == ("id", 4)
    expected = dict(zip([70, -3, 2**40, 12], vectors[[0, 1, 2, 4]].tolist(), strict=True))
    assert {key: row[0] for key, row in tables.rows_of(found).items()} == expected
    # TensorFlow's own checkpoints don't tell them.
    tf.train.Checkpoint(model=model).write(str(tmp_path / "ckpt"))
    (found,) = foreign.read(tmp_path / "ckpt")
    with pytest.raises(ValueError, match=r"rows of '.*movies' belong to ids.*use me.save"):
        next(found.entries())
