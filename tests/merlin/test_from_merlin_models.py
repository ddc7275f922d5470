"""What docs/from-merlin-models.md says: its programs run as they stand, its statements hold."""

import inspect
from pathlib import Path

import merlin.models.tf as mm
import numpy as np
import pytest
import tensorflow as tf
from merlin.schema import ColumnSchema, Schema, Tags

import merlin_embeddings as me
import merlin_embeddings.merlin as mem
from tests.merlin import documented

LISTS = {"is_list": True, "is_ragged": True}
ITEM = {"domain": {"name": "item", "min": 0, "max": 5}}
SCHEMA = Schema(
    [
        ColumnSchema("viewed", [Tags.CATEGORICAL], ITEM, np.int64, **LISTS),
        ColumnSchema("item", [Tags.CATEGORICAL, Tags.ITEM_ID], ITEM, np.int64),
    ]
)
TABLE = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
RAGGED = tf.ragged.constant([[[1], [2], [2]], [], [[4]]], ragged_rank=1, dtype=tf.int64)


def table_of(make, *columns, **kwargs):
    columns = columns or ("viewed",)
    return make(3, *(SCHEMA[column] for column in columns), weights=[TABLE], **kwargs)


def test_programs(monkeypatch):
    names = documented.names()
    monkeypatch.chdir(documented.FOLDER)
    assert names["history"].history["auc"][-1] > 0.9
    # The axes: a hashed user table of 100 rows, rows in half, one table for items.
    tables = names["tables"]
    tables({"user": tf.constant([[12345]]), "item": tf.constant([[3]])})
    assert tables["user"].table.embeddings.shape == (100, 16)
    assert {table.table.embeddings.dtype for table in tables.layers} == {tf.bfloat16}
    # The table alone.
    rows, vectors = names["as_frame"].to_numpy(), names["vectors"]
    np.testing.assert_allclose(vectors["viewed"], [rows[[5, 6]].max(0), rows[7]], rtol=1e-6)
    np.testing.assert_allclose(vectors["item"], rows[[8, 9]], rtol=1e-6)
    np.testing.assert_array_equal(names["pretrained"].table.embeddings, rows)
    assert not names["pretrained"].trainable_variables
    # Saved, loaded, served.
    [(batch, _)] = mm.Loader(names["train"], batch_size=2_000, shuffle=False)
    expected = names["model"](batch).numpy()
    np.testing.assert_allclose(names["loaded"](batch), expected, rtol=1e-5)
    assert type(names["loaded"].optimizer) is me.optimizers.RowwiseAdagrad
    for answers in (names["answers"], names["same_answers"]):
        np.testing.assert_allclose(np.stack(answers.iloc[:, 0]), expected[:3], rtol=1e-5)
    assert Path(names["library"]).is_file()


def pooled(combiner, rows):
    if not len(rows):
        return np.zeros(3)
    divisor = {"sum": 1, "max": 1, "mean": len(rows), "sqrtn": np.sqrt(len(rows))}[combiner]
    return (rows.max(0) if combiner == "max" else rows.sum(0)) / divisor


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn", "max"])
@pytest.mark.parametrize("kind", ["ragged", "sparse", "dense"])
def test_combiners(combiner, kind):
    if kind == "dense":
        ids, lists = tf.constant([[[1], [2]], [[4], [4]]]), [[1, 2], [4, 4]]
    else:
        ids, lists = RAGGED, [[1, 2, 2], [], [4]]
        ids = ids.to_sparse() if kind == "sparse" else ids
    expected = [pooled(combiner, TABLE[ids]) for ids in lists]
    ours = table_of(mem.EmbeddingTable, sequence_combiner=combiner)
    np.testing.assert_allclose(ours(ids), expected, rtol=1e-5, atol=1e-6)
    theirs = table_of(mm.EmbeddingTable, sequence_combiner=combiner)
    theirs.table(0)  # merlin-models reads `embeddings` before the table is built
    if combiner == ("sqrtn" if kind == "dense" else "max"):
        with pytest.raises(ValueError, match="combiner"):
            theirs(ids)
    else:
        np.testing.assert_allclose(theirs(ids), expected, rtol=1e-5, atol=1e-6)


def test_negative_ids():
    ids = tf.ragged.constant([[[1], [-1]], [[-2]]], ragged_rank=1, dtype=tf.int64)
    expected = [TABLE[1], np.zeros(3)]
    theirs = table_of(mm.EmbeddingTable, sequence_combiner="mean")
    theirs.table(0)
    np.testing.assert_allclose(theirs(ids), expected, rtol=1e-6)
    with pytest.raises(tf.errors.InvalidArgumentError, match="id -1 "):
        table_of(mem.EmbeddingTable, sequence_combiner="mean")(ids)
    zero = table_of(mem.EmbeddingTable, sequence_combiner="mean", ids=me.ids.Identity("zero"))
    np.testing.assert_allclose(zero(ids), expected, rtol=1e-6)
    padded = table_of(mem.EmbeddingTable, sequence_combiner="mean", padding_id=-1)
    np.testing.assert_allclose(padded(ids[:1]), expected[:1], rtol=1e-6)


def test_ids_past_the_end():
    for make, message in [
        (mm.EmbeddingTable, r"= 6 is not in \[0, 6\)"),
        (mem.EmbeddingTable, r"table 'item', feature 'viewed'.*max=5.*id 6 "),
    ]:
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            table_of(make)(tf.constant([[6]]))


