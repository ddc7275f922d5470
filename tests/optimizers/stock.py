"""Rules that Keras has too: name -> (ours, Keras', hyper-parameters)."""

from tensorflow import keras

import merlin_embeddings as me
from tests.either_keras import KERAS_3

_FTRL = {
    "l1_regularization_strength": 0.02,
    "l2_regularization_strength": 0.1,
    "l2_shrinkage_regularization_strength": 0.05,
    "beta": 0.5,
}
STOCK = {
    "sgd": (me.optimizers.SGD, keras.optimizers.SGD, {}),
    "momentum": (me.optimizers.SGD, keras.optimizers.SGD, {"momentum": 0.9}),
    "nesterov": (me.optimizers.SGD, keras.optimizers.SGD, {"momentum": 0.9, "nesterov": True}),
    "adagrad": (me.optimizers.Adagrad, keras.optimizers.Adagrad, {}),
    "adam": (me.optimizers.Adam, keras.optimizers.Adam, {}),
    "amsgrad": (me.optimizers.Adam, keras.optimizers.Adam, {"amsgrad": True, "beta_2": 0.9}),
    "adamw": (me.optimizers.AdamW, keras.optimizers.AdamW, {"weight_decay": 0.2}),
    "rmsprop": (me.optimizers.RMSprop, keras.optimizers.RMSprop, {}),
    "rmsprop_momentum": (me.optimizers.RMSprop, keras.optimizers.RMSprop, {"momentum": 0.8}),
    "rmsprop_centered": (
        me.optimizers.RMSprop,
        keras.optimizers.RMSprop,
        {"centered": True, "momentum": 0.8, "rho": 0.7},
    ),
    "ftrl": (me.optimizers.Ftrl, keras.optimizers.Ftrl, _FTRL),
    "ftrl_power": (
        me.optimizers.Ftrl,
        keras.optimizers.Ftrl,
        {**_FTRL, "learning_rate_power": -0.75},
    ),
}
if KERAS_3:
    STOCK |= {
        "lion": (me.optimizers.Lion, keras.optimizers.Lion, {}),
        # Its trust ratio is a row's on tables: only on dense variables as in Keras.
        "lamb": (me.optimizers.Lamb, keras.optimizers.Lamb, {}),
    }
