"""TensorFlow checkpoints, with TensorFlow as the other side."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import merlin_embeddings as me
from merlin_embeddings.checkpoint import foreign
from tests.checkpoint.foreign import tables


def arrays(found):
    rows = tables.rows_of(found)
    return np.array([rows[key][0] for key in range(found.count)])


def test_keras_and_our_layers_with_their_slots(tmp_path):
    ids = keras.Input([3], dtype="int64")
    items = keras.layers.Embedding(7, 4, name="items")
    users = me.layers.Embedding(9, 4, combiner="sum", name="users")
    joined = keras.layers.Concatenate()([keras.layers.Flatten()(items(ids)), users(ids)])
    model = keras.Model(ids, keras.layers.Dense(1)(joined))
    model.compile("adam", "mse")
    model.fit(np.arange(12).reshape(4, 3) % 7, np.ones((4, 1)), verbose=0)
    tf.train.Checkpoint(model=model).save(str(tmp_path / "made" / "ckpt"))
    prefix = str(tmp_path / "made" / "ckpt-1")
    for path in (tmp_path / "made", prefix, f"{prefix}.index"):
        assert foreign.recognise(path) == "tensorflow"
        found = {one.name: one for one in foreign.read(path)}
        assert set(found) == {"items", "users"}
        for name, layer in (("items", items), ("users", users)):
            np.testing.assert_array_equal(arrays(found[name]), layer.trainable_variables[0])
            slots = {v.path.rsplit("_", 1)[-1]: v for v in model.optimizer.variables
                     if f"{name}_embeddings" in v.path}  # fmt: skip
            assert set(slots) == {"momentum", "velocity"} == set(found[name].info.slots)
            rows = tables.rows_of(found[name])
            for slot, variable in slots.items():
                read = [rows[key][1][slot] for key in range(found[name].count)]
                np.testing.assert_array_equal(np.array(read, "float32"), variable)
    model.export(str(tmp_path / "saved"), verbose=False)
    found = foreign.read(tmp_path / "saved", tables=["users"])
    np.testing.assert_array_equal(arrays(*found), users.trainable_variables[0])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_tensorflow_restores_what_is_written(tmp_path, dtype):
    rng = np.random.default_rng(0)
    made = {
        name: rng.normal(size=(rows, 3)).astype(foreign.source.numpy_dtype(dtype))
        for name, rows in (("items", 40), ("users", 5))
    }
    sources = [tables.source(n, range(len(v)), v, key="row") for n, v in made.items()]
    foreign.write(tmp_path / "out", sources, "tensorflow")
    variables = {name: tf.Variable(tf.zeros(v.shape, dtype)) for name, v in made.items()}
    newest = tf.train.latest_checkpoint(tmp_path / "out")
    tf.train.Checkpoint(**variables).restore(newest).assert_consumed()
    for name, vectors in made.items():
        np.testing.assert_array_equal(variables[name].numpy(), vectors)
    for one in foreign.read(tmp_path / "out"):
        assert one.info.dtype == dtype
        np.testing.assert_array_equal(arrays(one), made[one.name].astype("float64"))


def test_many_tables_fill_several_blocks_of_the_index(tmp_path):
    names = [f"table_{number}_{'x' * 5000}" for number in range(70)]
    made = [tables.source(n, [0], np.ones((1, 1), "float32"), key="row") for n in names]
    foreign.write(tmp_path / "out", made, "tensorflow")
    prefix = tf.train.latest_checkpoint(tmp_path / "out")
    found = {name for name, _ in tf.train.list_variables(prefix)}
    assert {f"{name}/.ATTRIBUTES/VARIABLE_VALUE" for name in names} < found
    assert {one.name for one in foreign.read(prefix)} == set(names)


@pytest.fixture
def written(tmp_path):
    variable = tf.Variable(np.arange(40, dtype="float32").reshape(10, 4), name="t/embeddings")
    tf.train.Checkpoint(embeddings=variable).write(str(tmp_path / "ckpt"))
    return tmp_path / "ckpt"


def test_a_flipped_bit_is_found(written):
    data = written.with_name("ckpt.data-00000-of-00001")
    content = bytearray(data.read_bytes())
    place = content.index(np.arange(40, dtype="<f4").tobytes())
    content[place + 50] ^= 4
    data.write_bytes(content)
    with pytest.raises(ValueError, match=r"data-00000-of-00001: .*checksum is wrong"):
        foreign.read(written)


def test_a_data_file_that_is_missing_or_short(written):
    data = written.with_name("ckpt.data-00000-of-00001")
    data.write_bytes(data.read_bytes()[:100])
    with pytest.raises(ValueError, match="data-00000-of-00001"):
        foreign.read(written)
    data.unlink()
    with pytest.raises((ValueError, FileNotFoundError), match="data-00000-of-00001"):
        foreign.read(written)


def test_partitioned_variables_are_refused(tmp_path):
    half = np.ones((2, 3), "float32")
    tf.raw_ops.SaveV2(
        prefix=str(tmp_path / "ckpt"),
        tensor_names=["t/embeddings", "t/embeddings"],
        shape_and_slices=["4 3 0,2:0,3", "4 3 2,2:0,3"],
        tensors=[half, half],
    )
    with pytest.raises(ValueError, match="'t/embeddings' was written in slices"):
        foreign.read(tmp_path / "ckpt")


def test_names_that_variables_cannot_have(tmp_path):
    made = tables.source("a/b", [0], np.ones((1, 1)), key="row")
    with pytest.raises(ValueError, match="can't be called 'a/b'"):
        foreign.write(tmp_path / "out", [made], "tensorflow")
