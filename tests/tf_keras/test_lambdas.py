"""Models with lambdas inside: later versions of Keras 2 make none of a config unless told to."""

import merlin.models.tf as mm
import numpy as np
import pytest
import tensorflow as tf
from merlin.schema import ColumnSchema, Schema, Tags
from tf_keras.src.saving import serialization_lib

from merlin_embeddings.merlin import EmbeddingTable

SCHEMA = Schema(
    [
        ColumnSchema("user", [Tags.CATEGORICAL], {"domain": {"min": 0, "max": 19}}, np.int64),
        ColumnSchema("item", [Tags.CATEGORICAL], {"domain": {"min": 0, "max": 29}}, np.int64),
    ]
)
BATCH = {"user": tf.constant([3, 4, 19]), "item": tf.constant([29, 0, 1])}


@pytest.fixture
def loading(monkeypatch):
    """Whatever a test decides about lambdas ends with it."""
    monkeypatch.setattr(serialization_lib.SAFE_MODE, "safe_mode", None, raising=False)


def test_deep_fm_is_loaded_and_made_of_its_config_where_lambdas_are_allowed(tmp_path, loading):
    tables = mm.Embeddings(SCHEMA, dim=4, table_cls=EmbeddingTable)
    model = mm.DeepFMModel(
        SCHEMA,
        deep_block=mm.MLPBlock([4]),
        input_block=mm.InputBlockV2(SCHEMA, categorical=tables, aggregation=None),
        prediction_tasks=mm.BinaryOutput("click"),
    )
    expected = model(BATCH)
    model.save(str(tmp_path))
    np.testing.assert_array_equal(mm.Model.load(str(tmp_path))(BATCH), expected)
    with pytest.raises(ValueError, match="Python `lambda` inside"):
        type(model).from_config(model.get_config())
    tf.keras.__internal__.enable_unsafe_deserialization()
    again = type(model).from_config(model.get_config())
    assert again(BATCH).shape == expected.shape
