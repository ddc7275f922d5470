"""Configs and saved state: a loaded model trains on as if nothing had happened."""

import copy
import inspect

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import merlin_embeddings as me
from merlin_embeddings import compat
from tests.either_keras import KERAS_3, LossScaleOptimizer

opt = me.optimizers

OPTIMIZERS = {
    "sgd": lambda: opt.SGD(0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adagrad": lambda: opt.Adagrad(
        keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.9), initial_accumulator_value=0.3
    ),
    "rowwise_adagrad": lambda: opt.RowwiseAdagrad(0.1, clipnorm=0.5),
    "adam": lambda: opt.Adam(0.1, beta_1=0.8, global_clipnorm=0.5, loss_scale_factor=4.0),
    "amsgrad": lambda: opt.Adam(0.1, amsgrad=True),
    "adamw": lambda: opt.AdamW(0.1),
    "rowwise_adam": lambda: opt.RowwiseAdam(0.1, l2=0.1),
    "lamb": lambda: opt.Lamb(0.1, weight_decay=0.1),
    "rowwise_lamb": lambda: opt.RowwiseLamb(0.1, max_norm=1.0),
    "lars": lambda: opt.Lars(0.1),
    "lion": lambda: opt.Lion(0.1),
    "rmsprop": lambda: opt.RMSprop(0.1, momentum=0.9, centered=True),
    "rowwise_rmsprop": lambda: opt.RowwiseRMSprop(0.1),
    "ftrl": lambda: opt.Ftrl(0.1, initial_accumulator_value=0.3, beta=0.1),
    "average": lambda: opt.Adagrad(0.1, use_ema=True, ema_momentum=0.5),
    "accumulated": lambda: opt.Adam(0.1, gradient_accumulation_steps=2),
    "split": lambda: opt.Split(
        dense=keras.optimizers.Adam(0.1),
        embeddings=opt.RowwiseAdagrad(0.1),
        overrides={"user": opt.Adam(0.05)},
    ),
    "loss_scale": lambda: LossScaleOptimizer(opt.Adam(0.1), initial_scale=8.0),
    "loss_scale_of_split": lambda: LossScaleOptimizer(
        opt.Split(keras.optimizers.Adam(0.1), opt.Adagrad(0.1))
    ),
}


def model_of(optimizer):
    item = me.TableConfig("item", 40, 4, seed=1)
    user = me.TableConfig("user", 20, 4, seed=2)
    features = {
        "i": me.FeatureConfig("i", item, combiner="sum"),
        "h": me.FeatureConfig("h", item),
        "u": me.FeatureConfig("u", user),
    }
    inputs = {name: keras.Input((2,), dtype="int64", name=name) for name in "ihu"}
    vectors = me.layers.Embeddings(features)(inputs)
    joined = keras.layers.Concatenate()([vectors[name] for name in "ihu"])
    outputs = keras.layers.Dense(1, kernel_initializer="ones")(joined)
    model = keras.Model(inputs, outputs)
    model.compile(optimizer, "mse")
    return model


def train(model, seed):
    rng = np.random.default_rng(seed)
    x = {name: rng.integers(0, 20, (48, 2)) for name in "ihu"}
    model.fit(x, rng.normal(size=(48, 1)), batch_size=16, shuffle=False, verbose=0)


def state(model):
    return [v.numpy() for v in [*model.weights, *model.optimizer.variables]]


# Keras 2 writes a SavedModel where a name has no ending, and HDF5 for .keras, too.
FILES = ["model.keras"] if KERAS_3 else ["model.h5", "model"]


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_loaded_model_trains_on_bit_by_bit(name, file, tmp_path):
    if file == "model.h5" and "loss_scale" in name:
        pytest.skip("Keras 2 doesn't read an optimizer inside of its loss scaling from HDF5")
    model = model_of(OPTIMIZERS[name]())
    train(model, 0)
    model.save(tmp_path / file)
    loaded = keras.models.load_model(tmp_path / file)
    if file == "model":  # of a SavedModel an optimizer is built when it is first needed
        loaded.optimizer.build(loaded.trainable_variables)
    saved = state(model)
    for value, again in zip(saved, state(loaded), strict=True):
        np.testing.assert_array_equal(again, value)
    for either in (model, loaded):
        train(either, 1)
    assert any((value != after).any() for value, after in zip(saved, state(model), strict=True))
    for value, again in zip(state(model), state(loaded), strict=True):
        np.testing.assert_array_equal(again, value)


@pytest.mark.parametrize("deferred", [False, True])
def test_tensorflow_checkpoints(deferred, tmp_path):
    model = model_of(OPTIMIZERS["adam"]())
    train(model, 0)
    tf.train.Checkpoint(weights=model.weights, optimizer=model.optimizer).save(tmp_path / "c")
    again = model_of(OPTIMIZERS["adam"]())
    if not deferred:
        again.optimizer.build(again.trainable_variables)
    checkpoint = tf.train.Checkpoint(weights=again.weights, optimizer=again.optimizer)
    checkpoint.restore(tf.train.latest_checkpoint(tmp_path))
    for either in (model, again):
        train(either, 1)
    for value, other in zip(state(model), state(again), strict=True):
        np.testing.assert_array_equal(other, value)


@pytest.mark.parametrize("name", [name for name in OPTIMIZERS if "loss_scale" not in name])
def test_config_round_trip(name):
    config = keras.optimizers.serialize(OPTIMIZERS[name]())
    again = keras.optimizers.deserialize(copy.deepcopy(config))
    assert keras.optimizers.serialize(again) == config


