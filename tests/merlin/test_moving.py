"""Tables whose rows move from id to id inside of merlin-models."""

import merlin.models.tf as mm
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from merlin.io import Dataset
from merlin.models.utils.schema_utils import create_categorical_column
from merlin.schema import ColumnSchema, Schema, Tags

import merlin_embeddings as me
from merlin_embeddings.merlin import EmbeddingTable

ROWS = 128
SCHEMA = Schema(
    [
        ColumnSchema("user", [Tags.CATEGORICAL], {"domain": {"min": 0, "max": 199}}, np.int64),
        ColumnSchema("age", [Tags.CONTINUOUS], dtype=np.float32),
        ColumnSchema("click", [Tags.TARGET, Tags.BINARY_CLASSIFICATION], dtype=np.int64),
    ]
)
FEW = me.ids.ManagedCollision(16, policy="lru", admit_after=1)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "user": rng.integers(60, size=ROWS),
            "age": rng.normal(size=ROWS).astype(np.float32),
            "click": rng.integers(2, size=ROWS),
        }
    )
    return Dataset(frame, schema=SCHEMA)


def dlrm(**kwargs):
    categorical = SCHEMA.select_by_tag(Tags.CATEGORICAL)
    return mm.DLRMModel(
        SCHEMA,
        embeddings=mm.Embeddings(categorical, dim=4, table_cls=EmbeddingTable, **kwargs),
        bottom_block=mm.MLPBlock([4]),
        top_block=mm.MLPBlock([4]),
        prediction_tasks=mm.BinaryOutput("click"),
    )


def batches(data):
    return mm.Loader(data, batch_size=8, shuffle=False)


def table_in(model):
    [table] = [table for table in map(me.tables.table_of, model.weights) if table is not None]
    return table


def rows_of(table):
    return {int(k): v for e in table.entries() for k, v in zip(e.keys, e.vectors, strict=True)}


@pytest.mark.parametrize(
    "optimizer", [me.optimizers.Adagrad, lambda rate: me.optimizers.Legacy(me.optimizers.SGD(rate))]
)
def test_a_model_trains_and_comes_back(data, tmp_path, optimizer):
    tf.keras.utils.set_random_seed(0)
    model = dlrm(ids={"user": FEW})
    model.compile(optimizer(0.1))
    model.fit(batches(data), epochs=2, verbose=0)
    table = table_in(model)
    statistics = {name: int(value) for name, value in table.ids.statistics().items()}
    assert statistics["steps"] == 32 and statistics["used"] == 16 and statistics["evicted"] > 100
    # Evaluation and prediction learn no ids.
    before = rows_of(table)
    model.evaluate(batches(data), verbose=0)
    expected = model.predict(batches(data))
    np.testing.assert_equal(rows_of(table), before)
    model.save(tmp_path / "model")
    again = mm.Model.load(tmp_path / "model")
    np.testing.assert_allclose(again.predict(batches(data)), expected, rtol=1e-5)
    np.testing.assert_equal(rows_of(table_in(again)), before)
    for one in (model, again):
        one.fit(batches(data), epochs=1, verbose=0)
    assert set(rows_of(table_in(again))) == set(rows_of(table))


def test_a_plain_keras_optimizer_is_refused(data):
    model = dlrm(ids={"user": FEW})
    model.compile(tf.keras.optimizers.SGD(0.1))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"table 'user'.*Split\(dense="):
        model.fit(batches(data), epochs=1, verbose=0)


def test_a_multi_optimizer_with_one_of_ours_for_the_table(data):
    from merlin_embeddings import merlin as mem

    model = dlrm(ids={"user": FEW})
    model(next(iter(batches(data)))[0])
    [table] = {v for v in model.submodules if isinstance(v, EmbeddingTable)}
    optimizer = mem.MultiOptimizer(
        [mm.OptimizerBlocks(me.optimizers.Adagrad(0.1), table)], default_optimizer="sgd"
    )
    model.compile(optimizer)
    model.fit(batches(data), epochs=1, verbose=0)
    assert int(table.table.table.ids.statistics()["steps"]) == 16


def test_columns_without_an_int_domain():
    table = EmbeddingTable(3, ColumnSchema("word"), ids=FEW, sequence_combiner="mean")
    table({"word": tf.constant([["a", "b"], ["b", "c"]])}, training=True)
    assert table.table.table.size() == 3 and table.input_dim == 16


@pytest.mark.parametrize("combiner", [None, "mean", "max"])
def test_an_activity_regularizer_counts_no_id_twice(combiner):
    table = EmbeddingTable(
        3, ColumnSchema("word"), ids=me.ids.ManagedCollision(16), sequence_combiner=combiner,
        embeddings_initializer="ones", embeddings_regularizer=tf.keras.regularizers.L2(1.0),
        activity_regularizer=tf.keras.regularizers.L2(1.0), padding_id=0,
    )  # fmt: skip
    out = table({"word": tf.constant([[1, 2, 1], [3, 0, 0]])}, training=True)["word"]
    counts = {
        k: s for e in table.table.table.entries() for k, s in zip(e.keys, e.scores, strict=True)
    }
    assert counts == {1: 2, 2: 1, 3: 1}
    np.testing.assert_array_equal(out if combiner else out[:, 0], np.ones((2, 3)))
    # Four vectors of three ones in a batch of two, and three distinct rows.
    assert sorted(map(float, table.losses)) == [4 * 3 / 2, 3 * 3]


@pytest.mark.parametrize(
    "ids",
    [
        me.ids.ManagedCollision(16, policy="custom"),
        me.ids.Dynamic(16, 16, policy="custom"),
        me.ids.Dynamic(16, 16, when_full="custom"),
    ],
)
def test_scores_come_with_ids(ids):
    table = EmbeddingTable(3, ColumnSchema("word"), ids=ids, sequence_combiner="sum")
    words, scores = tf.constant([[1, 2], [2, 3]]), tf.constant([[10, 20], [25, 30]])
    table({"word": words}, scores={"word": scores}, training=True)
    table(tf.ragged.constant([[4], []]), scores=tf.ragged.constant([[40], []]), training=True)
    kept = {
        k: s for e in table.table.table.entries() for k, s in zip(e.keys, e.scores, strict=True)
    }
    assert kept == {1: 10, 2: 25, 3: 30, 4: 40}
    with pytest.raises(ValueError, match=r"feature 'word'.*go by scores.*Choose another policy"):
        table({"word": words}, training=True)
    table({"word": words})  # nobody learns
    with pytest.raises(ValueError, match="scores have shape"):
        table({"word": words}, scores={"word": tf.constant([[1], [2]])}, training=True)


def test_a_model_of_merlin_models_has_no_scores(data):
    model = dlrm(ids={"user": me.ids.ManagedCollision(16, policy="custom")})
    model.compile(me.optimizers.SGD(0.1))
    with pytest.raises(ValueError, match=r"table 'user'.*go by scores.*hand tables ids alone"):
        model.fit(batches(data), epochs=1, verbose=0)


def test_an_output_tied_to_rows_that_move_is_refused():
    item = create_categorical_column("item", 99, tags=[Tags.ITEM_ID, Tags.ITEM])
    table = EmbeddingTable(4, item, ids=FEW)
    table({"item": tf.constant([[1]])})
    with pytest.raises(ValueError, match=r"Table 'item'.*rows move from id to id"):
        table.build((None, 4))