def test_regularizer():
    ours, theirs = (
        table_of(make, embeddings_regularizer="l2")
        for make in (mem.EmbeddingTable, mm.EmbeddingTable)
    )
    ids = tf.constant([[2], [2], [3]])
    ours(ids), theirs(ids)
    np.testing.assert_allclose(theirs.losses, [0.01 * np.sum(TABLE**2)], rtol=1e-5)
    np.testing.assert_allclose(ours.losses, [0.01 * np.sum(TABLE[2:4] ** 2)], rtol=1e-5)


def test_initial_values():
    column = ColumnSchema("user", [Tags.CATEGORICAL], {"domain": {"min": 0, "max": 499}}, np.int64)
    tables = [mem.EmbeddingTable(20, column, seed=1) for _ in range(2)]
    values = [
        np.asarray(table.to_df()) for table in tables if table(tf.constant([[1]])) is not None
    ]
    np.testing.assert_array_equal(*values)
    assert -0.05 <= values[0].min() < -0.049 and 0.049 < values[0].max() <= 0.05


def test_config():
    ours, theirs = (
        make(3, SCHEMA["viewed"], l2_batch_regularization_factor=0.5)
        for make in (mem.EmbeddingTable, mm.EmbeddingTable)
    )
    assert "l2_batch_regularization_factor" not in theirs.get_config()
    config = ours.get_config()
    assert type(ours).from_config(config).l2_batch_regularization_factor == 0.5
    assert config == ours.get_config()


def test_select_by_tag():
    ours, theirs = (table_of(c, "viewed", "item") for c in (mem.EmbeddingTable, mm.EmbeddingTable))
    selected = ours.select_by_tag(Tags.ITEM_ID)
    assert list(selected.features) == ["item"] and selected.table is ours.table
    assert type(selected) is mem.EmbeddingTable

    class Mine(mm.EmbeddingTable):
        pass

    mine = table_of(Mine, "viewed", "item").select_by_tag(Tags.ITEM_ID)
    assert type(mine) is mm.EmbeddingTable
    assert theirs.select_by_tag(Tags.ITEM_ID).table is theirs.table


def model_with(table_cls, **kwargs):
    tables = mm.Embeddings(SCHEMA, dim=3, table_cls=table_cls, **kwargs)
    inputs = mm.InputBlockV2(SCHEMA, categorical=tables)
    return mm.Model(inputs, mm.MLPBlock([4], activation="tanh"), mm.BinaryOutput("click"))


BATCH = {
    "viewed__values": tf.constant([1, 2, 2, 4], tf.int64),
    "viewed__offsets": tf.constant([0, 3, 4], tf.int64),
    "item": tf.constant([3, 5], tf.int64),
}


def test_weights_of_the_stock_model():
    ours, theirs = model_with(mem.EmbeddingTable), model_with(mm.EmbeddingTable)
    ours(BATCH), theirs(BATCH)
    ours.set_weights(theirs.get_weights())
    np.testing.assert_allclose(ours(BATCH), theirs(BATCH), rtol=1e-5)


def test_training_goes_on_after_loading(tmp_path):
    model = model_with(mem.EmbeddingTable)
    model.compile(me.optimizers.RowwiseAdagrad(0.1))
    batches = tf.data.Dataset.from_tensors((BATCH, tf.ones([2, 1])))
    model.fit(batches, verbose=0)
    model.save(tmp_path / "model")
    loaded = mm.Model.load(tmp_path / "model")
    for each in (model, loaded):
        each.fit(batches, epochs=2, verbose=0)
        assert each.optimizer.iterations.numpy() == 3
    for ours, theirs in zip(loaded.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_frozen_tables():
    assert model_with(mem.EmbeddingTable, trainable=False).blocks[0].trainable
    frozen = mm.Embeddings(SCHEMA, dim=3, table_cls=mem.EmbeddingTable, trainable={"viewed": False})
    frozen({"item": tf.constant([[1]])})
    assert frozen.weights and not frozen.trainable_weights
    model = model_with(mem.EmbeddingTable)
    model(BATCH)
    model.freeze_blocks([model.blocks[0]["categorical"]["item"]])
    model.compile(me.optimizers.Adagrad(0.5))
    assert moved_in_a_step(model) == (False, True)


def moved_in_a_step(model):
    """Whether the table moves in a step, and whether the bias of the output does."""
    table = model.blocks[0]["categorical"]["item"].table.embeddings
    variables = [table, model.trainable_weights[-1]]
    before = [variable.numpy() for variable in variables]
    model.fit(tf.data.Dataset.from_tensors((BATCH, tf.ones([2, 1]))), verbose=0)
    return tuple(bool(np.any(v != b)) for v, b in zip(variables, before, strict=True))


@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_split(rate):
    model = model_with(mem.EmbeddingTable)
    model(BATCH)
    split = me.optimizers.Split(
        dense=me.optimizers.SGD(0.5),
        embeddings=me.optimizers.Adagrad(0.5),
        overrides={"item": me.optimizers.SGD(rate)},
    )
    model.compile(split)
    assert moved_in_a_step(model) == (rate > 0, True)


def test_xla():
    ids = tf.keras.Input([1], dtype="int64")
    vectors = mem.EmbeddingTable(3, SCHEMA["item"])(ids)
    model = tf.keras.Model(ids, tf.keras.layers.Dense(1)(vectors))
    model.compile(me.optimizers.Adagrad(0.1), "mse", jit_compile=True)
    with pytest.raises(tf.errors.InvalidArgumentError, match="XLA"):
        model.fit(np.array([[1], [2]]), np.ones(2), verbose=0)


def test_model_checkpoint():
    assert "overwrite" not in inspect.signature(mm.Model.save).parameters
