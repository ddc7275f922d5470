"""What an optimizer refuses, and the way out that it names."""

import numpy as np
import pytest
import tensorflow as tf

import merlin_embeddings as me
from tests.either_keras import Variable

ALL = [
    me.optimizers.SGD,
    me.optimizers.Adagrad,
    me.optimizers.RowwiseAdagrad,
    me.optimizers.Adam,
    me.optimizers.AdamW,
    me.optimizers.RowwiseAdam,
    me.optimizers.Lamb,
    me.optimizers.RowwiseLamb,
    me.optimizers.Lars,
    me.optimizers.Lion,
    me.optimizers.RMSprop,
    me.optimizers.RowwiseRMSprop,
    me.optimizers.Ftrl,
]


@pytest.mark.parametrize("cls", ALL)
def test_keras_refusals_stand(cls):
    with pytest.raises(ValueError, match="Only one of"):
        cls(0.1, clipnorm=1.0, clipvalue=1.0)
    with pytest.raises(ValueError, match="momentumm"):
        cls(0.1, momentumm=0.9)
    with pytest.raises(ValueError, match="must be an integer >= 2"):
        cls(0.1, gradient_accumulation_steps=1)
    with pytest.raises(ValueError, match=r"must be in the range \[0, 1\]"):
        cls(0.1, use_ema=True, ema_momentum=2.0)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: me.optimizers.SGD(momentum=1.5), "momentum must be in"),
        (lambda: me.optimizers.Adam(beta_1=1.0), "beta_1 must be in"),
        (lambda: me.optimizers.Adagrad(initial_accumulator_value=-1), "must not be negative"),
        (lambda: me.optimizers.RowwiseAdagrad(initial_accumulator_value=-1), "not be negative"),
        (lambda: me.optimizers.AdamW(weight_decay=None), "AdamW: weight_decay must be a number"),
        (lambda: me.optimizers.RowwiseAdam(beta_2=1.0), r"RowwiseAdam: beta_2 must be in \[0, 1\)"),
        (lambda: me.optimizers.Lamb(beta_1=-0.1), "Lamb: beta_1 must be in"),
        (lambda: me.optimizers.Lars(momentum=2), "Lars: momentum must be in"),
        (lambda: me.optimizers.Lars(trust_coefficient=0), "trust_coefficient must be positive"),
        (lambda: me.optimizers.Lion(beta_1=0), r"Lion: beta_1 must be in \(0, 1\]"),
        (lambda: me.optimizers.Lion(beta_2=1), r"Lion: beta_2 must be in \[0, 1\)"),
        (lambda: me.optimizers.RMSprop(rho=1), r"RMSprop: rho must be in"),
        (lambda: me.optimizers.RMSprop(momentum=-1), r"RMSprop: momentum must be in"),
        (lambda: me.optimizers.RowwiseRMSprop(rho=-1), r"RowwiseRMSprop: rho must be in"),
        (lambda: me.optimizers.Ftrl(learning_rate_power=0.5), "must not be positive, got 0.5"),
        (
            lambda: me.optimizers.Ftrl(l1_regularization_strength=-1),
            "Ftrl: l1_regularization_strength must not be negative, got -1",
        ),
        (lambda: me.optimizers.SGD(l2=-0.1), "SGD: l2 must not be negative, got -0.1"),
        (lambda: me.optimizers.SGD(weight_decay=-1), "SGD: weight_decay must not be negative"),
        (lambda: me.optimizers.Adam(max_norm=0), "Adam: max_norm must be positive, got 0"),
        (lambda: me.optimizers.Adam(max_norm=float("nan")), "Adam: max_norm must be positive"),
    ],
)
def test_hyper_parameters_out_of_range(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_unknown_variables():
    optimizer = me.optimizers.SGD()
    optimizer.build([Variable(1.0)])
    stranger = Variable(1.0, name="stranger")
    with pytest.raises(ValueError, match="unknown variable 'stranger'"):
        optimizer.apply([tf.constant(1.0)], [stranger])
    assert float(stranger.numpy()) == 1.0


def test_gradients_that_do_not_fit_the_variables():
    optimizer = me.optimizers.SGD()
    one, two = Variable(1.0), Variable(1.0)
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
    optimizer.build([Variable(1.0)])
    with pytest.raises(ValueError, match="before the optimizer is built"):
        optimizer.exclude_from_weight_decay(var_names=["bias"])


def test_replicas_of_other_strategies_are_refused(monkeypatch):
    class Elsewhere:
        num_replicas_in_sync = 2

    optimizer, variable = me.optimizers.SGD(), Variable(np.zeros(2, np.float32))
    monkeypatch.setattr(tf.distribute, "get_strategy", Elsewhere)
    with pytest.raises(ValueError, match="MirroredStrategy; Elsewhere has 2"):
        optimizer.build([variable])
