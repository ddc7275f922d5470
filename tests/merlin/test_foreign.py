"""Tables of merlin-models' models, read out of what Keras 2 saves."""

import merlin.models.tf as mm
import numpy as np
import pytest
import tensorflow as tf
from merlin.schema import ColumnSchema, Schema, Tags

import merlin_embeddings.merlin as mem
from merlin_embeddings.checkpoint import foreign

SIZES = {"user_id": 20, "item_id": 30}
SCHEMA = Schema(
    [
        ColumnSchema(
            name,
            [Tags.CATEGORICAL],
            {"domain": {"name": name, "min": 0, "max": count - 1}},
            np.int64,
        )
        for name, count in SIZES.items()
    ]
)


@pytest.fixture(scope="module", params=["theirs", "ours"])
def model(request):
    chosen = {} if request.param == "theirs" else {"table_cls": mem.EmbeddingTable}
    inputs = mm.InputBlockV2(SCHEMA, categorical=mm.Embeddings(SCHEMA, dim=8, **chosen))
    model = mm.Model(inputs, mm.MLPBlock([4]), mm.BinaryOutput("click"))
    model.compile("adam")
    batch = {name: tf.range(16, dtype=tf.int64)[:, tf.newaxis] for name in SIZES}
    model.fit(tf.data.Dataset.from_tensors((batch, tf.ones([16, 1]))), verbose=0)
    return model


def vectors_of(model):
    """By their sizes: in merlin-models, several tables may be called model/embeddings."""
    found = {weight.shape[0]: weight.numpy() for weight in model.trainable_variables}
    return {name: found[count] for name, count in SIZES.items()}


def compare(path, model):
    found = {one.name: one for one in foreign.read(path)}
    assert set(found) == set(SIZES)
    for name, vectors in vectors_of(model).items():
        (entries,) = found[name].entries()
        np.testing.assert_array_equal(entries.vectors, vectors)
    return found


def test_a_saved_model(tmp_path, model):
    model.save(str(tmp_path / "saved"))
    compare(tmp_path / "saved", model)


def test_a_checkpoint_with_slots(tmp_path, model):
    tf.train.Checkpoint(model=model).write(str(tmp_path / "ckpt"))
    found = compare(tmp_path / "ckpt", model)
    weights = {weight.shape[0]: weight for weight in model.trainable_variables}
    for name, one in found.items():
        assert set(one.info.slots) == {"momentum", "velocity"}
        (entries,) = one.entries()
        for slot, theirs in (("momentum", "m"), ("velocity", "v")):
            kept = model.optimizer.get_slot(weights[SIZES[name]], theirs).numpy()
            assert kept.any()
            np.testing.assert_array_equal(entries.slots[slot], kept)


def test_weights_in_hdf5(tmp_path):
    layers = [tf.keras.layers.Embedding(5, 3, name="items"), tf.keras.layers.Dense(2)]
    model = tf.keras.Sequential([tf.keras.Input([2]), *layers])
    model.compile("adam", "mse")
    model.save_weights(str(tmp_path / "w.h5"))
    model.save(str(tmp_path / "m.keras"), save_format="keras_v3")
    for file in ("w.h5", "m.keras"):
        (items,) = foreign.read(tmp_path / file)
        (entries,) = items.entries()
        np.testing.assert_array_equal(entries.vectors, layers[0].get_weights()[0])
    foreign.convert(tmp_path / "w.h5", tmp_path / "back.h5", "keras")
    before = layers[0].get_weights()[0].copy()
    layers[0].set_weights([before * 0])
    model.load_weights(str(tmp_path / "back.h5"), by_name=True)
    np.testing.assert_array_equal(layers[0].get_weights()[0], before)
