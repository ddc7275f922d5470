"""model.summary counts what there is: tables once, frozen ones apart, slots as optimizer."""

import re

import numpy as np
import pytest
from tensorflow import keras

import merlin_embeddings as me

ITEM, USER, KERNEL = 30 * 4, 20 * 4, 8 * 1 + 1


def model_of(optimizer, **user):
    item, user = me.TableConfig("item", 30, 4), me.TableConfig("user", 20, 4, **user)
    features = {
        "item": me.FeatureConfig("item", item, combiner="sum"),
        "other": me.FeatureConfig("other", item, combiner="mean"),
        "user": me.FeatureConfig("user", user, combiner="sum"),
    }
    symbols = {name: keras.Input((2,), dtype="int64", name=name) for name in features}
    vectors = me.layers.Embeddings(features, name="tables")(symbols)
    joined = keras.layers.Concatenate()([vectors["item"] + vectors["other"], vectors["user"]])
    model = keras.Model(symbols, keras.layers.Dense(1)(joined))
    model.compile(optimizer, "mse")
    ids = {name: np.array([[1, 2]]) for name in features}
    model.fit(ids, np.ones((1, 1)), verbose=0)
    return model


def counts(model):
    lines = []
    model.summary(print_fn=lambda text, **_: lines.append(text))
    found = re.findall(r"([A-Z][\w-]+) params: ([\d,]+)", "\n".join(lines))
    return {kind: int(number.replace(",", "")) for kind, number in found}


# Besides slots an optimizer holds its iteration and its learning rate.
@pytest.mark.parametrize(
    "make, slots",
    [
        (lambda: me.optimizers.SGD(0.1), 0),
        (lambda: me.optimizers.Adagrad(0.1), ITEM + USER + KERNEL),
        (lambda: me.optimizers.RowwiseAdagrad(0.1), 30 + 20 + 8 + 1),
        (lambda: me.optimizers.Adam(0.1), 2 * (ITEM + USER + KERNEL)),
        (
            # Three optimizers; Keras's Adam makes two slots.
            lambda: me.optimizers.Split(
                keras.optimizers.Adam(0.1), me.optimizers.RowwiseAdagrad(0.1)
            ),
            2 * KERNEL + 30 + 20 + 4,
        ),
    ],
    ids=["sgd", "adagrad", "rowwise_adagrad", "adam", "split"],
)
def test_counts(make, slots):
    trainable = ITEM + USER + KERNEL
    assert counts(model_of(make())) == {
        "Total": trainable + slots + 2,
        "Trainable": trainable,
        "Non-trainable": 0,
        "Optimizer": slots + 2,
    }


def test_a_frozen_table_has_no_slots():
    assert counts(model_of(me.optimizers.Adagrad(0.1), trainable=False)) == {
        "Total": ITEM + USER + KERNEL + ITEM + KERNEL + 2,
        "Trainable": ITEM + KERNEL,
        "Non-trainable": USER,
        "Optimizer": ITEM + KERNEL + 2,
    }


def test_what_a_layer_counts():
    model = model_of(me.optimizers.SGD(0.1), trainable=False)
    layer = model.get_layer("tables")
    assert layer.count_params() == ITEM + USER
    assert [weight.name for weight in layer.trainable_weights] == ["item"]
    assert [weight.name for weight in layer.non_trainable_weights] == ["user"]
    layer.trainable = False
    assert counts(model)["Non-trainable"] == ITEM + USER
