"""The Criteo example on a few rows: what it builds, and that it learns and says so."""

import importlib.util
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import merlin_embeddings as me

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "criteo_like.py"
FEW = ("--samples", "4000", "--test-samples", "2000", "--scale", "0.0005", "--batch-size", "256")


@pytest.fixture(scope="module")
def criteo_like():
    """By its path: a benchmark has the same name."""
    spec = importlib.util.spec_from_file_location("example_criteo_like", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_by_default_the_tables_have_more_than_ten_million_rows(criteo_like):
    options = criteo_like.arguments([])
    assert sum(criteo_like.criteo_data.cardinalities(options.scale)) > 10_000_000
    assert options.dim == 16


def test_dot_products_are_those_of_all_pairs(criteo_like):
    vectors = np.random.default_rng(0).standard_normal((5, 4, 3)).astype(np.float32)
    found = criteo_like.dot_products(tf.constant(vectors)).numpy()
    pairs = [(1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2)]
    expected = [[row[i] @ row[j] for i, j in pairs] for row in vectors]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_a_small_run_trains_from_parquet_and_tells_the_auc(criteo_like, tmp_path, capsys):
    criteo_like.main([*FEW, "--dim", "4", "--data", str(tmp_path)])
    out = capsys.readouterr().out
    logs = criteo_like.criteo_data.load(tmp_path)
    assert f"{sum(logs.parameters.table_rows):,}" in out
    assert f"{logs.best_auc:.4f}" in out
    reached = float(re.search(r"test AUC\D+(0\.\d{4})", out)[1])
    assert 0.4 < reached < logs.best_auc


def test_the_model_learns(criteo_like, tmp_path):
    """All numbers and two of the ids, which say half of what there is to know."""
    parameters = criteo_like.criteo_data.Parameters(
        20_000, 5_000, cardinalities=(5,) * 26, shares=(0.5, 0.5, 0.0), signal=3.0
    )
    logs = criteo_like.criteo_data.generate(tmp_path, parameters)
    schema = logs.schema.excluding_by_name([f"C{i}" for i in range(1, 27) if i not in (1, 14)])
    tf.keras.utils.set_random_seed(1)
    model = criteo_like.compiled(schema, 4)
    train = me.data.batches(logs.train, schema, batch_size=250)
    model.fit(train, epochs=2, shuffle=False, verbose=0)
    test = me.data.batches(logs.test, schema, batch_size=1000)
    assert 0.7 < criteo_like.test_auc(model, test) < logs.best_auc
    tables = next(layer for layer in model.layers if isinstance(layer, me.layers.InputBlock))
    assert {variable.shape for variable in tables.categorical.weights} == {(8, 4)}
