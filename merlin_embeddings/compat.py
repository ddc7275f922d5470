"""The few places where versions of TensorFlow and Keras differ."""

from __future__ import annotations

import tensorflow as tf


def raw_variable(variable) -> tf.Variable:
    """The ``tf.Variable`` behind a Keras 3 variable; a ``tf.Variable`` itself otherwise.

    Keras 3 wraps variables and gives the ``tf.Variable`` as ``.value`` (for one made with
    ``autocast=False``); in Keras 2 variables are ``tf.Variable``s, whose ``.value`` is a method.
    """
    value = variable.value
    return variable if callable(value) else value
