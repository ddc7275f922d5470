"""Legacy and MultiOptimizer in models of merlin-models."""

import merlin.models.tf as mm
import numpy as np
import pytest
import tensorflow as tf
from merlin.schema import ColumnSchema, Schema, Tags
from tensorflow import keras

import merlin_embeddings as me
import merlin_embeddings.merlin as mem

LEGACY = keras.optimizers.legacy


def column(name, largest):
    domain = {"domain": {"min": 0, "max": largest, "name": name}}
    return ColumnSchema(name, [Tags.CATEGORICAL], domain, np.int64)


SCHEMA = Schema(
    [
        column("user", 49),
        column("item", 9),
        ColumnSchema("click", [Tags.TARGET, Tags.BINARY_CLASSIFICATION], dtype=np.int64),
    ]
)
RNG = np.random.default_rng(0)
X = {name: RNG.integers(0, size, (64, 1)) for name, size in (("user", 50), ("item", 10))}
Y = RNG.integers(0, 2, (64, 1)).astype(np.float32)


def model_of(optimizer_of, table_cls=mem.EmbeddingTable):
    """A model and its optimizer, `optimizer_of(big tables, small tables)`."""
    keras.utils.set_random_seed(1)
    tables = mm.Embeddings(
        SCHEMA.select_by_tag(Tags.CATEGORICAL),
        dim=4,
        embeddings_initializer=keras.initializers.Constant(0.1),
        table_cls=table_cls,
    )
    big, small = mm.split_embeddings_on_size(tables, threshold=20)
    model = mm.Model(
        mm.InputBlockV2(SCHEMA, categorical=tables), mm.MLPBlock([4]), mm.BinaryOutput("click")
    )
    model.compile(optimizer_of(big, small), run_eagerly=False)
    return model


def train(model, epochs=2):
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(16)
    return model.fit(data, epochs=epochs, verbose=0).history["loss"]


def values(model):
    return [v.numpy() for v in model.trainable_variables]


def ours(big, small):
    return mem.MultiOptimizer(
        [
            mm.OptimizerBlocks(me.optimizers.Adagrad(0.1, initial_accumulator_value=0.1), big),
            mm.OptimizerBlocks(me.optimizers.SGD(0.2), small),
        ],
        default_optimizer=LEGACY.Adam(0.01),
    )


def stock(big, small):
    return mm.MultiOptimizer(
        [
            mm.OptimizerBlocks(LEGACY.Adagrad(0.1, initial_accumulator_value=0.1), big),
            mm.OptimizerBlocks(LEGACY.SGD(0.2), small),
        ],
        default_optimizer=LEGACY.Adam(0.01),
    )


def test_the_same_as_stock_optimizers_on_stock_tables():
    one, other = model_of(ours), model_of(stock, mm.EmbeddingTable)
    for model in (one, other):
        model({name: tf.constant(ids) for name, ids in X.items()})
    other.set_weights(one.get_weights())
    np.testing.assert_allclose(train(one), train(other), rtol=1e-5)
    found, expected = values(one), values(other)
    assert len(found) == len(expected) == 6
    for value, same in zip(found, expected, strict=True):
        np.testing.assert_allclose(value, same, rtol=1e-4, atol=1e-6)
    assert [type(o).__name__ for o in one.optimizer.optimizers] == ["Legacy", "Legacy", "Adam"]


def test_a_loaded_model_trains_on(tmp_path):
    model = model_of(ours)
    train(model)
    model.save(str(tmp_path / "model"))
    loaded = mm.Model.load(str(tmp_path / "model"))
    assert isinstance(loaded.optimizer, mem.MultiOptimizer)
    np.testing.assert_allclose(train(loaded), train(model), rtol=1e-6)
    for value, same in zip(values(loaded), values(model), strict=True):
        np.testing.assert_allclose(value, same, rtol=1e-6, atol=1e-7)
    for one, two in zip(loaded.optimizer.weights, model.optimizer.weights, strict=True):
        np.testing.assert_allclose(one.numpy(), two.numpy(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("optimizer_of", [ours, lambda *_: me.optimizers.Adam(0.1)])
def test_checkpoints(optimizer_of, tmp_path):
    model, again = model_of(optimizer_of), model_of(optimizer_of)
    train(model)
    path = tf.train.Checkpoint(model=model).save(str(tmp_path / "c"))
    tf.train.Checkpoint(model=again).restore(path)
    np.testing.assert_allclose(train(again), train(model), rtol=1e-6)
    for one, two in zip(again.optimizer.variables(), model.optimizer.variables(), strict=True):
        np.testing.assert_allclose(one.numpy(), two.numpy(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    "optimizer_of",
    [
        lambda big, small: ours(big, small),
        lambda big, small: me.optimizers.Legacy(me.optimizers.Adagrad(0.1)),
    ],
    ids=["several", "one"],
)
def test_mixed_precision(optimizer_of):
    """Steps whose gradients are infinite at the first loss scales are left out, then it trains."""
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        model = model_of(optimizer_of)
        assert isinstance(model.optimizer, keras.mixed_precision.LossScaleOptimizer)
        losses = train(model, epochs=6)
    finally:
        keras.mixed_precision.set_global_policy("float32")
    assert losses[-1] < losses[0]
    assert np.all([np.any(table != np.float32(0.1)) for table in values(model)[:2]])
