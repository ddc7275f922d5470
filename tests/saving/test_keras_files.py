"""Keras's files that refer to a checkpoint, and what they say of their size."""

import shutil

import numpy as np
import pytest
from tensorflow import keras

import merlin_embeddings as me
from merlin_embeddings.tables import size
from tests.either_keras import KERAS_3
from tests.saving import models

pytestmark = pytest.mark.skipif(not KERAS_3, reason="files of Keras 2 ask no layer what to write")
ROWS = 5000


def model_of(rows=ROWS, moving=True):
    """A large table, and one whose rows move."""
    symbol = keras.Input((2,), dtype="int64")
    item = me.layers.Embedding(rows, 16, combiner="sum", name="item")(symbol)
    ids = me.ids.ManagedCollision(64, policy="lru")
    user = me.layers.Embedding(None, 4, ids=ids, combiner="sum", name="user")(symbol)
    joined = keras.layers.Concatenate()([item, user] if moving else [item])
    model = keras.Model(symbol, keras.layers.Dense(1, kernel_initializer="ones")(joined))
    model.compile(me.optimizers.Adam(0.125), "mse")
    return model


def train(model):
    ids = np.random.default_rng(0).integers(0, ROWS, (64, 2))
    model.fit(ids, np.ones((64, 1)), batch_size=16, shuffle=False, verbose=0)
    return model.predict(ids, verbose=0)


def slots(model):
    table = model.get_layer("item").table
    return {name: np.asarray(slot.variable) for name, slot in table.slots.items()}


def test_a_model_whose_table_stands_in_a_checkpoint(tmp_path):
    model = model_of()
    train(model)
    plain, apart = str(tmp_path / "plain.keras"), str(tmp_path / "apart.keras")
    model.save(plain)
    with me.saving.tables_apart(model, tmp_path / "tables"):
        model.save(apart)
    sizes = [(tmp_path / name).stat().st_size for name in ("plain.keras", "apart.keras")]
    assert sizes[0] > 3 * ROWS * 16 * 4 and sizes[1] < 200_000
    loaded, of_plain = keras.models.load_model(apart), keras.models.load_model(plain)
    for one in (loaded, of_plain):
        np.testing.assert_equal(one.get_weights(), model.get_weights())
        np.testing.assert_equal(slots(one), slots(model))
    np.testing.assert_array_equal(train(loaded), train(of_plain))
    # Outside of it, files are as ever.
    loaded.save(str(tmp_path / "again.keras"))
    assert (tmp_path / "again.keras").stat().st_size > 3 * ROWS * 16 * 4


def test_weights_files(tmp_path):
    model, other = model_of(), model_of()
    train(model)
    path = tmp_path / "a.weights.h5"
    with me.saving.tables_apart(model, tmp_path / "tables"):
        model.save_weights(path)
    assert path.stat().st_size < 200_000
    other.load_weights(path)
    np.testing.assert_equal(other.get_weights(), model.get_weights())


def test_the_checkpoint_has_to_be_there(tmp_path):
    model = model_of(moving=False)
    train(model)
    path = str(tmp_path / "a.keras")
    with me.saving.tables_apart(model, tmp_path / "tables"):
        model.save(path)
    shutil.move(tmp_path / "tables", tmp_path / "moved")
    with pytest.raises((FileNotFoundError, ValueError), match="tables_from"):
        keras.models.load_model(path)
    with me.saving.tables_from(tmp_path / "moved"):
        loaded = keras.models.load_model(path)
    np.testing.assert_equal(loaded.get_weights(), model.get_weights())
    me.save(model, tmp_path / "other")
    with (
        me.saving.tables_from(tmp_path / "other"),
        pytest.raises(ValueError, match="another one is at"),
    ):
        keras.models.load_model(path)


def test_a_large_file_says_so_before_it_is_written(tmp_path, monkeypatch, recwarn):
    monkeypatch.setattr(size, "LARGE", ROWS * 16 * 4 * 2)
    model = model_of(moving=False)
    train(model)
    model.save(str(tmp_path / "a.keras"))
    said = [str(w.message) for w in recwarn if "GiB" in str(w.message)]
    # Two slots are as much as the bound, the table is less.
    assert said == []
    monkeypatch.setattr(size, "LARGE", ROWS * 16 * 4 - 1)
    with pytest.warns(UserWarning, match="item/embeddings' 0.0 GiB.*tables_apart"):
        model.save(str(tmp_path / "b.keras"))
    with me.saving.tables_apart(model, tmp_path / "tables"):
        recwarn.clear()
        model.save(str(tmp_path / "c.keras"))
    assert not [w for w in recwarn if "GiB" in str(w.message)]


def test_ours_and_all_other_kinds_of_tables(tmp_path):
    # Keras's files have no states of random generators.
    model = models.model_of(me.optimizers.Adam(0.125), dropout=False)
    models.train(model)
    with me.saving.tables_apart(model, tmp_path / "tables"):
        model.save(str(tmp_path / "a.keras"))
    loaded = keras.models.load_model(str(tmp_path / "a.keras"))
    np.testing.assert_equal(models.state_of(loaded), models.state_of(model))
