"""What all layers that take ids do."""

from __future__ import annotations

import inspect
from typing import Any

import tensorflow as tf

from merlin_embeddings.bags import Bags
from merlin_embeddings.layers.losses import LossLayer


class IdLayer(LossLayer):
    """A Keras layer that takes ids and looks vectors up natively.

    Ids are never cast by the layer's dtype policy, and XLA is off (Keras warns where it was asked
    for).

    Args:
        **kwargs: of `keras.layers.Layer`.
    """

    def __init__(self, **kwargs: Any):
        super().__init__(**{**kwargs, "autocast": False})
        self.supports_jit = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        names = list(inspect.signature(self.call).parameters)
        if 1 < len(args) <= len(names):
            # Keras 2 writes the first argument into a model's config, and those given by name.
            kwargs = {**dict(zip(names[1:], args[1:], strict=False)), **kwargs}
            args = args[:1]
        # Keras lets only tensors through.
        return super().__call__(*_as_tensors(args), **_as_tensors(kwargs))

    def __repr__(self) -> str:
        # merlin-models has Keras's layers print their weights with all values: a copy of the table.
        return f"<{type(self).__name__} name={self.name}, built={self.built}>"


def _as_tensors(structure: Any) -> Any:
    return tf.nest.map_structure(
        lambda leaf: leaf.to_tensors() if isinstance(leaf, Bags) else leaf, structure
    )
