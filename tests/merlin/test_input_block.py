"""`InputBlock` on Keras 2, beside merlin-models' own."""

import merlin.models.tf as mm
import numpy as np
import pytest
import tensorflow as tf
from merlin.models.tf.transforms.features import PrepareFeatures
from merlin.schema import ColumnSchema, Schema, Tags
from tensorflow import keras

import merlin_embeddings as me

ITEM = {"domain": {"name": "item", "min": 0, "max": 9}}
LIST = {"is_list": True, "is_ragged": True}
SCHEMA = Schema(
    [
        ColumnSchema("user", [Tags.CATEGORICAL], {"domain": {"min": 0, "max": 99}}, np.int64),
        ColumnSchema("history", [Tags.CATEGORICAL], ITEM, np.int64, **LIST),
        ColumnSchema("last", [Tags.CATEGORICAL], ITEM, np.int64),
        ColumnSchema("price", [Tags.CONTINUOUS], dtype=np.float32),
        ColumnSchema("age", [Tags.CONTINUOUS], dtype=np.float32),
        ColumnSchema("click", [Tags.TARGET], dtype=np.int64),
    ]
)
LENGTHS = [0, 3, 1, 0, 2, 1]
RNG = np.random.default_rng(0)
BATCH = {
    "user": tf.constant(RNG.integers(100, size=6)),
    "history": tf.RaggedTensor.from_row_lengths(RNG.integers(10, size=sum(LENGTHS)), LENGTHS),
    "last": tf.constant(RNG.integers(10, size=6)),
    "price": tf.constant(RNG.normal(size=6), tf.float32),
    "age": tf.constant(RNG.normal(size=6), tf.float32),
}
PAIR = {
    **{name: tensor for name, tensor in BATCH.items() if name != "history"},
    "history__values": BATCH["history"].values,
    "history__offsets": BATCH["history"].row_splits,
}


@pytest.mark.parametrize("projection", [True, False])
def test_the_same_as_input_block_v2(projection):
    ours, theirs = keras.layers.Dense(3), keras.layers.Dense(3)
    branches = {}
    if projection:
        numbers = SCHEMA.select_by_tag(Tags.CONTINUOUS)
        branches["continuous"] = mm.ContinuousProjection(numbers, theirs)
    embeddings = mm.Embeddings(
        SCHEMA.select_by_tag(Tags.CATEGORICAL), dim=4, l2_batch_regularization_factor=0.1
    )
    v2 = mm.InputBlockV2(SCHEMA, categorical=embeddings, **branches)
    block = me.layers.InputBlock(
        SCHEMA,
        me.features_from_schema(SCHEMA, 4),
        ours if projection else True,
        l2_batch_regularization_factor=0.1,
    )
    prepared = PrepareFeatures(SCHEMA)(PAIR)
    block(BATCH), v2(prepared)
    for name, table in block.categorical.tables.items():
        table.variable.assign(embeddings[name].table.embeddings)
    if projection:
        ours.set_weights(theirs.get_weights())
    found, expected = block(BATCH), v2(prepared)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    np.testing.assert_array_equal(block(PAIR), found)
    np.testing.assert_allclose(sum(block.losses), sum(v2.losses), rtol=1e-6)


def test_a_functional_model_trains_saves_and_loads(tmp_path):
    inputs = me.data.keras_inputs(SCHEMA)
    block = me.layers.InputBlock(SCHEMA, continuous=keras.layers.Dense(2))
    model = keras.Model(inputs, keras.layers.Dense(1)(block(inputs)))
    data = tf.data.Dataset.from_tensor_slices((BATCH, np.ones((6, 1)))).batch(3)
    model.compile(keras.optimizers.SGD(0.1), "mse")
    losses = model.fit(data, epochs=3, verbose=0).history["loss"]
    assert losses[2] < losses[0]
    expected = model.predict(data, verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again.predict(data, verbose=0), expected)


def test_a_table_begins_with_given_vectors():
    vectors = RNG.normal(size=(10, 4)).astype(np.float32)
    frozen = me.layers.Pretrained(vectors, trainable=False)
    block = me.layers.InputBlock(SCHEMA, pretrained={"item": frozen}, aggregation=None)
    np.testing.assert_array_equal(block(BATCH)["last"], vectors[BATCH["last"]])
    assert len(block.non_trainable_weights) == 1