# A value other than the default for each argument of each optimizer.
OTHER = {
    "learning_rate": 0.25,
    "weight_decay": 0.125,
    "l2": 0.0625,
    "max_norm": 3.0,
    "global_clipnorm": 2.0,
    "ema_momentum": 0.5,
    "ema_overwrite_frequency": 7,
    "loss_scale_factor": 16.0,
    "name": "another",
    "use_ema": True,
    "gradient_accumulation_steps": 3,
    "momentum": 0.75,
    "nesterov": True,
    "initial_accumulator_value": 0.5,
    "epsilon": 0.5,
    "beta_1": 0.75,
    "beta_2": 0.625,
    "amsgrad": True,
    "rho": 0.5,
    "centered": True,
    "trust_coefficient": 0.5,
    "learning_rate_power": -0.75,
    "l1_regularization_strength": 0.5,
    "l2_regularization_strength": 0.25,
    "l2_shrinkage_regularization_strength": 0.125,
    "beta": 0.5,
}
# One of the three clips can be given.
LEFT = {"self", "kwargs", "clipnorm", "clipvalue"}
RULES = [cls for cls in map(vars(opt).get, opt.__all__) if isinstance(cls, type)]
RULES = [cls for cls in RULES if issubclass(cls, opt.SparseOptimizer) and "rule" in dir(cls)]
RULES.remove(opt.SparseOptimizer)


@pytest.mark.parametrize("cls", RULES)
def test_configs_hold_every_argument(cls):
    arguments = {
        name
        for base in cls.__mro__
        if issubclass(base, opt.SparseOptimizer)
        for name in inspect.signature(base.__init__).parameters
    } - LEFT
    given = {name: OTHER[name] for name in arguments}
    config = cls(**given).get_config()
    assert {name: config[name] for name in given} == given
    again = keras.optimizers.deserialize(keras.optimizers.serialize(cls(**given)))
    assert type(again) is cls
    assert again.get_config() == config


@pytest.mark.parametrize("cls", RULES)
def test_a_model_is_compiled_by_the_registered_name(cls):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(f"merlin_embeddings>{cls.__name__}", "mse")
    assert type(model.optimizer) is cls


def test_loaded_state_marks_all_rows(tmp_path):
    model = model_of(opt.Adam(0.1))
    train(model, 0)
    model.save_weights(tmp_path / "model.weights.h5")
    table = me.tables.table_of(model.trainable_variables[0])
    mark = table.mark()
    train(model, 1)
    assert 0 < sum(len(part) for part in table.entries(since=mark)) <= 20
    model.load_weights(tmp_path / "model.weights.h5")
    assert sum(len(part) for part in table.entries(since=mark)) == table.rows


@pytest.mark.skipif(not KERAS_3, reason="Keras 2's files of weights are without optimizers")
def test_loading_keeps_the_slots_where_they_are(tmp_path):
    model = model_of(opt.Adam(0.1))
    train(model, 0)
    model.save_weights(tmp_path / "model.weights.h5")
    table = me.tables.table_of(model.trainable_variables[0])

    def addresses():
        variables = [table.variable, *(slot.variable for slot in table.slots.values())]
        return [
            int(me.native.buffer_serial(compat.raw_variable(variable))) for variable in variables
        ]

    before = addresses()
    model.load_weights(tmp_path / "model.weights.h5")
    assert addresses() == before


def test_state_of_another_optimizer_is_left_out(lookups):
    adam, rowwise = opt.Adam(0.1), opt.RowwiseAdagrad(0.1)
    variables = lookups({"item": (3, 2)}, [("item", "sum")]).trainable_variables
    store = {}
    adam.build(variables)
    rowwise.build(variables)
    adam.save_own_variables(store)
    before = [v.numpy() for v in rowwise.variables]
    with pytest.warns(UserWarning, match="has 3 variables whereas the saved optimizer has 4"):
        rowwise.load_own_variables(store)
    for variable, value in zip(rowwise.variables, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)


def test_slots_of_another_table_are_refused(lookups):
    stores = []
    for rows in (3, 5):
        optimizer = opt.Adagrad(0.1)
        layer = lookups({"item": (rows, 2)}, [("item", "sum")])
        optimizer.build(layer.trainable_variables)
        stores.append({})
        optimizer.save_own_variables(stores[-1])
    with pytest.raises(ValueError, match=r"accumulator.* has shape \[5, 2\], .* have \[3, 2\]"):
        optimizer.load_own_variables(stores[0])


def test_optimizers_that_take_turns_keep_their_slots():
    model = model_of(opt.Adam(0.1))
    train(model, 0)
    table = me.tables.table_of(model.trainable_variables[0])
    assert sorted(table.slots) == ["momentum", "velocity"]
    first = model.optimizer
    model.compile(opt.RowwiseAdagrad(0.1), "mse")
    train(model, 0)
    assert sorted(table.slots) == ["accumulator", "momentum", "velocity"]
    model.compile(first, "mse")
    train(model, 0)
    row = np.flatnonzero(np.abs(table.slots["momentum"].variable.numpy()).sum(1))[:1]
    table.write(me.tables.Entries(row, np.zeros((1, table.dim), np.float32)))
    for slot in table.slots.values():
        np.testing.assert_array_equal(
            slot.variable.numpy()[row], np.full_like(slot.variable.numpy()[row], slot.fill)
        )
