"""Which Keras there is, and what it calls things."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow import keras


def _check_that_there_is_a_keras() -> None:
    try:
        hasattr(keras, "layers")  # tf.keras is found when it is first used
    except ImportError as error:
        version = ".".join(tf.__version__.split(".")[:2])
        raise ImportError(
            f"TensorFlow {tf.__version__} finds no Keras. Where TF_USE_LEGACY_KERAS is set it is"
            f" the package tf_keras: `pip install --no-deps tf-keras=={version}.*` (--no-deps, as"
            " it asks for `tensorflow`, which may be installed as `tensorflow-cpu`)"
        ) from error


_check_that_there_is_a_keras()


def has_keras_3() -> bool:
    """Whether TensorFlow's Keras is Keras 3."""
    # Keras 2 of the package tf_keras doesn't tell its version there.
    return int(getattr(keras, "__version__", "2").split(".")[0]) >= 3


def add_weight(layer: keras.layers.Layer, *, autocast: bool, **arguments: Any) -> Any:
    """``layer.add_weight``, where Keras 2 calls the argument ``autocast`` otherwise."""
    name = "autocast" if has_keras_3() else "experimental_autocast"
    return layer.add_weight(**{name: autocast}, **arguments)


def dtype_policy(layer: keras.layers.Layer) -> Any:
    """A layer's dtype policy, for the layers that it makes."""
    return layer.dtype_policy if has_keras_3() else layer._dtype_policy


def only_asks_for_shapes() -> bool:
    """Whether code runs for the shapes of its outputs alone.

    Keras 3 does so in a graph of its own, with placeholders that are float32 where it doesn't know
    the dtype of inputs; there is no public way to ask, but the graph's name says it.
    """
    if tf.executing_eagerly():
        return False
    graph = tf.compat.v1.get_default_graph()
    while graph is not None:
        if getattr(graph, "name", "").startswith("scratch_graph"):
            return True
        graph = getattr(graph, "outer_graph", None)
    return False


def is_symbolic(tensor: Any) -> bool:
    """Whether a tensor stands for a value of a graph under construction, and so has an ``op``."""
    if hasattr(tf, "is_symbolic_tensor"):  # since 2.13
        return tf.is_symbolic_tensor(tensor)
    return tf.is_tensor(tensor) and not hasattr(tensor, "numpy")
