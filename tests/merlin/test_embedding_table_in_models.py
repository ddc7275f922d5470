"""`EmbeddingTable` inside of whole models of merlin-models."""

import json
import os
import subprocess
import sys
from pathlib import Path

import merlin.models.tf as mm
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from merlin.io import Dataset
from merlin.schema import ColumnSchema, Schema, Tags

import merlin_embeddings
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
def data():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "user": rng.integers(20, size=ROWS),
            "item": rng.integers(30, size=ROWS),
            "history": [rng.integers(30, size=n) for n in rng.integers(4, size=ROWS)],
            "age": rng.normal(size=ROWS).astype(np.float32),
            "click": rng.integers(2, size=ROWS),
        }
    )
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


LOAD = """
import json, sys
import numpy as np
import merlin_embeddings.merlin
import merlin.models.tf as mm

model = mm.Model.load(sys.argv[1])
with np.load(sys.argv[2]) as file:
    print(json.dumps(np.asarray(model(dict(file))).tolist()))
"""


def test_dlrm_trains_saves_and_is_loaded_by_a_fresh_process(data, tmp_path, executed_ops):
    model = dlrm(table_cls=EmbeddingTable)
    model.compile("adagrad")
    with executed_ops() as ops:
        losses = model.fit(data, batch_size=16, epochs=2, verbose=0).history["loss"]
    assert {"Merlin>Lookup", "Merlin>Group"} <= ops
    assert losses[1] < losses[0]
    batch = batch_of(data)
    expected = model(batch)
    model.save(tmp_path / "model")
    np.savez(tmp_path / "batch", **{name: np.asarray(tensor) for name, tensor in batch.items()})
    done = subprocess.run(
        [sys.executable, "-c", LOAD, tmp_path / "model", tmp_path / "batch.npz"],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(Path(merlin_embeddings.__file__).parents[1])},
    )
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(json.loads(done.stdout.splitlines()[-1]), expected)


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
