"""What an optimizer refuses, and the way out that it names."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import merlin_embeddings as me
from merlin_embeddings import compat

ALL = [
    me.optimizers.SGD,
    me.optimizers.Adagrad,
    me.optimizers.RowwiseAdagrad,
    me.optimizers.Adam,
]


@pytest.mark.parametrize("cls", ALL)
@pytest.mark.parametrize("argument, value", [("use_ema", True), ("gradient_accumulation_steps", 4)])
def test_sweeps_are_refused_naming_split(cls, argument, value):
    with pytest.raises(ValueError, match=rf"{cls.__name__}: {argument}={value}.*Split\(dense="):
        cls(0.1, **{argument: value})


@pytest.mark.parametrize("cls", ALL)
def test_keras_refusals_stand(cls):
    with pytest.raises(ValueError, match="Only one of"):
        cls(0.1, clipnorm=1.0, clipvalue=1.0)
    with pytest.raises(ValueError, match="momentumm"):
        cls(0.1, momentumm=0.9)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: me.optimizers.SGD(momentum=1.5), "momentum must be in"),
        (lambda: me.optimizers.Adam(beta_1=1.0), "beta_1 must be in"),
        (lambda: me.optimizers.Adagrad(initial_accumulator_value=-1), "must not be negative"),
        (lambda: me.optimizers.RowwiseAdagrad(initial_accumulator_value=-1), "not be negative"),
    ],
)
def test_hyper_parameters_out_of_range(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_unknown_variables():
    optimizer = me.optimizers.SGD()
    optimizer.build([keras.Variable(1.0)])
    stranger = keras.Variable(1.0, name="stranger")
    with pytest.raises(ValueError, match="unknown variable 'stranger'"):
        optimizer.apply([tf.constant(1.0)], [stranger])
    assert float(stranger.numpy()) == 1.0


def test_gradients_that_do_not_fit_the_variables():
    optimizer = me.optimizers.SGD()
    one, two = keras.Variable(1.0), keras.Variable(1.0)
    with pytest.raises(ValueError, match="pass the variables"):
        optimizer.apply([tf.constant(1.0)])
    optimizer.build([one, two])
    with pytest.raises(ValueError, match="1 gradients for 2 variables"):
        optimizer.apply([tf.constant(1.0)])
    with pytest.raises(ValueError, match="No gradients provided"):
        optimizer.apply([None, None])
    with pytest.warns(UserWarning, match="Gradients do not exist"):
        optimizer.apply([tf.constant(1.0), None])
    assert (float(one.numpy()), float(two.numpy())) == pytest.approx((0.99, 1.0))


def test_exclusion_comes_before_build():
    optimizer = me.optimizers.SGD(weight_decay=0.1)
    optimizer.build([keras.Variable(1.0)])
    with pytest.raises(ValueError, match="before the optimizer is built"):
        optimizer.exclude_from_weight_decay(var_names=["bias"])


def test_keras_2_is_refused(monkeypatch):
    monkeypatch.setattr(compat, "has_keras_3", lambda: False)
    with pytest.raises(RuntimeError, match=r"SGD is made for Keras 3 .* has Keras \d"):
        me.optimizers.SGD()


def test_replicas_of_other_strategies_are_refused(monkeypatch):
    class Elsewhere:
        num_replicas_in_sync = 2

    optimizer, variable = me.optimizers.SGD(), keras.Variable(np.zeros(2, np.float32))
    monkeypatch.setattr(tf.distribute, "get_strategy", Elsewhere)
    with pytest.raises(ValueError, match="MirroredStrategy; Elsewhere has 2"):
        optimizer.build([variable])
