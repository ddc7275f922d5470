"""`EmbeddingTable` inside of whole models of merlin-models."""

import merlin.models.tf as mm
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from merlin.io import Dataset
from merlin.schema import ColumnSchema, Schema, Tags

import merlin_embeddings as me
from merlin_embeddings.merlin import EmbeddingTable

ROWS = 64
ITEM = {"domain": {"name": "item", "min": 0, "max": 29}}
SCHEMA = Schema(
    [
        ColumnSchema("user", [Tags.CATEGORICAL], {"domain": {"min": 0, "max": 19}}, np.int64),
        ColumnSchema("item", [Tags.CATEGORICAL], ITEM, np.int64),
        ColumnSchema("history", [Tags.CATEGORICAL], ITEM, np.int64, is_list=True, is_ragged=True),
        ColumnSchema("age", [Tags.CONTINUOUS], dtype=np.float32),
        ColumnSchema("click", [Tags.TARGET, Tags.BINARY_CLASSIFICATION], dtype=np.int64),
    ]
)
CATEGORICAL = SCHEMA.select_by_tag(Tags.CATEGORICAL)


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "user": rng.integers(20, size=ROWS),
            "item": rng.integers(30, size=ROWS),
            "history": [rng.integers(30, size=n) for n in rng.integers(4, size=ROWS)],
            "age": rng.normal(size=ROWS).astype(np.float32),
            "click": rng.integers(2, size=ROWS),
        }
    )


@pytest.fixture(scope="module")
def data(frame):
    return Dataset(frame, schema=SCHEMA)


def dlrm(**kwargs):
    return mm.DLRMModel(
        SCHEMA,
        embeddings=mm.Embeddings(CATEGORICAL, dim=4, **kwargs),
        bottom_block=mm.MLPBlock([4]),
        top_block=mm.MLPBlock([4]),
        prediction_tasks=mm.BinaryOutput("click"),
    )


def batch_of(data):
    loader = mm.Loader(data, batch_size=16, shuffle=False)
    return next(iter(loader))[0]


def test_tables_of_all_kinds_train_and_come_back(data, tmp_path, executed_ops):
    tf.keras.utils.set_random_seed(0)
    model = dlrm(
        table_cls=EmbeddingTable,
        ids={"user": me.ids.Modulo(7)},
        table_dtype="bfloat16",
        padding_id={"item": 0},
        sequence_combiner={"item": "max"},
    )
    model.compile(me.optimizers.Adagrad(0.1))
    with executed_ops() as ops:
        loader = mm.Loader(data, batch_size=16, shuffle=False)
        losses = model.fit(loader, epochs=2, verbose=0).history["loss"]
    assert {"Merlin>Lookup", "Merlin>Update"} <= ops
    assert losses[1] < losses[0]
    batch = batch_of(data)
    expected = model(batch)
    model.save(tmp_path / "model")
    again = mm.Model.load(tmp_path / "model")
    np.testing.assert_array_equal(again(batch), expected)
    [item] = [weight for weight in again.weights if weight.shape == (30, 4)]
    assert item.dtype == tf.bfloat16
    before = item.numpy()
    again.fit(data, batch_size=16, verbose=0)
    assert np.any(item.numpy() != before)


def test_dlrm_trains_as_with_merlin_models_own_table(data):
    start, losses = None, []
    for cls in (EmbeddingTable, mm.EmbeddingTable):
        model = dlrm(table_cls=cls)
        model(batch_of(data))
        start = start or model.get_weights()
        model.set_weights(start)
        model.compile(tf.keras.optimizers.Adagrad(0.1))
        loader = mm.Loader(data, batch_size=16, shuffle=False)
        losses.append(model.fit(loader, epochs=2, verbose=0).history["loss"])
    np.testing.assert_allclose(*losses, rtol=1e-5)


def test_columns_that_the_model_hasnt_and_columns_that_the_loader_hasnt(frame, data):
    model = dlrm(table_cls=EmbeddingTable)
    expected = model(batch_of(data))
    extra = ColumnSchema("extra", [Tags.CATEGORICAL], {"domain": {"min": 0, "max": 3}}, np.int64)
    more = Dataset(frame.assign(extra=1), schema=Schema([*SCHEMA, extra]))
    np.testing.assert_array_equal(model(batch_of(more)), expected)
    fewer = {name: ids for name, ids in batch_of(data).items() if name != "user"}
    with pytest.raises(
        ValueError, match=r"(?s)'user': .* columns \['user'\].*it has \['item', 'his"
    ):
        model(fewer)
    other = frame.assign(user=25)
    model.compile("adagrad")
    match = r"feature 'user' \(in the schema its int_domain has max=19\): id 25"
    with pytest.raises(tf.errors.InvalidArgumentError, match=match):
        model.fit(Dataset(other, schema=SCHEMA), batch_size=16, verbose=0)
